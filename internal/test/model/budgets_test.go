package model

import "testing"

// TestBudgetHistories: the histories with budgets have every case that the engine is compared in.
func TestBudgetHistories(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(400) {
		for _, h := range []History{
			Generate(seed, Options{Budgets: true, Changes: seed%2 == 0}), GenerateGroups(seed, GroupOptions{Budgets: true, Newest: BudgetsVersion}),
		} {
			_, m := h.Run()
			for name, n := range m.Seen {
				seen[name] += n
			}
		}
	}
	for _, name := range []string{
		"budget: BudgetGranted", "budget: BudgetDelayed", "budget: BudgetExhausted", "budget: paid by first runs",
		"budget in shadow: BudgetDelayed", "budget in shadow: BudgetExhausted", "code: BudgetRefused", "shadow: BudgetRefused",
		"budget held back a gang", "budget fails a unit",
	} {
		if seen[name] < 5 {
			t.Errorf("%s: %d times", name, seen[name])
		}
	}
}
