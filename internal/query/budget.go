package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// BudgetTerms is what a retry budget permits, in the words of documents.
type BudgetTerms struct {
	Queue, Ratio, Floor, Window string
	Beyond                      string // what happens to retries beyond it
}

const allQueues = "all queues together"

// TermsOf returns what a retry budget permits.
func TermsOf(b *policy.Budget) BudgetTerms {
	t := BudgetTerms{cmp.Or(b.Queue, allQueues), policyfile.Thousandths(b.Ratio), fmt.Sprint(b.Floor), policyfile.Short(b.Window), "delayed"}
	if b.Refuse {
		t.Beyond = "refused"
	}
	if b.Shadow {
		t.Beyond += " (in shadow: only counted)"
	}
	return t
}

// String says it in a sentence.
func (t BudgetTerms) String() string {
	of := t.Queue
	if of != allQueues {
		of = "queue " + of
	}
	return fmt.Sprintf("it permits %s, in each %s, %s retries and %s for each first run; what is beyond that is %s", of, t.Window, t.Floor, t.Ratio, t.Beyond)
}

// BudgetUses is what the newest decisions said of a retry budget.
type BudgetUses struct {
	Asked   int            // decisions that were looked at
	Effects map[string]int // decisions that named the budget, by policy.BudgetEffect
	Last    *audit.Decision
	States  []BudgetState // by partition
}

// BudgetState is what one partition has of a retry budget, as of the last decision that named it.
type BudgetState struct {
	Partition int    `json:"partition"`
	Used      uint32 `json:"used"`    // retries in its window
	Allowed   uint32 `json:"allowed"` // by the floor, and by first runs in the window
	Left      uint32 `json:"left"`
	AsOf      string `json:"asOf"`
}

// String says it in words.
func (s *BudgetState) String() string {
	return fmt.Sprintf("in partition %d, as of %s: %d used of %d, %d left", s.Partition, s.AsOf, s.Used, s.Allowed, s.Left)
}

// Words says what was found, in sentences.
func (u *BudgetUses) Words() []string {
	if u.Last == nil {
		return []string{fmt.Sprintf("it held none of the newest %s back, or another budget did so more", plural.Of(u.Asked, "decision"))}
	}
	all := []string{
		fmt.Sprintf("of the newest %s, %d were granted at once, %d delayed, %d refused", plural.Of(u.Asked, "decision"),
			u.Effects[policy.BudgetGranted.String()], u.Effects[policy.BudgetDelayed.String()], u.Effects[policy.BudgetExhausted.String()]),
		fmt.Sprintf("the last one, of job %s in partition %d: %s", u.Last.JobID, u.Last.Partition, u.Last.Budget),
	}
	for i := range u.States {
		all = append(all, u.States[i].String())
	}
	return all
}

// budgetDecisions is how many decisions are looked at, the newest.
const budgetDecisions = 1000

// UsesOfBudget looks at decisions of the queue of a budget that were made since a generation. A decision names the budget that held
// back the most.
func UsesOfBudget(ctx context.Context, from Answers, b *policy.Budget, since uint64) (*BudgetUses, error) {
	partitions, err := partitionsOf(ctx, from)
	if err != nil {
		return nil, err
	}
	u, seen := &BudgetUses{Effects: map[string]int{}}, map[int]bool{}
	_, err = from.ListDecisions(ctx, &List{Criteria: jobdb.Criteria{Queue: b.Queue}, Sort: "-time", Limit: budgetDecisions}, func(d *audit.Decision) error {
		u.Asked++
		if d.Budget == nil || d.Budget.Name != b.Name || *cmp.Or(d.PolicyGeneration, &d.Generation) < since {
			return nil
		}
		u.Effects[d.Budget.Effect]++
		u.Last = cmp.Or(u.Last, d)
		if !seen[d.Partition] {
			seen[d.Partition] = true
			u.States = append(u.States, budgetAfter(d, b, partitions))
		}
		return nil
	})
	slices.SortFunc(u.States, func(a, b BudgetState) int { return cmp.Compare(a.Partition, b.Partition) })
	return u, err
}

// budgetAfter derives what is left after a decision, in a log of so many partitions.
func budgetAfter(d *audit.Decision, b *policy.Budget, partitions uint32) BudgetState {
	s := BudgetState{Partition: d.Partition, Left: d.Budget.Left, AsOf: d.EventTime}
	s.Allowed = max(s.Left, b.Share(partitions)+uint32(uint64(d.Budget.FirstRuns)*uint64(b.Ratio)/1000))
	if d.Budget.Effect == policy.BudgetGranted.String() && s.Left > 0 {
		s.Left--
	}
	s.Used = s.Allowed - s.Left
	return s
}

// partitionsOf is how many partitions the log has that decisions are from.
func partitionsOf(ctx context.Context, from Answers) (uint32, error) {
	if s, ok := from.(*Source); ok {
		return s.CountPartitions(ctx)
	}
	all, err := from.ListPartitions(ctx)
	return uint32(len(all)), err
}
