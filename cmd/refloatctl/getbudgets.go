package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

// budgetUses is what the newest decisions said of a retry budget.
type budgetUses struct {
	asked   int // decisions that were looked at
	effects map[string]int
	last    []*audit.Decision // the newest one of each partition, the newest first
}

// budgetDecisions is how many decisions are looked at, the newest.
const budgetDecisions = 1000

// usesOf looks at decisions of the queue of a budget that were made since a generation. A decision names the budget that held back
// the most.
func usesOf(ctx context.Context, from query.Answers, b *policy.Budget, since uint64) (*budgetUses, error) {
	u := &budgetUses{effects: map[string]int{}}
	_, err := from.ListDecisions(ctx, &query.List{Criteria: jobdb.Criteria{Queue: b.Queue}, Sort: "-time", Limit: budgetDecisions}, func(d *audit.Decision) error {
		u.asked++
		if d.Budget == nil || d.Budget.Name != b.Name || *cmp.Or(d.PolicyGeneration, &d.Generation) < since {
			return nil
		}
		u.effects[d.Budget.Effect]++
		if !slices.ContainsFunc(u.last, func(other *audit.Decision) bool { return other.Partition == d.Partition }) {
			u.last = append(u.last, d)
		}
		return nil
	})
	return u, err
}

// budgetState is what one partition has of a retry budget, as of the last decision that named it.
type budgetState struct {
	Partition int    `json:"partition"`
	Used      uint32 `json:"used"`    // retries in its window
	Allowed   uint32 `json:"allowed"` // by the floor, and by first runs in the window
	Left      uint32 `json:"left"`
	AsOf      string `json:"asOf"`
}

// String says it in words.
func (s *budgetState) String() string {
	return fmt.Sprintf("in partition %d, as of %s: %d used of %d, %d left", s.Partition, s.AsOf, s.Used, s.Allowed, s.Left)
}

// states derives what is left from the last decisions, of a log with so many partitions.
func (u *budgetUses) states(b *policy.Budget, partitions uint32) (all []budgetState) {
	for _, d := range u.last {
		s := budgetState{Partition: d.Partition, Left: d.Budget.Left, AsOf: d.EventTime}
		s.Allowed = max(s.Left, b.Share(partitions)+uint32(uint64(d.Budget.FirstRuns)*uint64(b.Ratio)/1000))
		if d.Budget.Effect == policy.BudgetGranted.String() && s.Left > 0 {
			s.Left--
		}
		s.Used = s.Allowed - s.Left
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b budgetState) int { return cmp.Compare(a.Partition, b.Partition) })
	return all
}

// partitionsOf is how many partitions the log has that decisions are from.
func partitionsOf(ctx context.Context, from query.Answers) (uint32, error) {
	if s, ok := from.(*query.Source); ok {
		return s.CountPartitions(ctx)
	}
	all, err := from.ListPartitions(ctx)
	return uint32(len(all)), err
}

// budgetStates returns what is left of each budget of a set, by name.
func budgetStates(ctx context.Context, from query.Answers, set *policyfile.Set, resources []*pb.Resource) (map[string][]budgetState, error) {
	all, since := map[string][]budgetState{}, map[string]uint64{}
	for _, r := range resources {
		since[r.Name] = r.Generation
	}
	partitions, err := partitionsOf(ctx, from)
	for _, b := range set.Budgets() {
		var uses *budgetUses
		if err == nil {
			uses, err = usesOf(ctx, from, &b, since[b.Name])
		}
		if err != nil {
			return nil, err
		}
		all[b.Name] = uses.states(&b, partitions)
	}
	return all, nil
}

// budgetTable prints what budgets permit, and a row for what each partition has of it; states is nil where that is not known.
func budgetTable(w io.Writer, set *policyfile.Set, resources []*pb.Resource, states map[string][]budgetState) error {
	t := show.NewTable(w, "BUDGET", "QUEUE", "RATIO", "FLOOR", "WINDOW", "BEYOND IT", "SINCE GENERATION", "PARTITION", "USED", "ALLOWED", "LEFT", "AS OF")
	since := map[string]uint64{}
	for _, r := range resources {
		since[r.Name] = r.Generation
	}
	for _, b := range set.Budgets() {
		beyond := "delay"
		if b.Refuse {
			beyond = "refuse"
		}
		if b.Shadow {
			beyond += " (shadow)"
		}
		row := []string{b.Name, cmp.Or(b.Queue, "all together"), policyfile.Thousandths(b.Ratio), fmt.Sprint(b.Floor), b.Window.String(), beyond, fmt.Sprint(since[b.Name])}
		for _, s := range states[b.Name] {
			t.Row(append(slices.Clip(row), fmt.Sprint(s.Partition), fmt.Sprint(s.Used), fmt.Sprint(s.Allowed), fmt.Sprint(s.Left), s.AsOf)...)
		}
		if len(states[b.Name]) == 0 {
			t.Row(append(row, "-", "-", "-", "-", "-")...)
		}
	}
	return t.Flush()
}
