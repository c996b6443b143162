package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// A pod has a second to end, and the slack.
const (
	restartPolicies = `
kind: RetrySettings
spec: {terminationSlack: 1s}
---
{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: retries}, spec: {retryLimit: 1, rules: [{name: broken, action: Retry, onExitCodes: {operator: In, values: [1]}}]}}
---
{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: together}, spec: {maxRestarts: 1, parts: [{name: main, members: 3}]}}
---
{kind: Queue, name: queue, retryPolicies: [retries]}
`
	podsEnd = 2 * time.Second
)

// TestKilledInRestart: the ingester is killed at each statement while it writes the restarts of a
// group and of a gang whose members run, and while it ends their delay: before the statement
// reaches PostgreSQL, or after it was executed and before the ingester knows. It is killed at each
// commit and at each KILL_EVERY-th statement (default 40; 1: each).
//
// At any time, Armada's scheduler sees all members of each restarted, or none. The ingester that
// is started then leaves the same rows as one that was not disturbed, and no member may be leased
// before the pods of the stopped runs have had their time, which begins with the write.
func TestKilledInRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a program again and again")
	}
	every := 40
	if n, err := strconv.Atoi(os.Getenv("KILL_EVERY")); err == nil && n > 0 {
		every = n
	}
	r := newRestarts(t)
	r.seesOne(t)
	undisturbed, statements := r.attempt(t, nil)
	if undisturbed == nil {
		t.FailNow()
	}
	var group errgroup.Group
	group.SetLimit(6) // most of the time they wait
	planned, kills := 0, atomic.Int64{}
	for i, what := range statements {
		for _, after := range []bool{false, true} {
			if i%every != 0 && what != "commit" || after && !answered(what) {
				continue
			}
			planned++
			group.Go(func() error {
				k := kill{at: i, after: after}
				got, _ := r.attempt(t, &k)
				if got == nil {
					return nil
				}
				kills.Add(1)
				if diff := cmp.Diff(undisturbed, got); diff != "" {
					t.Errorf("killed %v, %s: rows (-undisturbed +got):\n%s", k, what, diff)
				}
				return nil
			})
		}
	}
	_ = group.Wait()
	t.Logf("%d statements, %d kills; %d more were planned at statements that did not come again", len(statements), kills.Load(), planned-int(kills.Load()))
	if len(statements) < 20 || !slices.Contains(statements, "commit") || int(kills.Load()) < planned/2 {
		t.Errorf("%d of %d kills; the statements of an ingester that was not killed: %q", kills.Load(), planned, statements)
	}
}

// kill is where the ingester is killed.
type kill struct {
	at    int  // the number of the statement
	after bool // it was executed
}

func (k kill) String() string {
	if k.after {
		return fmt.Sprintf("after statement %d", k.at)
	}
	return fmt.Sprintf("before statement %d", k.at)
}

// restarts is a history on a data directory, and a database up to the failures.
type restarts struct {
	programs Programs
	data     string
	base     string // URL of the database
	copying  sync.Mutex
	numbers  atomic.Int64
}

func newRestarts(t *testing.T) *restarts {
	t.Helper()
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	r := &restarts{programs: built, data: filepath.Join(t.TempDir(), "data"), base: pgtest.Database(t)}
	conn, err := pgx.Connect(t.Context(), r.base)
	if err == nil {
		err = errors.Join(schema.Create(t.Context(), conn), conn.Close(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(policies, []byte(restartPolicies), 0o600); err != nil {
		t.Fatal(err)
	}
	before, after := restartHistory(t)
	feed := []string{"up", "--data", r.data, "--policies", policies, "--exit-when-drained", "--feed", before}
	for _, more := range [][]string{nil, {"--feed", after}} {
		if feed = append(feed, more...); more != nil {
			if err := r.ingest(r.base, nil, 0); err != nil { // the members run
				t.Fatal(err)
			}
		}
		if out, err := exec.CommandContext(t.Context(), r.programs.Ctl, feed...).CombinedOutput(); err != nil {
			t.Fatalf("refloatctl up: %v\n%s", err, out)
		}
	}
	return r
}

// restartHistory records that members of a gang and of a group run, and then that one of each
// fails.
func restartHistory(t *testing.T) (before, after string) {
	t.Helper()
	second := int64(0)
	record := func(name string, sequences ...*pb.EventSequence) string {
		path := filepath.Join(t.TempDir(), name+".jsonl.gz")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := recording.NewWriter(f)
		for i, seq := range sequences {
			second++
			for _, ev := range seq.Events {
				ev.Created = &pb.Timestamp{Seconds: 1_790_000_000 + second}
			}
			payload, err := proto.Marshal(seq)
			if err == nil {
				err = w.Write(recording.Entry{Message: eventlog.Message{
					Position: eventlog.Position{Ledger: 1, Entry: int64(i)}, Key: seq.JobSetName, Publish: (1_790_000_000 + second) * 1e9, Payload: payload,
				}})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var begin, failures []*pb.EventSequence
	for _, set := range []string{"gang", "group"} {
		annotations := map[string]string{"armadaproject.io/gangId": "g", "armadaproject.io/gangCardinality": "3"}
		code := int32(1)
		if set == "group" {
			annotations = map[string]string{"refloat.github.io/group": "g", "refloat.github.io/group-policy": "together"}
			code = 9 // no rule retries it, so its group restarts
		}
		for i := range 3 {
			job := fmt.Sprintf("%s-%d", set, i)
			run := job + "-run"
			for _, ev := range []*pb.Event{
				{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{
					JobId: job, ObjectMeta: &pb.ObjectMeta{Annotations: annotations},
					MainObject: &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: &pb.PodSpec{}}},
				}}},
				{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run, NodeId: "n", ExecutorId: "e", UpdateSequenceNumber: 1, PodRequirementsOverlay: []byte{}}}},
				{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: job, RunId: run}}},
			} {
				begin = append(begin, &pb.EventSequence{Queue: "queue", JobSetName: set, Events: []*pb.Event{ev}})
			}
		}
		failures = append(failures, &pb.EventSequence{Queue: "queue", JobSetName: set, Events: []*pb.Event{{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{
			JobId: set + "-0", RunId: set + "-0-run",
			Errors: []*pb.Error{{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{ContainerErrors: []*pb.ContainerError{{ExitCode: code, ObjectMeta: &pb.ObjectMeta{Name: "main"}}}}}}},
		}}}}})
	}
	return record("before", begin...), record("after", failures...)
}

// attempt lets an ingester write the restarts, and another one, if the first is killed. It
// returns what is in the tables then, and the statements of the first. There are no rows if the
// first did not come to the statement at which it was to be killed.
func (r *restarts) attempt(t *testing.T, k *kill) (rows map[string][]string, statements []string) {
	url, drop, err := r.copy()
	if err != nil {
		t.Errorf("copy the database: %v", err)
		return nil, nil
	}
	defer drop()
	x, err := newCutter(t.TempDir(), url, k)
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	defer x.close()
	err = r.ingest(x.url, x, 2)
	if k != nil && err == nil {
		if !x.killed() {
			return nil, nil
		}
		var seen string
		if seen, err = restartsSeen(url); err == nil && seen != "" {
			t.Errorf("killed %v: then %s", *k, seen)
		}
		err = errors.Join(err, r.ingest(url, nil, 2))
	}
	if err == nil {
		err = notEarly(url)
	}
	if err == nil {
		rows, err = tables(url)
	}
	if err != nil {
		t.Errorf("killed %v: %v", k, err)
	}
	return rows, x.statements
}

// copy makes a database like that of which the members run.
func (r *restarts) copy() (at string, drop func(), err error) {
	u, err := url.Parse(r.base)
	if err != nil {
		return "", nil, err
	}
	from := strings.TrimPrefix(u.Path, "/")
	name := fmt.Sprintf("%s_%d", from, r.numbers.Add(1))
	u.Path = "/postgres"
	exec := func(query string) error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		conn, err := pgx.Connect(ctx, u.String())
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, query)
		return errors.Join(err, conn.Close(ctx))
	}
	r.copying.Lock() // one at a time may read a template
	defer r.copying.Unlock()
	err = exec("CREATE DATABASE " + name + " TEMPLATE " + from)
	at = strings.Replace(r.base, "/"+from, "/"+name, 1)
	return at, func() { _ = exec("DROP DATABASE " + name + " WITH (FORCE)") }, err
}

// ingest runs an ingester until so many decisions are written and nothing waits, or until it is
// killed.
func (r *restarts) ingest(url string, x *cutter, decisions int) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	dir, err := os.MkdirTemp(scratch, "ingester-")
	if err != nil {
		return err
	}
	start := func() (*Process, error) {
		return StartIn(dir, "ingester", filepath.Join(dir, "log"), r.programs.Ingester, "--data", r.data, "--job-db", url, "--mode", "holdback", "--control-plane", "", "--scrub-rate", "0")
	}
	p, err := x.start(start)
	if err != nil {
		return err
	}
	defer p.Kill()
	direct := url
	if x != nil {
		direct = x.direct
	}
	conn, err := pgx.Connect(ctx, direct)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = Until(ctx, func() (bool, error) {
		if p.Ended() {
			if x.killed() {
				return true, nil
			}
			return false, fmt.Errorf("the ingester ended:\n%s", p.Tail())
		}
		var done bool
		const query = `SELECT (SELECT count(*) FROM runs WHERE running) = 6 AND (SELECT count(*) FROM refloat_decisions) = $1 AND NOT EXISTS (SELECT FROM refloat_waits)`
		err := conn.QueryRow(ctx, query, decisions).Scan(&done)
		if missing := (*pgconn.PgError)(nil); errors.As(err, &missing) && missing.Code == "42P01" {
			return false, nil // the ingester has not made its tables yet
		}
		return done && strings.Contains(p.Text(), "writing Armada's tables"), err // before it handles signals, SIGTERM kills it
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, p.Tail())
	}
	if err := p.Term(ctx); err != nil && !x.killed() {
		return err
	}
	return nil
}

// early is the member that may start at once: its run has ended, and it is in no gang.
const early = "group-0"

// restartsSeen returns what is wrong with what Armada's scheduler sees of the restarts: of each
// set, all members are queued, or none, and the same for those that wait for pods to end.
func restartsSeen(url string) (wrong string, err error) {
	const query = `SELECT j.job_set, count(*) FILTER (WHERE j.queued AND j.queued_version = 2), count(*) FILTER (WHERE r.failed AND r.terminated),
			count(*) FILTER (WHERE position($1::bytea IN j.scheduling_info) > 0), count(*) FILTER (WHERE w.waiting)
		FROM jobs j JOIN runs r USING (job_id) LEFT JOIN refloat_waits w USING (job_id) GROUP BY j.job_set`
	err = each(url, query, []any{[]byte(schedulerdb.WaitingLabel)}, func(rows pgx.Rows) error {
		var set string
		var n [4]int
		if err := rows.Scan(&set, &n[0], &n[1], &n[2], &n[3]); err != nil {
			return err
		}
		waits := map[string]int{"gang": 3, "group": 2}[set]
		if n[0] != 0 && n[0] != 3 || n[1] != n[0] || n[2] != 0 && (n[2] != waits || n[0] == 0) || n[3] != n[2] {
			wrong += fmt.Sprintf("of set %s, %d members are queued, %d runs have failed, %d have the selector, %d wait; want all of them or none\n", set, n[0], n[1], n[2], n[3])
		}
		return nil
	})
	return wrong, err
}

// seesOne checks that restartsSeen sees a member that is restarted alone.
func (r *restarts) seesOne(t *testing.T) {
	t.Helper()
	url, drop, err := r.copy()
	if err != nil {
		t.Fatal(err)
	}
	defer drop()
	before, err := restartsSeen(url)
	err = errors.Join(err, each(url, "UPDATE jobs SET queued = true, queued_version = 2 WHERE job_id = 'gang-1'", nil, func(pgx.Rows) error { return nil }))
	after, seenErr := restartsSeen(url)
	if err := errors.Join(err, seenErr); err != nil || before != "" || after == "" {
		t.Fatalf("before a member is restarted alone: %q, after: %q, %v", before, after, err)
	}
}

// notEarly checks that the selector of each member was there until the pods of the stopped runs
// of its set had had their time.
func notEarly(url string) error {
	const query = `SELECT j.job_id, COALESCE(extract(epoch FROM j.last_modified - stopped.at), 0)::float8, j.queued AND position($1::bytea IN j.scheduling_info) = 0
		FROM jobs j JOIN (SELECT job_set, max(terminated_timestamp) AS at FROM runs GROUP BY job_set) stopped USING (job_set) WHERE job_id <> $2`
	return each(url, query, []any{[]byte(schedulerdb.WaitingLabel), early}, func(rows pgx.Rows) error {
		var job string
		var waited float64
		var ready bool
		err := rows.Scan(&job, &waited, &ready)
		if err == nil && (!ready || waited < podsEnd.Seconds()) {
			err = fmt.Errorf("job %s may be leased: %v, %v s after the runs of its set were stopped, want %v", job, ready, waited, podsEnd)
		}
		return err
	})
}

// tables returns the rows of all tables, without the times at which an ingester wrote them.
func tables(url string) (map[string][]string, error) {
	all := map[string][]string{}
	var names []string
	err := each(url, "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'", nil, func(rows pgx.Rows) error {
		names = append(names, "")
		return rows.Scan(&names[len(names)-1])
	})
	for _, table := range names {
		query := "SELECT (to_jsonb(r) - 'serial' - 'last_modified')::text FROM " + table + " AS r ORDER BY 1"
		if table == "runs" { // that of a stopped one is when it was written
			query = "SELECT (to_jsonb(r) - 'serial' - 'last_modified' - CASE WHEN run_id LIKE '%-0-run' THEN '' ELSE 'terminated_timestamp' END)::text FROM runs AS r ORDER BY 1"
		}
		err = errors.Join(err, each(url, query, nil, func(rows pgx.Rows) error {
			var row string
			err := rows.Scan(&row)
			all[table] = append(all[table], row)
			return err
		}))
	}
	return all, err
}

func each(url, query string, args []any, visit func(pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := visit(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
