package main

import (
	"fmt"
	"testing"
	"time"
)

// TestDraw: a seed gives the same faults again, and every kind comes.
func TestDraw(t *testing.T) {
	t.Parallel()
	list := func(seed uint64) (faults []string, seen map[string]int) {
		next, err := draw(seed, "", 6, true)
		if err != nil {
			t.Fatal(err)
		}
		seen = map[string]int{}
		for range 1000 {
			f := next()
			seen[f.kind.name]++
			faults = append(faults, fmt.Sprint(f.kind.name, f.target, f.length, f.gap))
			if f.length < f.kind.from || f.length > f.kind.to || f.gap < 0 || f.gap > 2*time.Second {
				t.Fatalf("%s lasts %v, want %v to %v; the gap is %v", f.kind.name, f.length, f.kind.from, f.kind.to, f.gap)
			}
		}
		return faults, seen
	}
	one, seen := list(1)
	again, _ := list(1)
	other, _ := list(2)
	if fmt.Sprint(one) != fmt.Sprint(again) || fmt.Sprint(one) == fmt.Sprint(other) {
		t.Error("the seed does not decide which faults there are")
	}
	for _, k := range kinds() {
		if seen[k.name] == 0 {
			t.Errorf("%s is never drawn", k.name)
		}
	}
	next, err := draw(1, "", 6, false)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if f := next(); f.length > longFault {
			t.Fatalf("a short campaign has the fault %q of %v", f.kind.name, f.length)
		}
	}
	if _, err := draw(1, "no such kind", 6, true); err == nil {
		t.Error("a kind that is not there was drawn")
	}
}

// TestSpread: p50, p90 and the greatest, in seconds.
func TestSpread(t *testing.T) {
	t.Parallel()
	var ms []int64
	for i := range int64(100) {
		ms = append(ms, (99-i)*100)
	}
	if got, want := spread(ms), "5.00 / 9.00 / 9.90"; got != want {
		t.Errorf("spread = %s, want %s", got, want)
	}
	if got := spread(nil); got != "–" {
		t.Errorf("spread of nothing = %s", got)
	}
}
