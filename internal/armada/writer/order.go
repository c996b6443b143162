package writer

import (
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/schedulerdb"
)

// What the answers to operators' orders do to Armada's tables (semantics.md 16).

// ordered is an order that is carried out.
type ordered struct {
	*chain.OrderAnswered
	at eventlog.Position // of the message
}

func (a ordered) job() string { return a.JobID }

// by says who ordered it and why, as Armada's tables can hold it.
func (a ordered) by() string {
	return groupName(fmt.Sprintf("ordered by %s: %s", a.Author, a.Reason))
}

var errNoRow = errors.New("its row was pruned from Armada's tables: submit it again")

// order carries out an order. A retry that is started is brought forward, as by proof. A job that failed starts again as a
// member that its group restarts. To give a job up is to ask the scheduler to cancel it, which also ends a run that it leases at
// that moment.
func (p *plan) order(j *jobView, a ordered) {
	w := &pendingRetry{runID: a.RunID, retryAfter: a.RetryAfter, avoid: storableOf(a.AvoidNodes), copied: p.copied(a.at), text: a.by()}
	switch {
	case !j.known || j.cancelled:
		why := errNoRow
		if j.known {
			why = errNotAgain
		}
		p.unable = append(p.unable, fmt.Errorf("job %s: %s: %w", j.id, a.by(), why))
	case a.Action == policy.OrderGiveUp:
		p.giveUp(j, a)
	case a.Action == policy.OrderStart:
		p.proven(&chain.RetryReady{JobID: a.JobID, RunID: a.RunID, RetryAfter: a.RetryAfter})
	case j.queued && !j.over: // Armada has queued it itself
	default:
		w.delayed = p.mode == HoldBack && w.ready() > p.now
		p.again(j, w, false)
	}
}

func (p *plan) giveUp(j *jobView, a ordered) {
	if j.over {
		return
	}
	p.apply(&schedulerdb.RequestCancel{JobID: j.id, Queue: j.queue, JobSet: j.set, User: groupName(a.Author), Reason: a.by()})
	if p.copied(a.at) {
		p.copy(copyOf{jobID: j.id, queue: j.queue, set: j.set, at: p.now, cancel: true, text: a.by()})
	}
}
