package model

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
)

// Budget is a document RetryBudget (semantics.md 14).
type Budget struct {
	Name          string
	Queue         string // "": all queues together
	RatioMilli    int64
	Floor         int
	WindowMs      int64
	WhenExhausted string // "", Delay or Refuse
	Mode          string // "", Enforce or Shadow
}

func (b Budget) yaml() string {
	var spec flow
	addText(&spec, "queue", b.Queue)
	spec.add("ratio", milli(b.RatioMilli))
	spec.add("floor", fmt.Sprint(b.Floor))
	spec.add("window", duration(b.WindowMs))
	addText(&spec, "whenExhausted", b.WhenExhausted)
	addText(&spec, "mode", b.Mode)
	return fmt.Sprintf("apiVersion: refloat.github.io/v1\nkind: RetryBudget\nmetadata: {name: %s}\nspec: %s\n", b.Name, spec)
}

// account is everything that ever happened to a budget in force.
type account struct {
	Budget
	firsts []int64 // when there was a first run, by the watermark
	paid   []int64 // when first runs paid for a retry
	floor  []int64 // for when the floor granted one
}

// asked is what the budgets say about one retry.
type asked struct {
	name, effect string
	noted        bool
	firsts, left int
	at           int64
	from         int64 // before which those that are enforced grant none
}

// useBudgets says: a budget of the same name, queue and window goes on with its counts; any other begins anew.
func (m *Model) useBudgets() {
	var now []*account
	for _, b := range m.policies.Budgets {
		if m.version < BudgetsVersion {
			break
		}
		a := &account{Budget: b}
		for _, was := range m.budgets {
			if was.Name == b.Name && was.Queue == b.Queue && was.WindowMs == b.WindowMs {
				a.firsts, a.paid, a.floor = was.firsts, was.paid, was.floor
			}
		}
		now = append(now, a)
	}
	slices.SortFunc(now, func(a, b *account) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	m.budgets = now
}

func (a *account) of(queue string) bool { return a.Queue == "" || a.Queue == queue }

// firstRun: "the first run of a job that is known".
func (m *Model) firstRun(queue string) {
	for _, a := range m.budgets {
		if a.of(queue) {
			a.firsts = append(a.firsts, *m.watermark)
		}
	}
}

// share: "the floor divided by the number of partitions, rounded up".
func (m *Model) share(a *account) int {
	n := max(1, m.divided)
	whole := a.Floor / n
	if whole*n < a.Floor {
		whole++
	}
	return whole
}

// recent counts the times in the slice of now and the nine before it.
func (a *account) recent(times []int64, now int64) int {
	slice := func(t int64) *big.Int {
		n := new(big.Int)
		return n.Div(big.NewInt(t), big.NewInt(a.WindowMs*100_000)) // Euclidean: down, also before 1970
	}
	n := 0
	for _, t := range times {
		if age := new(big.Int).Sub(slice(now), slice(t)); age.Cmp(big.NewInt(10)) < 0 {
			n++
		}
	}
	return n
}

// within counts what the floor granted for (at - window, at].
func (a *account) within(at int64) int {
	n := 0
	for _, t := range a.floor {
		if plus(t, a.WindowMs) > at {
			n++
		}
	}
	return n
}

// askBudget says what one budget says now.
func (m *Model) askBudget(a *account) (out asked, paid bool) {
	now, share := *m.watermark, m.share(a)
	firsts := a.recent(a.firsts, now)
	out = asked{name: a.Name, effect: "BudgetGranted", noted: a.Mode == "Shadow", firsts: firsts, at: now}
	earned := int(int64(firsts)*a.RatioMilli/1000) - a.recent(a.paid, now)
	if share > 0 {
		// "the first moment from now on in whose window it has granted fewer than its share"
		candidates := []int64{now}
		for _, t := range a.floor {
			candidates = append(candidates, plus(t, a.WindowMs))
		}
		slices.Sort(candidates)
		for _, c := range candidates {
			if c >= now && a.within(c) < share {
				out.at = c
				break
			}
		}
		// "and, if it is ahead or the last one is, at least a share of the window after the last"
		if n := len(a.floor); n > 0 && (out.at > now || a.floor[n-1] > now) {
			spaced := new(big.Int).Div(big.NewInt(a.WindowMs*1_000_000), big.NewInt(int64(share)))
			out.at = max(out.at, saturate(spaced.Add(spaced, big.NewInt(a.floor[n-1]))))
		}
		if out.at == now {
			out.left = share - a.within(now)
		}
	}
	if earned > 0 {
		out.at, out.left = now, out.left+earned
		return out, true
	}
	if out.left == 0 {
		out.effect = "BudgetDelayed"
		if a.WhenExhausted == "Refuse" {
			out.effect = "BudgetExhausted"
		}
	}
	return out, false
}

// budgeted: semantics.md 14, of a retry that counts.
func (m *Model) budgeted(r *run, v verdict) verdict {
	if !v.granted {
		return v
	}
	weight := func(one asked) int {
		w := map[string]int{"BudgetGranted": 0, "BudgetDelayed": 1, "BudgetExhausted": 2}[one.effect]
		if w > 0 && !one.noted {
			w += 10
		}
		return w
	}
	for _, a := range m.budgets {
		if !a.of(r.job.queue) {
			continue
		}
		one, _ := m.askBudget(a)
		one.from = -1 << 63
		if v.asked != nil {
			one.from = v.asked.from
		}
		if one.effect == "BudgetDelayed" && !one.noted {
			one.from = max(one.from, one.at)
		}
		if was := v.asked; was != nil {
			harder := weight(one) > weight(*was)
			if weight(one) == weight(*was) {
				harder = one.at > was.at || one.at == was.at && one.left < was.left
			}
			if !harder {
				was.from = one.from
				continue
			}
		}
		v.asked = &one
	}
	if v.asked != nil && v.asked.effect == "BudgetExhausted" && !v.asked.noted {
		v.code, v.retry, v.granted = BudgetRefused, false, false
	}
	return v
}

// spend counts a retry that was granted, and puts what the budgets said into its record.
func (m *Model) spend(v verdict, rec *Record) {
	a := v.asked
	switch {
	case a == nil:
		return
	case v.granted, v.code == BudgetRefused, v.code == GroupRestart && a.effect == "BudgetExhausted" && !a.noted:
	default:
		return
	}
	rec.Budget, rec.BudgetEffect, rec.BudgetNoted, rec.BudgetFirsts, rec.BudgetLeft, rec.BudgetAt = a.name, a.effect, a.noted, a.firsts, a.left, a.at
	m.Seen["budget: "+a.effect]++
	if a.noted {
		m.Seen["budget in shadow: "+a.effect]++
	}
	if v.code == GroupRestart {
		m.Seen["budget fails a unit"]++
	}
	if !v.granted {
		return
	}
	for _, b := range m.budgets {
		if !b.of(rec.Queue) || rec.Shadow && b.Queue == "" {
			continue
		}
		one, paid := m.askBudget(b)
		switch {
		case paid:
			b.paid = append(b.paid, *m.watermark)
			m.Seen["budget: paid by first runs"]++
		case one.effect == "BudgetExhausted":
		default:
			b.floor = append(b.floor, one.at)
		}
	}
}

// heldBack is the end of a pause, or when the budgets grant a gang's retry, if that is later.
func (m *Model) heldBack(v verdict, pause, at, failingAt int64) int64 {
	if v.asked == nil {
		return pause
	}
	if v.asked.from > max(pause, at, failingAt) {
		m.Seen["budget held back a gang"]++
	}
	return max(pause, v.asked.from)
}

// budgetGenerator draws budgets from a stream of its own, so that the rest of a history stays.
type budgetGenerator struct{ *rand.Rand }

func newBudgetGenerator(seed uint64) *budgetGenerator {
	return &budgetGenerator{rand.New(rand.NewPCG(seed, 0xb0d9e7))}
}

// budgets draws the budgets of a generation; some are those of the one before, changed or not.
func (g *budgetGenerator) budgets(before []Budget) []Budget {
	var all []Budget
	for _, name := range []string{"all", "b", "zeta"} {
		i := slices.IndexFunc(before, func(b Budget) bool { return b.Name == name })
		switch p := g.Float64(); {
		case i >= 0 && p < 0.3:
			all = append(all, before[i])
		case i >= 0 && p < 0.6:
			b := g.budget(name)
			b.Queue, b.WindowMs = before[i].Queue, before[i].WindowMs
			all = append(all, b)
		case p < 0.85 && len(all) < 2:
			all = append(all, g.budget(name))
		}
	}
	return all
}

func (g *budgetGenerator) budget(name string) Budget {
	b := Budget{
		Name: name, RatioMilli: []int64{0, 0, 200, 333, 500, 1000}[g.IntN(6)], Floor: []int{1, 1, 1, 2, 3, 7}[g.IntN(6)],
		WindowMs: []int64{10_000, 10_001, 60_000, 600_000, 86_400_000}[g.IntN(5)], WhenExhausted: []string{"", "Delay", "Refuse"}[g.IntN(3)],
	}
	if g.IntN(2) == 0 {
		b.Queue = append(slices.Clip(queueNames), "nowhere")[g.IntN(len(queueNames)+1)]
	}
	if b.WhenExhausted == "Refuse" && g.IntN(3) == 0 {
		b.Floor = 0
	}
	if g.IntN(5) == 0 {
		b.Mode = "Shadow"
	}
	return b
}
