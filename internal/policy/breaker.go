package policy

import "time"

// MaxOpenBreakers is the maximum number of breakers that settings and overrides have open.
const MaxOpenBreakers = 100

// Breaker is what an open breaker holds: retries of failures of one category before a time (semantics.md 15).
type Breaker struct {
	Category    string
	Subcategory string // "": any
	Queue       string // "": all
	Until       int64  // Unix nanoseconds
}

// HeldUntil returns when the last open breaker ends that holds the retry of a failure, and false if none does.
func (s *Set) HeldUntil(f *Failure) (until int64, held bool) {
	for i := range s.openBreakers {
		b := &s.openBreakers[i]
		if f.Time < b.Until && b.Category == f.Category && (b.Subcategory == "" || b.Subcategory == f.Subcategory) && (b.Queue == "" || b.Queue == f.Queue) {
			until, held = max(until, b.Until), true
		}
	}
	return until, held
}

// HeldRetry returns from when on a retry may start that is held until a time: up to a tenth of the time since the failure later, by the
// run, so that not all start at once (semantics.md 15). Until is after the failure.
func (f *Failure) HeldRetry(until int64) int64 {
	held := (uint64(until) - uint64(f.Time)) / uint64(time.Millisecond)
	return addSaturating(until, int64(toDuration(part(held, 100, f.RunID))))
}

// Breakers is how breakers open and close by themselves (ADR 27). It changes no decision by itself.
type Breakers struct {
	Shadow    bool   // openings are logged and counted, and nothing is held
	OpenAfter uint32 // jobs that fail for one cause within the window
	Queues    uint32 // at least so many queues have them
	Window    time.Duration
	Hold      time.Duration // how long one is open at most
	Probe     time.Duration // between canaries of one cause
	Canaries  uint32        // that start together
	Ramp      time.Duration // within which the rest starts when it closes
}

// DefaultBreakers returns the values of fields that are not set.
func DefaultBreakers() Breakers {
	return Breakers{OpenAfter: 20, Queues: 2, Window: time.Minute, Hold: time.Hour, Probe: 30 * time.Second, Canaries: 3, Ramp: time.Minute}
}
