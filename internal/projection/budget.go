package projection

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/budget"
	"github.com/refloat/refloat/internal/policy"
)

// The accounts of the budgets in force (semantics.md 14). They are always in memory, and follow from events, decisions and
// what the chain says about the generation: no policies are needed to fold.

const budgetVersion = 1

// account is one that is written when it has changed.
type account struct {
	budget.Account
	changed bool
}

// Budgets returns the budgets in force, by name.
func (s *State) Budgets() []policy.Budget {
	var all []policy.Budget
	for _, a := range s.accounts {
		all = append(all, a.Budget)
	}
	return all
}

// SetBudgets puts budgets in force. One of the same name and window goes on with its counts.
func (s *State) SetBudgets(budgets []policy.Budget) {
	if slices.Equal(budgets, s.Budgets()) {
		return
	}
	was := s.accounts
	s.accounts = nil
	for _, b := range budgets {
		a := &account{Account: budget.Account{Budget: b}, changed: true}
		if i := slices.IndexFunc(was, func(w *account) bool { return w.Name == b.Name && w.Window == b.Window && w.Queue == b.Queue }); i >= 0 {
			a.Counts, a.Floor = was[i].Counts, was[i].Floor
		}
		s.accounts = append(s.accounts, a)
	}
	slices.SortFunc(s.accounts, func(a, b *account) int { return strings.Compare(a.Name, b.Name) })
	for _, a := range was {
		s.endedBudgets = append(s.endedBudgets, a.Name)
	}
}

// AskBudgets returns what the budgets of a queue say about a retry, nil if it has none: that of the one that holds it back the
// most, and the time before which those that are not in shadow grant none. The partition is one of so many.
func (s *State) AskBudgets(queue string, partitions uint32) (use *policy.BudgetUse, from int64) {
	from = NoWatermark
	if len(s.accounts) == 0 {
		return nil, from
	}
	var hardest policy.BudgetUse
	for _, a := range s.accounts {
		if !a.Of(queue) {
			continue
		}
		answer := a.Ask(s.Watermark, partitions)
		one := policy.BudgetUse{Budget: a.Name, Effect: policy.BudgetGranted, Noted: a.Shadow, Firsts: answer.Firsts, Left: answer.Left, At: answer.At}
		if answer.Exhausted(s.Watermark) {
			one.Effect = policy.BudgetDelayed
			if a.Refuse {
				one.Effect = policy.BudgetExhausted
			}
		}
		if one.Effect == policy.BudgetDelayed && !one.Noted {
			from = max(from, one.At)
		}
		if use == nil || harder(&one, use) {
			hardest = one
			use = &hardest
		}
	}
	return use, from
}

// harder says whether a holds a retry back more than b.
func harder(a, b *policy.BudgetUse) bool {
	switch acts := a.Effect != policy.BudgetGranted && !a.Noted; {
	case acts != (b.Effect != policy.BudgetGranted && !b.Noted):
		return acts
	case a.Effect != b.Effect:
		return a.Effect > b.Effect
	case a.At != b.At:
		return a.At > b.At
	}
	return a.Left < b.Left
}

// spend counts a granted retry. One in shadow is of no concern to the budgets of others.
func (s *State) spend(queue string, inShadow bool) {
	for _, a := range s.accounts {
		if a.Of(queue) && (a.Queue != "" || !inShadow) {
			a.Spend(s.Watermark, s.msg.features.Partitions)
			a.changed = true
		}
	}
}

// firstRun counts the first run of a job.
func (s *State) firstRun(queue string) {
	for _, a := range s.accounts {
		if a.Of(queue) {
			a.First(s.Watermark)
			a.changed = true
		}
	}
}

// flushBudgets writes the accounts that changed.
func (s *State) flushBudgets(b Batch) error {
	for _, name := range s.endedBudgets {
		if err := b.Delete(append([]byte{budgetKey}, name...)); err != nil {
			return fmt.Errorf("write budget %s: %w", name, err)
		}
	}
	s.endedBudgets = nil
	for _, a := range s.accounts {
		if !a.changed {
			continue
		}
		a.changed = false
		if err := b.Set(append([]byte{budgetKey}, a.Name...), appendAccount(nil, &a.Account)); err != nil {
			return fmt.Errorf("write budget %s: %w", a.Name, err)
		}
	}
	return nil
}

func (s *State) loadBudgets() (err error) {
	from := []byte{budgetKey}
	scanned := s.kv.Scan(from, after(from), func(key, value []byte) bool {
		var a *budget.Account
		if a, err = decodeAccount(string(key[1:]), bytes.Clone(value)); err == nil {
			s.accounts = append(s.accounts, &account{Account: *a})
		}
		return err == nil
	})
	if err == nil {
		err = scanned
	}
	if err != nil {
		return fmt.Errorf("read budgets: %w", err)
	}
	return nil
}

func appendAccount(b []byte, a *budget.Account) []byte {
	e := encoder{append(b, budgetVersion)}
	e.string(a.Queue)
	e.uints([]uint32{a.Ratio, a.Budget.Floor})
	e.int(int64(a.Window))
	e.bools(a.Refuse, a.Shadow)
	e.uint(uint64(len(a.Counts)))
	for _, c := range a.Counts {
		e.int(c.Slice)
		e.uint(uint64(c.Firsts))
		e.uint(uint64(c.Retries))
	}
	e.uint(uint64(len(a.Floor)))
	for _, at := range a.Floor {
		e.int(at)
	}
	return e.b
}

func decodeAccount(name string, b []byte) (*budget.Account, error) {
	d := decoder{b: b}
	if err := d.version(budgetVersion, "budget"); err != nil {
		return nil, err
	}
	a := &budget.Account{Budget: policy.Budget{Name: name, Queue: d.string()}}
	if d.count() != 2 {
		d.fail()
	}
	a.Ratio, a.Budget.Floor = d.uint32(), d.uint32()
	a.Window = time.Duration(d.int())
	d.bools(&a.Refuse, &a.Shadow)
	for range d.count() {
		a.Counts = append(a.Counts, budget.Count{Slice: d.int(), Firsts: d.uint32(), Retries: d.uint32()})
	}
	for range d.count() {
		a.Floor = append(a.Floor, d.int())
	}
	if a.Window < budget.Slices {
		d.fail()
	}
	return a, d.done("budget " + name)
}
