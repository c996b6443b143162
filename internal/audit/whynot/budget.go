package whynot

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Budget is what the budget that held a retry back the most said, as the decision has it (semantics.md 14). How many retries
// first runs had paid for is not in it: as many as they earned at least.
type Budget struct {
	policy.BudgetUse
	Was        policy.Budget // as it was then
	Partitions uint32        // that share its floor
}

// refuses says whether the budget, as a set has it, refuses the retry that it refused or delayed.
func (b *Budget) refuses(set *policy.Set, queue string) bool {
	if b == nil || b.Effect == policy.BudgetGranted {
		return false
	}
	for _, now := range set.Budgets() {
		if now.Name == b.Budget && now.Of(queue) {
			return now.Refuse && !now.Shadow && now.Window == b.Was.Window &&
				now.Share(b.Partitions) <= b.Was.Share(b.Partitions) && b.earned(now.Ratio) <= b.earned(b.Was.Ratio)
		}
	}
	return false
}

// earned is the number of retries that the first runs of the window pay for.
func (b *Budget) earned(ratio uint32) uint64 { return uint64(b.Firsts) * uint64(ratio) / 1000 }

// withBudget is what becomes of a verdict of the policies.
func (in *Input) withBudget(set *policy.Set, v policy.Verdict) policy.Verdict {
	if in.Budget.refuses(set, in.Failure.Queue) {
		return evaluator.RefusedByBudget(v)
	}
	return v
}

// OfBudget says whether the change is one of a budget, of which the record does not have everything.
func (c *Change) OfBudget() bool {
	return slices.ContainsFunc(c.Edits, func(e Edit) bool { return e.ofBudget })
}

// budget proposes that the budget that refused the retry has more, delays it or is in shadow; or that the one that did not
// refuses it.
func (p *proposer) budget() {
	b := p.in.Budget
	if b == nil || b.Effect == policy.BudgetGranted {
		return
	}
	set := func(size Size, far uint64, field, to, now string) {
		n := len(p.edits)
		p.set(size, far, fmt.Sprintf("budgets.%s.%s=%s", b.Budget, field, to), now)
		for i := range p.edits[n:] {
			p.edits[n+i].ofBudget = true
		}
	}
	was := &b.Was
	if p.want == Fail {
		if !was.Refuse {
			set(Action, 0, "whenExhausted", "Refuse", "Delay")
		}
		if was.Shadow {
			set(Setup, 0, "mode", "Enforce", "Shadow")
		}
		return
	}
	if n := max(1, b.Partitions); was.Share(n) < policy.MaxBudgetFloor {
		to := was.Share(n)*n + 1 // the least of which a partition's share is larger
		set(Number, uint64(to-was.Floor), "floor", strconv.FormatUint(uint64(to), 10), strconv.FormatUint(uint64(was.Floor), 10))
	}
	if b.Firsts > 0 {
		firsts := uint64(b.Firsts)
		if to := ((b.earned(was.Ratio)+1)*1000 + firsts - 1) / firsts; to <= 1000 {
			set(Number, to-uint64(was.Ratio), "ratio", policyfile.Thousandths(uint32(to)), policyfile.Thousandths(was.Ratio))
		}
	}
	set(Action, 0, "whenExhausted", "Delay", "Refuse")
	set(Setup, 0, "mode", "Shadow", "Enforce")
}
