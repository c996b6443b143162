package writer

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/schedulerdb"
)

// Keeps implements [sink.Mirror].
func (m *Writer) Keeps(ctx context.Context, tx jobdb.Tx, jobs []string) (map[string]bool, error) {
	pg, ok := tx.(interface{ Conn() pgx.Tx })
	if !ok {
		return nil, errOtherDB
	}
	w := writing{Writer: m, conn: pg.Conn()}
	rows, err := w.conn.Query(ctx, "SELECT job_id FROM jobs WHERE job_id = ANY($1)", storableOf(jobs))
	if err != nil {
		return nil, w.failed("find jobs that Armada still has", err)
	}
	kept := map[string]bool{}
	var id string
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		kept[id] = true
		return nil
	})
	return kept, w.failed("find jobs that Armada still has", err)
}

// dueAtOnce is the number of pending retries that one transaction ends.
const dueAtOnce = 2000

// begin reads the position after which decisions are copied to events. The first
// transaction ever sets it to the end of the events: failures before it have been
// copied, or are in the past.
func (w *writing) begin(ctx context.Context) error {
	const insert = `INSERT INTO refloat_mirror (partition, since, mode) VALUES ($1, $2, $3) ON CONFLICT (partition) DO UPDATE SET mode = $3 RETURNING since`
	if err := w.mustBeOurs(ctx); err != nil {
		return err
	}
	var since string
	err := w.conn.QueryRow(ctx, insert, w.cfg.Partition, w.when.End.String(), w.cfg.Mode.String()).Scan(&since)
	if err == nil {
		w.since, err = eventlog.ParsePosition(since)
	}
	if err != nil {
		return w.failed("read the start position of copies", err)
	}
	w.known, w.due = true, 0
	err = w.conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM refloat_held WHERE partition = $1)", w.cfg.Partition).Scan(&w.hasHeld)
	return w.failed("look for held members", err)
}

// ErrTaken reports that Armada's own ingester has written these tables, and nobody has
// recorded its position.
var ErrTaken = errors.New("jobs in Armada's tables were not written by Refloat, and it is not known where Armada's ingester stopped; " +
	"starting at the beginning of events would submit each job again: run `refloatctl cutover start` first (docs/operate.md)")

// mustBeOurs refuses to start at the beginning of events if Armada's ingester has
// written the tables.
func (w *writing) mustBeOurs(ctx context.Context) error {
	const query = `SELECT NOT EXISTS (SELECT FROM refloat_mirror) AND EXISTS (SELECT FROM jobs)
		AND NOT EXISTS (SELECT FROM refloat_positions WHERE partition = $1 AND (event_ledger, event_entry, event_batch) <> ($2, $3, $4))`
	var taken bool
	start := eventlog.Start
	err := w.conn.QueryRow(ctx, query, w.cfg.Partition, start.Ledger, start.Entry, start.Batch).Scan(&taken)
	if err != nil {
		return w.failed("read who wrote Armada's tables", err)
	}
	if taken {
		return ErrTaken
	}
	return nil
}

// load loads the rows that the actions change: those of jobs with a decision or a
// pending retry. A lease, or an end of a job without a pending retry, needs none.
func (w *writing) load(ctx context.Context, actions []action) (map[string]*jobView, error) {
	jobs := map[string]*jobView{}
	var named, asked []string
	for _, a := range actions {
		id := a.job()
		if id == "" {
			continue
		}
		if jobs[id] == nil {
			jobs[id] = &jobView{id: id}
			named = append(named, id)
		}
		switch a.(type) {
		case lease, apply, hold:
		default:
			asked = append(asked, id)
		}
	}
	between, err := w.between(ctx, actions)
	if err != nil {
		return nil, err
	}
	for _, id := range between {
		if jobs[id] == nil {
			jobs[id] = &jobView{id: id}
			named = append(named, id)
		}
	}
	if named, err = w.loadHolds(ctx, jobs, named, actions); err != nil {
		return nil, err
	}
	if w.due != never { // retries may be pending
		if err := w.loadRetries(ctx, jobs, named); err != nil {
			return nil, err
		}
	}
	if err := w.loadPolicies(ctx, actions); err != nil {
		return nil, err
	}
	for _, id := range named {
		if jobs[id].retry != nil {
			asked = append(asked, id)
		}
	}
	return jobs, w.loadJobs(ctx, jobs, asked)
}

// between finds the jobs that are about to be requeued, in job sets of which only jobs
// in some states are to be cancelled.
func (w *writing) between(ctx context.Context, actions []action) ([]string, error) {
	var queues, sets []string
	for _, a := range actions {
		if it, ok := a.(apply); ok {
			if o, ok := it.Op.(*schedulerdb.RequestSetCancel); ok && narrowed(o) {
				queues, sets = append(queues, o.Queue), append(sets, o.JobSet)
			}
		}
	}
	if len(sets) == 0 {
		return nil, nil
	}
	const query = `SELECT job_id FROM refloat_waits w JOIN jobs j USING (job_id) WHERE w.partition = $1 AND w.forgetting
		AND (j.queue, j.job_set) IN (SELECT * FROM unnest($2::text[], $3::text[])) ORDER BY job_id`
	rows, err := w.conn.Query(ctx, query, w.cfg.Partition, queues, sets)
	if err != nil {
		return nil, w.failed("find jobs of a set", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, w.failed("find jobs of a set", err)
}

// loadPolicies loads the policy names of overruled retries. Their decisions are rows by
// now.
func (w *writing) loadPolicies(ctx context.Context, actions []action) error {
	var numbers []int64
	for _, a := range actions {
		if o, ok := a.(overruled); ok {
			numbers = append(numbers, int64(o.number))
		}
	}
	if len(numbers) == 0 {
		return nil
	}
	rows, err := w.conn.Query(ctx, "SELECT number, policy FROM refloat_decisions WHERE partition = $1 AND number = ANY($2)", w.cfg.Partition, numbers)
	if err != nil {
		return w.failed("load decisions", err)
	}
	policies := map[uint64]string{}
	var number int64
	var policy string
	if _, err := pgx.ForEachRow(rows, []any{&number, &policy}, func() error {
		policies[uint64(number)] = policy
		return nil
	}); err != nil {
		return w.failed("load decisions", err)
	}
	for i, a := range actions {
		if o, ok := a.(overruled); ok {
			o.policy = policies[o.number]
			actions[i] = o
		}
	}
	return nil
}

// loadDue loads the jobs for which a step is due, in order.
func (w *writing) loadDue(ctx context.Context) (map[string]*jobView, []string, error) {
	const query = `SELECT job_id FROM refloat_waits WHERE partition = $1 AND due <= $2 ORDER BY due, job_id LIMIT $3`
	rows, err := w.conn.Query(ctx, query, w.cfg.Partition, w.when.Now.UnixNano(), dueAtOnce)
	if err != nil {
		return nil, nil, w.failed("find due retries", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, nil, w.failed("find due retries", err)
	}
	if len(ids) == 0 {
		return nil, nil, nil
	}
	jobs := map[string]*jobView{}
	for _, id := range ids {
		jobs[id] = &jobView{id: id}
	}
	if err := w.loadRetries(ctx, jobs, ids); err != nil {
		return nil, nil, err
	}
	return jobs, ids, w.loadJobs(ctx, jobs, ids)
}

func (w *writing) loadRetries(ctx context.Context, jobs map[string]*jobView, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	const query = `SELECT job_id, run_id, number, policy, retry_after, avoid, copied, forgetting, waiting, raises, raise_at, pod_until
		FROM refloat_waits WHERE partition = $1 AND job_id = ANY($2)`
	rows, err := w.conn.Query(ctx, query, w.cfg.Partition, ids)
	if err != nil {
		return w.failed("load pending retries", err)
	}
	var id string
	var t pendingRetry
	var number int64
	var isForgetting bool
	_, err = pgx.ForEachRow(rows, []any{
		&id, &t.runID, &number, &t.policy, &t.retryAfter, &t.avoid, &t.copied, &isForgetting, &t.delayed, &t.checks, &t.nextAt, &t.podUntil,
	}, func() error {
		found := t
		found.number, found.stage = uint64(number), stageOf(isForgetting, t.checks)
		jobs[id].retry = &found
		t.avoid = nil
		return nil
	})
	return w.failed("load pending retries", err)
}

func (w *writing) loadJobs(ctx context.Context, jobs map[string]*jobView, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	const query = `SELECT j.job_id, j.queue, j.job_set, j.submitted, j.queued, j.queued_version, j.terminated, j.cancelled, j.validated,
			j.scheduling_info, j.scheduling_info_version, CASE WHEN j.scheduling_info_version > 0 THEN m.submit_message END
		FROM jobs j LEFT JOIN job_metadata m USING (job_id) WHERE j.job_id = ANY($1)`
	rows, err := w.conn.Query(ctx, query, ids)
	if err != nil {
		return w.failed("load jobs", err)
	}
	var id, queue, set string
	var submitted int64
	var queued, over, cancelled, validated bool
	var version, infoVersion int32
	var info, submit []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &queue, &set, &submitted, &queued, &version, &over, &cancelled, &validated, &info, &infoVersion, &submit}, func() error {
		j := jobs[id]
		j.known, j.queue, j.set, j.queued, j.version, j.over, j.infoVersion = true, queue, set, queued, version, over, infoVersion
		j.cancelled, j.validated = cancelled, validated
		j.submitted = info
		if infoVersion > 0 {
			// An error is reported when the requirements are used.
			j.submitted, _ = schedulerdb.Submitted(submit, submitted)
		}
		info, submit = nil, nil
		return nil
	})
	return w.failed("load jobs", err)
}

// writeRetries writes the pending retries that have changed.
func (w *writing) writeRetries(ctx context.Context, jobs map[string]*jobView) error {
	var gone []string
	batch := &pgx.Batch{}
	const upsert = `INSERT INTO refloat_waits VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
		ON CONFLICT (partition, job_id) DO UPDATE SET run_id = $3, number = $4, policy = $5, retry_after = $6, avoid = $7, copied = $8,
			forgetting = $9, waiting = $10, raises = $11, raise_at = $12, due = $13, pod_until = $14`
	for _, j := range jobs {
		switch t := j.retry; {
		case !j.retryChanged:
		case t == nil:
			gone = append(gone, j.id)
		default:
			avoid := t.avoid
			if avoid == nil {
				avoid = []string{}
			}
			batch.Queue(upsert, w.cfg.Partition, j.id, t.runID, int64(t.number), t.policy, t.retryAfter, avoid, t.copied,
				t.stage == forgetting, t.delayed, t.checks, t.nextAt, t.due(), t.podUntil)
		}
	}
	if len(gone) == 0 && batch.Len() == 0 {
		return nil
	}
	w.changed = true
	if len(gone) > 0 {
		if _, err := w.conn.Exec(ctx, `DELETE FROM refloat_waits WHERE partition = $1 AND job_id = ANY($2)`, w.cfg.Partition, gone); err != nil {
			return w.failed("delete pending retries", err)
		}
	}
	return w.failed("write pending retries", w.conn.SendBatch(ctx, batch).Close())
}

// readDue reads when the next step is due, if that may have changed.
func (w *writing) readDue(ctx context.Context) error {
	if !w.changed {
		return nil
	}
	var due *int64
	err := w.conn.QueryRow(ctx, `SELECT min(due) FROM refloat_waits WHERE partition = $1`, w.cfg.Partition).Scan(&due)
	if err != nil {
		return w.failed("read when the next step is due", err)
	}
	w.due = never
	if due != nil {
		w.due = *due
	}
	return nil
}

// loadErrors loads the errors of copies whose runs failed in an earlier transaction. The rows
// must not be written yet.
func (w *writing) loadErrors(ctx context.Context, copies []copyOf) error {
	var runs []string
	for _, c := range copies {
		if c.error == nil {
			runs = append(runs, c.runID)
		}
	}
	if len(runs) == 0 {
		return nil
	}
	rows, err := w.conn.Query(ctx, `SELECT run_id, error FROM job_run_errors WHERE run_id = ANY($1)`, runs)
	if err != nil {
		return w.failed("load errors", err)
	}
	found := map[string][]byte{}
	var run string
	var stored []byte
	_, err = pgx.ForEachRow(rows, []any{&run, &stored}, func() error {
		found[run], stored = stored, nil
		return nil
	})
	for i := range copies {
		if c := &copies[i]; c.error == nil {
			c.error = found[c.runID]
		}
	}
	return w.failed("load errors", err)
}
