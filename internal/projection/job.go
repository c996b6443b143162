package projection

import "slices"

// Job is the state of one job.
type Job struct {
	ID string

	// From its SubmitJob; Known is false until that has been seen.
	Known          bool
	Queue, Set     string
	RetryPolicies  string // the annotation, verbatim
	FailFast       bool
	GangID         string
	GangSize       string // the annotation, verbatim
	InitContainers []string
	GraceSeconds   int64 // as submitted; 0 if unset

	Member *Member // nil: it is in no group

	// From its runs.
	Runs        uint32   // number of run ids seen; the next run's index
	Open        uint32   // of them, not ended
	Latest      *Run     // the run that became known last; nil if Runs is 0
	Older       bool     // there are records of other runs
	FailedNodes []string // nodes of attempted failed runs, each once, in order of failure

	// From decisions.
	Rules         []RuleCount // in order of their first grant
	Granted       uint32      // retries that count against limits
	LegacyReturns uint32      // decided returned leases that were attempted

	CancelRequested bool
	Cancelled       bool     // there was a CancelledJob
	Ended           bool     // succeeded, cancelled, rejected or failed by us
	Succeeded       bool     // ended by a JobSucceeded
	EndedAt         int64    // watermark at its end
	FirstSeen       int64    // watermark when the first information about it was kept
	Orders          []string // ids of the last orders on it that were answered
	Verdict         bool     // the latest run has the scheduler's own terminal verdict
	VerdictAt       int64    // watermark at that verdict
}

// RuleCount is the number of retries that one rule granted to the job.
type RuleCount struct {
	Policy, Rule     string
	Granted, Ignored uint32
}

// RunEnd is how a run ended.
type RunEnd uint8

// The ends of a run. Their numbers are stored.
const (
	NotEnded RunEnd = iota
	Succeeded
	Failed
)

// Outcome is the decision on a failed run. Its numbers are stored.
type Outcome uint8

// The outcomes of a failed run.
const (
	Undecided Outcome = iota
	Requeued
	Denied
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
	Preempted   bool // according to an event or an error
	Returned    bool // the lease was returned
	Attempted   bool
	Gone        bool // its pod is known to be gone
	Outcome     Outcome
	RetryAfter  int64 // of its requeue; Unix nanoseconds
	ReadyAfter  int64 // RetryAfter after a RetryReady; once there was one, RetryAfter before it

	Running      bool  // it has not ended, and it is known since when it is running (ADR 22)
	RunningSince int64 // t of its first JobRunRunning
}

func (r *Run) end(how RunEnd) { r.End, r.Running, r.RunningSince = how, false, 0 }

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

// avoid records the node of an attempted failed run.
func (j *Job) avoid(node string) {
	if node == "" {
		return
	}
	if slices.Contains(j.FailedNodes, node) {
		return
	}
	j.FailedNodes = append(j.FailedNodes, node)
}

// term defines when a job may be forgotten: a number of horizons (the weight) after a
// base. Weight 0: never.
type term struct {
	weight uint8
	base   int64
}

// term returns the job's term, which depends only on the job (semantics.md 1, last point).
func (j *Job) term() term {
	switch {
	case j.Member != nil:
		return term{} // with its group
	case !j.Known:
		return term{weight: 1, base: j.FirstSeen}
	case j.Ended:
		return term{weight: 1, base: j.EndedAt}
	case j.Verdict:
		base := j.VerdictAt
		if j.Latest != nil && j.Latest.Outcome == Requeued {
			base = max(base, j.Latest.RetryAfter, j.Latest.ReadyAfter)
		}
		return term{weight: verdictWeight, base: base}
	}
	return term{}
}

const verdictWeight = 7
