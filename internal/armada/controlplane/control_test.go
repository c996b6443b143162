package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/armada/controlplane"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// world is a control-plane topic and Armada's scheduler database, with our tables.
type world struct {
	*testing.T
	topic *filelog.Log
	db    *postgres.DB
	conn  *pgx.Conn

	applied, parked []string
}

func newWorld(t *testing.T, partitions int) *world {
	t.Helper()
	w := &world{T: t}
	url := pgtest.Database(t)
	var err error
	w.conn, err = pgx.Connect(t.Context(), url)
	w.must(err)
	t.Cleanup(func() { _ = w.conn.Close(context.Background()) })
	w.must(schema.Create(t.Context(), w.conn))
	w.db, err = postgres.Open(t.Context(), url, postgres.Options{})
	w.must(err)
	t.Cleanup(func() { _ = w.db.Close() })
	w.topic, err = filelog.Open(filelog.Config{FS: vfs.NewMem(), Dir: "control", Partitions: partitions, Manual: true, Now: time.Now})
	w.must(err)
	t.Cleanup(func() { _ = w.topic.Close() })
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.conn.Exec(w.Context(), sql, args...)
	w.must(err)
}

// job inserts a job of class p into queue a.
func (w *world) job(id string) {
	w.Helper()
	info, err := proto.Marshal(&pb.JobSchedulingInfo{PriorityClassName: "p"})
	w.must(err)
	w.exec(`INSERT INTO jobs (job_id, job_set, queue, user_id, submitted, priority, queued, scheduling_info) VALUES ($1, 's', 'a', 'u', 0, 0, true, $2)`, id, info)
}

// ask publishes messages to a partition of the topic.
func (w *world) ask(partition int, texts ...string) {
	w.Helper()
	for _, text := range texts {
		payload := []byte("garbage")
		if text != "garbage" {
			m := &pb.ControlEvent{}
			w.must(prototext.Unmarshal([]byte(text), m))
			var err error
			payload, err = proto.Marshal(m)
			w.must(err)
		}
		w.must(w.topic.AppendSync(w.Context(), partition, []eventlog.Message{{Payload: payload}}))
	}
}

const cancelAll = `cancel_on_queue {name: "a" priority_classes: "p" job_states: [ACTIVE_QUEUED, ACTIVE_LEASED, ACTIVE_PENDING, ACTIVE_RUNNING]}`

func (w *world) follower(partition int, hit func(string) error) *controlplane.Follower {
	w.Helper()
	f := controlplane.New(controlplane.Config{Topic: w.topic, Partition: partition, DB: w.db, Hit: hit, Hooks: controlplane.Hooks{
		Applied: func(p int, _ eventlog.Position, op schedulerdb.ControlOp, jobs int) {
			w.applied = append(w.applied, fmt.Sprintf("%d: %T %d", p, op, jobs))
		},
		Parked: func(p int, _ eventlog.Position, f schedulerdb.Finding) {
			w.parked = append(w.parked, fmt.Sprintf("%d: %v", p, f.Kind))
		},
	}})
	w.Cleanup(func() { _ = f.Close() })
	return f
}

// drain advances until there is nothing left to do, also after expected errors.
func (w *world) drain(f *controlplane.Follower, expected error) {
	w.Helper()
	for progress := true; progress; {
		did, err := f.Advance(w.Context())
		if err != nil && !errors.Is(err, expected) {
			w.Fatal(err)
		}
		progress = did || err != nil
	}
}

func (w *world) count(query string) (n int) {
	w.Helper()
	w.must(w.conn.QueryRow(w.Context(), query).Scan(&n))
	return n
}

func (w *world) want(what string, got []string, want ...string) {
	w.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		w.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestFollow: messages take effect in order, once; unusable ones are skipped.
func TestFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.must(controlplane.Begin(t.Context(), w.db, w.topic))
	w.job("one")
	w.ask(0, `executor_settings_upsert {name: "e" cordoned: true}`, "garbage", cancelAll, `cancel_on_queue {name: "a" job_states: 7}`, `executor_settings_upsert {name: "e"}`)
	w.drain(w.follower(0, nil), nil)
	w.want("applied", w.applied, "0: *schedulerdb.SetExecutor 0", "0: *schedulerdb.Sweep 1", "0: *schedulerdb.SetExecutor 0")
	w.want("parked", w.parked, "0: Unreadable", "0: Blocked")
	if n := w.count("SELECT count(*) FROM jobs WHERE cancel_requested"); n != 1 {
		t.Errorf("%d jobs are asked to be cancelled, want 1", n)
	}
	if n := w.count("SELECT count(*) FROM executor_settings WHERE NOT cordoned"); n != 1 {
		t.Error("the executor is not back")
	}

	// The next follower, or the same one again, applies none of it again.
	w.job("two")
	w.applied = nil
	w.drain(w.follower(0, nil), nil)
	w.ask(0, `preempt_on_queue {name: "a" priority_classes: "p"}`)
	w.drain(w.follower(0, nil), nil)
	w.want("applied", w.applied, "0: *schedulerdb.Sweep 0")
	if n := w.count("SELECT count(*) FROM jobs WHERE cancel_requested"); n != 1 {
		t.Errorf("%d jobs are asked to be cancelled, want 1", n)
	}
}

// TestCrash: wherever it crashes, each message takes effect once.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, label := range []string{"applied", "committed"} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.must(controlplane.Begin(t.Context(), w.db, w.topic))
			w.job("one")
			w.ask(0, `executor_settings_upsert {name: "e" cordoned: true}`, cancelAll, `executor_settings_delete {name: "e"}`, cancelAll)
			cut, hits := errors.New("cut here"), 0
			f := w.follower(0, func(at string) error {
				if hits++; at == label && hits%3 != 0 {
					return cut
				}
				if at == "committed" { // applying it twice would cancel this job too
					w.exec("UPDATE jobs SET queued = false")
				}
				return nil
			})
			w.drain(f, cut)
			if n := w.count("SELECT count(*) FROM executor_settings"); n != 0 {
				t.Errorf("%d executors have settings", n)
			}
			end, err := w.topic.End(0)
			w.must(err)
			if n := w.count(fmt.Sprintf("SELECT count(*) FROM refloat_control WHERE (ledger, entry, batch) = (%d, %d, %d)", end.Ledger, end.Entry, end.Batch)); n != 1 {
				t.Errorf("the position is not %v", end)
			}
			w.job("two")
			w.drain(w.follower(0, nil), nil)
			if n := w.count("SELECT count(*) FROM jobs WHERE cancel_requested AND job_id = 'two'"); n != 0 {
				t.Error("a message was applied again")
			}
		})
	}
}

// TestTwoAtOnce: two followers of one partition apply each message once. A counter in
// the database counts the writes.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.must(controlplane.Begin(t.Context(), w.db, w.topic))
	w.exec(`CREATE TABLE written (n bigserial, cordoned boolean);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO written (cordoned) VALUES (NEW.cordoned); RETURN NEW; END';
		CREATE TRIGGER note AFTER INSERT OR UPDATE ON executor_settings FOR EACH ROW EXECUTE FUNCTION note()`)
	const messages = 60
	for i := range messages {
		w.ask(0, fmt.Sprintf(`executor_settings_upsert {name: "e" cordoned: %v}`, i%2 == 0))
	}
	var group sync.WaitGroup
	for range 2 {
		f := controlplane.New(controlplane.Config{Topic: w.topic, DB: w.db})
		group.Go(func() {
			defer f.Close()
			for progress := true; progress; {
				var err error
				if progress, err = f.Advance(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if n := w.count("SELECT count(*) FROM written"); n != messages {
		t.Errorf("%d writes, want %d", n, messages)
	}
	if n := w.count("SELECT count(*) FROM (SELECT cordoned <> lag(cordoned) OVER (ORDER BY n) AS changes FROM written) AS w WHERE changes"); n != messages-1 {
		t.Errorf("%d changes, want %d: not in order", n, messages-1)
	}
}

// TestBegin: messages that Armada's ingester may have applied are not applied again.
func TestBegin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name               string
		jobs, ours, before bool // the state before Begin
		none               bool // the topic does not exist
		taken              bool
		applied            int
	}{
		{name: "all is new", applied: 1},
		{name: "nobody submitted a job yet", before: true, applied: 2},
		{name: "Armada's tables", jobs: true, taken: true},
		{name: "Armada's tables and messages", jobs: true, before: true, taken: true},
		{name: "only the events were taken over", jobs: true, ours: true, before: true, taken: true},
		{name: "events were taken over, and nothing else was there", jobs: true, ours: true, applied: 1},
		{name: "events were taken over, and no topic was there", jobs: true, ours: true, none: true, applied: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			if tt.jobs {
				w.job("one")
			}
			if tt.ours {
				w.exec("INSERT INTO refloat_mirror VALUES (0, '1:2:3')")
			}
			if tt.before {
				w.ask(1, `executor_settings_upsert {name: "e"}`)
			}
			topic := eventlog.Topic(w.topic)
			if tt.none {
				topic = nil
			}
			for range 2 { // also a later one
				if err := controlplane.Begin(t.Context(), w.db, topic); errors.Is(err, controlplane.ErrTaken) != tt.taken || err != nil && !tt.taken {
					t.Fatalf("error %v", err)
				}
				if !tt.taken && w.count("SELECT count(*) FROM jobs") == 0 {
					w.job("one")
				}
			}
			if tt.taken {
				return
			}
			w.ask(1, `executor_settings_upsert {name: "e"}`)
			for p := range 2 {
				w.drain(w.follower(p, nil), nil)
			}
			if len(w.applied) != tt.applied {
				t.Errorf("applied %q, want %d", w.applied, tt.applied)
			}
		})
	}
}

// TestCancelBesideIngester: while an operator's cancellation waits for Armada's lock,
// the ingester that holds it requeues a job. The cancellation applies to that job too.
func TestCancelBesideIngester(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.must(controlplane.Begin(t.Context(), w.db, w.topic))
	w.job("preempted")
	w.exec("UPDATE jobs SET queued = false")
	w.ask(0, `cancel_on_queue {name: "a" job_states: ACTIVE_QUEUED}`)
	ingester, err := w.db.BeginPlain(t.Context())
	w.must(err)
	w.must(pgstore.In(ingester).Lock(t.Context()))
	_, err = ingester.Exec(t.Context(), `INSERT INTO refloat_waits (partition, job_id, run_id, number, policy, retry_after, avoid, copied, forgetting, waiting, raises, raise_at, due)
		VALUES (0, 'preempted', 'r', 1, 'p', 0, '{}', false, true, false, 0, 0, 0)`)
	w.must(err)
	f, done := w.follower(0, nil), make(chan error, 1)
	go func() {
		_, err := f.Advance(t.Context())
		done <- err
	}()
	for w.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 0 {
		select {
		case err := <-done:
			t.Fatalf("the cancel did not wait: %v", err)
		default:
		}
	}
	w.must(ingester.Commit(t.Context()))
	w.must(<-done)
	w.want("applied", w.applied, "0: *schedulerdb.Sweep 1")
	if n := w.count("SELECT count(*) FROM jobs WHERE cancel_requested"); n != 1 {
		t.Error("the cancel was lost")
	}
}

// TestGivenBack: after a roll-back, the tables are not written any more.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.must(controlplane.Begin(t.Context(), w.db, w.topic))
	w.ask(0, `executor_settings_upsert {name: "a"}`, `executor_settings_upsert {name: "b"}`)
	f := w.follower(0, nil)
	if _, err := f.Advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := w.db.Begin(t.Context(), 0) // which creates the position in events
	w.must(err)
	w.must(tx.Commit(t.Context(), tx.Positions(), tx.Positions()))
	w.exec("UPDATE refloat_positions SET given_back = 1")
	if _, err := f.Advance(t.Context()); !errors.Is(err, jobdb.ErrRolledBack) {
		t.Errorf("error %v, want ErrRolledBack", err)
	}
	if err := controlplane.Begin(t.Context(), w.db, w.topic); !errors.Is(err, jobdb.ErrRolledBack) {
		t.Errorf("error %v, want ErrRolledBack", err)
	}
	if n := w.count("SELECT count(*) FROM executor_settings"); n != 1 {
		t.Errorf("%d executors have settings, want 1", n)
	}
}

// TestRun: a follower waits for messages, retries while the database is unavailable,
// and ends with its context.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.must(controlplane.Begin(t.Context(), w.db, w.topic))
	applied, retries := make(chan string, 10), make(chan error, 100)
	f := controlplane.New(controlplane.Config{Topic: w.topic, DB: w.db, Hooks: controlplane.Hooks{
		Applied: func(_ int, _ eventlog.Position, op schedulerdb.ControlOp, _ int) { applied <- fmt.Sprintf("%T", op) },
		Retry:   func(_ int, err error) { retries <- err },
	}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	w.ask(0, `executor_settings_delete {name: "e"}`)
	if got := <-applied; got != "*schedulerdb.ForgetSettings" {
		t.Errorf("applied %s", got)
	}
	var pid int
	w.must(w.conn.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").Scan(&pid))
	if pid == 0 {
		t.Error("no connection to end")
	}
	w.ask(0, `executor_settings_upsert {name: "e"}`)
	if got := <-applied; got != "*schedulerdb.SetExecutor" {
		t.Errorf("applied %s", got)
	}
	if len(retries) > 0 {
		t.Logf("tried again: %v", <-retries)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
