package simulate

import (
	"math"
	"testing"
)

// TestStudent: the percentiles of the published tables.
func TestStudent(t *testing.T) {
	t.Parallel()
	for degrees, want := range map[int]float64{1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 19: 2.093, 100: 1.984} {
		if got := student(degrees); math.Abs(got-want) > 0.02 {
			t.Errorf("student(%d) = %v, want %v", degrees, got, want)
		}
	}
}

// TestCompare: differences are taken seed by seed.
func TestCompare(t *testing.T) {
	t.Parallel()
	of := func(name string, done ...int) (out []*Result) {
		for i, n := range done {
			out = append(out, &Result{Candidate: name, Seed: uint64(i), Tally: Tally{Done: n}})
		}
		return out
	}
	all := Compare([][]*Result{of("a", 10, 20, 30, 40), of("b", 11, 21, 31, 42)})
	first, second := all[0].Measures[0], all[1].Measures[0]
	if first.Mean != 25 || first.Difference != nil || first.Differs() != true {
		t.Errorf("%+v", first)
	}
	d := second.Difference // 1, 1, 1, 2: mean 1.25, deviation 0.5, half 3.182 * 0.25
	if d == nil || d.Mean != 1.25 || math.Abs(*d.High-2.0455) > 0.01 || math.Abs(*d.Low-0.4545) > 0.01 || !d.Differs() {
		t.Errorf("%+v", second)
	}
	if one := Compare([][]*Result{of("a", 10)}); one[0].Measures[0].Low != nil {
		t.Errorf("one seed has an interval: %+v", one)
	}
}
