package writer

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/sink"
)

// afterAll is a time at which every pending retry is due.
const afterAll = never - int64(time.Minute)

// copyMargin is how far the versions in a copy of a failed transaction can exceed the
// rows of a job with a pending retry. Each step queues a job once, which bumps each
// version by one, and the next step needs a lease, which the scheduler makes only from
// committed rows. So these rows win even over a copy that the broker stores after
// events were read.
const copyMargin = 1

// EndRetries ends all pending retries of a partition before Armada's own ingester
// resumes: it gives the jobs requirements that nodes can match, and queues those that
// the scheduler was to forget first. It returns the number of these jobs. It publishes
// no copies and bumps no version again: a scheduler that has not accepted a job by then
// does so after a restart. (A bump could take the version of a lease that is in events
// but not in the rows yet; the lease would then be ignored.)
//
// EndRetries reads events from our position to the end, if events is not nil: Armada's
// ingester will apply the copies in them, including those of failed transactions.
// EndRetries writes higher versions than these copies have.
//
// EndRetries also ends requests to preempt runs that have ended: the restarted scheduler
// would preempt the dead run of a queued job, and fail the job with it. (Requeues end
// such requests too, but older builds did not.)
//
// EndRetries writes the rows of all members that are held before their first start, as
// Armada's own ingester would have done.
//
// EndRetries returns an error if a job's requirements cannot be rebuilt: the job would
// stay pending for ever.
func EndRetries(ctx context.Context, tx pgx.Tx, cfg Config, events eventlog.Reader) (ended int, err error) {
	m := New(cfg)
	w := writing{Writer: m, conn: tx, armada: pgstore.In(tx), when: sink.Moment{Now: time.Unix(0, afterAll)}}
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
			p.advance(j)
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
	held, err := w.endHolds(ctx)
	ended += held
	if err != nil {
		return ended, err
	}
	if events != nil {
		if err := w.overrideCopies(ctx, events); err != nil {
			return ended, err
		}
	}
	return ended, w.endPreemptions(ctx)
}

// endPreemptions ends requests to preempt runs of queued jobs: all of these runs have
// ended.
func (w *writing) endPreemptions(ctx context.Context) error {
	if err := w.armada.Lock(ctx); err != nil {
		return w.failed("end preemption requests", err)
	}
	const query = `UPDATE runs SET preempt_requested = false FROM jobs j
		WHERE runs.job_id = j.job_id AND runs.preempt_requested AND runs.terminated AND j.queued AND NOT j.terminated`
	_, err := w.conn.Exec(ctx, query)
	return w.failed("end preemption requests", err)
}
