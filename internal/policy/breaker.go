package policy

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
