package evaluator

import (
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
)

// Activation returns the record that puts a generation of policies in force under a version of the semantics.
func Activation(generation uint64, set *policy.Set, semantics uint32) *chain.PolicyActivated {
	a := &chain.PolicyActivated{Generation: generation, Digest: set.Digest(), HorizonMS: set.Horizon().Milliseconds()}
	if semantics >= sinceBudgets {
		a.Budgets = set.Budgets()
	}
	return a
}

// budgetsBegin says whether a version of the semantics puts the set's budgets in force that the one before does not know, so
// that the generation must be activated again.
func budgetsBegin(was, next uint32, set *policy.Set) bool {
	return was < sinceBudgets && next >= sinceBudgets && len(set.Budgets()) > 0
}

// budgeted returns a verdict of the policies on the failure, held back or refused by the budgets (semantics.md 14).
func (p policies) budgeted(v policy.Verdict) policy.Verdict {
	if !counts(v.Code) {
		return v
	}
	use, from := p.State.AskBudgets(p.failure.Queue, p.Progress.Partitions)
	switch p.asked = use; {
	case use == nil:
	case use.Effect == policy.BudgetExhausted && !use.Noted:
		return RefusedByBudget(v)
	default:
		v.RetryAfter, v.ReadyAfter = max(v.RetryAfter, from), max(v.ReadyAfter, from)
	}
	return v
}

// RefusedByBudget returns what a verdict is if a budget refuses the retry; of what budgets are not asked about, the same.
func RefusedByBudget(v policy.Verdict) policy.Verdict {
	if !counts(v.Code) {
		return v
	}
	return refused(v, policy.BudgetRefused)
}

// useOf returns what a decision with a code records of the budgets that were asked; nil: nothing, because others decided.
func (p policies) useOf(code policy.Code) *policy.BudgetUse {
	switch {
	case p.asked == nil || counts(code) || code == policy.GangRetry || code == policy.BudgetRefused:
		return p.asked
	case code == policy.GroupRestart && p.asked.Effect == policy.BudgetExhausted && !p.asked.Noted:
		return p.asked // the refusal failed the unit
	}
	return nil
}
