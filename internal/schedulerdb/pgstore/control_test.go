package pgstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// fleet puts jobs into an empty scheduler database: of each kind one in the queues
// a and b, in the priority classes p and r. Their names say what they are.
func fleet(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	kinds := []struct{ name, job, run string }{
		// The job's queued; the run's running, pending, returned, preempted, cancelled, succeeded, failed.
		{"queued", "true", ""},
		{"again", "true", "true, true, false, false, false, false, true"}, // its run failed
		{"leased", "false", "false, false, false, false, false, false, false"},
		{"pending", "false", "false, true, false, false, false, false, false"},
		{"running", "false", "true, true, false, false, false, false, false"},
		{"preempted", "false", "true, true, false, true, false, false, false"}, // and not yet ended
		{"done", "false", "true, true, false, false, false, true, false"},
	}
	for _, queue := range []string{"a", "b"} {
		for _, class := range []string{"p", "r"} {
			info, err := proto.Marshal(&pb.JobSchedulingInfo{PriorityClassName: class})
			if err != nil {
				t.Fatal(err)
			}
			for i, kind := range kinds {
				id := queue + class + "-" + kind.name
				exec(t, conn, `INSERT INTO jobs (job_id, job_set, queue, user_id, submitted, priority, queued, scheduling_info, succeeded, pools)
					VALUES ($1, $2, $3, 'u', 0, 0, `+kind.job+`, $4, $5, '{x,y}')`, id, "set"+class, queue, info, kind.name == "done")
				if kind.run == "" {
					continue
				}
				executor := []string{"east", "west"}[i%2]
				exec(t, conn, `INSERT INTO runs (run_id, job_id, job_set, queue, executor, node, pool, running, pending, returned, preempted, cancelled, succeeded, failed)
					VALUES ($1, $2, $3, $4, $5, $6, $7, `+kind.run+`)`, id+"-run", id, "set"+class, queue, executor, executor+"-"+class, "x")
			}
		}
	}
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// marked are the jobs that are asked to be cancelled and to be preempted.
func marked(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT 'cancel ' || job_id || coalesce(' by ' || cancel_user, '') || coalesce(' for ' || cancel_reason, '') FROM jobs WHERE cancel_requested
		UNION ALL SELECT 'preempt ' || job_id || coalesce(' by ' || preempt_user, '') || coalesce(' for ' || preempt_reason, '') FROM runs WHERE preempt_requested ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, ", ")
}

// TestSweep: each kind of sweep marks the jobs that it concerns, and no others, as
// often as it is applied.
func TestSweep(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn := connect(t, url)
	if err := schema.Create(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	all := []schedulerdb.JobState{schedulerdb.JobQueued, schedulerdb.JobLeased, schedulerdb.JobPending, schedulerdb.JobRunning}
	active := all[1:]
	both, a := []string{"a", "b"}, []string{"a"}
	p, pr := []string{"p"}, []string{"p", "r"}
	for _, tt := range []struct {
		name       string
		sweep      schedulerdb.Sweep
		requeueing []string
		want       string
	}{
		{"cancel on a queue", schedulerdb.Sweep{Cancel: true, Queues: a, Classes: p, States: all}, nil, "cancel ap-again, cancel ap-leased, cancel ap-pending, cancel ap-queued, cancel ap-running"},
		{"the queued ones", schedulerdb.Sweep{Cancel: true, Queues: a, Classes: p, States: all[:1]}, nil, "cancel ap-again, cancel ap-queued"},
		{"the leased ones", schedulerdb.Sweep{Cancel: true, Queues: a, Classes: pr, States: all[1:2]}, nil, "cancel ap-leased, cancel ar-leased"},
		{"the pending ones", schedulerdb.Sweep{Cancel: true, Queues: a, Classes: p, States: all[2:3]}, nil, "cancel ap-pending"},
		{"the running ones", schedulerdb.Sweep{Cancel: true, Queues: a, Classes: p, States: all[3:]}, nil, "cancel ap-running"},
		{"in no state", schedulerdb.Sweep{Cancel: true, Queues: a, Classes: p}, nil, ""},
		{"of any class", schedulerdb.Sweep{Cancel: true, Queues: a, States: all[:1]}, nil, "cancel ap-again, cancel ap-queued, cancel ar-again, cancel ar-queued"},
		{"on an executor, of any class", schedulerdb.Sweep{Executor: "west", Queues: both, States: active}, nil, "preempt ap-pending, preempt ar-pending, preempt bp-pending, preempt br-pending"},
		{"preempt on a queue, of any class", schedulerdb.Sweep{Queues: a, States: active[1:2]}, nil, "preempt ap-pending, preempt ar-pending"},
		{"of another class", schedulerdb.Sweep{Cancel: true, Queues: a, Classes: []string{"z"}, States: all}, nil, ""},
		{"of no queue", schedulerdb.Sweep{Cancel: true, Classes: p, States: all}, nil, ""},
		{"queued in another pool", schedulerdb.Sweep{Cancel: true, Queues: a, Classes: p, Pools: []string{"z"}, States: all}, nil, ""},
		{"queued in one of its pools, and run in the other", schedulerdb.Sweep{Cancel: true, Queues: a, Classes: p, Pools: []string{"y"}, States: all}, nil, "cancel ap-again, cancel ap-queued"},
		{"to be put back", schedulerdb.Sweep{Cancel: true, Queues: a, Classes: p, States: all[:1]}, []string{"ap-preempted", "bp-preempted", "ar-leased"}, "cancel ap-again, cancel ap-preempted, cancel ap-queued"},
		{"preempt on a queue", schedulerdb.Sweep{Queues: a, Classes: p, Pools: []string{"x"}, States: active}, nil, "preempt ap-leased, preempt ap-pending, preempt ap-running"},
		{"preempt on an executor", schedulerdb.Sweep{Executor: "west", Queues: both, Classes: p, States: active}, nil, "preempt ap-pending, preempt bp-pending"},
		{"cancel on an executor", schedulerdb.Sweep{Cancel: true, Executor: "east", Queues: both, Classes: p, States: active}, nil, "cancel ap-leased, cancel ap-running, cancel bp-leased, cancel bp-running"},
		{"on an executor of no such pool", schedulerdb.Sweep{Cancel: true, Executor: "east", Queues: both, Classes: p, Pools: []string{"y"}, States: active}, nil, ""},
		{"cancel on a node", schedulerdb.Sweep{Cancel: true, Executor: "east", Node: "east-r", Queues: a, States: active}, nil, "cancel ar-leased, cancel ar-running"},
		{"preempt on a node", schedulerdb.Sweep{Executor: "east", Node: "east-r", Queues: a, Classes: []string{"r"}, States: active}, nil, "preempt ar-leased, preempt ar-running"},
		{"on a node of another executor", schedulerdb.Sweep{Executor: "west", Node: "east-r", Queues: a, States: active}, nil, ""},
	} {
		exec(t, conn, "TRUNCATE jobs, runs")
		fleet(t, conn)
		var jobs [2]int
		for i := range jobs {
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) (err error) {
				jobs[i], err = pgstore.In(tx).ApplyControl(t.Context(), &tt.sweep, tt.requeueing)
				return err
			})
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			got := strings.ReplaceAll(marked(t, conn), " for "+tt.sweep.Reason(), "")
			if got != tt.want {
				t.Errorf("%s, time %d: %q, want %q", tt.name, i+1, got, tt.want)
			}
		}
		if want := strings.Count(tt.want, "cancel ") + strings.Count(tt.want, "preempt "); jobs != [2]int{want, want} {
			t.Errorf("%s: it concerned %v jobs, want %d", tt.name, jobs, want)
		}
	}
}

// TestSweepUser: a sweep says who asked and by what. What a row says of an earlier
// request stays.
func TestSweepUser(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Database(t))
	if err := schema.Create(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	fleet(t, conn)
	queued, running := []schedulerdb.JobState{schedulerdb.JobQueued}, []schedulerdb.JobState{schedulerdb.JobRunning}
	a, b, p, r := []string{"a"}, []string{"b"}, []string{"p"}, []string{"r"}
	exec(t, conn, "UPDATE jobs SET cancel_requested = true, cancel_user = 'zoe' WHERE job_id = 'bp-queued'")
	for _, sweep := range []schedulerdb.Sweep{
		{Cancel: true, Queues: a, Classes: p, States: queued, User: "  ann "},
		{Cancel: true, Queues: a, Classes: p, States: queued, User: "bob"},
		{Cancel: true, Queues: b, Classes: p, States: queued, User: "ann"},
		{Cancel: true, Queues: a, Classes: r, States: running, Executor: "east", User: "ann"},
		{Cancel: true, Queues: b, Classes: r, States: running, Executor: "east", Node: "east-r"},
		{Queues: a, Classes: p, States: running, User: "ann"},
		{Queues: b, Classes: p, States: running, User: " "},
	} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := pgstore.In(tx).ApplyControl(t.Context(), &sweep, nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const onQueue, onExecutor, onNode = " for cancelled by CancelOnQueue", " for cancelled by CancelOnExecutor", " for cancelled by CancelOnNode"
	want := []string{
		"cancel ap-again by ann" + onQueue, "cancel ap-queued by ann" + onQueue, "cancel ar-running by ann" + onExecutor,
		"cancel bp-again by ann" + onQueue, "cancel bp-queued by zoe" + onQueue, "cancel br-running" + onNode,
		"preempt ap-running by ann", "preempt bp-running",
	}
	if got := marked(t, conn); got != strings.Join(want, ", ") {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSweepSeen: what a sweep writes becomes visible after all that has lower
// serials, or the scheduler would pass over it: so it waits for a batch of events.
func TestSweepSeen(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn, other := connect(t, url), connect(t, url)
	if err := schema.Create(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	fleet(t, conn)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := pgstore.In(tx).Apply(t.Context(), []schedulerdb.Op{&schedulerdb.FailJob{JobID: "ap-leased"}}); err != nil {
		t.Fatal(err)
	}
	sweep := func() error {
		return pgx.BeginFunc(t.Context(), other, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '200ms'"); err != nil {
				return err
			}
			_, err := pgstore.In(tx).ApplyControl(t.Context(), &schedulerdb.Sweep{
				Cancel: true, Queues: []string{"b"}, Classes: []string{"p"}, States: []schedulerdb.JobState{schedulerdb.JobQueued},
			}, nil)
			return err
		})
	}
	if err := sweep(); err == nil || !strings.Contains(err.Error(), pgstore.ErrUnavailable.Error()) {
		t.Errorf("beside a batch: %v, want that it waits", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sweep(); err != nil {
		t.Error(err)
	}
}

// TestExecutors: an executor's settings come and go, and so does its row.
func TestExecutors(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn := connect(t, url)
	if err := schema.Create(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "INSERT INTO executors (executor_id, last_updated) VALUES ('east', now()), ('west', now())")
	east := schedulerdb.SetExecutor{Executor: "east", Cordoned: true, Reason: "broken", User: "ann", At: time.Unix(100, 0).UTC()}
	back := schedulerdb.SetExecutor{Executor: "east", User: "bob", At: time.Unix(200, 0).UTC()}
	for i, step := range []struct {
		op   schedulerdb.ControlOp
		want []string
	}{
		{&east, []string{"east", "west", "east true broken ann 100"}},
		{&schedulerdb.SetExecutor{Executor: "south", At: time.Unix(150, 0)}, []string{"east", "west", "east true broken ann 100", "south false   150"}},
		{&back, []string{"east", "west", "east false  bob 200", "south false   150"}},
		{&schedulerdb.ForgetSettings{Executor: "south"}, []string{"east", "west", "east false  bob 200"}},
		{&schedulerdb.ForgetSettings{Executor: "north"}, []string{"east", "west", "east false  bob 200"}},
		{&schedulerdb.DeleteExecutor{Executor: "east"}, []string{"west", "east false  bob 200"}},
	} {
		for range 2 {
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				_, err := pgstore.In(tx).ApplyControl(t.Context(), step.op, nil)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := executors(t, conn); !slices.Equal(got, step.want) {
				t.Errorf("step %d: %q, want %q", i, got, step.want)
			}
		}
	}
}

func executors(t *testing.T, conn *pgx.Conn) (all []string) {
	t.Helper()
	for _, query := range []string{
		"SELECT executor_id FROM executors ORDER BY 1",
		"SELECT concat_ws(' ', executor_id, CASE WHEN cordoned THEN 'true' ELSE 'false' END, cordon_reason, set_by_user, extract(epoch FROM set_at_time)::int) FROM executor_settings ORDER BY 1",
	} {
		rows, err := conn.Query(context.Background(), query)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", query, err))
		}
		all = append(all, found...)
	}
	return all
}
