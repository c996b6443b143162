package policy

import (
	"testing"
	"time"
)

// TestRunDurationProofs: what is proven holds of every duration, and what holds of bounds is proven.
func TestRunDurationProofs(t *testing.T) {
	const most = 5
	var all []RunDuration
	for least := range time.Duration(most) {
		all = append(all, RunDuration{AtLeast: least})
		for less := least + 1; less <= most; less++ {
			all = append(all, RunDuration{AtLeast: least, LessThan: less})
		}
	}
	scope := &Scope{}
	matches := func(d RunDuration, ran time.Duration) bool {
		_, ok := d.holds(scope, &Failure{Ran: true, RunDuration: ran})
		return ok
	}
	for _, a := range all {
		if _, ok := a.holds(scope, &Failure{}); ok {
			t.Errorf("%v matches a run that never was running", a)
		}
		for _, b := range all {
			covers, disjoint := true, true
			for ran := range time.Duration(most + 1) {
				covers = covers && (matches(a, ran) || !matches(b, ran))
				disjoint = disjoint && (!matches(a, ran) || !matches(b, ran))
			}
			if got := a.covers(scope, b, scope); got != covers {
				t.Errorf("%v covers %v: %v, want %v", a, b, got, covers)
			}
			if got := a.disjoint(scope, b, scope); got != disjoint {
				t.Errorf("%v and %v disjoint: %v, want %v", a, b, got, disjoint)
			}
		}
	}
}
