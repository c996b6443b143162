package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/schedulerdb"
)

// anyOp draws an operation over a few jobs, runs and sets, so that they meet.
func anyOp(t *rapid.T, n int) schedulerdb.Op {
	job := "j" + rapid.StringMatching("[0-2]").Draw(t, "job")
	run := "r" + rapid.StringMatching("[0-3]").Draw(t, "run")
	queue := rapid.SampledFrom([]string{"q", "q", "q", "p"}).Draw(t, "queue")
	set := rapid.SampledFrom([]string{"s", "s", "s", "z"}).Draw(t, "set")
	at := time.Unix(1_700_000_000+int64(n), 0)
	user, reason := fmt.Sprintf("u%d", n), fmt.Sprintf("because %d", n)
	if n%5 == 0 {
		user = "" // nobody is named
	}
	version := rapid.Int32Range(0, 4).Draw(t, "version")
	yes, also := rapid.Bool().Draw(t, "yes"), rapid.Bool().Draw(t, "also")
	switch rapid.IntRange(0, 20).Draw(t, "kind") {
	case 0, 1:
		return &schedulerdb.InsertJob{
			JobID: job, Queue: queue, JobSet: set, UserID: user, Priority: int64(n),
			SchedulingInfo: []byte(reason), SubmitMessage: []byte(reason), Groups: []byte{},
		}
	case 2, 3, 4:
		return &schedulerdb.InsertRun{RunID: run, JobID: job, Queue: queue, JobSet: set, Leased: at, Created: at.UnixNano(), PodRequirementsOverlay: []byte{}}
	case 5:
		return &schedulerdb.SetQueued{JobID: job, Queued: yes, Version: version}
	case 6:
		return &schedulerdb.SetSchedulingInfo{JobID: job, Info: []byte(reason), Version: version}
	case 7:
		return &schedulerdb.SetValidated{JobID: job, Pools: []string{"a b", `c"\,{}`, user}}
	case 8:
		return &schedulerdb.SetPriority{JobID: job, Queue: queue, JobSet: set, Priority: int64(n), User: user}
	case 9:
		return &schedulerdb.SetSetPriority{Queue: queue, JobSet: set, Priority: int64(n), User: user}
	case 10:
		return &schedulerdb.RequestCancel{JobID: job, Queue: queue, JobSet: set, User: user, Reason: reason}
	case 11:
		return &schedulerdb.RequestSetCancel{Queue: queue, JobSet: set, Queued: yes, Leased: also, User: user, Reason: reason, AsQueued: []string{job}[:n%2]}
	case 12, 13:
		return &schedulerdb.RequestPreemption{JobID: job, Queue: queue, JobSet: set, User: user, Reason: reason}
	case 14:
		if yes {
			return &schedulerdb.SucceedJob{JobID: job}
		}
		return &schedulerdb.FailJob{JobID: job}
	case 15:
		return &schedulerdb.CancelJob{JobID: job, At: at}
	case 16:
		if yes {
			return &schedulerdb.InsertRunError{RunID: run, JobID: job, Error: []byte(reason)}
		}
		return &schedulerdb.FailRun{RunID: run, At: at, Returned: also, Attempted: yes}
	case 18:
		return &schedulerdb.ReviveJob{JobID: job}
	case 19:
		return &schedulerdb.StopRun{RunID: run, At: at}
	case 17:
		return &schedulerdb.EndPreemption{RunID: run}
	default:
		stage := rapid.SampledFrom([]schedulerdb.Stage{schedulerdb.Pending, schedulerdb.Running, schedulerdb.Succeeded, schedulerdb.Preempted}).Draw(t, "stage")
		return &schedulerdb.MarkRun{RunID: run, Stage: stage, At: at}
	}
}

const (
	readJobs = `SELECT job_id, queue, job_set, user_id, queued, queued_version, scheduling_info_version,
		convert_from(scheduling_info, 'UTF8'), convert_from(m.submit_message, 'UTF8'), validated, pools, cancelled, succeeded, failed,
		cancel_requested, cancel_by_jobset_requested, ` + named + `(cancel_user), ` + named + `(cancel_reason),
		` + named + `(reprioritise_user), priority FROM jobs JOIN job_metadata m USING (job_id) ORDER BY job_id`
	readRuns = `SELECT run_id, job_id, queue, job_set, ` + stamp + `(pending_timestamp), ` + stamp + `(running_timestamp), ` +
		stamp + `(preempted_timestamp), cancelled, succeeded, failed, returned, run_attempted, ` + stamp + `(terminated_timestamp),
		preempt_requested, ` + named + `(preempt_user), COALESCE(preempt_reason, '') FROM runs ORDER BY run_id`
	// named distinguishes NULL, where nobody is named, from an empty text.
	named      = "pg_temp.named"
	namedMaker = `CREATE FUNCTION pg_temp.named(text) RETURNS text LANGUAGE sql AS
		$$SELECT CASE WHEN $1 = '' THEN 'an empty text' ELSE COALESCE($1, '') END$$`
	stamp      = "pg_temp.stamp"
	stampMaker = `CREATE FUNCTION pg_temp.stamp(timestamptz) RETURNS text LANGUAGE sql AS
		$$SELECT COALESCE(to_char($1 AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), '')$$`
)

// TestBatchesDoNotShow holds the statements over whole batches against the model,
// which takes one operation after the other.
func TestBatchesDoNotShow(t *testing.T) {
	url, conn := database(t)
	db, ctx := open(t, url), context.Background()
	exec(t, conn, namedMaker)
	exec(t, conn, stampMaker)
	rapid.Check(t, func(rt *rapid.T) {
		if _, err := conn.Exec(ctx, "TRUNCATE jobs, runs, job_metadata, job_run_errors"); err != nil {
			rt.Fatal(err)
		}
		m := newModel()
		for n := 0; n < 60; {
			var batch []schedulerdb.Op
			for range rapid.IntRange(1, 30).Draw(rt, "batch") {
				n++
				op := anyOp(rt, n)
				batch = append(batch, op)
				m.apply(op)
			}
			tx, err := db.Begin(ctx)
			if err == nil {
				err = tx.Apply(ctx, batch)
			}
			if err == nil {
				err = tx.Commit(ctx)
			}
			if err != nil {
				rt.Fatal(err)
			}
			compareModel(rt, conn, m)
		}
	})
}

func compareModel(t *rapid.T, conn *pgx.Conn, m *model) {
	ctx := context.Background()
	wantJobs, wantRuns := m.sorted()
	rows, err := conn.Query(ctx, readJobs)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[modelJob])
	if err != nil {
		t.Fatal(err)
	}
	rows, err = conn.Query(ctx, readRuns)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[modelRun])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantJobs, jobs, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("jobs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantRuns, runs, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("runs (-want +got):\n%s", diff)
	}
	rows, err = conn.Query(ctx, "SELECT run_id, job_id || ' ' || convert_from(error, 'UTF8') FROM job_run_errors")
	if err != nil {
		t.Fatal(err)
	}
	errors := map[string]string{}
	var run, text string
	if _, err := pgx.ForEachRow(rows, []any{&run, &text}, func() error { errors[run] = text; return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m.errors, errors); diff != "" {
		t.Fatalf("errors (-want +got):\n%s", diff)
	}
}
