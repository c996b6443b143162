package sink_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// small is a partition whose chain says nothing after its claim: three messages,
// of 1, 2 and 3 s, with a failure in the second.
func small(t *testing.T) (events, decisions *memTopic, c *chainWriter, records []chain.Record) {
	events, decisions = newTopic(1), newTopic(1)
	c = newChain(t, decisions, 0)
	for i, lines := range [][]string{{"submit j", "leased j r"}, {"run-errors j r pod", "> requeue j r after=100"}, {"other"}} {
		m, rs := build("q", "s", lines, position(i+1), int64(i+1)*second)
		events.append(0, m)
		records = append(records, rs...)
	}
	return events, decisions, c, records
}

func position(n int) eventlog.Position {
	return eventlog.Position{Ledger: 1, Entry: int64(n), Batch: -1}
}

// impatient is a writer that releases what is 10 s old.
func impatient(t *testing.T, events, decisions eventlog.Topic, db jobdb.Store, clock *int64, hooks sink.Hooks) *sink.Writer {
	t.Helper()
	w, err := sink.New(sink.Config{
		Events: events, Decisions: decisions, DB: db, Hooks: hooks,
		ReleaseAfter: 10 * time.Second, Now: func() time.Time { return time.Unix(*clock, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// step advances once and says what was released or covered so far.
func step(t *testing.T, w *sink.Writer, store *memStore) string {
	t.Helper()
	if _, err := w.Advance(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	return where(store)
}

func where(store *memStore) string {
	p := store.positions(0)
	return fmt.Sprintf("seq %d to %d, events to %d, %d releases", p.Chain.Seq, p.Chain.InTo.Entry, p.Events.Entry, len(store.contents(0).Releases))
}

func mustFold(t *testing.T, events, decisions eventlog.Topic, store *memStore) *jobdb.Contents {
	t.Helper()
	got := store.contents(0)
	want, err := sink.Fold(events, decisions, 0, 0, got.Releases...)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range sink.Compare(want, got) {
		t.Error(d)
	}
	checkSuperseded(t, got)
	return got
}

// TestSlowReaderReleasesNothing: as long as the chain may have gone on further
// than we read, it is not the chain that is slow.
func TestSlowReaderReleasesNothing(t *testing.T) {
	t.Parallel()
	events, decisions, c, records := small(t)
	c.answer(position(2), 2, records...)
	c.put([]byte("a stranger's, which is processed too"))
	clock, store := int64(1000), newMemStore()
	in, chained := all(events), &gated{memTopic: decisions, durable: 3}
	in.readable = 0
	w := impatient(t, in, chained, store, &clock, sink.Hooks{})
	expect := func(what, want string) {
		t.Helper()
		clock += 100
		if got := step(t, w, store); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	expect("nothing is readable", "seq 0 to -1, events to -1, 0 releases")
	in.readable = 1
	expect("one event is readable, no decision", "seq 0 to -1, events to -1, 0 releases")
	chained.readable = 1
	expect("the claim is readable", "seq 1 to -1, events to -1, 0 releases")
	expect("the claim was taken in", "seq 1 to -1, events to -1, 0 releases")
	chained.readable = 2
	expect("the envelope is readable, half its input is not", "seq 1 to -1, events to -1, 0 releases")
	in.readable = 3
	expect("all events are readable", "seq 2 to 2, events to 2, 0 releases")
	expect("the stranger's message is not readable", "seq 2 to 2, events to 2, 0 releases")
	chained.readable = 3
	expect("everything is readable", "seq 2 to 2, events to 3, 1 releases")
	mustFold(t, events, decisions, store)
}

// TestAge: an event's age is counted from its publish time in this log, not from
// the one in a recording, and only what is due is released.
func TestAge(t *testing.T) {
	t.Parallel()
	events, decisions, _, _ := small(t)
	for i := range events.parts[0].messages {
		m := &events.parts[0].messages[i]
		m.Publish += 1000 * second
		m.Origin = eventlog.Origin{Recording: "old", Position: m.Position, Publish: second}
	}
	var released []jobdb.Release
	clock, store := int64(1010), newMemStore()
	w := impatient(t, events, decisions, store, &clock, sink.Hooks{Released: func(r jobdb.Release) { released = append(released, r) }})
	step(t, w, store) // the claim
	for _, tt := range []struct {
		clock int64
		want  string
	}{{1010, "events to -1, 0"}, {1011, "events to 1, 1"}, {1011, "events to 1, 1"}, {1013, "events to 3, 2"}, {9999, "events to 3, 2"}} {
		clock = tt.clock
		if got := step(t, w, store); !strings.Contains(got, tt.want) {
			t.Errorf("at %d: %s, want %s", tt.clock, got, tt.want)
		}
	}
	second := jobdb.Release{Seq: 1, From: position(1), To: position(3), Messages: 2, When: 1013 * second}
	if len(released) != 2 || released[1] != second {
		t.Errorf("the hook was told of %+v, want %+v second", released, second)
	}
	got := mustFold(t, events, decisions, store)
	if got.Jobs[0].State != jobdb.JobLeased || got.Runs[0].Outcome != jobdb.Released {
		t.Errorf("job %+v, run %+v", got.Jobs[0], got.Runs[0])
	}
}

// TestMaxRowsOfRelease: a release is as large as a batch, and the next one follows at once.
func TestMaxRowsOfRelease(t *testing.T) {
	t.Parallel()
	events, decisions, _, _ := small(t)
	store := newMemStore()
	w, err := sink.New(sink.Config{
		Events: events, Decisions: decisions, DB: store, MaxRows: 1,
		ReleaseAfter: time.Second, Now: func() time.Time { return time.Unix(1000, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	drain(t, w, 1)
	if got := where(store); got != "seq 1 to -1, events to 3, 3 releases" {
		t.Error(got)
	}
	mustFold(t, events, decisions, store)
}

// TestNeverByDefault: without ReleaseAfter events wait for ever.
func TestNeverByDefault(t *testing.T) {
	t.Parallel()
	events, decisions, _, _ := small(t)
	store := newMemStore()
	w, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: store, Now: func() time.Time { return time.Unix(1<<40, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	drain(t, w, 1)
	if got := where(store); got != "seq 1 to -1, events to -1, 0 releases" {
		t.Error(got)
	}
}

// before calls a function once, before a transaction begins.
type before struct {
	jobdb.Store
	call *func()
}

func (b before) Begin(ctx context.Context, p int) (jobdb.Tx, error) {
	if call := *b.call; call != nil {
		*b.call = nil
		call()
	}
	return b.Store.Begin(ctx, p)
}

// TestReleaseRacesEnvelope: of one who releases a range and one who applies the
// envelope for it, the first to commit wins, and the other begins anew.
func TestReleaseRacesEnvelope(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		releaseLoses bool
		won, want    string
	}{
		{"the envelope is first", true, "seq 2 to 2, events to 2, 0 releases", "seq 2 to 2, events to 3, 1 releases"},
		{"the release is first", false, "seq 1 to -1, events to 3, 1 releases", "seq 2 to 2, events to 3, 1 releases"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			events, decisions, c, records := small(t)
			clock, store, moved := int64(5), newMemStore(), 0
			var call func()
			hooks := sink.Hooks{Moved: func(int) { moved++ }}
			first := impatient(t, events, decisions, before{store, &call}, &clock, hooks)
			other := impatient(t, events, &gated{memTopic: decisions, durable: 1, readable: 1}, store, &clock, hooks)
			step(t, first, store) // the claim
			if tt.releaseLoses {
				// first has looked at the log's end and is about to release.
				other = impatient(t, events, decisions, store, &clock, hooks)
				call = func() {
					c.answer(position(2), 2, records...)
					step(t, other, store)
				}
			} else {
				// first has read the envelope and is about to apply it.
				c.answer(position(2), 2, records...)
				call = func() { step(t, other, store) }
			}
			clock = 1000
			if got := step(t, first, store); got != tt.won || moved != 1 {
				t.Fatalf("after who was first: %s, want %s; moved %d", got, tt.won, moved)
			}
			if got := step(t, first, store); got != tt.want || moved != 1 {
				t.Fatalf("after both: %s, want %s; moved %d", got, tt.want, moved)
			}
			got := mustFold(t, events, decisions, store)
			if d := got.Decisions[0]; d.Acted != tt.releaseLoses || d.Superseded == tt.releaseLoses {
				t.Errorf("decision: acted %v, superseded %v", d.Acted, d.Superseded)
			}
		})
	}
}

// TestUnknownRelease: after a commit of which nobody knows how it ended, the
// release is there once, whether it took effect or not.
func TestUnknownRelease(t *testing.T) {
	t.Parallel()
	for _, plan := range []string{"lost", "unknown"} {
		events, decisions, c, records := small(t)
		clock, store, next := int64(12), newMemStore(), ""
		w := impatient(t, events, decisions, flaky{store, func() string { return next }}, &clock, sink.Hooks{})
		step(t, w, store) // the claim
		next = plan
		if _, err := w.Advance(context.Background(), 0); !errors.Is(err, jobdb.ErrUnavailable) {
			t.Fatalf("%s: error %v", plan, err)
		}
		next = ""
		clock++
		drain(t, w, 1)
		got := mustFold(t, events, decisions, store)
		if len(got.Releases) != map[string]int{"lost": 1, "unknown": 2}[plan] || got.Positions.Events != position(3) {
			t.Errorf("%s: %s", plan, where(store))
		}
		c.answer(position(3), 3, records...)
		drain(t, w, 1)
		if d := mustFold(t, events, decisions, store).Decisions[0]; !d.Superseded {
			t.Errorf("%s: decision %+v", plan, d)
		}
	}
}

// TestRunReleases: the loop wakes by itself when a release is due, and goes on
// with the chain when that comes back.
func TestRunReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events, decisions := newTopic(1), newTopic(1)
		c := newChain(t, decisions, 0)
		store, start := newMemStore(), time.Now()
		var released []time.Duration
		var mu sync.Mutex
		w, err := sink.New(sink.Config{
			Events: events, Decisions: decisions, DB: store, ReleaseAfter: time.Minute, Now: time.Now,
			Hooks: sink.Hooks{Released: func(jobdb.Release) {
				mu.Lock()
				defer mu.Unlock()
				released = append(released, time.Since(start))
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		var records []chain.Record
		publish := func(n int, lines ...string) {
			m, rs := build("q", "s", lines, position(n), time.Now().UnixNano())
			events.append(0, m)
			records = append(records, rs...)
		}
		wait := func(d time.Duration) []time.Duration {
			<-time.NewTimer(d).C
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(released)
		}
		wait(time.Hour)
		publish(1, "submit j", "leased j r")
		wait(30 * time.Second)
		publish(2, "run-errors j r pod", "> requeue j r after=1")
		at := wait(45 * time.Second)
		if len(at) != 1 || at[0] < time.Hour+time.Minute || at[0] > time.Hour+time.Minute*9/8 {
			t.Fatalf("released at %v, want once, a minute and at most an eighth after the hour", at)
		}
		at = wait(time.Minute)
		if len(at) != 2 || at[1] < time.Hour+90*time.Second || at[1] > time.Hour+98*time.Second {
			t.Fatalf("released at %v, want the second one at 1h1m30s", at)
		}
		c.answer(position(2), 2, records...)
		synctest.Wait()
		publish(3, "leased j r2")
		c.answer(position(3), 1)
		at = wait(time.Hour)
		if len(at) != 2 {
			t.Errorf("released at %v", at)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := mustFold(t, events, decisions, store); got.Positions.Chain.Seq != 3 || !got.Decisions[0].Superseded {
			t.Errorf("%s, %+v", where(store), got.Decisions[0])
		}
	})
}

// TestFoldRefusesReleases: releases that are not of these logs.
func TestFoldRefusesReleases(t *testing.T) {
	t.Parallel()
	events, decisions, c, records := small(t)
	c.answer(position(1), 1)
	c.answer(position(3), 2, records...)
	good := jobdb.Release{Seq: 2, From: position(1), To: position(2), Messages: 1}
	if got, err := sink.Fold(events, decisions, 0, 0, &good); err != nil || got.Positions.Events != position(3) || !got.Decisions[0].Superseded {
		t.Fatalf("a good one: %v, %+v", err, got)
	}
	if got, err := sink.Fold(events, decisions, 0, 2, &good); err != nil || got.Positions.Events != position(2) {
		t.Fatalf("through 2: %v, %+v", err, got)
	}
	if got, err := sink.Fold(events, decisions, 0, 1, &good); err != nil || got.Positions.Events != eventlog.Start {
		t.Fatalf("through 1: %v, %+v", err, got)
	}
	for name, change := range map[string]func(*jobdb.Release){
		"another beginning": func(r *jobdb.Release) { r.From = position(2) },
		"another end":       func(r *jobdb.Release) { r.To = eventlog.Position{Ledger: 1, Entry: 2, Batch: 7} },
		"behind the end":    func(r *jobdb.Release) { r.To, r.Messages = position(9), 2 },
		"another count":     func(r *jobdb.Release) { r.Messages = 2 },
		"another partition": func(r *jobdb.Release) { r.Partition = 1 },
		"an older envelope": func(r *jobdb.Release) { r.Seq = 1 },
		"a later envelope":  func(r *jobdb.Release) { r.Seq = 9 },
	} {
		bad := good
		change(&bad)
		if _, err := sink.Fold(events, decisions, 0, 0, &bad); err == nil {
			t.Errorf("%s: Fold took it", name)
		}
	}
}

// TestReleasedIsHeld: what was released was durable, so events that end before it
// are other ones.
func TestReleasedIsHeld(t *testing.T) {
	t.Parallel()
	events, decisions, _, _ := small(t)
	clock, store := int64(1000), newMemStore()
	in := all(events)
	drain(t, impatient(t, in, decisions, store, &clock, sink.Hooks{}), 1)
	in.durable--
	_, err := impatient(t, in, decisions, store, &clock, sink.Hooks{}).Advance(context.Background(), 0)
	if !errors.Is(err, chain.ErrMissing) {
		t.Errorf("error %v, want ErrMissing", err)
	}
}
