package writer

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/sink"
)

// afterAll is a time at which whatever waits is due.
const afterAll = never - int64(time.Minute)

// copyMargin is what a copy of a transaction that failed may have above the rows of a
// job that waits. A job is queued once per step, which raises each version by one, and
// the next step needs a lease, which the scheduler only makes of what was committed. So
// these rows win even over a copy that the broker stores after events were read.
const copyMargin = 1

// EndWaits ends all waits of a partition, for when Armada's own ingester goes on:
// jobs that wait for their time get requirements that nodes fit, and those that
// the scheduler was to forget first are put into the queue. It says how many jobs
// that were. No copies are made, and nothing is raised again: a scheduler that did
// not take a job in by then does so when it is restarted. (A raise could take the version
// of a lease that stands in events and not in the rows yet; the lease would then be ignored.)
//
// Events are read from our position to their end: Armada's ingester will apply the
// copies in them, also those that were published by a transaction that then failed. What
// EndWaits writes has higher versions than these copies. Nil: there is no such position.
//
// Requests to preempt runs that are over end as well: the scheduler that is started
// next would preempt the dead run of a job in the queue, and fail the job with it.
// (Requeues end them too, but not those of older builds.)
//
// Jobs whose requirements cannot be rebuilt are an error, since they would wait
// for ever.
func EndWaits(ctx context.Context, tx pgx.Tx, cfg Config, events eventlog.Reader) (ended int, err error) {
	m := New(cfg)
	w := writing{Mirror: m, conn: tx, armada: pgstore.In(tx), when: sink.Moment{Now: time.Unix(0, afterAll), End: eventlog.Start}}
	for {
		jobs, ids, err := w.loadDue(ctx)
		if err != nil {
			return ended, err
		}
		if len(ids) == 0 {
			break
		}
		p := w.plan(jobs)
		for _, id := range ids {
			j := jobs[id]
			j.version, j.infoVersion = j.version+copyMargin, j.infoVersion+copyMargin
			p.tick(j)
			j.put(nil)
		}
		if len(p.unable) > 0 {
			return ended, errors.Join(p.unable...)
		}
		if err := w.write(ctx, p); err != nil {
			return ended, err
		}
		ended += len(ids)
	}
	if events != nil {
		if err := w.outbidCopies(ctx, events); err != nil {
			return ended, err
		}
	}
	return ended, w.endPreemptions(ctx)
}

// endPreemptions ends the requests to preempt the runs of queued jobs: all of these
// runs are over.
func (w *writing) endPreemptions(ctx context.Context) error {
	if err := w.armada.Lock(ctx); err != nil {
		return w.failed("end preemption requests", err)
	}
	const query = `UPDATE runs SET preempt_requested = false FROM jobs j
		WHERE runs.job_id = j.job_id AND runs.preempt_requested AND runs.terminated AND j.queued AND NOT j.terminated`
	_, err := w.conn.Exec(ctx, query)
	return w.failed("end preemption requests", err)
}
