package projection

import (
	"fmt"
	"strings"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
)

// Member is what a job keeps of its membership in a group; nil: it is in none.
type Member struct {
	*Place
	Replica, Index uint32
	Restart        *Restart // nil: no restart is pending
}

// Place is a part of a group, whose queue and job set are the job's. Members share it.
type Place struct{ Group, Part string }

// place returns a shared place. It forgets all of them if there are too many.
func (s *State) place(group, part string) *Place {
	if p := s.places[Place{group, part}]; p != nil {
		return p
	}
	if s.places == nil || len(s.places) >= maxNames {
		s.places = map[Place]*Place{}
	}
	p := &Place{strings.Clone(group), strings.Clone(part)}
	s.places[*p] = p
	return p
}

// Restart is a restart of a member whose next run is not known yet.
type Restart struct {
	Run          string // its latest run at that time, which is over for the group; "": none
	RetryAfter   int64  // Unix nanoseconds
	Policy, Rule string // that restarted it: a group policy's, or the retry policy's that granted a gang's retry
}

// IsGang reports whether the job is in a gang.
func (j *Job) IsGang() bool { return group.IsGang(j.GangID, j.GangSize) }

// join makes a job that was just submitted a member of the group that it names. t is the
// time of its submission.
func (s *State) join(e *entry, sub *events.Submit, t int64) {
	at, ok := group.MembershipOf(e.job.Queue, e.job.Set, sub)
	if !ok {
		return
	}
	if at.GangID != "" {
		at.GangID = e.job.GangID // a copy of its own
	}
	if !at.WholeGang {
		at.Name, at.Policy = strings.Clone(at.Name), strings.Clone(at.Policy)
	}
	ge, why := s.admit(e, &at)
	if why != 0 {
		s.happened(&Finding{Job: e.job, Group: at.Name, Reason: why})
		return
	}
	g := ge.g
	part := g.Part(at.Part)
	u := part.Unit(at.Replica)
	if u == nil {
		u = &group.Unit{Replica: at.Replica, GangID: at.GangID, GangSize: at.GangSize, Generation: part.Restarts}
		g.Put(part, u)
		s.placeGang(g, u.GangID, g.Name)
	}
	if at.FreeIndex {
		at.Index = u.NextFree()
	}
	e.job.Member = &Member{Place: s.place(g.Name, part.Name), Replica: u.Replica, Index: at.Index}
	mayStart := g.MayStart(u)
	u.Add(group.Member{Index: at.Index, Job: e.id})
	s.touchUnit(ge, u)
	if g.Name != at.Name {
		s.happened(s.changeOf(Joined, u, e))
	}
	m := u.Member(at.Index)
	if status := earlier(e.job); status != 0 {
		u.Set(m, status)
		u.Changed = t
		return
	}
	ended := g.State != policy.GroupActive || u.State != group.Active
	if mayStart && !ended || !s.happens(e.job.Queue, s.changeOf(Held, u, e)) {
		return
	}
	u.Set(m, group.Held)
	if ended {
		s.stop(u, m)
	}
}

// earlier is what is known of a member before it is submitted: that it is over, or nothing.
func earlier(j *Job) (status group.Status) {
	if j.Succeeded && !j.Cancelled {
		j.Ended, j.EndedAt = false, 0 // as for every member, a JobSucceeded says nothing
	}
	j.Succeeded = false
	if j.Latest != nil && j.Latest.End == Succeeded {
		status |= group.HasSucceeded
	}
	if j.Cancelled || j.CancelRequested || j.Ended {
		status |= group.WasCancelled
	}
	return status
}

// Bound is what the first member of a group fixes.
type Bound struct {
	Name        string   // of the group, where what is left of a log says it; "": as asked for
	Digest      [32]byte // of the group policy's canonical text
	Shape       policy.Shape
	MaxRestarts uint32 // of the group policy then
}

// GangShape is the shape of a gang that is in no group (semantics.md 12.1).
func GangShape(cardinality uint32) policy.Shape {
	return policy.Shape{Parts: []policy.ShapePart{{Name: policy.MainPart, Replicas: 1, Members: cardinality, MinMembers: cardinality}}}
}

// Verdict is what a group does about a unit that ended (semantics.md 12.5).
type Verdict struct {
	Action  policy.GroupAction
	Reason  policy.UnitReason
	Rule    string
	Used    uint32 // restarts that count, after this
	Max     uint32 // of the group policy
	Keep    bool
	Refused bool  // Action is FailGroup, because the restart of Rule was over a limit
	Base    int64 // retryAfter of members without a live run; Unix nanoseconds
	// Together: all members that Action restarts have the latest retryAfter of theirs.
	Together bool
}

// memberRef identifies a member of a group.
type memberRef struct {
	part           int
	replica, index uint32
}

// groupEntry is one group in the cache. If g is nil, the group is not kept.
type groupEntry struct {
	key     string // its prefix in the KV
	g       *group.Group
	changed []*group.Unit // since the last flush

	// gangIn is the group that has the gang of which this would be the group, and gangStored the
	// one in the KV; "": none has.
	gangIn, gangStored string

	// followers are the groups that follow one of this name, by number, ascending. Those that are
	// forgotten are not listed.
	followers        []uint32
	followersChanged bool

	// inKV: something of the group may be in the KV. wipe: what is there of an earlier group must be deleted.
	inKV, wipe      bool
	indexed, stored term
	refused         bool // it is so in the KV
	dirty, touched  bool
	units           []*group.Unit // touched by the current message
	waiting         []int         // failures of the current message that are not decided; none once they are in order
}

// touchGroup marks a group as changed by the current message.
func (s *State) touchGroup(ge *groupEntry) {
	s.markDirty(ge)
	if !ge.touched {
		ge.touched = true
		s.msg.groups = append(s.msg.groups, ge)
	}
	if ge.g != nil {
		ge.g.LastEvent, ge.g.Passed = s.Watermark, false
	}
}

func (s *State) touchUnit(ge *groupEntry, u *group.Unit) {
	s.touchGroup(ge)
	s.markUnitDirty(ge, u)
	if !u.Touched {
		u.Touched = true
		ge.units = append(ge.units, u)
	}
}

// setState changes a unit that need not have had an event: what was refused before may happen
// now.
func (s *State) setState(ge *groupEntry, u *group.Unit, state group.UnitState) {
	s.markDirty(ge)
	s.markUnitDirty(ge, u)
	u.SetState(state)
}

func (s *State) markUnitDirty(ge *groupEntry, u *group.Unit) {
	if !u.Dirty {
		u.Dirty = true
		ge.changed = append(ge.changed, u)
	}
}

// memberOf returns the group, unit and member of a job, or nil for a job in no group.
func (s *State) memberOf(e *entry) (*groupEntry, *group.Unit, *group.Member) {
	if e.job == nil || e.job.Member == nil {
		return nil, nil, nil
	}
	at := e.job.Member
	ge := s.groupOf(group.Key{Queue: e.job.Queue, Set: e.job.Set, Name: at.Group})
	if ge.g != nil {
		if part := ge.g.Part(at.Part); part != nil {
			if u := part.Unit(at.Replica); u != nil {
				if m := u.Member(at.Index); m != nil {
					return ge, u, m
				}
			}
		}
	}
	s.fail(fmt.Errorf("%w: job %s is a member of group %q, which lacks it", ErrCorrupt, e.id, at.Group))
	return nil, nil, nil
}

// statusOf returns the status of a member's job.
func (s *State) statusOf(e *entry) group.Status {
	if _, _, m := s.memberOf(e); m != nil {
		return m.Status
	}
	return 0
}

// isOver reports whether a member or its group is over.
func (s *State) isOver(e *entry) bool {
	ge, _, m := s.memberOf(e)
	return m != nil && (m.Status.Over() || ge.g.State != policy.GroupActive)
}

// touchMember records that an event of a member was folded.
func (s *State) touchMember(e *entry) {
	if ge, u, m := s.memberOf(e); m != nil {
		s.touchUnit(ge, u)
	}
}

// cancelled makes a member over that was cancelled or rejected at time t.
func (s *State) cancelled(e *entry, t int64) {
	ge, u, m := s.memberOf(e)
	if m == nil {
		return
	}
	s.touchUnit(ge, u)
	if !m.Status.Over() {
		u.Changed = t
	}
	u.Set(m, m.Status&^group.Held|group.WasCancelled)
}

// succeeded folds the success of a member's run at time t.
func (s *State) succeeded(e *entry, r *Run, t int64) {
	_, u, m := s.memberOf(e)
	if m == nil || e.job.Latest != r || m.Status.Over() {
		return
	}
	if pending := e.job.Member.Restart; pending != nil && pending.Run == r.ID {
		return
	}
	u.Set(m, m.Status&^group.Held|group.HasSucceeded)
	u.Changed = t
}

// started folds a new run of a member, which ends a pending restart.
func (s *State) started(e *entry) {
	_, u, m := s.memberOf(e)
	if m == nil {
		return
	}
	e.job.Member.Restart = nil
	u.Set(m, m.Status&^(group.FailedInShadow|group.Running))
}

// running folds that a member's run runs, or does no more.
func (s *State) running(e *entry, r *Run, runs bool) {
	_, u, m := s.memberOf(e)
	if m == nil || e.job.Latest != r || !u.Part.Awaited() {
		return
	}
	switch pending := e.job.Member.Restart; {
	case !runs:
		u.Set(m, m.Status&^group.Running)
	case pending == nil || pending.Run != r.ID:
		u.Set(m, m.Status|group.Running)
	}
}

// markSucceeded marks the units that have reached minMembers (semantics.md 12.3).
func (s *State) markSucceeded() {
	for _, ge := range s.msg.groups {
		if ge.g == nil || ge.g.State != policy.GroupActive {
			continue
		}
		for _, u := range ge.units {
			if u.State == group.Active && u.Enough() {
				s.setState(ge, u, group.Succeeded)
				u.Fresh = true
			}
		}
	}
}
