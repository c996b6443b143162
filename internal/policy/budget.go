package policy

import "time"

// Budget limits the retries of a queue, or of all, to a share of its first runs (semantics.md 14). It is comparable.
type Budget struct {
	Name   string
	Queue  string // "": all queues together
	Ratio  uint32 // retries for each first run, in thousandths, at most 1000
	Floor  uint32 // retries in each window beyond that, at most MaxBudgetFloor; at least 1 unless Refuse
	Window time.Duration
	Refuse bool // what is over the budget fails; else it is delayed
	Shadow bool // it is counted and recorded, and delays and refuses nothing
}

// Limits of budgets, which bound the state of a partition.
const (
	MaxBudgets          = 200
	MaxBudgetFloor      = 1000
	LeastBudgetWindow   = 10 * time.Second
	LongestBudgetWindow = 24 * time.Hour
)

// Of says whether the budget is about the queue.
func (b *Budget) Of(queue string) bool { return b.Queue == "" || b.Queue == queue }

// Share returns the part of the floor that one of so many partitions has: rounded up, so that none is left without.
func (b *Budget) Share(partitions uint32) uint32 {
	n := max(1, partitions)
	return (b.Floor + n - 1) / n
}

// BudgetEffect is what a budget does about a retry. Decision logs contain these numbers: never change one.
type BudgetEffect uint8

// The effects.
const (
	UnknownBudgetEffect BudgetEffect = iota
	BudgetGranted
	BudgetDelayed
	BudgetExhausted // the retry is refused
)

var budgetEffects = [...]string{"Unknown", "BudgetGranted", "BudgetDelayed", "BudgetExhausted"}

// String returns the effect's name in semantics.md 14, a metric label.
func (e BudgetEffect) String() string { return NameAt(budgetEffects[:], uint8(e), "BudgetEffect") }

// BudgetUse is what the budgets say about one retry. Of several, it is the one that holds the retry back the most.
type BudgetUse struct {
	Budget string // its name
	Effect BudgetEffect
	Noted  bool   // the budget is in shadow, so the effect is none
	Firsts uint32 // first runs in its window
	Left   uint32 // retries that it would grant at once before this one
	At     int64  // when it grants this one, or would grant the next, Unix nanoseconds
}
