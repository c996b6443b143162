package jobdb

import (
	"reflect"
	"testing"
)

// TestSpentBy: what a run held is what its job requests from the lease to the end, and unknown without any of them.
func TestSpentBy(t *testing.T) {
	t.Parallel()
	const second = 1_000_000_000
	requests := &Requests{CPU: 500, Memory: 2048, GPU: 8000}
	unknown := Spent{Runs: 1, Unknown: 1}
	for name, c := range map[string]struct {
		requests *Requests
		t        RunTimes
		want     Spent
	}{
		"two hours":          {requests, RunTimes{Leased: second, Running: 99 * second, Ended: 7201 * second}, Spent{Runs: 1, CPU: 500 * 7200, Memory: 2048 * 7200, GPU: 8000 * 7200}},
		"part of a second":   {requests, RunTimes{Leased: second, Ended: second + 2_000_000}, Spent{Runs: 1, CPU: 1, Memory: 4, GPU: 16}},
		"no time":            {requests, RunTimes{Leased: second, Ended: second}, Spent{Runs: 1}},
		"unknown requests":   {nil, RunTimes{Leased: second, Ended: 2 * second}, unknown},
		"no lease":           {requests, RunTimes{Running: second, Ended: 2 * second}, unknown},
		"no end":             {requests, RunTimes{Leased: second}, unknown},
		"ended before":       {requests, RunTimes{Leased: 2 * second, Ended: second}, unknown},
		"longer than a year": {requests, RunTimes{Leased: second, Ended: 400 * 86400 * second}, unknown},
	} {
		if got := SpentBy(c.requests, c.t); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	s := Spent{CPU: 500 * 7200, Memory: 2048 * 7200, GPU: 8000 * 7200}
	if s.CPUHours() != 1 || s.MemoryHours() != 4 || s.GPUHours() != 16 {
		t.Errorf("%v core hours, %v GiB hours, %v device hours, want 1, 4, 16", s.CPUHours(), s.MemoryHours(), s.GPUHours())
	}
	most := SpentBy(&Requests{CPU: MaxRequest}, RunTimes{Leased: 1, Ended: maxSeconds * second})
	if most.Unknown != 0 || most.CPU != MaxRequest*maxSeconds {
		t.Errorf("the most that is known: %+v", most)
	}
}

// TestCostText: columns decode to what was encoded, and bad ones are errors.
func TestCostText(t *testing.T) {
	t.Parallel()
	for _, r := range []*Requests{nil, {}, {CPU: 1, Memory: 2, GPU: 3}} {
		if got, err := DecodeRequests(EncodeRequests(r)); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v became %+v: %v", r, got, err)
		}
	}
	for _, c := range []*Cause{nil, {}, {"p", "r", "c\xff", "n\x00"}} {
		if got, err := DecodeCause(EncodeCause(c)); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%+v became %+v: %v", c, got, err)
		}
	}
	if _, err := DecodeRequests("{"); err == nil {
		t.Error("requests that are no JSON decode")
	}
	if _, err := DecodeCause("{"); err == nil {
		t.Error("a cause that is no JSON decodes")
	}
}
