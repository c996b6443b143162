package shadow

import (
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
)

// Filter narrows a report; the zero value selects all.
type Filter struct {
	Queue string
	Since int64 // only runs that failed at this time or later; 0: no limit
}

// Outcome is the outcome of a job after one of its runs failed.
type Outcome uint8

// The outcomes.
const (
	Open         Outcome = iota // the job is unfinished and has no other run: nothing to compare with yet
	ArmadaFailed                // Armada failed the job: this run was its last
	RanAgain                    // the job had another run
	Cancelled                   // the job was cancelled: this run was its last
	Succeeded                   // the job succeeded without another run
)

var outcomes = [...]string{"Open", "Failed", "RanAgain", "Cancelled", "Succeeded"}

// String returns the name of the outcome.
func (f Outcome) String() string { return outcomes[f] }

// Run is one failed run that was decided in shadow, with the outcome of its job.
type Run struct {
	Partition  int
	Decision   *chain.Decision
	Superseded bool // the decision came after its message was released
	Outcome    Outcome
	Job        jobdb.JobState
}

// Wait is the delay of the granted retry.
func (r *Run) Wait() time.Duration { return time.Duration(r.Decision.RetryAfter - r.Decision.Time) }

// Lost reports whether Armada brought the job to success with another run, although we
// would have failed it at this one.
func (r *Run) Lost() bool {
	return !r.Decision.Requeue && r.Outcome == RanAgain && r.Job == jobdb.JobSucceeded
}

// Differs reports whether Armada did the opposite.
func (r *Run) Differs() bool {
	return r.Decision.Requeue && r.Outcome == ArmadaFailed || !r.Decision.Requeue && r.Outcome == RanAgain
}

// Queue is the report on one queue.
type Queue struct {
	Name string
	// First and Last are the policy generations of its decisions in shadow, including
	// those before Filter.Since.
	First, Last uint64
	// Enforced is the generation of its first enforced decision after those; 0: none.
	Enforced uint64
	Jobs     Jobs
	Rules    []Rule // by policy and name
	Runs     []*Run // by partition, in log order
}

// Jobs counts jobs, each once, however many of its runs failed.
type Jobs struct {
	All          int `json:"all"` // with a failed run that was decided in shadow
	ArmadaFailed int `json:"armadaFailed"`
	WouldRetry   int `json:"armadaFailedWouldRetry"` // of those that Armada failed
	// RanAgain were run again by Armada after a failure at which we would have failed
	// them.
	RanAgain      int `json:"wouldFailRanAgain"`
	ThenSucceeded int `json:"wouldFailThenSucceeded"` // of those
	ThenOpen      int `json:"wouldFailThenOpen"`      // of those
	Cancelled     int `json:"cancelled"`              // after a failed last run
	Open          int `json:"open"`                   // unfinished after a failed last run
}

// Rule is what one rule would have done.
type Rule struct {
	Policy, Rule string
	Retry, Fail  Tally
	Waits        Waits // of Retry
}

// Tally counts failed runs with the same decision of ours.
type Tally struct {
	Runs          int            `json:"runs"`
	ArmadaFailed  int            `json:"armadaFailed"`
	RanAgain      int            `json:"ranAgain"`
	ThenSucceeded int            `json:"thenSucceeded"` // of those that ran again
	ThenOpen      int            `json:"thenOpen"`      // of those that ran again, unfinished
	Cancelled     int            `json:"cancelled"`
	Succeeded     int            `json:"succeeded"` // without another run
	Open          int            `json:"open"`
	Codes         map[string]int `json:"codes"`
}

func (t *Tally) add(r *Run) {
	if t.Codes == nil {
		t.Codes = map[string]int{}
	}
	t.Runs++
	t.Codes[r.Decision.Code.String()]++
	switch r.Outcome {
	case Open:
		t.Open++
	case ArmadaFailed:
		t.ArmadaFailed++
	case Cancelled:
		t.Cancelled++
	case Succeeded:
		t.Succeeded++
	case RanAgain:
		t.RanAgain++
		if r.Job == jobdb.JobSucceeded {
			t.ThenSucceeded++
		}
		if !r.Job.Terminal() {
			t.ThenOpen++
		}
	}
}

// Waits summarizes the delays of the retries.
type Waits struct{ Median, Longest, Total time.Duration }

// waitsOf takes sorted delays. With an even number, the median is the lower one of the
// two in the middle, which is a real value.
func waitsOf(all []time.Duration) Waits {
	if len(all) == 0 {
		return Waits{}
	}
	w := Waits{Median: all[(len(all)-1)/2], Longest: all[len(all)-1]}
	for _, d := range all {
		w.Total += d
	}
	return w
}
