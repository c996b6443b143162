package query

import (
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
)

// TestVerdict: a sentence says what one side does that the other does not, and what of it is an estimate.
func TestVerdict(t *testing.T) {
	t.Parallel()
	estimates := func(jobs, succeeded, of uint64) []whatif.Estimate {
		return []whatif.Estimate{{Jobs: jobs, Succeeded: succeeded, Of: of}}
	}
	for _, c := range []struct {
		name     string
		from, to whatif.Side
		want     string
	}{
		{"equal", whatif.Side{Retries: 3, Succeeded: 2}, whatif.Side{Retries: 3, Succeeded: 2}, ""},
		{
			"known",
			whatif.Side{Retries: 3, Succeeded: 2},
			whatif.Side{Retries: 123, Succeeded: 36, Held: audit.Spent{Runs: 9, GPUHours: 12}},
			"retries 120 more failed runs; 34 more jobs succeed; costs 12 GPU-hours instead of none",
		},
		{
			"fewer",
			whatif.Side{Retries: 9, Succeeded: 2, Held: audit.Spent{Runs: 9, Unknown: 2, CPUHours: 3.26}},
			whatif.Side{Retries: 8, Succeeded: 1},
			"retries 1 fewer failed runs; 1 fewer jobs succeed; costs 100 % fewer core-hours (0 instead of 3.26), without 2 runs of which that is unknown",
		},
		{"in vain", whatif.Side{Retries: 1}, whatif.Side{Retries: 2}, "retries 1 more failed runs; as many jobs succeed; costs as much"},
		{
			"small cost",
			whatif.Side{Retries: 295, Runs: 295, Held: audit.Spent{Runs: 295, GPUHours: 2, CPUHours: .112}},
			whatif.Side{Retries: 398, Runs: 398, Held: audit.Spent{Runs: 398, GPUHours: 2, CPUHours: .152}},
			"retries 103 more failed runs; as many jobs succeed; costs 36 % more core-hours (0.152 instead of 0.112)",
		},
		{
			"hardly more",
			whatif.Side{Runs: 10, Held: audit.Spent{Runs: 10, GPUHours: 10000}},
			whatif.Side{Runs: 10, Held: audit.Spent{Runs: 10, GPUHours: 10040}},
			"as many jobs succeed; costs less than 1 % more GPU-hours (10040 instead of 10000)",
		},
		{
			"more runs",
			whatif.Side{Runs: 1, Held: audit.Spent{Runs: 1, CPUHours: .0001}},
			whatif.Side{Runs: 3, Held: audit.Spent{Runs: 3, CPUHours: .0003}},
			"as many jobs succeed; as many hours of GPUs and cores, in 2 more runs",
		},
		{"unknown cost", whatif.Side{Retries: 1}, whatif.Side{Retries: 2, Held: audit.Spent{Runs: 1, Unknown: 1}}, "retries 1 more failed runs; as many jobs succeed; what it costs is unknown"},
		{
			"estimate",
			whatif.Side{Succeeded: 5},
			whatif.Side{Retries: 40, Succeeded: 5, Estimated: 40, Estimates: estimates(40, 30, 100)},
			"retries 40 more failed runs; about 12.0 more jobs succeed (an estimate; as many in the history); costs as much, without retries that did not take place",
		},
		{
			"few cases",
			whatif.Side{Succeeded: 5, Estimated: 40, Estimates: estimates(40, 1, 2)},
			whatif.Side{Succeeded: 6, Held: audit.Spent{Runs: 1, GPUHours: 1}},
			"about 19.0 fewer jobs succeed (an estimate, partly from as few as 2 cases; 1 more in the history); costs 1 GPU-hours instead of none, without retries that did not take place",
		},
		{
			"more retries, fewer jobs",
			whatif.Side{Retries: 1, Succeeded: 5, Estimated: 2, Estimates: estimates(2, 30, 100)},
			whatif.Side{Retries: 4, Succeeded: 2, Estimated: 5, Estimates: estimates(5, 30, 100)},
			"retries 3 more failed runs; about 2.1 fewer jobs succeed (an estimate; 3 fewer in the history, which lacks the end of 3 more jobs); costs as much, without retries that did not take place",
		},
		{
			"no case",
			whatif.Side{},
			whatif.Side{Retries: 7, Estimated: 7, Estimates: estimates(7, 0, 0)},
			"retries 7 more failed runs; as many jobs succeed in the history, and nothing tells what becomes of 7 that end without their next retry, instead of 0; costs as much, without retries that did not take place",
		},
	} {
		if got := beside(&c.from, &c.to, ""); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
	results := []WhatIfResult{
		{Result: &whatif.Result{Compared: 9, Candidate: "a", Against: AgainstDecided, Sides: []whatif.Side{{Retries: 2}, {Retries: 5}}, Changed: 3}},
		{Result: &whatif.Result{Compared: 9, Candidate: "b", Against: AgainstDecided, Sides: []whatif.Side{{Retries: 5}, {Retries: 5}}}},
		{Result: &whatif.Result{Compared: 9, Candidate: "c", Against: AgainstDecided, Sides: []whatif.Side{{Retries: 5}, {Retries: 5}}, Changed: 1}},
		{Result: &whatif.Result{Compared: 9, Candidate: "d", Against: AgainstDecided, Sides: []whatif.Side{{Retries: 5}, {Retries: 5}}, Changed: 2, RetriesMore: 1, RetriesFewer: 1}},
	}
	judge(results)
	for i, want := range []string{
		"b, against a: retries 3 more failed runs; as many jobs succeed; costs as much",
		"c, against a: retries 3 more failed runs; as many jobs succeed; costs as much",
		"d, against a: retries 3 more failed runs; as many jobs succeed; costs as much",
		"a, against what was decided: retries 3 fewer failed runs; as many jobs succeed; costs as much",
		"b, against what was decided: no difference: every failed run is decided alike",
		"c, against what was decided: no difference in retries, jobs and cost; decisions differ otherwise",
		"d, against what was decided: retries as many failed runs (1 more, 1 fewer); as many jobs succeed; costs as much",
	} {
		if got := Verdicts(results)[i]; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestEstimateTexts: kinds of which no job is expected to succeed are one line.
func TestEstimateTexts(t *testing.T) {
	t.Parallel()
	got := EstimateTexts([]whatif.Estimate{{Jobs: 4, Of: 9, Basis: "a"}, {Jobs: 2, Succeeded: 1, Of: 2, Basis: "b"}, {Jobs: 1, Succeeded: 1, Of: 25, Basis: "c"}, {Jobs: 3, Basis: "d"}})
	if want := []string{"d", "about 1.0 of 2 jobs would succeed: b", "about 0.0 of 5 jobs of 2 kinds would succeed"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
