package audit

import (
	"fmt"
	"strings"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
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
	if r.Retries() {
		out.RetryAfter = timeOf(r.RetryAfter)
	}
	return out
}

// describeOrder tells of an order and what became of it.
func describeOrder(r *chain.OrderAnswered) string {
	what := "to retry"
	if r.Action == policy.OrderGiveUp {
		what = "to give up"
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
