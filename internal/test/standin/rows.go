package standin

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
)

// batch is how many rows Armada's scheduler reads at a time.
const batch = 1000

// jobRow is a row of jobs as the scheduler reads it.
type jobRow struct {
	ID, Set, Queue               string
	Submitted, Priority          int64
	Queued                       bool
	QueuedVersion                int32
	CancelRequested, CancelBySet bool
	Cancelled, Succeeded, Failed bool
	SchedulingInfo               []byte
	SchedulingInfoVersion        int32
	Serial                       int64
	Validated                    bool
	CancelUser, CancelReason     string
	ReprioritiseUser             string
}

const jobColumns = `job_id, job_set, queue, submitted, priority, queued, queued_version, cancel_requested,
	cancel_by_jobset_requested, cancelled, succeeded, failed, scheduling_info, scheduling_info_version, serial,
	validated, coalesce(cancel_user, ''), coalesce(cancel_reason, ''), coalesce(reprioritise_user, '')`

// runRow is a row of runs as the scheduler reads it.
type runRow struct {
	ID, JobID                  string
	Created                    int64
	Executor, Node, Pool       string
	Running, Succeeded, Failed bool
	Cancelled, Returned        bool
	Attempted, Preempted       bool
	PreemptRequested           bool
	PreemptUser, PreemptReason string
	Serial                     int64
}

const runColumns = `run_id, job_id, created, executor, node, pool, running, succeeded, failed, cancelled, returned,
	run_attempted, preempted, preempt_requested, coalesce(preempt_user, ''), coalesce(preempt_reason, ''), serial`

// rows is what a cycle has read, and how far.
type rows struct {
	jobs                 []jobRow
	runs                 []runRow
	jobSerial, runSerial int64
}

// database reads Armada's tables, each time in one read-only snapshot.
type database struct {
	url  string
	conn *pgx.Conn
}

func (d *database) close() error {
	if d.conn == nil {
		return nil
	}
	return d.conn.Close(context.Background())
}

// read runs f in a snapshot. It connects again when the connection was lost, and
// tries once more then.
func (d *database) read(ctx context.Context, f func(pgx.Tx) error) error {
	for again := true; ; again = false {
		if d.conn == nil || d.conn.IsClosed() {
			conn, err := pgx.Connect(ctx, d.url)
			if err != nil {
				return fmt.Errorf("connect: %w", err)
			}
			d.conn = conn
		}
		err := pgx.BeginTxFunc(ctx, d.conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, f)
		if err == nil || !again || !d.conn.IsClosed() {
			return err
		}
	}
}

func collect[T any](ctx context.Context, tx pgx.Tx, query string, args ...any) ([]T, error) {
	found, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowToStructByPos[T])
}

// updates are the rows after the serials.
func (d *database) updates(ctx context.Context, jobSerial, runSerial int64) (rows, error) {
	var u rows
	err := d.read(ctx, func(tx pgx.Tx) error {
		u = rows{jobSerial: jobSerial, runSerial: runSerial}
		for full := true; full; {
			more, err := collect[jobRow](ctx, tx, "SELECT "+jobColumns+" FROM jobs WHERE serial > $1 ORDER BY serial LIMIT $2", u.jobSerial, batch)
			if err != nil {
				return fmt.Errorf("read jobs: %w", err)
			}
			if full = len(more) == batch; len(more) > 0 {
				u.jobSerial = more[len(more)-1].Serial
			}
			u.jobs = append(u.jobs, more...)
		}
		for full := true; full; {
			more, err := collect[runRow](ctx, tx, "SELECT "+runColumns+" FROM runs WHERE serial > $1 ORDER BY serial LIMIT $2", u.runSerial, batch)
			if err != nil {
				return fmt.Errorf("read runs: %w", err)
			}
			if full = len(more) == batch; len(more) > 0 {
				u.runSerial = more[len(more)-1].Serial
			}
			u.runs = append(u.runs, more...)
		}
		return nil
	})
	return u, err
}

// initial is what a scheduler begins with: the jobs that are not over and their
// runs, and how far the tables go.
func (d *database) initial(ctx context.Context) (rows, error) {
	var u rows
	err := d.read(ctx, func(tx pgx.Tx) (err error) {
		u = rows{}
		if u.jobs, err = collect[jobRow](ctx, tx, "SELECT "+jobColumns+" FROM jobs WHERE NOT terminated ORDER BY serial"); err != nil {
			return fmt.Errorf("read jobs: %w", err)
		}
		u.runs, err = collect[runRow](ctx, tx, "SELECT "+runColumns+
			" FROM runs WHERE job_id IN (SELECT job_id FROM jobs WHERE NOT terminated) ORDER BY serial")
		if err != nil {
			return fmt.Errorf("read runs: %w", err)
		}
		return tx.QueryRow(ctx, "SELECT (SELECT coalesce(max(serial), 0) FROM jobs), (SELECT coalesce(max(serial), 0) FROM runs)").
			Scan(&u.jobSerial, &u.runSerial)
	})
	return u, err
}

// errors are the Errors of runs, by run.
func (d *database) errors(ctx context.Context, runs []string) (map[string]msg, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	type row struct {
		Run   string
		Error []byte
	}
	var found []row
	err := d.read(ctx, func(tx pgx.Tx) (err error) {
		found, err = collect[row](ctx, tx, "SELECT run_id, error FROM job_run_errors WHERE run_id = ANY($1)", runs)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read job_run_errors: %w", err)
	}
	errs := map[string]msg{}
	for _, r := range found {
		if errs[r.Run], err = unpack(r.Error); err != nil {
			return nil, &wedge{fmt.Errorf("job_run_errors of run %s: %w", r.Run, err)}
		}
	}
	return errs, nil
}

// markers counts the partitions that were read up to the markers of a group.
func (d *database) markers(ctx context.Context, group string) (int, error) {
	var n int
	err := d.read(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT count(*) FROM markers WHERE group_id = $1::uuid", group).Scan(&n)
	})
	return n, err
}

// leaseRow is what an executor gets with a run.
type leaseRow struct {
	Run, Job, Node string
	Queue, Set     string
	Submit         []byte
}

// leases are an executor's runs that are not over.
func (d *database) leases(ctx context.Context, executor string) ([]leaseRow, error) {
	var found []leaseRow
	err := d.read(ctx, func(tx pgx.Tx) (err error) {
		found, err = collect[leaseRow](ctx, tx, `SELECT r.run_id, r.job_id, r.node, r.queue, r.job_set, m.submit_message
			FROM runs r JOIN job_metadata m USING (job_id) WHERE r.executor = $1 AND NOT r.terminated ORDER BY r.serial`, executor)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	return found, nil
}

// live are those of the runs that are there and not over.
func (d *database) live(ctx context.Context, runs []string) (map[string]bool, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	live := map[string]bool{}
	err := d.read(ctx, func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, "SELECT run_id FROM runs WHERE run_id = ANY($1) AND NOT terminated", runs)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(found, pgx.RowTo[string])
		for _, id := range ids {
			live[id] = true
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read runs of an executor: %w", err)
	}
	return live, nil
}

// end is the state of an ended job in the database.
type end struct {
	ID         string
	Terminated bool
}

func (d *database) ends(ctx context.Context) (map[string]bool, error) {
	terminated := map[string]bool{}
	err := d.read(ctx, func(tx pgx.Tx) error {
		found, err := collect[end](ctx, tx, "SELECT job_id, terminated FROM jobs")
		for _, e := range found {
			terminated[e.ID] = e.Terminated
		}
		return err
	})
	return terminated, err
}

// unpack decompresses a column.
func unpack(b []byte) (msg, error) {
	z, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(z)
	return plain, errors.Join(err, z.Close())
}
