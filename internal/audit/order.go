package audit

import (
	"fmt"
	"strings"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// orderOther converts the answer to an order for JSON output.
func orderOther(partition int, r *chain.OrderAnswered) Other {
	out := Other{
		Record: "OrderAnswered", Partition: partition, Position: positionOf(r.Position), Queue: r.Queue, JobSet: r.JobSet, JobID: r.JobID, RunID: r.RunID,
		Order: r.OrderID, Action: r.Action.String(), Author: r.Author, Reason: r.Reason, EventTime: timeOf(r.Time),
	}
	if r.Refusal != policy.NotRefused {
		out.Refusal = r.Refusal.String()
	}
	if r.Retries() || r.Action == policy.OrderStart && r.Refusal == policy.NotRefused {
		out.RetryAfter = timeOf(r.RetryAfter)
	}
	return out
}

// describeOrder tells of an order and what became of it.
func describeOrder(r *chain.OrderAnswered) string {
	what := "to retry"
	switch r.Action {
	case policy.OrderGiveUp:
		what = "to give up"
	case policy.OrderStart:
		what = "to start the retry of"
	case policy.OrderRetry, policy.UnknownOrder:
	}
	s := fmt.Sprintf("OrderAnswered: %s ordered %s job %s after run %s", r.Author, what, r.JobID, r.RunID)
	if r.Reason != "" {
		s += fmt.Sprintf(" (%s)", r.Reason)
	}
	switch {
	case r.Refusal != policy.NotRefused:
		return s + fmt.Sprintf(": refused, %s: %s", r.Refusal, r.Refusal.Sentence())
	case r.Action == policy.OrderGiveUp:
		return s + ": it does not run again"
	}
	s += ": it runs again, not before " + timeOf(r.RetryAfter)
	if len(r.AvoidNodes) > 0 {
		s += ", not on " + strings.Join(r.AvoidNodes, ", ")
	}
	return s
}

// Refuses returns why an order on the latest run of a job is refused, as far as rows say: as projection.Job.Refuses, which
// answers it. runs are those of the job.
func Refuses(j *jobdb.Job, runs []*jobdb.Run, action policy.OrderAction) policy.Refusal {
	job := projection.Job{
		Known: j.Known, Queue: j.Queue, Set: j.JobSet, GangID: j.Submit.GangID, GangSize: j.Submit.GangCardinality,
		Cancelled: j.State == jobdb.JobCancelled, CancelRequested: j.CancelRequested, Succeeded: j.State == jobdb.JobSucceeded, Ended: j.Final,
	}
	if j.Member.GroupID != "" {
		job.Member = &projection.Member{}
	}
	for _, r := range runs {
		if r.RunID != j.Queueing.LatestRun {
			continue
		}
		job.Latest = &projection.Run{ID: r.RunID}
		switch r.State {
		case jobdb.RunSucceeded:
			job.Latest.End = projection.Succeeded
		case jobdb.RunFailed:
			job.Latest.End = projection.Failed
		default: // it has not ended
		}
		switch r.Outcome {
		case jobdb.Requeued:
			job.Latest.Outcome = projection.Requeued
		case jobdb.Denied:
			job.Latest.Outcome = projection.Denied
		default: // nothing was decided, or it has no effect
		}
	}
	return job.Refuses(action, j.Queueing.LatestRun, j.Queue, j.JobSet)
}
