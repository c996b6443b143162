package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refloat/refloat/internal/policy"
)

// States are the possible states of a job by Armada's tables: queued, or waiting while our ingester holds its
// retry back; leased, pending or running by its latest run; ended if that run has ended and the job is neither
// queued nor over. Over is any of the last three.
var States = []string{"absent", "queued", "waiting", "leased", "pending", "running", "ended", "succeeded", "failed", "cancelled", "over"}

// Seen is what the tables say of a job.
type Seen struct {
	ID        string
	State     string
	Queued    bool // by its row, whatever its state
	Priority  int64
	Runs      []Run
	Decisions []Decision
}

// Over says whether the job is over.
func (j *Seen) Over() bool {
	return j.State == "succeeded" || j.State == "failed" || j.State == "cancelled"
}

// Run is what the tables say of a run.
type Run struct {
	ID, Node, Executor string
	State              string    // leased, pending, running, succeeded, failed, preempted, returned, cancelled
	Requested          bool      // its preemption
	Leased, Ended      time.Time // Armada sets the end of all runs anew when their job is cancelled: then it is zero
}

func (v Run) live() bool { return v.State == "leased" || v.State == "pending" || v.State == "running" }

// Decision is one of ours.
type Decision struct {
	Run        string
	Code       string
	RetryAfter time.Time // zero: at once
	Acted      bool
}

// ReadJobs reads all jobs of a job set, as they are at one moment.
func ReadJobs(ctx context.Context, db *pgxpool.Pool, set string) (seen map[string]*Seen, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		seen, err = readJobs(ctx, tx, set)
		return err
	})
	return seen, err
}

func readJobs(ctx context.Context, db pgx.Tx, set string) (map[string]*Seen, error) {
	seen := map[string]*Seen{}
	err := rows(ctx, db, `SELECT job_id, priority, queued, cancelled, succeeded, failed FROM jobs WHERE job_set = $1`, set, func(r pgx.Rows) error {
		j, cancelled, succeeded, failed := &Seen{}, false, false, false
		if err := r.Scan(&j.ID, &j.Priority, &j.Queued, &cancelled, &succeeded, &failed); err != nil {
			return err
		}
		j.State = first("ended", is(cancelled, "cancelled"), is(succeeded, "succeeded"), is(failed, "failed"), is(j.Queued, "queued"))
		seen[j.ID] = j
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = rows(ctx, db, `SELECT job_id, run_id, executor, node, cancelled, running, succeeded, failed, returned, preempted, pending, preempt_requested,
		to_timestamp(created / 1e9), coalesce(terminated_timestamp, preempted_timestamp, 'epoch') FROM runs WHERE job_set = $1 ORDER BY created`, set, func(r pgx.Rows) error {
		var id string
		var run Run
		var cancelled, running, succeeded, failed, returned, preempted, pending bool
		if err := r.Scan(&id, &run.ID, &run.Executor, &run.Node, &cancelled, &running, &succeeded, &failed, &returned, &preempted, &pending, &run.Requested, &run.Leased, &run.Ended); err != nil {
			return err
		}
		run.State = first("leased", is(succeeded, "succeeded"), is(preempted, "preempted"), is(returned, "returned"), is(failed, "failed"), is(cancelled, "cancelled"), is(running, "running"), is(pending, "pending"))
		if cancelled && run.State != "cancelled" {
			run.Ended = time.Time{}
		}
		if j := seen[id]; j != nil {
			j.Runs = append(j.Runs, run)
			if j.State == "ended" && run.live() {
				j.State = run.State
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var ours bool
	if err := db.QueryRow(ctx, `SELECT to_regclass('refloat_waits') IS NOT NULL`).Scan(&ours); err != nil || !ours {
		return seen, err
	}
	return seen, readOurs(ctx, db, set, seen)
}

// readOurs adds what our own tables say.
func readOurs(ctx context.Context, db pgx.Tx, set string, seen map[string]*Seen) error {
	err := rows(ctx, db, `SELECT job_id FROM refloat_waits WHERE (waiting OR forgetting) AND job_id IN (SELECT job_id FROM jobs WHERE job_set = $1)`, set, func(r pgx.Rows) error {
		var id string
		if err := r.Scan(&id); err != nil {
			return err
		}
		if j := seen[id]; j != nil && (j.State == "queued" || j.State == "ended") {
			j.State = "waiting"
		}
		return nil
	})
	if err != nil {
		return err
	}
	return rows(ctx, db, `SELECT d.job_id, d.run_id, d.code, coalesce(r.retry_after, d.retry_after), d.acted FROM refloat_decisions d
		LEFT JOIN refloat_ready r ON r.run_id = d.run_id AND r.acted WHERE d.job_set = $1 ORDER BY d.run_index`, set, func(r pgx.Rows) error {
		var id string
		var d Decision
		var code, after int64
		if err := r.Scan(&id, &d.Run, &code, &after, &d.Acted); err != nil {
			return err
		}
		d.Code = policy.Code(code).String()
		if after != 0 {
			d.RetryAfter = time.Unix(0, after)
		}
		if j := seen[id]; j != nil {
			j.Decisions = append(j.Decisions, d)
		}
		return nil
	})
}

func rows(ctx context.Context, db pgx.Tx, query, set string, each func(pgx.Rows) error) error {
	r, err := db.Query(ctx, query, set)
	if err != nil {
		return err
	}
	defer r.Close()
	for r.Next() {
		if err := each(r); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return r.Err()
}

// is returns the name where it holds.
func is(holds bool, name string) string {
	if holds {
		return name
	}
	return ""
}

// first returns the first name that is there.
func first(otherwise string, names ...string) string {
	for _, name := range names {
		if name != "" {
			return name
		}
	}
	return otherwise
}
