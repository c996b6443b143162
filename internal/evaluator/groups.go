package evaluator

import (
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// memberDecided returns what the projection needs from a decision about a member's unit and
// group.
func memberDecided(d *chain.Decision) *projection.MemberDecided {
	m := &projection.MemberDecided{
		PolicyName: d.Policy, RuleName: d.Rule,
		Absorbed: d.Code == policy.GroupOver || d.Code == policy.GroupRestart && d.Group == nil,
	}
	switch d.Code {
	case policy.RuleRetry, policy.DefaultRetry:
		m.OnUnit = true
	case policy.GangRetry:
		m.OnUnit = d.LimitFrom != policy.FromNowhere
		m.GangRestart = !d.Shadow
	default: // nothing is granted
	}
	if v := d.Group; v != nil {
		m.Noted = v.Noted
		m.Verdict = &projection.Verdict{
			Action: v.Action, Reason: v.Reason, Rule: v.Rule, Used: v.RestartsUsed, Keep: v.Keep, Refused: v.Refused,
		}
	}
	return m
}

// decideMember decides on a failed run of a member (semantics.md 12.4), and returns what its unit's
// failure leads to, if it failed.
func (p policies) decideMember(f *projection.Failure) (policy.Verdict, *chain.GroupVerdict, restart) {
	m := f.Member
	switch {
	case m.Over:
		return p.plain(policy.GroupOver), nil, restart{}
	case m.Pending != nil:
		v := p.plain(policy.GroupRestart)
		v.Policy, v.Rule = m.Pending.Policy, m.Pending.Rule
		p.requeue(&v, max(m.Pending.RetryAfter, p.endOfPod()), m.Pending.RetryAfter)
		return v, nil, restart{}
	}
	v, reason := p.judge(m, p.budgeted(p.Rules.Set.Evaluate(&p.failure, &p.counts)))
	switch {
	case reason != policy.NoUnitReason:
		return p.askGroup(f, v, reason)
	case v.Code == policy.GangRetry && p.Rules.Set.Acts(f.Job.Queue):
		r := p.restartGang(f, &v)
		return v, nil, r
	}
	return v, nil, restart{}
}

// judge returns what a verdict of the job's policies and of budgets on a member's failure is in its unit, before its group is asked,
// and why the failure fails the unit; NoUnitReason: it does not.
func (p policies) judge(m *projection.MemberFailure, v policy.Verdict) (_ policy.Verdict, reason policy.UnitReason) {
	settings := p.Rules.Set.UnitSettings(m.Group.Policy, m.Unit.Part.Name)
	active := m.Unit.State == group.Active
	whole := m.Gang && active
	switch {
	case m.Gang && (v.Code == policy.LegacyReturn || v.Code == policy.LegacyLimit):
		returned := p.plain(policy.GangFail)
		returned.Skipped = v.Skipped
		return returned, policy.NoUnitReason
	case v.Requeue && counts(v.Code) && usedUp(m, &settings):
		v, reason = refused(v, policy.UnitLimit), policy.BackoffLimitExceeded
	case v.Requeue && whole && !m.Unit.CanReach(true, false):
		v, reason = refused(v, policy.GangFail), policy.MemberCancelled
	case v.Requeue && whole:
		v.Code = policy.GangRetry
		return v, policy.NoUnitReason
	case v.Requeue:
		return v, policy.NoUnitReason
	default:
		reason = p.unitReason(m, &settings, &v)
	}
	if !active {
		reason = policy.NoUnitReason
	}
	return v, reason
}

// usedUp reports whether a unit has no room left for another failure that is not ignored (semantics.md 12.4.5).
func usedUp(m *projection.MemberFailure, s *policy.PartDefinition) bool {
	if s.RetryLimit == nil {
		return false
	}
	used := uint64(m.Unit.Retries)
	if s.CountFailed {
		used += uint64(m.Unit.Failed())
	}
	return used >= uint64(*s.RetryLimit)
}

// counts reports whether a retry counts against limits.
func counts(c policy.Code) bool { return c == policy.RuleRetry || c == policy.DefaultRetry }

// refused returns a verdict that would have been a retry, as a failure for good.
func refused(v policy.Verdict, code policy.Code) policy.Verdict {
	if counts(v.Code) {
		v.RuleUsed--
		v.GlobalUsed--
	}
	v.Requeue, v.Code, v.Key, v.Delay, v.Backoff, v.RetryAfter, v.ReadyAfter = false, code, policy.RuleKey{}, 0, 0, 0, 0
	v.Avoid = policy.AvoidNone
	return v
}

// plain returns a verdict that no policy gave.
func (p policies) plain(code policy.Code) policy.Verdict {
	return policy.Verdict{
		Code: code, GlobalUsed: p.counts.Granted, GlobalLimit: p.Rules.Set.GlobalMaxRetries(), Shadow: p.Rules.Set.InShadow(p.failure.Queue),
	}
}

// unitReason returns why a member's failure for good fails its unit; NoUnitReason: it does
// not (semantics.md 12.4.5).
func (p policies) unitReason(m *projection.MemberFailure, s *policy.PartDefinition, v *policy.Verdict) policy.UnitReason {
	u := m.Unit
	switch {
	case v.FailUnit != policy.NoUnitReason:
		return v.FailUnit
	case s.Continue && s.CountFailed && usedUp(m, s):
		return policy.BackoffLimitExceeded
	case s.Continue && s.MaxFailedMembers != nil && u.Failed()+1 > int(*s.MaxFailedMembers):
		return policy.MaxFailedIndexesExceeded
	case s.Continue && u.Over()+1 == int(u.Part.Members) && u.Succeeded() < int(u.Part.MinMembers):
		return policy.FailedIndexes // this one was the last
	case s.Continue:
		return policy.NoUnitReason
	case p.failure.Conditions.Has(policy.DeadlineExceeded):
		return policy.UnitDeadlineExceeded
	}
	return policy.BackoffLimitExceeded
}

// askGroup asks the group what follows from a verdict that fails a member for good.
func (p policies) askGroup(f *projection.Failure, v policy.Verdict, reason policy.UnitReason) (policy.Verdict, *chain.GroupVerdict, restart) {
	u, out := p.unitEnded(f.Member, reason)
	if !u.Action.Restarts() {
		return v, out, restart{}
	}
	v.Code, v.FailUnit = policy.GroupRestart, policy.NoUnitReason
	r := p.restartByGroup(f, &v, &u, out.Noted)
	return v, out, r
}

// unitEnded returns what the group does about the unit of a member that failed it.
func (p policies) unitEnded(m *projection.MemberFailure, reason policy.UnitReason) (policy.UnitVerdict, *chain.GroupVerdict) {
	set := p.Rules.Set
	u := set.UnitEnded(p.failedBy(m, reason))
	out := &chain.GroupVerdict{
		Reason: reason, Action: u.Action, Rule: u.Rule, RestartsUsed: u.Used, MaxRestarts: u.Max, Keep: u.Keep, Refused: u.Refused,
		Noted: !set.Acts(p.failure.Queue),
	}
	if out.Noted {
		out.RestartsUsed = m.Group.Counted
	}
	return u, out
}

// JudgeMember decides about a failed run of a member as Step does by the newest version of the semantics, but for times, given
// whether budgets refuse a retry; unit is nil if the unit goes on. Neither has a restart stopped the run, nor is the member or its
// group over.
func JudgeMember(set *policy.Set, f *policy.Failure, c *policy.Counts, m *projection.MemberFailure, refuses bool) (v policy.Verdict, unit *chain.GroupVerdict) {
	p := policies{&Processor{Progress: Progress{Semantics: SemanticsVersion}, Rules: Rules{Set: set}, failure: *f, counts: *c}}
	v = set.Evaluate(f, c)
	if refuses {
		v = RefusedByBudget(v)
	}
	v, reason := p.judge(m, v)
	if reason == policy.NoUnitReason {
		return v, nil
	}
	u, unit := p.unitEnded(m, reason)
	if u.Action.Restarts() {
		v.Code, v.FailUnit, v.Requeue = policy.GroupRestart, policy.NoUnitReason, true
	}
	return v, unit
}

// failedBy returns the facts that a group policy is asked about when a run fails a unit.
func (p policies) failedBy(m *projection.MemberFailure, reason policy.UnitReason) *policy.UnitFailure {
	asked := p.unitFailure(m.Group, m.Unit, reason)
	asked.Run = &p.failure
	asked.Barred = !p.Rules.Set.Restarts(p.failure.Queue) || p.pauseBars(p.failure.Queue, p.failure.Time)
	return asked
}

// blocks reports whether all members of a restart start at the same time.
func (p policies) blocks(u *policy.UnitVerdict) bool {
	return u.Blocking && p.Progress.Semantics >= sinceBlocking
}

// unitFailure returns the facts that a group policy is asked about.
func (p policies) unitFailure(g *group.Group, u *group.Unit, reason policy.UnitReason) *policy.UnitFailure {
	return &policy.UnitFailure{
		Policy: g.Policy, Part: u.Part.Name, Succeeded: reason == policy.NoUnitReason, Reason: reason,
		UnitRestarts: u.Restarts, Counted: g.Counted, AllRestarts: g.Restarts, Restarted: g.Restarted, Halted: g.Halted,
		CanReach: func(a policy.GroupAction, keep bool) bool { return g.CanReach(u, a, keep) },
	}
}

func (p policies) Bind(_ *projection.Job, _, policyName string, whole bool, cardinality uint32) (projection.Bound, policy.FindingReason, error) {
	if whole {
		return projection.Bound{Shape: projection.GangShape(cardinality)}, 0, nil
	}
	g := p.Rules.Set.GroupPolicy(policyName)
	if g == nil {
		return projection.Bound{}, policy.NoSuchPolicy, nil
	}
	b := projection.Bound{Digest: g.Digest, Shape: g.Shape(p.Progress.Semantics >= sinceSuccess)}
	if g.MaxRestarts != nil {
		b.MaxRestarts = *g.MaxRestarts
	}
	return b, 0, nil
}

func (p policies) Acts(queue string, _ projection.Effect) bool { return p.Rules.Set.Acts(queue) }

func (p policies) UnitEnded(u *projection.UnitEnd) (v projection.Verdict, ok bool) {
	set, queue := p.Rules.Set, u.Group.Queue
	if !set.Acts(queue) {
		return v, false
	}
	if settings := set.UnitSettings(u.Group.Policy, u.Unit.Part.Name); u.Reason == policy.FailedIndexes && !settings.Continue {
		return v, false
	}
	asked := p.unitFailure(u.Group, u.Unit, u.Reason)
	asked.Barred = !set.Restarts(queue)
	answer := set.UnitEnded(asked)
	if answer.Action == policy.NoGroupAction {
		return v, false
	}
	return projection.Verdict{
		Action: answer.Action, Rule: answer.Rule, Used: answer.Used, Max: answer.Max, Keep: answer.Keep, Refused: answer.Refused,
		Base: p.restartUnit(u, &answer), Together: p.blocks(&answer),
	}, true
}
