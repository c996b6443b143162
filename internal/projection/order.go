package projection

import (
	"slices"
	"strings"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/policy"
)

// Order is an operator's order on a failed run in the current message (semantics.md 16).
type Order struct {
	*events.Order
	JobID, RunID string
	Time         int64 // t, Unix nanoseconds
	Job          *Job
	Run          *Run // the job's latest one; nil: it has none
	Answer       OrderAnswer

	entry *entry
}

// OrderAnswer is what becomes of an order.
type OrderAnswer struct {
	Refusal                policy.Refusal
	RetryAfter, ReadyAfter int64 // of a retry that is carried out; Unix nanoseconds
	AvoidNodes             []string
	NodesLeftOut           uint32
}

// keptOrders is the number of orders on a job, the last ones, of which a repetition is recognized. An older one has no
// effect: each order that is carried out changes the state that the next one asks for, and the job's run.
const keptOrders = 16

// answer answers the orders of a message, in their order.
func (s *State) answer(queue, set string) error {
	for i := range s.msg.orders {
		o := &s.msg.orders[i]
		j := o.Job
		if slices.Contains(j.Orders, o.ID) {
			continue
		}
		o.Run = j.Latest
		o.Answer = OrderAnswer{Refusal: j.Refuses(policy.OrderAction(min(o.Action, 255)), o.RunID, queue, set)}
		var err error
		if o.Answer, err = s.msg.q.Answer(o); err != nil {
			return err
		}
		s.happened(o)
		j.Orders = append(j.Orders[max(0, len(j.Orders)-keptOrders+1):], strings.Clone(o.ID))
		s.carryOut(o)
	}
	return nil
}

// Refuses returns why an order on a run is refused, in a message of a queue and job set, whatever policies say.
func (j *Job) Refuses(action policy.OrderAction, run, queue, set string) policy.Refusal {
	r := j.Latest
	switch {
	case action < policy.OrderRetry || action > policy.OrderStart:
		return policy.RefusedAction
	case !j.Known || j.Queue != queue || j.Set != set:
		return policy.RefusedUnknown
	case j.Member != nil || j.IsGang():
		return policy.RefusedGroup
	case j.Cancelled || j.CancelRequested:
		return policy.RefusedCancel
	case r == nil || r.ID != run:
		return policy.RefusedStale
	case r.End == NotEnded:
		return policy.RefusedRunning
	case r.End == Succeeded || j.Succeeded:
		return policy.RefusedSuccess
	case r.Outcome != Requeued && r.Outcome != Denied:
		return policy.RefusedUndecided
	case r.Outcome == Requeued && j.Ended:
		return policy.RefusedEnded
	case r.Outcome == Requeued && action == policy.OrderRetry:
		return policy.RefusedRetrying
	case r.Outcome == Denied && action != policy.OrderRetry:
		return policy.RefusedFailed
	}
	return policy.NotRefused
}

// carryOut applies an order that is not refused. To give up is a request to cancel the job: who starts its next run at
// that moment is told to stop it.
func (s *State) carryOut(o *Order) {
	if o.Answer.Refusal != policy.NotRefused || o.Run == nil || o.Run.ID != o.RunID { // a rebuilt state may know another run
		return
	}
	if policy.OrderAction(o.Action) == policy.OrderGiveUp {
		o.Job.CancelRequested = true
		return
	}
	o.Job.Ended, o.Job.EndedAt = false, 0
	o.Run.Outcome, o.Run.RetryAfter, o.Run.ReadyAfter = Requeued, o.Answer.RetryAfter, o.Answer.ReadyAfter
	s.touchRun(o.entry, o.Run)
}
