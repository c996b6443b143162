package evaluator

import (
	"math"
	"time"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// When the next run of a job may start is its retryAfter. These decide about it, in this order:
//
//   - The backoff of the rule, the policy or the settings, with its jitter: policy.Set.schedule. For a member that its group
//     restarts, the backoff of the group policy or of the unit's restarts, from policy.Set.UnitEnded, takes its place: restartByGroup
//     for the run that failed, restartUnit if none did.
//   - The grace period of a pod that may be alive, with terminationSlack: policy.Set.schedule, and endOfPod and endOf here.
//   - The other members of a gang, and with BlockingRecreate all of a restart: they start together, at the latest time of
//     theirs. restartGang, restartByGroup, and State.restartMember of package projection for the others.
//   - A pause of retries, before whose end none starts: policy.Set.schedule, and restartsFrom here.
//   - A retry budget that is used up, before whose time the retry is not granted: policies.budgeted. Or an open breaker, before
//     whose end it does not start unless it is ordered to: policies.held.
//   - A restart that stopped the run before it failed: its time, in decideMember.
//
// Proof that the old run is gone then brings it forward to readyAfter, without the grace period: State.markReady of package
// projection. How long a retry is held back from Armada's scheduler after that is the writer's, and part of no decision.

// restart is what the restart of a member's unit or group needs besides the record of its
// cause: the rest of projection.MemberDecided.
type restart struct {
	base, latest int64
	together     bool
}

// requeue makes a verdict requeue at a time, or earlier once the old run is gone.
func (p policies) requeue(v *policy.Verdict, at, early int64) {
	v.Requeue, v.RetryAfter, v.ReadyAfter = true, at, early
	v.Delay = max(0, time.Duration(at-p.failure.Time))
}

// endOfPod returns when the failed run's pod is certainly gone, where it may be alive
// (semantics.md 6); else the time of the failure.
func (p policies) endOfPod() int64 {
	if (p.failure.Conditions.Has(policy.Preempted) || p.failure.Conditions.Has(policy.LeaseExpired)) && !p.failure.PodIsOver() {
		return p.afterGrace(p.failure.Time, p.failure.Grace)
	}
	return p.failure.Time
}

func (p policies) afterGrace(base int64, grace time.Duration) int64 {
	return plus(plus(base, grace), p.Rules.Set.TerminationSlack())
}

// plus adds a delay to a time, saturating.
func plus(t int64, d time.Duration) int64 {
	if t > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return t + int64(d)
}

// endOf returns when pods are gone that are stopped at a time, given the longest of their
// graceSeconds; negative: there are none.
func (p policies) endOf(graceSeconds, base int64) int64 {
	if graceSeconds < 0 {
		return base
	}
	return p.afterGrace(base, policy.Grace(graceSeconds))
}

// restartGang makes a member's retry one of its whole gang.
func (p policies) restartGang(f *projection.Failure, v *policy.Verdict) restart {
	r := restart{base: plus(f.Time, v.Backoff)}
	if p.Progress.Semantics < sincePauseDelays {
		r.base = v.ReadyAfter // a pause ends before that
	}
	r.latest = max(v.RetryAfter, p.endOf(f.Member.PeerGrace(), r.base))
	v.RetryAfter, v.ReadyAfter = r.latest, r.latest
	return r
}

// restartByGroup makes a member's verdict requeue by its group. noted: the other members do not start again.
func (p policies) restartByGroup(f *projection.Failure, v *policy.Verdict, u *policy.UnitVerdict, noted bool) restart {
	m := f.Member
	base := plus(f.Time, u.Delay)
	at, early := max(base, p.endOfPod()), base
	together := p.blocks(u)
	switch {
	case noted: // the others do not start again
	case together:
		at = max(at, p.endOf(m.ScopeGrace(u.Action, u.Keep), base))
		early = at
	case m.Gang:
		at = max(at, p.endOf(m.PeerGrace(), base))
		if p.Progress.Semantics >= sinceGangReady {
			early = at
		}
	}
	p.requeue(v, at, early)
	from := p.restartsFrom(f.Job.Queue)
	v.RetryAfter, v.ReadyAfter = max(v.RetryAfter, from), max(v.ReadyAfter, from)
	return restart{base: base, latest: v.RetryAfter, together: together}
}

// restartUnit returns from when on the members of a unit start again that ended without a failed run.
func (p policies) restartUnit(u *projection.UnitEnd, answer *policy.UnitVerdict) int64 {
	base := plus(u.Unit.Changed, answer.Delay)
	if p.Progress.Semantics < sincePauseDelays { // of members that stop, the grace began after the pause
		base = max(base, p.Rules.Set.PausedUntil(u.Group.Queue))
	}
	return base
}

func (p policies) RestartAt(j *projection.Job, base, graceSeconds int64) (int64, error) {
	return max(p.endOf(graceSeconds, base), p.restartsFrom(j.Queue)), nil
}

// restartsFrom returns the time before which a pause of retries lets no group of the queue
// restart anything (semantics.md 12.4.3). It may be over.
func (p policies) restartsFrom(queue string) int64 {
	if p.Progress.Semantics < sincePauseDelays {
		return math.MinInt64
	}
	return p.Rules.Set.PausedUntil(queue)
}
