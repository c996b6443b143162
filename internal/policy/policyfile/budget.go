package policyfile

import (
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/policy"
)

// The format of retry budgets (semantics.md 14), in the manner of spec.go.

// namedBudget is a retry budget in the canonical encoding.
type namedBudget struct {
	Name policyName `file:"name" must:"required"`
	Spec budgetSpec `file:"spec"`
}

type budgetFile struct {
	header
	Metadata struct {
		Name policyName `file:"name" must:"required"`
	} `file:"metadata" must:"required"`
	Spec budgetSpec `file:"spec" must:"required"`
}

type budgetSpec struct {
	Queue         queueName     `file:"queue"`
	Ratio         *fraction     `file:"ratio" must:"required"`
	Floor         *limit        `file:"floor"`
	Window        *duration     `file:"window"`
	WhenExhausted whenExhausted `file:"whenExhausted"`
	Mode          mode          `file:"mode"`
}

// budgetTexts document the fields (fields.go).
var budgetTexts = [...]fieldText{
	{"RetryBudget:", "", "", "A retry budget: how many retries a queue, or all queues together, may have for the first runs of their jobs. What is beyond it is delayed or refused. Effective from version 5 of the semantics on."},
	{"RetryBudget:metadata.name", "", "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends", "The name of the budget, which decisions show."},
	{"RetryBudget:spec", "", "", "The content of the budget. Every budget of a job's queue, and every one of all queues, must grant a retry. Each partition of events has its own share of it."},
	{"RetryBudget:spec.queue", "all queues together", "as in Armada", "The queue whose retries it limits. It need not exist."},
	{"RetryBudget:spec.ratio", "", "0 to 1, three decimals", "How many retries each first run of a job within the window pays for: 0.2 is one retry for five first runs."},
	{"RetryBudget:spec.floor", "10", "0 to 1000; at least 1 unless whenExhausted is Refuse", "How many retries are granted in each window beyond that, in all partitions together. A partition has its part, rounded up. It is the rate at which delayed retries come due."},
	{"RetryBudget:spec.window", "10m", "10s to 24h", "The time in which first runs and retries are counted, by event time. A budget whose window changes starts anew."},
	{"RetryBudget:spec.whenExhausted", "Delay", "Delay or Refuse", "What happens to a retry beyond the budget. Delay: it is granted for when the floor has room, one after the other, and fails no job. Refuse: the job fails, code BudgetRefused."},
	{"RetryBudget:spec.mode", "Enforce", "Enforce or Shadow", "Shadow: decisions record what the budget would do, and nothing is delayed or refused."},
}

func (s *budgetSpec) check(i *inspection) {
	d := s.definition("")
	outside := func(field string, bad bool, limits string) {
		if bad && i.clean(field) {
			i.fault(field, fault{codeOutOfRange, "not " + limits, "choose a value in this range"})
		}
	}
	outside("window", d.Window < policy.LeastBudgetWindow || d.Window > policy.LongestBudgetWindow, "between 10s and 24h")
	outside("floor", d.Floor > policy.MaxBudgetFloor, fmt.Sprintf("between 0 and %d", policy.MaxBudgetFloor))
	if d.Floor == 0 && !d.Refuse && i.clean("floor") {
		i.fault("floor", fault{codeConflict, "with a floor of 0, nothing says when a delayed retry is granted", "raise it to at least 1, or use whenExhausted: Refuse"})
	}
}

// definition converts the budget for the engine.
func (s *budgetSpec) definition(name string) policy.Budget {
	return policy.Budget{
		Name: name, Queue: string(s.Queue), Ratio: uint32(or(s.Ratio, 0)), Floor: uint32(or(s.Floor, 10)),
		Window: or(s.Window, duration(10*time.Minute/time.Millisecond)).duration(), Refuse: s.WhenExhausted == refuse, Shadow: s.Mode == shadow,
	}
}

// compiledBudget is one RetryBudget. It is immutable.
type compiledBudget struct {
	namedBudget
	text   string // canonical
	engine policy.Budget
}

func newBudget(named *namedBudget, known schema) *compiledBudget {
	return &compiledBudget{*named, string(known.encode(named)), named.Spec.definition(string(named.Name))}
}

// tooManyBudgets bounds what a generation activates, and the state of a partition.
func (c *content) tooManyBudgets(file string) (problems Problems) {
	if n := len(c.budgets); n > policy.MaxBudgets {
		problems = append(problems, Problem{
			File: file, Path: "retryBudgets", Code: codeTooMuch, Message: fmt.Sprintf("%d retry budgets, at most %d", n, policy.MaxBudgets), Fix: "remove some",
		})
	}
	return problems
}
