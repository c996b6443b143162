package evaluator

import (
	"cmp"
	"slices"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// Of the failures of one message that fail units of a group by its rules, the one whose rule stands first is decided first:
// what it causes decides about the others. Who replays their decisions takes the order from the log.

// inPlace is a failure of the current message, by its index, with its place among others.
type inPlace struct{ failure, place int }

func sortByPlace(all []inPlace) {
	slices.SortStableFunc(all, func(a, b inPlace) int { return cmp.Compare(a.place, b.place) })
}

// Order implements projection.Questions. It sorts as soon as the first failure is one that fails its unit by a rule: those that do so as well, as things stand
// then. The others keep their places.
func (p policies) Order(waiting []int) bool {
	if m := p.State.Failure(waiting[0]).Member; m != nil {
		if g := p.Rules.Set.GroupPolicy(m.Group.Policy); g == nil || len(g.Rules) == 0 {
			return true // all have the same rule
		}
	}
	if _, asked := p.ruleOf(waiting[0]); !asked {
		return false
	}
	var places []int
	var byRule []inPlace
	for k, i := range waiting {
		if rule, asked := p.ruleOf(i); asked {
			places, byRule = append(places, k), append(byRule, inPlace{i, rule})
		}
	}
	sortByPlace(byRule)
	for k, at := range places {
		waiting[at] = byRule[k].failure
	}
	return true
}

// ruleOf returns the place of the rule of the group by which a failure would fail its unit, if it was decided now; false: it
// would not fail it, or not by a rule.
func (p policies) ruleOf(i int) (place int, asked bool) {
	f := p.State.Failure(i)
	if m := f.Member; m == nil || m.Over || m.Pending != nil {
		return 0, false
	}
	factsOf(&p.failure, f, p.Progress.Semantics)
	countsOf(&p.counts, f.Job)
	_, reason := p.judge(f.Member, p.budgeted(p.Rules.Set.Evaluate(&p.failure, &p.counts)))
	if reason == policy.NoUnitReason {
		return 0, false
	}
	return p.Rules.Set.RuleOf(p.failedBy(f.Member, reason))
}

// sortRuns sorts failures by the places of their runs.
func sortRuns(s *projection.State, waiting []int, place func(run [2]string) int) {
	all := make([]inPlace, len(waiting))
	for k, i := range waiting {
		f := s.Failure(i)
		all[k] = inPlace{i, place([2]string{f.JobID, f.RunID})}
	}
	sortByPlace(all)
	for k := range all {
		waiting[k] = all[k].failure
	}
}
