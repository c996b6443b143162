package pgstore

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/schedulerdb"
)

const setExecutorSQL = `
INSERT INTO executor_settings (executor_id, cordoned, cordon_reason, set_by_user, set_at_time) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (executor_id) DO UPDATE SET cordoned = excluded.cordoned, cordon_reason = excluded.cordon_reason,
    set_by_user = excluded.set_by_user, set_at_time = excluded.set_at_time`

// ApplyControl applies what an operator asked for, and says how many jobs it
// concerns. Requeueing are jobs that count as queued though their rows do not say
// so yet. Applied again, it writes the same, to the jobs that it concerns then.
//
// What changes jobs is written under Armada's lock, so its scheduler does not
// overlook what is committed beside a batch of events.
func (w *Writer) ApplyControl(ctx context.Context, op schedulerdb.ControlOp, requeueing []string) (jobs int, err error) {
	switch o := op.(type) {
	case *schedulerdb.SetExecutor:
		_, err = w.tx.Exec(ctx, setExecutorSQL, o.Executor, o.Cordoned, o.Reason, o.User, o.At)
	case *schedulerdb.ForgetSettings:
		_, err = w.tx.Exec(ctx, "DELETE FROM executor_settings WHERE executor_id = $1", o.Executor)
	case *schedulerdb.DeleteExecutor:
		_, err = w.tx.Exec(ctx, "DELETE FROM executors WHERE executor_id = $1", o.Executor)
	case *schedulerdb.Sweep:
		return w.sweep(ctx, o, requeueing)
	}
	return 0, w.failed("write an executor's row", err)
}

// sweptQueuedSQL and sweptRunsSQL find the jobs of a sweep by their own row and by
// that of a run. An empty executor, or node, and no pools stand for all.
const (
	sweptQueuedSQL = `
SELECT job_id, scheduling_info FROM jobs
WHERE queue = ANY($1) AND (queued OR job_id = ANY($2)) AND NOT terminated AND (cardinality($3::text[]) = 0 OR pools && $3)`
	sweptRunsSQL = `
SELECT j.job_id, j.scheduling_info FROM jobs j JOIN runs r USING (job_id)
WHERE r.queue = ANY($1) AND NOT r.terminated AND NOT r.preempted
    AND ($2 = '' OR r.executor = $2) AND ($3 = '' OR r.node = $3) AND (cardinality($4::text[]) = 0 OR r.pool = ANY($4))
    AND (r.running AND NOT r.returned AND $7 OR NOT r.running AND (r.pending AND $6 OR NOT r.pending AND $5))`
)

const (
	sweepCancelSQL = `
UPDATE jobs SET cancel_requested = true, cancel_user = COALESCE(cancel_user, $2), cancel_reason = COALESCE(cancel_reason, $3)
WHERE job_id = ANY($1) AND NOT terminated`
	sweepPreemptSQL = `
UPDATE runs SET preempt_requested = true, preempt_user = $2, preempt_reason = NULL
FROM jobs j
WHERE j.job_id = ANY($1) AND runs.job_id = j.job_id AND runs.queue = j.queue AND runs.job_set = j.job_set AND NOT runs.terminated`
)

func (w *Writer) sweep(ctx context.Context, s *schedulerdb.Sweep, requeueing []string) (int, error) {
	if err := w.Lock(ctx); err != nil {
		return 0, err
	}
	in := map[schedulerdb.JobState]bool{}
	for _, state := range s.States {
		in[state] = true
	}
	swept := map[string]bool{}
	collect := func(sql string, args ...any) error {
		rows, err := w.tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		var id string
		var info []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &info}, func() error {
			if s.InClass(info) {
				swept[id] = true
			}
			return nil
		})
		return err
	}
	var err error
	if in[schedulerdb.JobQueued] {
		err = collect(sweptQueuedSQL, texts(s.Queues), texts(requeueing), texts(s.Pools))
	}
	if err == nil && (in[schedulerdb.JobLeased] || in[schedulerdb.JobPending] || in[schedulerdb.JobRunning]) {
		err = collect(sweptRunsSQL, texts(s.Queues), s.Executor, s.Node, texts(s.Pools),
			in[schedulerdb.JobLeased], in[schedulerdb.JobPending], in[schedulerdb.JobRunning])
	}
	if err != nil {
		return 0, w.failed("find the jobs to "+s.String(), err)
	}
	if len(swept) == 0 {
		return 0, nil
	}
	sql, args := sweepPreemptSQL, []any{slices.Sorted(maps.Keys(swept)), userOrNull(s.User)}
	if s.Cancel {
		sql, args = sweepCancelSQL, append(args, s.Reason())
	}
	if _, err := w.tx.Exec(ctx, sql, args...); err != nil {
		return 0, w.failed("mark the jobs to "+s.String(), err)
	}
	return len(swept), nil
}

// userOrNull is how Armada writes who asked: without spaces around it, and NULL
// where nobody is named.
func userOrNull(user string) *string {
	user = strings.TrimSpace(user)
	if user == "" {
		return nil
	}
	return &user
}

// texts is an array that is not NULL.
func texts(list []string) []string { return append([]string{}, list...) }
