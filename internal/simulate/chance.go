package simulate

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/combin"
)

// level is the chance of an interval to miss, and of a difference to be said of equals.
const level = 0.05

// below is the chance that at most k of n fair coins show heads.
func below(n, k int) (chance float64) {
	for i := range k + 1 {
		chance += math.Exp(combin.LogGeneralizedBinomial(float64(n), float64(i)) - float64(n)*math.Ln2)
	}
	return chance
}

// rank is the rank, from 1, of the values from both ends that enclose the median with 95%; 0: there are too few values.
func rank(n int) (k int) {
	for k < n/2 && below(n, k) <= level/2 {
		k++
	}
	return k
}

func intervalOf(values []float64) Interval {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	out := Interval{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2}
	for _, v := range values {
		out.Mean += v / float64(n)
	}
	if k := rank(n); k > 0 {
		out.Low, out.High = &sorted[k-1], &sorted[n-k]
	}
	return out
}

func differenceOf(values []float64) *Difference {
	n, up, down := len(values), 0, 0
	for _, v := range values {
		switch {
		case v > 0:
			up++
		case v < 0:
			down++
		}
	}
	agree := max(up, down)
	return &Difference{Interval: intervalOf(values), Agree: agree, Chance: min(1, 2*below(n, n-agree))}
}

// holm decides which differences of so many seeds are said to be some, by Holm's correction of the level.
func holm(all []*Difference, seeds int) {
	differs := true
	for i, d := range slices.SortedStableFunc(slices.Values(all), func(a, b *Difference) int { return cmp.Compare(a.Chance, b.Chance) }) {
		corrected := level / float64(len(all)-i)
		differs = differs && d.Chance <= corrected
		if d.Differs = differs; !differs && 2*d.Agree > seeds {
			needed := seedsNeeded(float64(d.Agree)/float64(seeds), corrected)
			d.SeedsNeeded = &needed
		}
	}
}

// seedsNeeded is how many seeds show with 80% that a share of them is more than half, by the normal approximation, and at least as
// many as show it if all agree.
func seedsNeeded(share, level float64) int {
	z := func(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) } // quantile of the normal distribution
	root := (z(1-level/2)*0.5 + z(0.8)*math.Sqrt(share*(1-share))) / (share - 0.5)
	return int(math.Ceil(max(root*root, 1-math.Log2(level))))
}
