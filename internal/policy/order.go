package policy

import "slices"

// OrderAction is what an operator orders for a job whose latest run failed (semantics.md 16). Its numbers are stored.
type OrderAction uint8

// The actions.
const (
	UnknownOrder OrderAction = iota
	OrderRetry               // run it once more, though it failed for good
	OrderGiveUp              // do not run it again, though a retry was granted
	OrderStart               // start a retry that was granted now, or at an earlier time than its own
)

var orderActions = [...]string{"Unknown", "Retry", "GiveUp", "Start"}

// String returns the action's name, as answers print it.
func (a OrderAction) String() string { return NameAt(orderActions[:], uint8(a), "OrderAction") }

// ParseOrderAction returns the action that String names s.
func ParseOrderAction(s string) (OrderAction, bool) {
	i := slices.Index(orderActions[:], s)
	return OrderAction(max(i, 0)), i > 0
}

// Refusal is why an order is not carried out: the first in this order that applies (semantics.md 16). Its numbers are
// stored.
type Refusal uint8

// The refusals.
const (
	NotRefused       Refusal = iota
	RefusedAction            // nobody knows what it orders
	RefusedUnknown           // the job is not known in this queue and job set
	RefusedGroup             // the job is in a gang or a group, which runs and ends as a whole
	RefusedCancel            // the job was cancelled, or someone asked for that
	RefusedStale             // the run is not the job's latest one
	RefusedRunning           // the run has not ended
	RefusedSuccess           // the job or its run has succeeded
	RefusedUndecided         // nothing was decided about the run
	RefusedEnded             // the job ended otherwise than by a failed run
	RefusedRetrying          // to retry: a retry was granted already
	RefusedFailed            // to give up or to start: it has failed for good already
	RefusedShadow            // the queue is in shadow
	RefusedKill              // to retry or to start: retries are killed, or not enabled
	RefusedGone              // only before it is given: Armada no longer has the job
)

var refusals = [...]string{
	"None", "UnknownAction", "UnknownJob", "InGroup", "Cancelled", "StaleRun", "Running", "Succeeded", "NotDecided", "Ended", "Retrying", "Failed",
	"Shadow", "KillSwitch", "Gone",
}

// String returns the refusal's name, a metric label.
func (r Refusal) String() string { return NameAt(refusals[:], uint8(r), "Refusal") }

// Sentence says to people why the order is refused, and what they can do.
func (r Refusal) Sentence() string {
	switch r {
	case NotRefused:
		return "it is carried out"
	case RefusedAction:
		return "this program does not know what it orders: upgrade it"
	case RefusedUnknown:
		return "no such job is known in this queue and job set: it was never submitted here, or was forgotten one horizon after its end; submit it again"
	case RefusedGroup:
		return "the job is in a gang or a group, whose jobs start and end together: submit the group again, or cancel it"
	case RefusedCancel:
		return "the job was cancelled, or someone has asked for that: Armada starts no cancelled job again; submit it again"
	case RefusedStale:
		return "the job has had a newer run since: look at the job again"
	case RefusedRunning:
		return "the run has not ended: wait for its end, or cancel or preempt the job"
	case RefusedSuccess:
		return "the job has succeeded"
	case RefusedUndecided:
		return "nothing was decided about the run, so nothing is known of what became of the job: submit it again, or cancel it"
	case RefusedEnded:
		return "the job has ended, and not by a failed run: submit it again"
	case RefusedRetrying:
		return "a retry has been granted already: the job waits for it"
	case RefusedFailed:
		return "the job has failed for good already"
	case RefusedShadow:
		return "the queue is in shadow, where nobody acts on what is decided"
	case RefusedGone:
		return "Armada has pruned the job from its tables and cannot run it: submit it again"
	case RefusedKill:
		return "retries are killed or not enabled: resume them first"
	}
	return r.String()
}

// RefusesOrder returns why the policies refuse an order on a job of a queue that the job's own state does not.
func (s *Set) RefusesOrder(queue string, a OrderAction) Refusal {
	switch {
	case s.InShadow(queue):
		return RefusedShadow
	case a != OrderGiveUp && !s.Restarts(queue):
		return RefusedKill
	}
	return NotRefused
}
