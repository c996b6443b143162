package sink_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/sink"
)

// history draws two logs: messages about few jobs and runs, in any order and
// sense, and a chain that answers them in batches of any length, with records
// of any kind, other owners, repeated envelopes and garbage between.
func history(t *testing.T, r *rapid.T) (events, decisions *memTopic) {
	return historyOf(t, r, 40)
}

// historyOf draws a history of up to so many messages. With front, its first batch puts
// these records in force, and every record is about a run that its message names, as those
// of an evaluator are.
func historyOf(t *testing.T, r *rapid.T, most int, front ...chain.Record) (events, decisions *memTopic) {
	events, decisions = newTopic(1), newTopic(1)
	strict := len(front) > 0
	c := newChain(t, decisions, 0)
	pick := func(list ...string) string { return rapid.SampledFrom(list).Draw(r, "pick") }
	chance := func(percent int) bool { return rapid.IntRange(1, 100).Draw(r, "chance") <= percent }
	n, entry := rapid.IntRange(1, most).Draw(r, "messages"), int64(0)
	for n > 0 {
		size := rapid.IntRange(1, min(n, 5)).Draw(r, "batch")
		batch := batchLines{strict: strict, records: front}
		front = nil
		for range size {
			entry += int64(rapid.IntRange(1, 3).Draw(r, "gap"))
			batch.draw(r, pick, chance)
			at := eventlog.Position{Ledger: 1, Entry: entry, Batch: -1}
			origin := eventlog.Origin{}
			meant := at
			if chance(20) { // fed from a recording: the records name the origin's position
				meant = eventlog.Position{Ledger: 77, Entry: entry + 5}
				origin = eventlog.Origin{Recording: "rec", Position: meant, Publish: entry * second}
			}
			m, records := build("q", pick("s1", "s2"), batch.lines, meant, entry*second)
			m.Position, m.Origin = at, origin
			if chance(5) {
				m.Payload = []byte("\xff garbage")
				if strict {
					records = nil
				}
			}
			events.append(0, m)
			batch.records = append(batch.records, records...)
			batch.last = at
		}
		c.answer(batch.last, size, batch.records...)
		n -= size
		switch rapid.IntRange(0, 9).Draw(r, "noise") {
		case 0:
			c.claim(byte(n))
		case 1:
			c.put([]byte("garbage"))
		case 2:
			log := decisions.parts[0].messages
			c.put(log[rapid.IntRange(0, len(log)-1).Draw(r, "again")].Payload)
		case 3:
			c.answer(c.end.InTo, 0)
		}
	}
	return events, decisions
}

func (s *batchLines) draw(r *rapid.T, pick func(...string) string, chance func(int) bool) {
	s.lines = s.lines[:0]
	for range rapid.IntRange(1, 6).Draw(r, "events") {
		job, run := pick("j1", "j2", "j3"), pick("r1", "r2", "r3")
		s.lines = append(s.lines, fmt.Sprintf(pick(
			"submit %s priority=3 policies=a init=x", "leased %s %s node=n", "leased %s %s node=m", "assigned %s %s", "running %s %s node=n",
			"run-succeeded %s %s", "run-errors %s %s pod exit=1 node=n message=m", "run-errors %s %s returned attempted", "run-errors %s %s pod passing",
			"preempted %s %s reason=r", "terminated %s %s", "cancel %s", "cancelled %s", "succeeded %s", "job-errors %s pod", "job-errors %s rejected",
			"job-errors %s pod passing", "requeued %s", "reprioritised %s priority=7", "cancel-set", "cancel-set states=QUEUED", "other", "submit -", "leased - %s",
		), job, run))
		if i := len(s.lines) - 1; len(s.lines[i]) > 0 {
			s.lines[i] = trimExtra(s.lines[i])
		}
		caused := len(s.lines) > 0 && (strings.HasPrefix(s.lines[len(s.lines)-1], "run-errors") ||
			strings.HasPrefix(s.lines[len(s.lines)-1], "preempted") || strings.HasPrefix(s.lines[len(s.lines)-1], "terminated"))
		if chance(40) && (caused || !s.strict) {
			if !s.strict && chance(30) { // about something that the message may not name
				job, run = pick("j1", "j2", "j3"), pick("r1", "r2", "r3")
			}
			s.lines = append(s.lines, trimExtra(fmt.Sprintf(pick(
				"> requeue %s %s after=50 avoid=n", "> requeue %s %s after=90", "> fail %s %s", "> requeue %s %s after=70 shadow", "> fail %s %s shadow",
				"> not-decided %s %s", "> ready %s %s after=40", "> parked",
			), job, run)))
		}
	}
}

type batchLines struct {
	strict  bool
	lines   []string
	records []chain.Record
	last    eventlog.Position
}

// trimExtra cuts off what Sprintf says of arguments that a format does not use.
func trimExtra(line string) string {
	for i := range line {
		if line[i] == '%' {
			return line[:i]
		}
	}
	return line
}

// flaky is a store whose commits end as the plan says.
type flaky struct {
	jobdb.Store
	plan func() string // "", "lost" (an error, and nothing happened), "unknown" (an error, and it took effect)
}

type flakyTx struct {
	jobdb.Tx
	plan func() string
}

var errCut = fmt.Errorf("%w: connection cut", jobdb.ErrUnavailable)

func (f flaky) Begin(ctx context.Context, p int) (jobdb.Tx, error) {
	tx, err := f.Store.Begin(ctx, p)
	return flakyTx{tx, f.plan}, err
}

func (t flakyTx) Commit(ctx context.Context, from, to jobdb.Positions) error {
	switch t.plan() {
	case "lost":
		return errors.Join(errCut, t.Rollback())
	case "unknown":
		return errors.Join(t.Tx.Commit(ctx, from, to), errCut)
	}
	return t.Tx.Commit(ctx, from, to)
}

var errCrash = errors.New("crash")

// TestLaws: whatever the batches, the crashes, the cut connections and the
// number of writers, the rows are those of the fold.
func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		events, decisions := history(t, r)
		want, err := sink.Fold(events, decisions, 0, 0)
		if err != nil {
			r.Fatal(err)
		}
		store, crashes, cuts := newMemStore(), 0, 0
		hit := func(string) error {
			if crashes < 20 && rapid.IntRange(0, 19).Draw(r, "crash") == 0 {
				crashes++
				return errCrash
			}
			return nil
		}
		plan := func() string {
			if cuts > 20 {
				return ""
			}
			cuts++
			return rapid.SampledFrom([]string{"", "", "", "", "lost", "unknown"}).Draw(r, "commit")
		}
		open := func() *sink.Writer {
			w, err := sink.New(sink.Config{
				Events: events, Decisions: decisions, DB: flaky{store, plan}, Hit: hit,
				MaxRows: rapid.IntRange(1, 40).Draw(r, "rows"), KeepRows: rapid.SampledFrom([]int{1, 10, 1000}).Draw(r, "keep"),
			})
			if err != nil {
				r.Fatal(err)
			}
			return w
		}
		writers := []*sink.Writer{open(), open()}
		for idle := 0; idle < 2; {
			i := rapid.IntRange(0, 1).Draw(r, "writer")
			progress, err := writers[i].Advance(context.Background(), 0)
			switch {
			case errors.Is(err, errCrash):
				writers[i] = open()
			case err != nil && !errors.Is(err, jobdb.ErrUnavailable):
				r.Fatal(err)
			case !progress && err == nil && store.positions(0) == want.Positions:
				idle++
			}
		}
		for _, d := range sink.Compare(want, store.contents(0)) {
			r.Errorf("%v", d)
		}
		checkStates(r, want)
	})
}

// TestCrashImages: whatever a crash leaves of the files at any label, a new
// writer on them comes to the same rows.
func TestCrashImages(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	images := 0
	for seed := range 3 {
		var events, decisions *memTopic
		rapid.Custom(func(r *rapid.T) int { events, decisions = history(t, r); return 0 }).Example(seed)
		want, err := sink.Fold(events, decisions, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		var copies []string
		w, err := sink.New(sink.Config{
			Events: events, Decisions: decisions, DB: openDB(t, filepath.Join(dir, "jobs.db")), MaxRows: 12,
			Hit: func(label string) error {
				copies = append(copies, image(t, dir, label))
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		drain(t, w, 1)
		for _, path := range copies {
			images++
			db, err := sqlite.Open(ctx, path, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			again, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: db})
			if err != nil {
				t.Fatal(err)
			}
			drain(t, again, 1)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			for _, d := range sink.Compare(want, contents(t, path, 0)) {
				t.Errorf("seed %d, %s: %v", seed, path, d)
			}
		}
	}
	t.Logf("%d crash images", images)
}

// image copies the database's files as they are.
func image(t *testing.T, dir, label string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{"jobs.db", "jobs.db-wal"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0o600)
		}
		if err != nil {
			t.Fatalf("at %s: %v", label, err)
		}
	}
	return filepath.Join(to, "jobs.db")
}
