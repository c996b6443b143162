package sink_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// churn is a pair of topics that are made when they are read, so that they take no
// memory. Jobs come and go: in each message, 20 are submitted, and older ones go through
// the rest of their lives; each fails once, is retried and succeeds. Now and then, the end
// of a pod is reported long after its job was pruned. An hour after the last of them, one
// more job ends.
type churn struct {
	jobs     int
	step     time.Duration // from one message to the next
	keepRows int
}

const (
	churnHorizon = time.Minute
	churnStep    = 60 * time.Millisecond // then 20,000 jobs that are over are kept
	churnBatch   = 10                    // messages of an envelope
	churnLate    = 500                   // one message of so many has a late event
	churnTail    = 2 * churnBatch        // messages of the last job
)

var churnLife = []string{
	"submit %[1]s priority=3 namespace=team policies=infra,ml init=setup grace=30",
	"leased %[1]s %[2]s-0 node=node-0001 executor=cluster-a pool=default",
	"running %[1]s %[2]s-0 node=node-0001",
	"run-errors %[1]s %[2]s-0 pod exit=137 node=node-0001 category=infra message=the_node_was_low_on_resource:_memory._Container_main_was_using_1Gi\n" +
		"> requeue %[1]s %[2]s-0 after=60 avoid=node-0001",
	"leased %[1]s %[2]s-1 node=node-0002 executor=cluster-b pool=default",
	"running %[1]s %[2]s-1 node=node-0002",
	"run-succeeded %[1]s %[2]s-1\nsucceeded %[1]s",
}

func (c churn) groups() int   { return c.jobs / jobsAMessage }
func (c churn) messages() int { return c.groups() + churnTail }

// message returns a message and the records that answer it.
func (c churn) message(i int) (eventlog.Message, []chain.Record) {
	var lines []string
	line := func(step, job int) {
		id, run := fmt.Sprintf("01m7xn681y99tqr99%09d", job), fmt.Sprintf("017a6709-710f-4baf-bcc7-%010d", job)
		lines = append(lines, splitLines(fmt.Sprintf(churnLife[step], id, run))...)
	}
	t := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * c.step)
	for step := range churnLife {
		group := i - step
		for k := range jobsAMessage {
			if group >= 0 && group < c.groups() {
				line(step, group*jobsAMessage+k)
			}
		}
		if last := c.groups() + churnBatch; group == last && i < last+len(churnLife) {
			line(step, c.jobs)
		}
	}
	if i >= c.groups()+churnBatch {
		t = t.Add(time.Hour)
	}
	if old := i - 4*int(churnHorizon/c.step); i%churnLate == 0 && old > 0 {
		lines = append(lines, fmt.Sprintf("terminated 01m7xn681y99tqr99%09d 017a6709-710f-4baf-bcc7-%010d-1", old*jobsAMessage, old*jobsAMessage))
	}
	if len(lines) == 0 {
		lines = []string{"other"}
	}
	return build("vision-train", fmt.Sprintf("sweep-%d", i/5), lines, steadyAt(i), t.UnixNano())
}

// churnTopic is the topic of the events, or that of the decisions.
type churnTopic struct {
	churn
	t         *testing.T
	decisions bool
}

func (c churnTopic) Partitions() int                          { return 1 }
func (c churnTopic) Beginning(int) (eventlog.Position, error) { return eventlog.Start, nil }
func (c churnTopic) End(int) (eventlog.Position, error) {
	if c.decisions {
		return eventlog.Position{Ledger: 1, Entry: int64(c.messages()/churnBatch + 1), Batch: -1}, nil
	}
	return steadyAt(c.messages() - 1), nil
}

func (c churnTopic) Open(_ int, after eventlog.Position) (eventlog.Reader, error) {
	r := &churnReader{churnTopic: c, next: int(after.Entry) + 1}
	if c.decisions {
		if after != eventlog.Start {
			return nil, fmt.Errorf("decisions can only be read from the beginning, not after %v", after)
		}
		r.next, r.made = 0, newTopic(1)
		r.chain = newChain(c.t, r.made, 0)
	}
	return r, nil
}

type churnReader struct {
	churnTopic
	next  int // message
	chain *chainWriter
	made  *memTopic
}

func (r *churnReader) Read(dst []eventlog.Message) (n int, err error) {
	for n < len(dst) && !r.decisions && r.next < r.messages() {
		dst[n], _ = r.message(r.next)
		r.next++
		n++
	}
	if !r.decisions {
		return n, nil
	}
	if r.next < r.messages() {
		var records []chain.Record
		if r.next == 0 {
			records = append(records, &chain.PolicyActivated{Generation: 1, HorizonMS: churnHorizon.Milliseconds()})
		}
		for range churnBatch {
			_, more := r.message(r.next)
			records = append(records, more...)
			r.next++
		}
		r.chain.answer(steadyAt(r.next-1), churnBatch, records...)
	}
	n = copy(dst, r.made.parts[0].messages)
	r.made.parts[0].messages = r.made.parts[0].messages[n:]
	return n, nil
}

func (r *churnReader) Changed() <-chan struct{} { return nil }
func (r *churnReader) Close() error             { return nil }

// sizes are what a database takes: on disk, in pages or rows that are in use, and the
// number of jobs.
type sizes struct{ disk, used, jobs int64 }

// soak lets jobs come and go through an ingester that prunes, and reports sizes when the
// first jobs have been pruned for a while, at the end of the churn, and when all is pruned:
// from the half to the end, disk and memory may grow by 10 %.
func soak(t *testing.T, c churn, db jobdb.Store, measure func() sizes) {
	t.Helper()
	events, decisions := churnTopic{c, t, false}, churnTopic{c, t, true}
	pruned, slowest, most := sink.Prune{}, time.Duration(0), 0
	start, begun, at := time.Now(), time.Time{}, 0
	now := time.Now
	var steps time.Duration
	if c.step != churnStep { // the same on every machine: it prunes between any two transactions
		now = func() time.Time { return start.Add(steps * 4 * time.Second) }
	}
	w, err := sink.New(sink.Config{
		Events: events, Decisions: decisions, DB: db, KeepRows: c.keepRows, Retain: sink.Retention{For: churnHorizon}, Now: now,
		Hooks: sink.Hooks{Committed: func(b sink.Batch) { at += b.Messages }, Pruned: func(p sink.Prune) {
			pruned.Jobs, pruned.Rows = pruned.Jobs+p.Jobs, pruned.Rows+p.Rows
			slowest, most = max(slowest, time.Since(begun)), max(most, p.Rows)
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	until := func(messages int) bool {
		for {
			begun = time.Now()
			steps++
			progress, err := w.Advance(context.Background(), 0)
			if err != nil {
				t.Fatal(err)
			}
			if done := at >= messages; done || !progress {
				return done
			}
		}
	}
	report := func(what string) (s sizes, mb float64) {
		s, mb = measure(), heap()
		t.Logf("%s, %v: %d of %d messages, disk %.1f MB, in use %.1f MB, %d jobs, heap %.1f MB; pruned %d jobs, %d rows, slowest %v, at most %d rows at once",
			what, time.Since(start).Round(time.Second), at, c.messages(), float64(s.disk)/1e6, float64(s.used)/1e6, s.jobs, mb, pruned.Jobs, pruned.Rows, slowest.Round(time.Millisecond), most)
		return s, mb
	}
	until(c.messages() / 4)
	report("a quarter")
	until(c.messages() / 2)
	early, earlyHeap := report("half") // by now caches are full, and an autovacuum has run
	until(c.groups())
	late, lateHeap := report("the end of the churn")
	until(c.messages())
	for deadline := time.Now().Add(time.Minute); measure().jobs > 2 && time.Now().Before(deadline); {
		until(c.messages() + 1)
	}
	// The last job is left, and perhaps the row of the last late event.
	end, _ := report("an hour later")
	if limit := early.disk + early.disk/10; late.disk > limit {
		t.Errorf("disk grew from %d to %d bytes", early.disk, late.disk)
	}
	if lateHeap > 1.1*earlyHeap+1 {
		t.Errorf("the heap grew from %.1f to %.1f MB", earlyHeap, lateHeap)
	}
	if end.jobs > 2 || end.used > early.used/10+200_000 {
		t.Errorf("%d jobs and %d bytes are left", end.jobs, end.used)
	}
}

// soakJobs is the number of jobs, from SOAK_JOBS, or a few.
func soakJobs(t *testing.T) churn {
	t.Helper()
	text := os.Getenv("SOAK_JOBS")
	if text == "" {
		return churn{jobs: 8000, step: 100 * churnStep, keepRows: 500}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 100_000 || n%(jobsAMessage*churnBatch) != 0 {
		t.Fatalf("SOAK_JOBS=%s: want a multiple of %d, at least 100000", text, jobsAMessage*churnBatch)
	}
	return churn{jobs: n, step: churnStep}
}

// TestSoakSQLite: jobs come and go, and the file does not grow. SOAK_JOBS=1000000 is the
// long form (make soak).
func TestSoakSQLite(t *testing.T) { //nolint:paralleltest // it measures the heap
	path := filepath.Join(t.TempDir(), "jobs.db")
	db := openDB(t, path)
	soak(t, soakJobs(t), db, func() (s sizes) {
		conn, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// The size of the file when its write-ahead log, which is bounded, is in it.
		const query = "SELECT page_count * page_size, (page_count - freelist_count) * page_size, (SELECT count(*) FROM jobs) FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
		if err := conn.QueryRow(query).Scan(&s.disk, &s.used, &s.jobs); err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// TestSoakPostgreSQL: the same on PostgreSQL, whose autovacuum makes room for new rows. It
// wakes up once a minute, so it is too slow for a few jobs.
func TestSoakPostgreSQL(t *testing.T) { //nolint:paralleltest // it measures the heap
	if os.Getenv("SOAK_JOBS") == "" {
		t.Skip("SKIP: SOAK_JOBS is not set: it takes minutes")
	}
	at := pgtest.Start(t, false).Database(t)
	db, conn := openPostgres(t, at), postgresConn(t, at)
	soak(t, soakJobs(t), db, func() (s sizes) {
		const query = `SELECT sum(pg_total_relation_size(c.oid))::bigint, coalesce(sum(n_live_tup + n_dead_tup), 0)::bigint, (SELECT count(*) FROM refloat_jobs)
			FROM pg_class c LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.relname LIKE 'refloat\_%' AND c.relkind = 'r'`
		if err := conn.QueryRow(context.Background(), query).Scan(&s.disk, &s.used, &s.jobs); err != nil {
			t.Fatal(err)
		}
		return s
	})
}
