package simulate

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompare: differences are taken seed by seed; six of one sign tell the candidates apart.
func TestCompare(t *testing.T) {
	t.Parallel()
	of := func(name string, done ...int) (out []*Result) {
		for i, n := range done {
			out = append(out, &Result{Candidate: name, Seed: uint64(i), Resources: []string{"cpu"}, Tally: Tally{Jobs: 100, Done: n, DoneInTime: n}})
		}
		return out
	}
	all := Compare([][]*Result{of("a", 10, 20, 30, 40, 50, 60), of("b", 11, 21, 31, 42, 51, 69)})
	first, second := all[0].Headline[0], all[1].Headline[0]
	if first.Median != 35 || first.Mean != 35 || *first.Low != 10 || *first.High != 60 || first.Difference != nil {
		t.Errorf("%+v", first)
	}
	if d := second.Difference; d == nil || d.Median != 1 || *d.Low != 1 || *d.High != 9 || math.Abs(d.Chance-2.0/64) > 1e-9 || d.Differs || *d.SeedsNeeded != 7 {
		t.Errorf("%+v, want a difference that two measures may show by chance", d)
	}
	all = Compare([][]*Result{of("a", 10, 20, 30, 40, 50, 60, 70), of("b", 11, 21, 31, 42, 51, 69, 71)})
	if d := all[1].Headline[0].Difference; !d.Differs || d.SeedsNeeded != nil {
		t.Errorf("%+v, want a difference", d)
	}
	for _, m := range all[1].Measures { // 2/128 is not small among 15
		if m.Difference.Differs {
			t.Errorf("%s differs: %+v", m.Name, m.Difference)
		}
	}
	if got := all[1].Verdict; !strings.HasPrefix(got, `b (B) against a (A), medians over 7 seeds: 1.0 more of "jobs done within `) || !strings.Contains(got, `; not told apart: "jobs done"`) || strings.Contains(got, "retries") {
		t.Errorf("the verdict is %s", got)
	}
	if all[0].Verdict != "" {
		t.Errorf("the first candidate has the verdict %s", all[0].Verdict)
	}
	for seeds, want := range map[int]string{
		1: "b (B) against a (A), under one seed: no difference that is more than chance (1 seed is too few",
		3: "b (B) against a (A), medians over 3 seeds: no difference that is more than chance (3 seeds are too few to decide by: use --seeds 10 or more); not told apart: ",
	} {
		if got := Compare([][]*Result{of("a", []int{10, 20, 30}[:seeds]...), of("b", []int{11, 21, 31}[:seeds]...)})[1].Verdict; !strings.HasPrefix(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got := Compare([][]*Result{of("a", 1, 2), of("b", 1, 2)})[1].Verdict; got != "b (B) against a (A), medians over 2 seeds: no difference under any seed in what decides" {
		t.Error(got)
	}
	if few := Compare([][]*Result{of("a", 10, 20, 30, 40, 50)}); few[0].Headline[0].Low != nil {
		t.Errorf("five seeds have an interval: %+v", few)
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
			if m.Median != 0 || m.Difference.Median != 0 {
				got = append(got, fmt.Sprintf("%s %s %s %v, difference %v", p.By, p.Name(), m.Name, m.Median, m.Difference.Median))
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
}

func TestIntervalsHaveNoNegativeZero(t *testing.T) {
	t.Parallel()
	low, high := -0.04, 0.04
	if got := (&Interval{Median: -0.001, Low: &low, High: &high}).String(); got != "0.0 (0.0 to 0.0)" {
		t.Error(got)
	}
	low = -1.04
	if got := (&Interval{Median: -0.06, Low: &low, High: &high}).String(); got != "-0.1 (-1.0 to 0.0)" {
		t.Error(got)
	}
}
