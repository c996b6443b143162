package chain

import (
	"time"

	"github.com/refloat/refloat/internal/policy"
)

func budgetFields(w *wire, b *policy.Budget) {
	w.string(1, &b.Name)
	w.string(2, &b.Queue)
	w.uint32(3, &b.Ratio)
	w.uint32(4, &b.Floor)
	ms := b.Window.Milliseconds()
	if w.int(5, &ms); w.decodes {
		if ms < policy.LeastBudgetWindow.Milliseconds() || ms > policy.LongestBudgetWindow.Milliseconds() {
			w.wrong()
		}
		b.Window = time.Duration(ms) * time.Millisecond
	}
	w.bool(6, &b.Refuse)
	w.bool(7, &b.Shadow)
}

func budgetUseFields(w *wire, u *policy.BudgetUse) {
	w.string(1, &u.Budget)
	enum(w, 2, &u.Effect)
	w.bool(3, &u.Noted)
	w.uint32(4, &u.Firsts)
	w.uint32(5, &u.Left)
	w.int(6, &u.At)
}
