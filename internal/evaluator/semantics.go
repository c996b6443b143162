package evaluator

import (
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/projection"
)

// SemanticsVersion is the newest version of the semantics that this program decides by. It
// decides by every earlier one as well: Step uses the version that the log named last. An
// empty log begins with the newest.
//
// A new version is a new number in chain.NewestSemantics and, for each difference, a
// function here that checks the version in force. The decisions of a released version
// never change: the reference model has the same versions, and the law tests compare
// both over histories in which the version changes.
const SemanticsVersion = chain.NewestSemantics

// The versions of the semantics that introduced a difference.
const (
	// sinceTrueRunIndex names the next pod after the number of known runs. Before, it was
	// the failed run's index plus one, which counts backwards if runs were imported,
	// because the newest is imported first (ADR 11).
	sinceTrueRunIndex = 2
	// sinceBoundedAvoid names maxAvoided nodes to avoid, and says how many it left out.
	// Before, a decision named all, so the decisions on a job took the square of their
	// number.
	sinceBoundedAvoid = 2
	// sinceGroups has groups, and gangs that retry as a whole (semantics.md 12).
	sinceGroups = 3
	// sincePauseDelays has groups restart what failed during a pause of retries, after its
	// end. Before, such a unit was left failed.
	sincePauseDelays = 4
	// sinceBlocking has the restartStrategy of group policies. Before, it has no effect.
	sinceBlocking = 4
	// sinceSuccessors lets a new group follow one that has ended. Before, its name was taken
	// until the group was forgotten.
	sinceSuccessors = 4
	// sinceGangReady has proof that a run is gone leave the time at which its gang starts again,
	// when a group restarts it. Before, the member whose run failed could start earlier.
	sinceGangReady = 4
	// sinceProof has a failure prove that its pod is over, so that no retry waits for that. Before, only a later event did.
	sinceProof = 4
	// sinceSuccess has success and successRules of group policies, and afterReady. Before, they have no effect.
	sinceSuccess = 4
	// sinceRunDuration knows how long a run was running that began to run under it. Before, no run has a duration, so that
	// it does not depend on which program read its beginning.
	sinceRunDuration = 4
	// sinceDueAgain has a group whose end was refused when it came due come due again once a
	// longer horizon has passed. Before, it did not end without another event.
	sinceDueAgain = 4
	// sinceRulesFirst has the rules of a group say which of the failures of a message that fail its units is decided first.
	// Before, it was the first in the log.
	sinceRulesFirst = 4
	// sinceBudgets has retry budgets (semantics.md 14). Before, they have no effect.
	sinceBudgets = 5
	// sinceBreakers has open breakers hold retries (semantics.md 15). Before, they have no effect.
	sinceBreakers = 5
	// SinceOrders carries out orders of operators (semantics.md 16). Before, they are passed over.
	SinceOrders = 5
)

// featuresOf returns what the state needs to know about a version.
func featuresOf(p *Progress) projection.Features {
	semantics := p.Semantics
	return projection.Features{
		Groups: semantics >= sinceGroups, Successors: semantics >= sinceSuccessors, DueAgain: semantics >= sinceDueAgain,
		Durations: semantics >= sinceRunDuration, RulesFirst: semantics >= sinceRulesFirst,
		Partitions: p.Partitions,
		Orders:     semantics >= SinceOrders,
	}
}

// maxAvoided is the number of nodes that a decision names to be avoided, at most.
const maxAvoided = 50

// boundAvoided returns the nodes that were added last, and how many others there are
// (semantics.md 7).
func boundAvoided(semantics uint32, nodes []string) (named []string, leftOut uint32) {
	if semantics < sinceBoundedAvoid || len(nodes) <= maxAvoided {
		return nodes, 0
	}
	more := len(nodes) - maxAvoided
	return nodes[more:], uint32(more)
}

// nextRunIndex returns the index in the name of the next run's pod (semantics.md 10).
func nextRunIndex(semantics uint32, f *projection.Failure) uint32 {
	if semantics < sinceTrueRunIndex {
		return f.Run.Index + 1
	}
	return f.Job.Runs
}

// pauseBars reports whether a pause of retries leaves a unit failed whose run failed at t.
func (p policies) pauseBars(queue string, t int64) bool {
	return p.Progress.Semantics < sincePauseDelays && p.Rules.Set.PausedUntil(queue) > t
}

// nextSemantics returns the version by which a log that named one (0: none) continues:
// that version, until an operator requests a newer one. An activation locks out every
// program that does not know the version, so an upgraded program does not activate it
// by itself.
func nextSemantics(named, asked uint32) uint32 {
	switch {
	case named == 0 && asked == 0:
		return SemanticsVersion
	case named > asked:
		return named
	}
	return asked
}
