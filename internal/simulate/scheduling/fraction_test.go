package scheduling

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestFractionsAreExact compares fractions that are almost equal, or equal, of numbers of any size with those of math/big.
func TestFractionsAreExact(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	upTo := func(bits int) int64 { return 1 + r.Int64N(1<<(1+r.IntN(bits))) }
	product := func(a, b, c int64) *big.Int {
		p := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		return p.Mul(p, big.NewInt(c))
	}
	seen := map[int]int{}
	for range 100_000 {
		f := fraction{upTo(62), upTo(62), upTo(62)}
		g := fraction{0, upTo(62), upTo(62)}
		// What makes them equal, or the next amount below it.
		amount := new(big.Int).Quo(product(f.amount, f.factor, g.total), product(g.factor, f.total, 1))
		if r.IntN(4) == 0 {
			g.total, g.factor = f.factor, f.total
		}
		if !amount.IsInt64() {
			continue
		}
		if g.amount = amount.Int64(); r.IntN(8) == 0 {
			g = fraction{f.factor, f.total, f.amount}
		}
		want := product(f.amount, f.factor, g.total).Cmp(product(g.amount, g.factor, f.total))
		if got := f.compare(g); got != want {
			t.Fatalf("%v against %v: %d, want %d", f, g, got, want)
		}
		if got := g.compare(f); got != -want {
			t.Fatalf("%v against %v: %d, want %d", g, f, got, -want)
		}
		seen[want]++
	}
	if seen[0] < 1000 || seen[1] < 1000 {
		t.Errorf("hardly tested: %v", seen)
	}
}
