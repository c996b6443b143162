package model

import (
	"regexp"
	"slices"
)

// This file: what becomes of a failed run of a member, of a unit that failed, and
// of those that are restarted (semantics.md 12.4 to 12.6).

// settings are those of a unit's part in the generation in force: "rules, limits
// and backoff are those of the generation in force". A policy that does not exist
// any more, or a part that it does not have any more, states nothing: R13.
func (m *Model) settings(u *unit) GroupPart {
	p := m.inForce(u.part.group)
	for _, part := range p.Parts {
		if part.Name == u.part.Name {
			return part
		}
	}
	return GroupPart{}
}

func (m *Model) inForce(g *group) GroupPolicy {
	if p := m.policies.groupPolicy(g.policy); p != nil && g.policy != "" {
		return *p
	}
	return GroupPolicy{}
}

// decideMember: semantics.md 12.4, "A run of a member failed … the first that applies".
func (m *Model) decideMember(r *run, rec Record) {
	j, mem := r.job, r.job.member
	u := mem.unit
	g := u.part.group
	gang := isGang(j.annotations)
	rec.Group, rec.Part, rec.Replica, rec.Index, rec.Generation = g.name, u.part.Name, u.replica, mem.index, u.generation

	// 1.
	if mem.isOver() {
		m.failMember(r, verdict{code: GroupIsOver, absorbed: true}, rec)
		return
	}
	// 2.
	if mem.restarts(r) {
		v := verdict{code: GroupRestart, policy: mem.pending.policy, rule: mem.pending.rule, absorbed: true}
		restart := mem.pending.retryAfter // with the pause of when it was decided (R30)
		m.requeueByGroup(r, v, rec, max(restart, m.graceAfter(r)), restart, 0)
		return
	}
	// 3. to 5.
	v, reason := m.judge(r)
	switch {
	case v.retry && gang && u.state == "": // (R15)
		m.retryGang(r, v, rec)
	case v.retry:
		if v.granted {
			u.retries++
		}
		j.count(r, v)
		m.record(m.requeue(r, v, m.describe(r, v, rec)))
	case reason == "":
		m.failMember(r, v, rec)
	default:
		m.failUnit(u, reason, r, v, rec)
	}
}

// isOver: semantics.md 12.4.1.
func (mem *member) isOver() bool { return mem.unit.part.group.ended || mem.over == wasStopped }

// restarts: semantics.md 12.4.2, says whether a restart told the run to stop.
func (mem *member) restarts(r *run) bool { return mem.pending != nil && mem.pending.run == r.id }

// judge: semantics.md 12.4, 3 to 5: a member's verdict before the group is asked, and the reason for which its unit fails; "": it does not.
func (m *Model) judge(r *run) (verdict, string) {
	u := r.job.member.unit
	gang := isGang(r.job.annotations)
	// 3.
	v := m.budgeted(r, m.verdict(r))
	if gang && (v.code == LeaseReturned || v.code == LegacyLimit) {
		// "A returned lease without a rule (semantics.md 9) in a gang: JobFailed,
		// GangFail; its peers run on." semantics.md 12.13.9: "its unit is not asked".
		return verdict{code: GangFail, skipped: v.skipped}, ""
	}
	// 4.
	reason := ""
	if v.retry {
		limit := m.settings(u).RetryLimit
		switch {
		case v.granted && limit != nil && m.used(u) >= *limit:
			v.code, v.retry, v.granted = UnitLimit, false, false
			reason = BackoffLimitExceeded
		case gang && u.state == "" && u.lostOne(): // (R14)
			v.code, v.retry, v.granted, v.ignored = GangFail, false, false, false
			reason = MemberCancelled
		default:
			return v, ""
		}
	}
	// 5.
	part := m.settings(u)
	deadline := holds("DeadlineExceeded", &Rule{}, r)
	over := u.count(func(other *member) bool { return other != r.job.member && other.over != "" }) + 1
	switch {
	case u.state != "": // it is over already (R15)
		reason = ""
	case reason != "":
	case v.failUnit != "":
		reason = v.failUnit
		m.Seen["FailUnit for "+reason]++
	case part.OnMemberFailure == "Continue":
		switch {
		case part.CountFailed && m.used(u) >= *part.RetryLimit:
			reason = BackoffLimitExceeded
			m.Seen["a member that failed for good uses up retryLimit"]++
		case part.MaxFailedMembers != nil && u.failed()+1 > *part.MaxFailedMembers:
			reason = MaxFailedIndexesExceeded
		case over == u.part.Members && !u.enough():
			reason = FailedIndexes
		}
	case deadline:
		reason = DeadlineExceeded
	default:
		reason = BackoffLimitExceeded
	}
	return v, reason
}

// used: semantics.md 12.4.5, "retries of its members, and with countFailed members that failed for good".
func (m *Model) used(u *unit) int {
	if m.settings(u).CountFailed {
		return u.retries + u.failed()
	}
	return u.retries
}

// lostOne: semantics.md 12.5, "a gang with such a member that would be restarted".
func (u *unit) lostOne() bool { return slices.ContainsFunc(u.members, (*member).lost) }

// failMember says that a member failed for good.
func (m *Model) failMember(r *run, v verdict, rec Record) {
	r.job.count(r, countsNothing(v))
	rec = m.describe(r, v, rec)
	if !rec.Shadow {
		m.end(r.job)
		m.fallOver(r)
	} else {
		r.job.member.quiet = true
	}
	m.record(rec)
}

// fallOver makes a member failed for good, if it is not over otherwise.
func (m *Model) fallOver(r *run) {
	mem := r.job.member
	if mem.over == "" {
		mem.over, mem.held, mem.pending = failedForGood, false, nil
		mem.unit.changed = r.failure.t
	}
}

// countsNothing: semantics.md 12.4.2 and 12.6, what a group decides consumes nothing.
func countsNothing(v verdict) verdict {
	v.granted, v.ignored = false, false
	return v
}

// outcome is what becomes of a unit that failed (semantics.md 12.5).
type outcome struct {
	action  string
	rule    string // as records name it
	refused bool
	counts  bool
	backoff Backoff
	byRules bool
	asked   bool // the rules were,
	place   int  // and the first that matches has this place: after the last one, the default
	scope   []*unit
}

func (o outcome) restarts() bool { return len(o.scope) > 0 }

// ask: semantics.md 12.5.1 to 12.5.3. r is nil where no run failed.
func (m *Model) ask(u *unit, reason string, r *run) outcome {
	g := u.part.group
	leave := outcome{action: "Leave"}
	// semantics.md 12.4.3: "Retries switched off or killed: as for any job, then 4.5 with Leave in
	// place of section 5." semantics.md 12.13.10: "With retries killed, units that end without a
	// failed run are Leave as well." In version 3, paused as well. (R16)
	if !m.policies.enabled() || m.killed(g.queue) {
		return leave
	}
	if r != nil && m.paused(g.queue, r.failure.t, r.failure.t) > r.failure.t {
		if !m.has(askPaused) {
			m.Seen["group: leave while paused"]++
			return leave
		}
		m.Seen["group: asked while paused"]++
	}
	if g.halted { // "afterwards restarts and rules are not asked again" (R17)
		m.Seen["group: leave after halt"]++
		return leave
	}
	// 1.
	if restarts := m.restartsOf(u); restarts.some(u) {
		if m.unable(u, m.inForce(g).Completed == "Keep") {
			return outcome{action: "Leave", rule: "restarts"}
		}
		return outcome{action: "RestartUnit", rule: "restarts", backoff: restarts.Backoff, scope: []*unit{u}}
	}
	// 2.
	p := m.inForce(g)
	if p.Rules == nil && p.MaxRestarts == nil {
		return outcome{action: "FailGroup", asked: true}
	}
	rule, label, place := GroupRule{Action: "RestartGroup"}, "", len(p.Rules)
	for i := range p.Rules {
		if m.ruleMatches(&p.Rules[i], u, reason, r) {
			rule, label, place = p.Rules[i], p.Rules[i].label(i), i
			break
		}
	}
	o := outcome{action: rule.Action, rule: label, asked: true, place: place, counts: or(rule.CountsTowardMax, true), backoff: p.Backoff, byRules: true}
	keep := p.Completed == "Keep"
	for _, other := range g.units() {
		in := rule.Action == "RestartGroup" || rule.Action == "RestartPart" && other.part == u.part ||
			rule.Action == "RestartUnit" && other == u
		// semantics.md 12.13.14: "With Keep, a unit that succeeded is out of scope as a whole." (R18)
		if in && (!keep || other.state != StateSucceeded) {
			o.scope = append(o.scope, other)
		}
	}
	if !o.restarts() {
		return o
	}
	// semantics.md 12.13.14: "A restart whose scope has a unit that can no longer reach
	// minMembers is Leave, before limits and rules are asked." (R19)
	if slices.ContainsFunc(o.scope, func(u *unit) bool { return m.unable(u, keep) }) {
		return outcome{action: "Leave", rule: label, asked: true, place: place}
	}
	if o.counts && g.counted >= or(p.MaxRestarts, 0) || rule.Limit != nil && g.byRule[label] >= *rule.Limit {
		m.Seen["group: restart refused"]++
		return outcome{action: "FailGroup", rule: label, refused: true, asked: true, place: place}
	}
	return o
}

// unable says whether a unit cannot be restarted.
func (m *Model) unable(u *unit, keep bool) bool {
	gang := u.gang != ""
	kept := func(mem *member) bool { return keep && !gang && mem.over == succeededWell }
	lost := func(mem *member) bool { return mem.lost() && !kept(mem) }
	if gang && u.count(lost) > 0 || !u.couldReach(lost) {
		m.Seen["group: unable to restart"]++
		return true
	}
	return false
}

// restartsOf are the restarts of a unit's part, in the generation in force.
func (m *Model) restartsOf(u *unit) Restarts {
	if part := m.settings(u); part.Restarts != nil {
		return *part.Restarts
	}
	return or(m.inForce(u.part.group).Restarts, Restarts{On: "Never"})
}

// some says whether restarts are left for a unit that failed.
func (r Restarts) some(u *unit) bool { return r.On != "Never" && u.restarts < or(r.Limit, 0) }

// ruleMatches: semantics.md 12.2.
func (m *Model) ruleMatches(rule *GroupRule, u *unit, reason string, r *run) bool {
	if len(rule.Parts) > 0 && !slices.Contains(rule.Parts, u.part.Name) {
		return false
	}
	if len(rule.OnReasons) > 0 && !slices.Contains(rule.OnReasons, reason) {
		return false
	}
	if rule.OnMessage == "" {
		return true
	}
	if r == nil { // "without a failed run it does not match"
		return false
	}
	// semantics.md 12.13.8: "against what onTerminationMessage sees, then the pod error's message".
	var messages []string
	for _, c := range containers(&Rule{}, r) {
		messages = append(messages, c.Message)
	}
	messages = append(messages, r.failure.err.GetPodError().GetMessage())
	pattern := regexp.MustCompile(rule.OnMessage)
	if slices.ContainsFunc(messages, func(s string) bool { return s != "" && pattern.MatchString(s) }) {
		m.Seen["group: rule matched a message"]++
		return true
	}
	return false
}

// failUnit: semantics.md 12.5, of a unit that fails by a run. v is the member's verdict.
func (m *Model) failUnit(u *unit, reason string, r *run, v verdict, rec Record) {
	g := u.part.group
	o := m.ask(u, reason, r)
	m.Seen["group: "+o.action+" "+reason]++
	mute := m.mute(g.queue)
	if o.restarts() && !mute {
		m.countRestart(u, o)
	}
	rec.UnitReason, rec.GroupAction, rec.GroupRule = reason, o.action, o.rule
	// semantics.md 12.9: in shadow "the group's verdict stands in the failing run's record only". (R1)
	rec.RestartsUsed, rec.MaxRestarts = g.counted, or(m.inForce(g).MaxRestarts, 0)

	if o.restarts() {
		v.code = GroupRestart
		at, pause := m.restartTime(g, u, o, r.failure.t, r.id)
		failingAt := max(at, m.graceAfter(r))
		if mute { // no peer waits, so its record has its own time (R31)
			m.requeueByGroup(r, v, rec, failingAt, at, pause)
			return
		}
		m.restart(g, o.scope, restart{
			at: at, pause: pause, policy: g.policy, rule: o.rule, anew: true, whole: o.action == "RestartGroup",
			failing: r, failingAt: failingAt,
			cause: func(own int64, generation int) {
				rec.Generation = generation
				ready := at
				if m.blocks(g) || u.gang != "" && m.has(gangReady) {
					// "RetryReady for the failing run must not bring that member's
					// retryAfter below that of its restart."
					ready = own
				}
				m.requeueByGroup(r, v, rec, own, ready, pause)
			},
		})
		return
	}
	m.failMember(r, v, rec)
	if mute {
		return
	}
	m.leave(u, reason, o)
}

// leave: what FailGroup, Leave and Halt do beside the failing run's record.
func (m *Model) leave(u *unit, reason string, o outcome) {
	g := u.part.group
	u.state = StateFailed
	switch o.action {
	case "FailGroup":
		if o.refused {
			reason = ReachedMaxRestarts
		}
		m.endGroup(g, StateFailed, reason, o.rule)
		return
	case "Halt":
		g.halted, g.haltReason, g.haltRule = true, reason, o.rule
	}
	m.stopAll(u.members)
}

// unitEnded: semantics.md 12.5, of a unit that fails without a failed run.
func (m *Model) unitEnded(u *unit, reason string) {
	g := u.part.group
	o := m.ask(u, reason, nil)
	m.Seen["group: "+o.action+" "+reason+" without a run"]++
	rec := Record{Kind: UnitEnded, State: StateFailed, Reason: reason, GroupAction: o.action, Rule: o.rule}
	if !o.restarts() {
		m.recordUnit(u, rec)
		m.leave(u, reason, o)
		return
	}
	m.countRestart(u, o)
	at, pause := m.restartTime(g, u, o, u.changed, "")
	m.restart(g, o.scope, restart{
		at: at, pause: pause, policy: g.policy, rule: o.rule, anew: true, whole: o.action == "RestartGroup",
		cause: func(int64, int) { m.recordUnit(u, rec) },
	})
}

// unitSucceeded: semantics.md 12.5, "Always with some left reruns every member of it …;
// otherwise it counts for after, and members that are not over are stopped.".
func (m *Model) unitSucceeded(u *unit) {
	g := u.part.group
	restarts := m.restartsOf(u)
	able := !g.halted && !m.killed(g.queue) && !m.unable(u, false) // (R21)
	if restarts.On != "Always" || !restarts.some(u) || !able {
		m.stopAll(u.members)
		return
	}
	m.Seen["group: always"]++
	o := outcome{action: "RestartUnit", rule: "restarts", backoff: restarts.Backoff, scope: []*unit{u}}
	m.countRestart(u, o)
	at, pause := m.restartTime(g, u, o, u.changed, "")
	rec := Record{Kind: UnitEnded, State: StateSucceeded, GroupAction: o.action, Rule: o.rule}
	m.restart(g, o.scope, restart{at: at, pause: pause, policy: g.policy, rule: o.rule, anew: true, rerun: true, cause: func(int64, int) { m.recordUnit(u, rec) }})
}

// recordUnit adds a UnitEnded.
func (m *Model) recordUnit(u *unit, rec Record) {
	g := u.part.group
	rec.Part, rec.Replica, rec.Generation = u.part.Name, u.replica, u.generation
	rec.RestartsUsed, rec.MaxRestarts = g.counted, or(m.inForce(g).MaxRestarts, 0)
	m.recordOf(g, rec)
}

// countRestart counts a restart that is granted.
func (m *Model) countRestart(u *unit, o outcome) {
	g := u.part.group
	if !o.byRules {
		u.restarts++
		return
	}
	g.restarts++
	g.byRule[o.rule]++
	if o.counts {
		g.counted++
	}
}

// restartTime is when a restart may begin, without anybody's grace, and the end of the pause
// before which nobody starts, or 0. A backoff's n counts the restarts by rules, or by the unit's
// restarts, this one included: R22. runID is "" where no run failed.
func (m *Model) restartTime(g *group, u *unit, o outcome, t int64, runID string) (at, pause int64) {
	n := u.restarts
	if o.byRules {
		n = g.restarts
	}
	if m.mute(g.queue) { // it was not counted
		n++
	}
	if runID == "" { // semantics.md 12.14: "Without a failed run, … it has no jitter."
		o.backoff.JitterMilli = nil
	}
	at = after(t, backoff([]Backoff{o.backoff}, max(n, 1), runID))
	if !m.has(askPaused) { // a live run's grace begins with the end of the pause
		return m.paused(g.queue, t, at), 0
	}
	pause = m.paused(g.queue, t, 0)
	if pause > at {
		m.Seen["group: restart after a pause"]++
	}
	return at, pause
}

// graceAfter is the time of a failure, plus the grace where semantics.md 6 has one:
// semantics.md 12.13.12, for Preempted and LeaseExpired.
func (m *Model) graceAfter(r *run) int64 {
	if (r.failure.isPreempted() || r.failure.err.GetLeaseExpired() != nil) && !m.provesEnd(r.failure) {
		return plus(r.failure.t, m.graceMs(r.job))
	}
	return r.failure.t
}

// requeueByGroup says JobRequeued, GroupRestart: at a time, or after proof at another, but not
// before the end of a pause. "delay of the record does not include the pause".
func (m *Model) requeueByGroup(r *run, v verdict, rec Record, at, ready, pause int64) {
	r.job.count(r, countsNothing(v))
	rec = m.describe(r, v, rec)
	rec.Kind = JobRequeued
	rec.RetryAfter = max(at, pause)
	rec.DelayMs = max(0, at-rec.T) / 1_000_000 // (R23)
	rec.PodName = podName(r.job.id, m.nextIndex(r), m.policies.enabled())
	m.avoidAlso(&rec, nil, rec.T)
	r.requeued, r.retryAfter, r.readyAfter, r.readySent = true, rec.RetryAfter, max(ready, pause), false
	m.record(rec)
}

// retryGang: semantics.md 12.4.4, "the unit restarts as a whole (6), one count on the rule
// that granted it and one on the unit".
func (m *Model) retryGang(r *run, v verdict, rec Record) {
	u := r.job.member.unit
	g := u.part.group
	if v.granted {
		u.retries++
	}
	r.job.count(r, v)
	v.code = GangRetry
	rec = m.requeue(r, v, m.describe(r, v, rec))
	if m.mute(g.queue) {
		m.record(rec)
		return
	}
	at, failingAt, pause := r.readyAfter, rec.RetryAfter, int64(0)
	if m.has(askPaused) { // the peers' grace runs while retries are paused
		at, failingAt, pause = r.unpaused, plus(r.failure.t, rec.DelayMs), m.paused(g.queue, r.failure.t, 0)
	}
	pause = m.heldBack(v, pause, at, failingAt)
	m.restart(g, []*unit{u}, restart{
		at: at, pause: pause, policy: v.policy, rule: v.rule,
		failing: r, failingAt: failingAt,
		cause: func(own int64, generation int) {
			rec.RetryAfter, rec.Generation = max(own, pause), generation
			r.retryAfter, r.readyAfter = rec.RetryAfter, rec.RetryAfter
			m.record(rec)
		},
	})
}
