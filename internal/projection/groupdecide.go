package projection

import (
	"cmp"
	"slices"

	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
)

// MemberFailure is what a decision on a failed run of a member depends on (semantics.md 12.4).
type MemberFailure struct {
	Group *group.Group
	Unit  *group.Unit
	Over  bool // the group has ended, or the member was stopped
	Gang  bool

	Pending *Restart // the restart that stops this run; nil: no restart stops it

	state *State
	entry *entry
}

// PeerGrace returns the longest graceSeconds of the unit's other members whose run may
// still be alive; -1: there is none.
func (f *MemberFailure) PeerGrace() int64 {
	return f.state.longestGrace(&restart{}, []*group.Unit{f.Unit}, f.entry.id)
}

// ScopeGrace returns the longest graceSeconds of the other members that an action restarts whose
// run may still be alive; -1: there is none.
func (f *MemberFailure) ScopeGrace(a policy.GroupAction, keep bool) int64 {
	return f.state.longestGrace(&restart{keep: keep}, f.Group.Scope(f.Unit, a, keep), f.entry.id)
}

// longestGrace returns the longest graceSeconds of the members of units that a restart includes,
// without one, whose run may still be alive; -1: there is none.
func (s *State) longestGrace(r *restart, units []*group.Unit, without string) int64 {
	longest := int64(-1)
	for _, u := range units {
		for i := range u.Members {
			if m := &u.Members[i]; m.Job != without && r.includes(u, m) {
				longest = max(longest, s.liveGrace(s.entry(m.Job).job))
			}
		}
	}
	return longest
}

// Generation returns the unit's generation after a decision.
func (f *MemberFailure) Generation(d *MemberDecided) uint32 {
	if d.GangRestart || d.Verdict != nil && !d.Noted && d.Verdict.Action.Restarts() {
		return f.Unit.Generation + 1
	}
	return f.Unit.Generation
}

// MemberDecided is the part of a decision on a member that the state needs.
type MemberDecided struct {
	Absorbed    bool     // by the end of the group, or a restart: the failure counts for nothing
	OnUnit      bool     // the retry counts on the unit
	GangRestart bool     // the unit restarts as a whole, by the retry that was granted
	Verdict     *Verdict // nil: the unit has not failed
	Noted       bool     // nothing is done about Verdict
	// Base is the retryAfter of a restart, for members whose run is over; PolicyName and RuleName
	// are what restarted them.
	Base                 int64
	PolicyName, RuleName string
	Latest               int64 // retryAfter of this member, and of those that start together with it
}

// memberFailure returns the membership of a failure's job, as it is now; nil: it has none.
func (s *State) memberFailure(f *Failure) *MemberFailure {
	ge, u, m := s.memberOf(f.entry)
	if m == nil {
		return nil
	}
	s.touchUnit(ge, u)
	out := &MemberFailure{
		Group: ge.g, Unit: u, Gang: u.GangID != "", state: s, entry: f.entry,
		Over: ge.g.State != policy.GroupActive || m.Status&group.WasStopped != 0,
	}
	if pending := f.Job.Member.Restart; pending != nil && pending.Run == f.RunID {
		out.Pending = pending
	}
	return out
}

// liveGrace returns the graceSeconds of a job whose latest run may still be alive, else -1.
func (s *State) liveGrace(j *Job) int64 {
	if j != nil && j.Latest != nil && (j.Latest.End == NotEnded || j.Latest.End == Failed && j.Latest.Outcome == Undecided) {
		return max(j.GraceSeconds, 0)
	}
	return -1
}

// applyToMember applies the decision on a failed run to its member, unit and group.
func (s *State) applyToMember(f *Failure, d *Decided) {
	ge, u, m := s.memberOf(f.entry)
	if m == nil {
		return
	}
	s.touchUnit(ge, u)
	switch {
	case d.Requeue:
	case d.Shadow:
		u.Set(m, m.Status|group.FailedInShadow)
	case !m.Status.Over():
		u.Set(m, m.Status&^group.Held|group.HasFailed)
		u.Changed = f.Time
	}
	md := d.Member
	if md == nil {
		return
	}
	if md.OnUnit {
		u.Retries++
	}
	switch {
	case md.GangRestart:
		ge.g.NewGeneration(u, policy.RestartUnit, false)
		s.restart(ge, []*group.Unit{u}, restart{base: md.Base, policy: md.PolicyName, rule: md.RuleName, failed: u, run: f.Run, latest: md.Latest})
	case md.Verdict != nil && !md.Noted:
		s.perform(ge, u, md.Verdict, f.Run, md.Latest)
	}
}

// perform does what a group's verdict says (semantics.md 12.5). run is what failed the unit, nil if
// nothing did; latest is then the retryAfter of its job, and of the rest of its gang.
func (s *State) perform(ge *groupEntry, u *group.Unit, v *Verdict, run *Run, latest int64) {
	g := ge.g
	reason := v.Reason
	if v.Refused {
		reason = policy.ReachedMaxRestarts
	}
	switch v.Action {
	case policy.NoGroupAction:
	case policy.FailGroup:
		s.setState(ge, u, group.Failed)
		end := &GroupEnd{Group: g, State: policy.GroupFailed, Reason: reason, Rule: v.Rule}
		s.happened(end)
		s.endGroup(ge, end)
	case policy.RestartGroup, policy.RestartPart, policy.RestartUnit:
		keep := v.Keep
		if v.Rule == policy.RestartsRule {
			u.Restarts++
		} else {
			g.CountRestart(v.Rule)
			g.Counted = v.Used
		}
		scope := g.Scope(u, v.Action, keep)
		for _, changed := range g.NewGeneration(u, v.Action, keep) {
			s.touchUnit(ge, changed)
		}
		s.restart(ge, scope, restart{base: v.Base, policy: g.Policy, rule: v.Rule, keep: keep, together: v.Together, anew: true, failed: u, run: run, latest: latest})
	case policy.Halt:
		g.Halted, g.Reason, g.Rule = true, v.Reason, v.Rule
		s.leave(ge, u)
	case policy.Leave:
		s.leave(ge, u)
	}
}

// leave leaves a unit failed, and stops its members.
func (s *State) leave(ge *groupEntry, u *group.Unit) {
	s.setState(ge, u, group.Failed)
	s.stopUnit(ge, u)
}

// stopUnit stops the members of a unit that are not over.
func (s *State) stopUnit(ge *groupEntry, u *group.Unit) {
	s.touchUnit(ge, u)
	for i := range u.Members {
		if m := &u.Members[i]; !m.Status.Over() {
			s.stop(u, m)
		}
	}
}

func (s *State) stop(u *group.Unit, m *group.Member) {
	u.Set(m, m.Status&^group.Held|group.WasStopped)
	s.happened(s.changeOf(Stopped, u, s.entry(m.Job)))
}

// changeOf describes a change of a member.
func (s *State) changeOf(c Change, u *group.Unit, e *entry) *MemberChange {
	out := &MemberChange{Change: c, Job: e.job, Generation: u.Generation}
	if e.job.Latest != nil {
		out.RunID = e.job.Latest.ID
	}
	return out
}

// restart describes a restart to be made.
type restart struct {
	base         int64 // retryAfter of members without a live run
	policy, rule string
	keep         bool // members that succeeded are left out
	together     bool // all members have the latest retryAfter of theirs
	anew         bool // counts start anew
	failed       *group.Unit
	run          *Run  // that failed it; nil: no run failed it
	latest       int64 // retryAfter of the job of run, and of those that start together with it; 0 without a run
}

// restart starts the members of units again (semantics.md 12.6).
func (s *State) restart(ge *groupEntry, scope []*group.Unit, r restart) {
	for _, u := range scope {
		s.touchUnit(ge, u)
		s.setState(ge, u, group.Active)
		u.Fresh = false
		if r.anew {
			u.Retries = 0
		}
		for i := range u.Members {
			switch m := &u.Members[i]; {
			case r.includes(u, m):
				u.Set(m, group.Held) // not started, for now
			case !r.keeps(u, m): // it was cancelled: if it had succeeded before, that was in an earlier generation
				u.Set(m, m.Status&^group.HasSucceeded)
			}
		}
	}
	longest := int64(-1)
	if r.together {
		longest = s.longestGrace(&r, scope, "")
	}
	for _, u := range scope {
		if u.GangID != "" && !r.together {
			longest = s.longestGrace(&r, []*group.Unit{u}, "")
		}
		for i := range u.Members {
			m := &u.Members[i]
			if !r.includes(u, m) {
				continue
			}
			e := s.entry(m.Job)
			s.restartMember(u, e, r, longest)
			if ge.g.MayStart(u) {
				u.Set(m, m.Status&^group.Held)
			} else {
				s.happened(s.changeOf(Held, u, e))
			}
		}
	}
}

// includes reports whether a restart has the member in scope. Its answer is the same before
// and after the member's status was reset.
func (r *restart) includes(u *group.Unit, m *group.Member) bool {
	return m.Status&group.WasCancelled == 0 && !r.keeps(u, m)
}

// keeps reports whether a restart keeps the member's success.
func (r *restart) keeps(u *group.Unit, m *group.Member) bool {
	return r.keep && u.GangID == "" && m.Status&group.HasSucceeded != 0
}

// restartMember makes a member's job queued again. longest is the longest grace of those that
// start together with it, -1 if none may still run.
func (s *State) restartMember(u *group.Unit, e *entry, r restart, longest int64) {
	s.touch(e)
	j := e.job
	base, grace := r.base, longest
	if u.GangID == "" && !r.together {
		grace = s.liveGrace(j)
	}
	if r.latest != 0 && (r.together || u == r.failed && (u.GangID != "" || j.Latest == r.run)) {
		base, grace = r.latest, -1
	}
	c := s.changeOf(Restarted, u, e)
	var err error
	if c.RetryAfter, err = s.msg.q.RestartAt(j, base, grace); err != nil {
		s.fail(err)
	}
	j.Ended, j.EndedAt = false, 0
	if run := j.Latest; run != nil && run != r.run && run.Outcome == Requeued {
		run.ReadyAfter = run.RetryAfter // its end makes nothing ready any more
		s.touchRun(e, run)
	}
	if r.anew {
		j.Rules, j.LegacyReturns = nil, 0
	}
	j.Member.Restart = &Restart{Run: c.RunID, RetryAfter: c.RetryAfter, Policy: r.policy, Rule: r.rule}
	s.happened(c)
}

// settleGroups is what follows the decisions of a message: units that ended without a
// failed run, releases, and ends of groups (semantics.md 12.3).
func (s *State) settleGroups() {
	for _, ge := range s.msg.due {
		if !ge.touched {
			ge.touched = true
			s.msg.groups = append(s.msg.groups, ge)
		}
	}
	s.recheckRefused()
	slices.SortFunc(s.msg.groups, func(a, b *groupEntry) int { return cmp.Compare(a.key, b.key) })
	for _, ge := range s.msg.groups {
		if ge.g != nil {
			slices.SortFunc(ge.units, func(a, b *group.Unit) int {
				return cmp.Or(cmp.Compare(a.Part.Index, b.Part.Index), cmp.Compare(a.Replica, b.Replica))
			})
			s.endUnits(ge)
		}
	}
	for _, ge := range s.msg.groups {
		if ge.g != nil {
			s.unholdMembers(ge)
		}
	}
	for _, ge := range s.msg.groups {
		if ge.g != nil {
			s.endIfOver(ge)
		}
	}
}

// endUnits ends the units of a group that ended without a failed run.
func (s *State) endUnits(ge *groupEntry) {
	for _, u := range slices.Clone(ge.units) {
		if ge.g.State != policy.GroupActive {
			return
		}
		succeeded, reason := false, policy.NoUnitReason
		switch {
		case u.State == group.Succeeded && !u.Fresh:
			s.stopRest(ge, u)
			continue
		case u.State == group.Succeeded:
			succeeded = true
		case u.State != group.Active:
			continue
		case !u.CanReach(false, false):
			reason = policy.MemberCancelled
		case u.Complete() && u.AllOver():
			reason = policy.FailedIndexes
		default:
			continue
		}
		u.Fresh = false
		switch {
		case s.unitEnded(ge, &UnitEnd{Group: ge.g, Unit: u, Succeeded: succeeded, Reason: reason}):
		case succeeded:
			s.stopRest(ge, u)
		default:
			s.refuse(ge)
		}
	}
}

// unitEnded asks what to do about a unit that ended, does it, and reports whether there was anything to do.
func (s *State) unitEnded(ge *groupEntry, end *UnitEnd) bool {
	v, ok := s.msg.q.UnitEnded(end)
	if !ok {
		return false
	}
	v.Reason = end.Reason
	end.Verdict, end.Generation = v, end.Unit.Generation
	if v.Action.Restarts() {
		end.Generation++
	}
	s.happened(end)
	s.perform(ge, end.Unit, &end.Verdict, nil, 0)
	return true
}

// stopRest stops the members of a unit that succeeded without them.
func (s *State) stopRest(ge *groupEntry, u *group.Unit) {
	if u.AllOver() {
		return
	}
	for i := range u.Members {
		m := &u.Members[i]
		switch {
		case m.Status.Over():
		case s.happens(ge.g.Queue, s.changeOf(Stopped, u, s.entry(m.Job))):
			s.touchUnit(ge, u)
			u.Set(m, m.Status&^group.Held|group.WasStopped)
		default:
			s.refuse(ge)
		}
	}
}

// unholdMembers releases the members that may start (semantics.md 12.7).
func (s *State) unholdMembers(ge *groupEntry) {
	if ge.g.State != policy.GroupActive || ge.g.Halted {
		return
	}
	for _, part := range ge.g.Parts {
		if !ge.g.MayUnhold(part) {
			continue
		}
		for u := part.NextToUnhold(); u != nil; u = part.NextToUnhold() {
			m := u.NextHeld()
			if !s.happens(ge.g.Queue, s.changeOf(Unheld, u, s.entry(m.Job))) {
				s.refuse(ge)
				return
			}
			u.Set(m, m.Status&^group.Held)
			s.touchUnit(ge, u)
		}
	}
}

// endIfOver ends a group that has succeeded, or can do no more (semantics.md 12.8).
func (s *State) endIfOver(ge *groupEntry) {
	g := ge.g
	if g.State != policy.GroupActive {
		return
	}
	passed := subtractSaturating(s.Watermark, s.Horizon) > g.LastEvent
	state, reason, rule := policy.GroupFailed, policy.Exhausted, ""
	if g.Halted {
		state, reason, rule = policy.GroupHalted, g.Reason, g.Rule
	}
	switch can := g.Prospects(); {
	case g.HasSucceeded():
		state, reason, rule = policy.GroupSucceeded, 0, ""
	case can == group.Awaits && passed:
		if g.Shape.Open() && g.AllSucceeded() && !g.Halted {
			state, reason, rule = policy.GroupSucceeded, 0, ""
		}
	case can == group.Exhausted:
	default:
		if passed && g.Quiet() {
			s.dropGroup(ge) // the queue is in shadow
		}
		return
	}
	end := &GroupEnd{Group: g, State: state, Reason: reason, Rule: rule}
	switch {
	case s.happens(g.Queue, end):
		s.endGroup(ge, end)
	case passed && g.Quiet():
		s.dropGroup(ge) // the queue is in shadow
	default:
		s.refuse(ge)
	}
}

// endGroup ends a group whose end is in the log, and stops its members that are not over.
func (s *State) endGroup(ge *groupEntry, end *GroupEnd) {
	s.touchGroup(ge)
	ge.g.State, ge.g.Reason, ge.g.Rule = end.State, end.Reason, end.Rule
	for _, part := range ge.g.Parts {
		for _, u := range part.Units {
			if !u.AllOver() {
				s.stopUnit(ge, u)
			}
		}
	}
}
