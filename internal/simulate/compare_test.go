package simulate

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// TestCompareParts: each queue, cause and rule that any candidate has is compared, with 0 for one that has it not.
func TestCompareParts(t *testing.T) {
	t.Parallel()
	of := func(name string, done int, rows ...FailureRow) *Result {
		return &Result{Candidate: name, Resources: []string{"cpu"}, Queues: []QueueResult{{Queue: "q", Tally: Tally{Done: done}}}, Failures: rows}
	}
	row := func(cause, rule, code string, runs uint64, cpu float64) FailureRow {
		return FailureRow{Cause: cause, Policy: "p", Rule: rule, Code: code, Runs: runs, Retried: runs / 2, WastedHours: map[string]float64{"cpu": cpu}}
	}
	none := FailureRow{Cause: "Stopped", Runs: 1, WastedHours: map[string]float64{"cpu": 7}} // nothing was decided on it
	all := Compare([][]*Result{
		{of("a", 5, row("oom", "r", "x", 2, 1), row("oom", "r", "y", 3, 2), none), of("a", 6, row("oom", "r", "x", 4, 1))},
		{of("b", 7, row("oom", "s", "x", 8, 4)), of("b", 9, row("oom", "s", "x", 6, 2))},
	})
	var got []string
	for i, p := range all[1].Parts {
		if first := all[0].Parts[i]; first.Name() != p.Name() || first.By != p.By {
			t.Errorf("the candidates have other parts: %s %s, %s %s", first.By, first.Name(), p.By, p.Name())
		}
		for _, m := range p.Measures {
			if m.Mean != 0 || m.Difference.Mean != 0 {
				got = append(got, fmt.Sprintf("%s %s %s %v, difference %v", p.By, p.Name(), m.Name, m.Mean, m.Difference.Mean))
			}
		}
	}
	want := []string{
		"Queue q jobs done 8, difference 2.5",
		"Cause Stopped runs that did not succeed 0, difference -0.5",
		"Cause Stopped wasted hours of cpu 0, difference -3.5",
		"Cause oom runs that did not succeed 7, difference 2.5",
		"Cause oom retried 3.5, difference 1.5",
		"Cause oom wasted hours of cpu 3, difference 1",
		"Rule p/r runs that did not succeed 0, difference -4.5",
		"Rule p/r retried 0, difference -2",
		"Rule p/r wasted hours of cpu 0, difference -2",
		"Rule p/s runs that did not succeed 7, difference 7",
		"Rule p/s retried 3.5, difference 3.5",
		"Rule p/s wasted hours of cpu 3, difference 3",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, m := range all[1].Parts[0].Measures[:1] { // differences 2 and 3: 2.5 ± 12.706 * 0.5
		if d := m.Difference; math.Abs(*d.Low-(2.5-6.353)) > 0.01 || math.Abs(*d.High-(2.5+6.353)) > 0.01 {
			t.Errorf("interval %v to %v", *d.Low, *d.High)
		}
	}
}
