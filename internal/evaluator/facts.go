package evaluator

import (
	"math"
	"slices"
	"time"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// The category and subcategory by which an executor reports that a job ran past its
// active deadline (semantics.md 2).
const (
	categoryInternal          = "internal"
	subcategoryActiveDeadline = "active-deadline"
)

// factsOf returns the facts of a failure that rules can match (semantics.md 2). It reuses
// the containers of f.
func factsOf(f *policy.Failure, failure *projection.Failure, semantics uint32) {
	job := failure.Job
	containers := f.Containers[:0]
	*f = policy.Failure{
		Queue:       job.Queue,
		RunID:       failure.RunID,
		Time:        failure.Time,
		JobPolicies: job.RetryPolicies,
		FailFast:    job.FailFast,
		Gang:        job.IsGang(),
		Grace:       policy.Grace(job.GraceSeconds),
		Unproved:    semantics < sinceProof,
	}
	if m := failure.Member; m != nil { // its group decides about gangs
		f.Gang, f.FailFast = false, f.FailFast && !m.Gang
	}
	if failure.Ran && semantics >= sinceRunDuration {
		f.Ran, f.RunDuration = true, between(failure.RunningSince, failure.Time)
	}
	if failure.Preempted {
		f.Conditions = f.Conditions.With(policy.Preempted)
	}
	if e := failure.Error; e != nil {
		f.Containers = containers
		f.Message = e.Message
		addError(f, e, job.InitContainers)
	}
}

// ErrorFacts are the facts that an error alone says. It reuses the containers of f.
func ErrorFacts(f *policy.Failure, e *events.Error) {
	*f = policy.Failure{Containers: f.Containers[:0], Message: e.Message}
	addError(f, e, nil)
}

func addError(f *policy.Failure, e *events.Error, initContainers []string) {
	f.Category, f.Subcategory = e.Category, e.Subcategory
	if e.Category == categoryInternal && e.Subcategory == subcategoryActiveDeadline {
		f.Conditions = f.Conditions.With(policy.DeadlineExceeded)
	}
	switch e.Reason {
	case events.PodError:
		addPodError(f, e, initContainers)
	case events.PodLeaseReturned:
		if e.RunAttempted {
			f.Conditions = f.Conditions.With(policy.LeaseReturned)
		} else {
			f.Conditions = f.Conditions.With(policy.Unschedulable)
		}
	case events.LeaseExpired:
		f.Conditions = f.Conditions.With(policy.LeaseExpired)
	case events.PreemptedError:
		f.Conditions = f.Conditions.With(policy.Preempted)
	case events.OtherReason, events.JobRejected:
	}
}

func addPodError(f *policy.Failure, e *events.Error, initContainers []string) {
	switch e.KubernetesReason {
	case events.PodEvicted:
		f.Conditions = f.Conditions.With(policy.Evicted)
	case events.PodDeadlineError:
		f.Conditions = f.Conditions.With(policy.DeadlineExceeded)
	case events.PodOOM:
		f.PodOOM = true
	case events.AppError:
	}
	for _, c := range e.Containers {
		f.Containers = append(f.Containers, policy.Container{
			Name: c.Name, ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message,
			Init: slices.Contains(initContainers, c.Name),
		})
	}
}

// between returns how much later the end is, at least 0: executors have clocks of their own.
func between(start, end int64) time.Duration {
	if end <= start {
		return 0
	}
	return time.Duration(min(uint64(end)-uint64(start), math.MaxInt64))
}

// countsOf returns the retries granted to the job so far. It reuses the rules of c.
func countsOf(c *policy.Counts, job *projection.Job) {
	c.Rules = c.Rules[:0]
	for _, r := range job.Rules {
		c.Rules = append(c.Rules, policy.RuleCount{
			Key:     policy.RuleKey{Policy: r.Policy, Rule: r.Rule},
			Granted: r.Granted, Ignored: r.Ignored,
		})
	}
	c.Granted, c.LegacyReturns = job.Granted, job.LegacyReturns
}

// Explain evaluates a failure as Step does by a version of the semantics, and also returns the facts that the rules
// saw, the counts before the failure, and how each rule was evaluated.
func Explain(set *policy.Set, f *projection.Failure, semantics uint32) Explanation {
	var x Explanation
	x.Facts, x.Before = FactsOf(f, semantics)
	x.Verdict, x.Traces = set.Explain(&x.Facts, &x.Before)
	if a, ok := set.Arithmetic(&x.Facts, &x.Before); ok {
		x.Delay = &a
	}
	return x
}

// FactsOf returns the facts that the rules see of a failure by a version of the semantics, and the counts before it.
func FactsOf(f *projection.Failure, semantics uint32) (facts policy.Failure, before policy.Counts) {
	factsOf(&facts, f, semantics)
	countsOf(&before, f.Job)
	return facts, before
}

// Explanation is a verdict with everything that led to it.
type Explanation struct {
	Facts   policy.Failure
	Before  policy.Counts
	Verdict policy.Verdict
	Traces  []policy.RuleTrace
	Delay   *policy.Arithmetic // nil: no policy asked for a delay
}
