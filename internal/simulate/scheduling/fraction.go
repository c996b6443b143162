package scheduling

import (
	"cmp"
	"math/bits"
)

// fraction is a queue's dominant share times its priority factor: amount × factor / total.
// It is the queue's fraction of its fair share, up to a constant that all queues share.
type fraction struct {
	amount, total, factor int64
}

// compare is negative if f is the smaller one. It is exact: products have up to 189 bits.
func (f fraction) compare(g fraction) int {
	if over, a := bits.Mul64(uint64(f.amount), uint64(f.factor)); over == 0 {
		if over, b := bits.Mul64(uint64(g.amount), uint64(g.factor)); over == 0 { // the usual case: up to 128 bits
			if f.total == g.total {
				return cmp.Compare(a, b)
			}
			a1, a0 := bits.Mul64(a, uint64(g.total))
			b1, b0 := bits.Mul64(b, uint64(f.total))
			if a1 != b1 {
				return cmp.Compare(a1, b1)
			}
			return cmp.Compare(a0, b0)
		}
	}
	a2, a1, a0 := product(uint64(f.amount), uint64(f.factor), uint64(g.total))
	b2, b1, b0 := product(uint64(g.amount), uint64(g.factor), uint64(f.total))
	for _, limb := range [3][2]uint64{{a2, b2}, {a1, b1}, {a0, b0}} {
		switch {
		case limb[0] < limb[1]:
			return -1
		case limb[0] > limb[1]:
			return 1
		}
	}
	return 0
}

// product is a × b × c, the most significant limb first.
func product(a, b, c uint64) (p2, p1, p0 uint64) {
	hi, lo := bits.Mul64(a, b)
	carry, p0 := bits.Mul64(lo, c)
	p2, p1 = bits.Mul64(hi, c)
	p1, over := bits.Add64(p1, carry, 0)
	return p2 + over, p1, p0
}

// dominant is the resource of which amounts are the largest part of totals; -1 if there is none with a total.
// Of equal parts it is the first.
func dominant(amounts, totals []int64) int {
	best := -1
	for r, total := range totals {
		if total == 0 || best >= 0 && amounts[r] == 0 {
			continue
		}
		if best < 0 || amounts[best] == 0 || isLarger(amounts[r], total, amounts[best], totals[best]) {
			best = r
		}
	}
	return best
}

// isLarger says whether one amount is a larger part of its total than another.
func isLarger(amount, total, other, otherTotal int64) bool {
	a1, a0 := bits.Mul64(uint64(amount), uint64(otherTotal))
	b1, b0 := bits.Mul64(uint64(other), uint64(total))
	return a1 > b1 || a1 == b1 && a0 > b0
}

// fractionOf is the fraction of fair share of a queue whose jobs have these amounts.
func fractionOf(amounts, totals []int64, factor int64) fraction {
	r := dominant(amounts, totals)
	if r < 0 {
		return fraction{0, 1, factor}
	}
	return fraction{amounts[r], totals[r], factor}
}
