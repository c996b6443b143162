package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

// budgetStates returns what is left of each budget of a set, by name.
func budgetStates(ctx context.Context, from query.Answers, set *policyfile.Set, resources []*pb.Resource) (map[string][]query.BudgetState, error) {
	all, since := map[string][]query.BudgetState{}, generationsOf(resources)
	for _, b := range set.Budgets() {
		uses, err := query.UsesOfBudget(ctx, from, &b, since[b.Name])
		if err != nil {
			return nil, err
		}
		all[b.Name] = uses.States
	}
	return all, nil
}

// generationsOf returns by which generation each resource was last changed, by name.
func generationsOf(resources []*pb.Resource) map[string]uint64 {
	since := map[string]uint64{}
	for _, r := range resources {
		since[r.Name] = r.Generation
	}
	return since
}

// budgetTable prints what budgets permit, and a row for what each partition has of it; states is nil where that is not known.
func budgetTable(w io.Writer, set *policyfile.Set, resources []*pb.Resource, states map[string][]query.BudgetState) error {
	t := show.NewTable(w, "BUDGET", "QUEUE", "RATIO", "FLOOR", "WINDOW", "BEYOND IT", "SINCE GENERATION", "PARTITION", "USED", "ALLOWED", "LEFT", "AS OF")
	since := generationsOf(resources)
	for _, b := range set.Budgets() {
		terms := query.TermsOf(&b)
		row := []string{b.Name, terms.Queue, terms.Ratio, terms.Floor, terms.Window, terms.Beyond, fmt.Sprint(since[b.Name])}
		for _, s := range states[b.Name] {
			t.Row(append(slices.Clip(row), fmt.Sprint(s.Partition), fmt.Sprint(s.Used), fmt.Sprint(s.Allowed), fmt.Sprint(s.Left), s.AsOf)...)
		}
		if len(states[b.Name]) == 0 {
			t.Row(append(row, "-", "-", "-", "-", "-")...)
		}
	}
	return t.Flush()
}
