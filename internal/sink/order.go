package sink

import (
	"slices"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// order applies the answer to an operator's order, and reports whether it changed the job (semantics.md 16). If the
// message is superseded, or the run's failure was released, it does not: the rows show what Armada did.
func (f *fold) order(o *chain.OrderAnswered) bool {
	j, run := f.rowsOf(o.JobID, o.RunID)
	if f.Superseded || o.Refusal != policy.NotRefused || j == nil || run == nil || run.Outcome == jobdb.Released || j.Queueing.LatestRun != o.RunID {
		return false
	}
	if o.Action == policy.OrderStart {
		return f.ready(&chain.RetryReady{JobID: o.JobID, RunID: o.RunID, RetryAfter: o.RetryAfter})
	}
	if o.Action == policy.OrderGiveUp {
		if j.State.Terminal() {
			return false
		}
		f.touch(j, f.Log.Position)
		j.CancelRequested = true
		return true
	}
	if j.State != jobdb.JobFailed {
		return false
	}
	f.touch(j, f.Log.Position)
	f.touchRun(run)
	run.Outcome, run.Shadow = jobdb.Requeued, false
	j.Final, j.Queueing.Decision = false, run.Decision
	j.queued(o.RetryAfter, o.AvoidNodes)
	return true
}

// orders reports whether the message has an order on a job.
func (m *Message) orders(job, id string) bool {
	return m.Events != nil && slices.ContainsFunc(m.Events.Events, func(ev events.Event) bool {
		return ev.Kind == events.JobOrder && ev.JobID == job && ev.Order.ID == id
	})
}
