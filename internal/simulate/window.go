package simulate

import "time"

// Span is a time, in hours since the begin.
type Span struct {
	From  float64 `json:"from"`
	Until float64 `json:"until"`
}

// Tail is the time after the last submission.
type Tail struct {
	Hours   float64 `json:"hours"`
	MeanUse float64 `json:"meanUse"` // of all nodes
	Done    int     `json:"done"`    // jobs
}

// window is the time that averages are taken of.
type window struct{ from, until time.Duration }

// of is how much of a time is in the window, and after it.
func (w *window) of(begins, ends time.Duration) (within, after time.Duration) {
	return max(0, min(ends, w.until)-max(begins, w.from)), max(0, ends-max(begins, w.until))
}

func (w *window) has(at time.Duration) bool { return at >= w.from && at < w.until }

// lastSubmission ends it. If everything is submitted before it begins, it begins then, and has no end.
func (w *window) lastSubmission(at time.Duration) {
	if at > w.from {
		w.until = at
	} else {
		w.from = at
	}
}
