package audit

import (
	"cmp"
	"fmt"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// Case is a decision with the rows about it in the job database.
type Case struct {
	Job      *jobdb.Job
	Run      *jobdb.Run
	Decision *chain.Decision
	// Earlier are the job's decisions before this one, in order, with their runs.
	Earlier []Earlier
}

// Earlier is an earlier decision on the same job.
type Earlier struct {
	Decision *chain.Decision
	Run      *jobdb.Run
	// Anew: after it, a restart of the job's group that another job caused started the counts anew.
	Anew bool
}

// Explain evaluates a case again with the policy set that decided it, including every
// rule that was tried. It returns an error if the verdict differs from the recorded
// one: then the rows are not the input of the decision.
func Explain(set *policy.Set, c Case) (evaluator.Explanation, error) {
	f, err := c.failure()
	if err != nil {
		return evaluator.Explanation{}, err
	}
	newest := evaluator.Explain(set, f, evaluator.SemanticsVersion)
	differs := c.differs(&newest.Verdict)
	// Rows do not say which version of the semantics decided it: it is the newest that gives the same.
	for v := uint32(evaluator.SemanticsVersion); v > 0; v-- {
		x := evaluator.Explain(set, f, v)
		delayed := c.Decision.Member != nil || c.Decision.Code == policy.BudgetRefused || x.Verdict.Delay.Milliseconds() == c.Decision.DelayMS
		if delayed && c.differs(&x.Verdict) == nil {
			return x, nil
		}
	}
	return newest, differs
}

// differs compares a verdict with the decision.
func (c Case) differs(v *policy.Verdict) error {
	d := c.Decision
	if d.Member != nil {
		return c.differsAsMember(v)
	}
	if d.Code == policy.BudgetRefused || d.Code == policy.BreakerHeld {
		if v.Requeue && v.Rule == d.Rule && v.Policy == d.Policy && (v.GlobalUsed == d.GlobalUsed+1 || v.Code == policy.RuleIgnore && v.GlobalUsed == d.GlobalUsed) {
			return nil // policies alone would have retried, and counted it
		}
	}
	if v.Code != d.Code || v.Rule != d.Rule || v.Policy != d.Policy || v.GlobalUsed != d.GlobalUsed {
		return fmt.Errorf("%w: evaluating it again gives %s by %s/%s", ErrDifferent, v.Code, v.Policy, v.Rule)
	}
	return nil
}

// differsAsMember compares what the policies of a member say with its decision, of which
// its group has made another one where it came first or had the last word.
func (c Case) differsAsMember(v *policy.Verdict) error {
	d := c.Decision
	same := v.Policy == d.Policy && v.Rule == d.Rule
	switch d.Code {
	case policy.GroupOver:
		return nil // they were not asked
	case policy.GroupRestart:
		// A retry that the unit had no room for failed the job, and that restarted the unit.
		noRoom := d.Group != nil && (d.Budget != nil || d.Group.Reason == policy.BackoffLimitExceeded || d.Group.Reason == policy.MemberCancelled)
		same = d.Group == nil || same && (!v.Requeue || noRoom)
	case policy.GangRetry, policy.UnitLimit, policy.BudgetRefused:
		same = same && v.Requeue
	case policy.GangFail:
		same = d.Rule == "" || same
	default:
		same = same && v.Code == d.Code
	}
	if same {
		return nil
	}
	return fmt.Errorf("%w: evaluating it again gives %s by %s/%s, unless a restart of its group started its counts anew", ErrDifferent, v.Code, v.Policy, v.Rule)
}

// Asked reports whether the policies of the job were asked for a decision.
func Asked(d *chain.Decision) bool {
	return d.Code != policy.GroupOver && (d.Code != policy.GroupRestart || d.Group != nil)
}

// Recall returns what the rules saw in a case, and the counts before it, for callers
// without policies: no verdict, no rules, no delay.
func Recall(c Case) (evaluator.Explanation, error) {
	f, err := c.failure()
	if err != nil {
		return evaluator.Explanation{}, err
	}
	facts, before := evaluator.FactsOf(f, evaluator.SemanticsVersion)
	return evaluator.Explanation{Facts: facts, Before: before}, nil
}

// failure rebuilds the input of Step from rows.
func (c Case) failure() (*projection.Failure, error) {
	job := &projection.Job{
		ID: c.Job.JobID, Known: true, Queue: c.Job.Queue, Set: c.Job.JobSet,
		RetryPolicies: c.Job.Submit.RetryPolicies, FailFast: c.Job.Submit.FailFast == "true",
		GangID: c.Job.Submit.GangID, GangSize: c.Job.Submit.GangCardinality,
		InitContainers: c.Job.Submit.InitContainers, GraceSeconds: c.Job.Submit.GraceSeconds,
	}
	for _, e := range c.Earlier {
		evaluator.Recount(job, e.Decision)
		if v := e.Decision.Group; v != nil && !v.Noted && v.Action.Restarts() {
			job.Rules, job.LegacyReturns = nil, 0 // a restart by the group starts them anew
		}
		if e.Run != nil && e.Run.Flags.Returned && e.Run.Flags.Attempted {
			job.LegacyReturns++
		}
		if e.Anew {
			job.Rules, job.LegacyReturns = nil, 0
		}
	}
	f := &projection.Failure{
		JobID: c.Job.JobID, RunID: c.Run.RunID, Time: c.Decision.Time, Preempted: c.Run.Flags.Preempted,
		Job: job, Run: &projection.Run{ID: c.Run.RunID, Index: c.Run.Index}, Node: cmp.Or(c.Run.Error.Node, c.Run.Node), // semantics.md 2
		Ran: c.Run.Times.Running != 0, RunningSince: c.Run.Times.Running,
	}
	if c.Decision.Member != nil {
		f.Member = &projection.MemberFailure{Gang: job.IsGang()}
	}
	if len(c.Run.Error.Raw) > 0 {
		e, err := events.ReadError(c.Run.Error.Raw)
		if err != nil {
			return nil, fmt.Errorf("the database has the error of run %s in no form that Armada writes: there is nothing to explain (%w)", c.Run.RunID, err)
		}
		f.Error = e
	}
	return f, nil
}
