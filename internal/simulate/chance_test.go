package simulate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRank: the ranks of published tables.
func TestRank(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 0, 5: 0, 6: 1, 9: 2, 20: 6, 50: 18, 100: 40} {
		if got := rank(n); got != want {
			t.Errorf("rank(%d) = %d, want %d", n, got, want)
		}
	}
}

// TestCoverage: of 20 seeds, the interval has the median of all with 92% and more, however skewed the values are.
func TestCoverage(t *testing.T) {
	t.Parallel()
	const seeds, times = 20, 4000
	r := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() float64{
		"log-normal": func() float64 { return math.Exp(2.5 * r.NormFloat64()) },
		"Pareto":     func() float64 { return math.Pow(r.Float64(), -2) },
		"rare":       func() float64 { return max(0, math.Floor(3*(r.Float64()-0.6)*r.ExpFloat64())) },
		"normal":     r.NormFloat64,
	} {
		all := make([]float64, 100_001)
		for i := range all {
			all[i] = draw()
		}
		slices.Sort(all)
		median, hits := all[len(all)/2], 0
		for range times {
			values := make([]float64, seeds)
			for i := range values {
				values[i] = draw()
			}
			if i := intervalOf(values); *i.Low <= median && median <= *i.High {
				hits++
			}
		}
		if share := float64(hits) / times; share < 0.92 {
			t.Errorf("%s: %.3f of the intervals have the median", name, share)
		}
	}
}

// TestHolm: among many equals hardly ever one differs, and a real difference is found among them.
func TestHolm(t *testing.T) {
	t.Parallel()
	const measures, times = 100, 500
	r := rand.New(rand.NewPCG(3, 4))
	wrong, found := 0, 0
	for range times {
		var all []*Difference
		for m := range measures {
			values := make([]float64, 20)
			for i := range values {
				values[i] = r.NormFloat64()
				if m == 0 {
					values[i] += 3
				}
			}
			all = append(all, differenceOf(values))
		}
		holm(all, 20)
		if all[0].Differs {
			found++
		}
		if slices.ContainsFunc(all[1:], func(d *Difference) bool { return d.Differs }) {
			wrong++
		}
	}
	if float64(wrong) > times*level*1.5 || found < times*9/10 {
		t.Errorf("of %d comparisons, %d say of equals that they differ, and %d find the difference", times, wrong, found)
	}
}

// TestSeedsNeeded: with so many seeds, about 80% of the comparisons show a difference of that size.
func TestSeedsNeeded(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for _, share := range []float64{0.6, 0.7, 0.9} {
		n, shown := seedsNeeded(share, level), 0
		for range 1000 {
			values := make([]float64, n)
			for i := range values {
				values[i] = 1
				if r.Float64() > share {
					values[i] = -1
				}
			}
			if differenceOf(values).Chance <= level {
				shown++
			}
		}
		if shown < 700 || shown > 950 {
			t.Errorf("%d seeds show a share of %v in %d of 1000 comparisons", n, share, shown)
		}
	}
}
