package projection

import "slices"

// Job is what is kept of one job.
type Job struct {
	ID string

	// From its SubmitJob; Known is false while that was not seen.
	Known          bool
	Queue, Set     string
	RetryPolicies  string // the annotation as it stands
	FailFast       bool
	GangID         string
	GangSize       string // the annotation as it stands
	InitContainers []string
	GraceSeconds   int64 // as submitted; 0 when unset

	// From its runs.
	Runs        uint32   // run ids seen; the next run's index
	Open        uint32   // of them, not ended
	Latest      *Run     // the run that became known last; nil when Runs is 0
	Older       bool     // records of other runs were written
	FailedNodes []string // nodes of attempted failed runs, each once, in order of failure

	// From decisions.
	Rules         []RuleCount // in order of their first grant
	Granted       uint32      // retries that count
	LegacyReturns uint32      // decided returned leases that were attempted

	CancelRequested bool
	Cancelled       bool  // a CancelledJob was seen
	Ended           bool  // succeeded, cancelled, rejected or failed by us
	EndedAt         int64 // watermark when it ended
	FirstSeen       int64 // watermark when something was first kept for it
	Verdict         bool  // the scheduler's own terminal verdict stands on the latest run
	VerdictAt       int64 // watermark when it came
}

// RuleCount is what one rule granted to the job.
type RuleCount struct {
	Policy, Rule     string
	Granted, Ignored uint32
}

// RunEnd is how a run ended.
type RunEnd uint8

// How a run ended. Their numbers are stored.
const (
	NotEnded RunEnd = iota
	Succeeded
	Failed
)

// Outcome is what was made of a failed run. Its numbers are stored.
type Outcome uint8

// The outcomes of a failed run.
const (
	Undecided Outcome = iota
	Requeued
	Refused
	LeftAlone // NotDecided
)

// Run is one attempt of a job.
type Run struct {
	ID          string
	Seen        bool   // an event made it known; false: only its end of life was reported
	Index       uint32 // number of run ids seen before it
	Leased      bool
	LeasedNode  string // of its first JobRunLeased
	RunningNode string // of its last JobRunRunning that named one
	End         RunEnd
	Preempted   bool // by event or error
	Returned    bool // the lease was returned
	Attempted   bool
	Gone        bool // its pod is known to be gone
	Outcome     Outcome
	RetryAfter  int64 // of its requeue; Unix nanoseconds
	ReadyAfter  int64 // what a RetryReady would say; RetryAfter once it was said
}

// Grant counts one retry of a rule, or one that it ignored.
func (j *Job) Grant(policy, rule string, ignored bool) {
	i := 0
	for i < len(j.Rules) && (j.Rules[i].Policy != policy || j.Rules[i].Rule != rule) {
		i++
	}
	if i == len(j.Rules) {
		j.Rules = append(j.Rules, RuleCount{Policy: policy, Rule: rule})
	}
	if ignored {
		j.Rules[i].Ignored++
		return
	}
	j.Rules[i].Granted++
	j.Granted++
}

// avoid remembers the node of an attempted failed run.
func (j *Job) avoid(node string) {
	if node == "" {
		return
	}
	if slices.Contains(j.FailedNodes, node) {
		return
	}
	j.FailedNodes = append(j.FailedNodes, node)
}

// term says when a job may be forgotten: so many horizons after a base.
// Weight 0: never.
type term struct {
	weight uint8
	base   int64
}

// term follows from the job alone (SEMANTICS 1, last point).
func (j *Job) term() term {
	switch {
	case !j.Known:
		return term{weight: 1, base: j.FirstSeen}
	case j.Ended:
		return term{weight: 1, base: j.EndedAt}
	case j.Verdict:
		base := j.VerdictAt
		if j.Latest != nil && j.Latest.Outcome == Requeued {
			base = max(base, j.Latest.RetryAfter)
		}
		return term{weight: verdictWeight, base: base}
	}
	return term{}
}

const verdictWeight = 7
