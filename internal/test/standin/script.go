package standin

import "time"

// Outcome is the outcome of one pod of a job. Succeed and similar functions make one; its methods refine it.
type Outcome struct {
	kind                  kind
	after                 time.Duration
	exit                  int32
	oom                   bool
	message               string
	category, subcategory string
	replay                bool
}

type kind int

const (
	succeeds kind = iota + 1
	fails
	isPreempted
	expires
	neverStarts
	isReturned
	runsForEver
)

// runsFor is how long a pod runs if its script does not say.
const runsFor = 2 * time.Second

// Succeed ends a pod well.
func Succeed() Outcome { return Outcome{kind: succeeds, after: runsFor} }

// Fail ends a pod with an exit code of its container.
func Fail(code int32) Outcome {
	return Outcome{kind: fails, after: runsFor, exit: code, message: "scripted failure"}
}

// OOM ends a pod that took too much memory.
func OOM() Outcome {
	return Outcome{kind: fails, after: runsFor, exit: 137, oom: true, message: "scripted OOM"}
}

// Preempted makes the scheduler preempt the run. The pod runs until its executor has learned of that from the runs
// table and has deleted it.
func Preempted() Outcome { return Outcome{kind: isPreempted, after: runsFor} }

// Expired takes the pod away without a word, and has the scheduler end the lease.
func Expired() Outcome { return Outcome{kind: expires, after: runsFor} }

// NeverStarts is a pod that Kubernetes cannot schedule: the lease is returned without an attempt.
func NeverStarts() Outcome { return Outcome{kind: neverStarts, after: runsFor} }

// Returned is a pod that got a node and did not come up: the lease is returned,
// and that is an attempt.
func Returned() Outcome { return Outcome{kind: isReturned, after: runsFor} }

// Forever is a pod that runs until it is stopped.
func Forever() Outcome { return Outcome{kind: runsForEver} }

// After is the outcome that comes when the pod has run for d.
func (o Outcome) After(d time.Duration) Outcome {
	o.after = d
	return o
}

// In is the failure as the executor's categorizer classes it.
func (o Outcome) In(category, subcategory string) Outcome {
	o.category, o.subcategory = category, subcategory
	return o
}

// WithMessage is the failure with a message of the container's.
func (o Outcome) WithMessage(message string) Outcome {
	o.message = message
	return o
}

// Replayed is the failure, after which the executor forgets what it has reported:
// assigned, running and the failure come once more, with other times.
func (o Outcome) Replayed() Outcome {
	o.replay = true
	return o
}

// State is the state of a job in the scheduler's memory.
type State int

// The states of a job. Unseen is one that the scheduler has never read.
const (
	Unseen State = iota
	Queued
	Leased
	Succeeded
	Failed
	Cancelled
)

// String is the state's name.
func (s State) String() string {
	switch s {
	case Unseen:
		return "unseen"
	case Queued:
		return "queued"
	case Leased:
		return "leased"
	case Succeeded:
		return "succeeded"
	case Failed:
		return "failed"
	case Cancelled:
		return "cancelled"
	}
	return "unknown"
}
