package sink_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// publish appends one message with its envelope.
func publish(events *memTopic, c *chainWriter, n int, lines ...string) {
	at := eventlog.Position{Ledger: 1, Entry: int64(n), Batch: -1}
	m, records := build("q", "s", lines, at, int64(n)*second)
	events.append(c.p, m)
	c.answer(at, 1, records...)
}

// TestRunWaits: the loop sleeps while there is nothing, wakes for what comes,
// in any partition, and ends with its context.
func TestRunWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events, decisions, store := newTopic(2), newTopic(2), newMemStore()
		chains := []*chainWriter{newChain(t, decisions, 0), newChain(t, decisions, 1)}
		var batches []sink.Batch
		var mu sync.Mutex
		w, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: store, Hooks: sink.Hooks{Committed: func(b sink.Batch) {
			mu.Lock()
			defer mu.Unlock()
			batches = append(batches, b)
		}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		for n := 1; n < 5; n++ {
			synctest.Wait() // everything sleeps
			publish(events, chains[n%2], n, "submit j", "leased j r")
			synctest.Wait()
			if len(batches) != n+2 { // and one for each claim
				t.Fatalf("after message %d: %d transactions", n, len(batches))
			}
			if b := batches[len(batches)-1]; b.Partition != n%2 || b.Envelopes != 1 || b.Messages != 1 || b.Published != int64(n)*second {
				t.Errorf("batch %+v", b)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatalf("Run ended with %v", err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for p := range 2 {
			want, err := sink.Fold(events, decisions, p, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range sink.Compare(want, store.contents(p)) {
				t.Error(d)
			}
		}
	})
}

// broken fails to begin so many times.
type broken struct {
	jobdb.Store
	times *int
	err   error
}

func (b broken) Begin(ctx context.Context, p int) (jobdb.Tx, error) {
	if *b.times > 0 {
		*b.times--
		return nil, b.err
	}
	return b.Store.Begin(ctx, p)
}

// TestRunRetries: what may pass is tried again, ever more slowly; anything else ends the loop.
func TestRunRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events, decisions, store := newTopic(1), newTopic(1), newMemStore()
		c := newChain(t, decisions, 0)
		publish(events, c, 1, "submit j")
		var retries []time.Duration
		recovered := 0
		times, start := 12, time.Now()
		w, err := sink.New(sink.Config{
			Events: events, Decisions: decisions, DB: broken{store, &times, jobdb.ErrUnavailable},
			Hooks: sink.Hooks{Retry: func(_ int, err error) {
				if !errors.Is(err, jobdb.ErrUnavailable) {
					t.Errorf("retry because of %v", err)
				}
				retries = append(retries, time.Since(start))
			}, Recovered: func(int) { recovered++ }},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		<-time.NewTimer(time.Hour).C // virtual
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if len(retries) != 12 || retries[1]-retries[0] != 50*time.Millisecond || retries[11]-retries[10] != 10*time.Second {
			t.Errorf("retries at %v", retries)
		}
		if len(store.contents(0).Jobs) != 1 || recovered != 1 {
			t.Errorf("%d jobs came, %d recoveries; want one of each", len(store.contents(0).Jobs), recovered)
		}
		boom := errors.New("boom")
		times = 1
		w, err = sink.New(sink.Config{Events: events, Decisions: decisions, DB: broken{store, &times, boom}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(context.Background()); !errors.Is(err, boom) {
			t.Errorf("Run ended with %v, want %v", err, boom)
		}
	})
}

// TestAllEventsGone: rows whose events are all gone are continued once the chain says that
// what is gone was accepted, even if nothing has been published since.
func TestAllEventsGone(t *testing.T) {
	t.Parallel()
	events, decisions, store := newTopic(1), newTopic(1), newMemStore()
	c := newChain(t, decisions, 0)
	publish(events, c, 1, "submit j")
	reopen := func() *sink.Writer {
		w, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: store})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	drain(t, reopen(), 1)
	events.trim(0, 1)
	drain(t, reopen(), 1)
	begin, err := events.Beginning(0)
	if err != nil {
		t.Fatal(err)
	}
	c.claim(2)
	c.answer(begin, 0, &chain.HistoryAccepted{By: "olga"})
	drain(t, reopen(), 1)
	if at := store.byPartition[0].Events; at != begin {
		t.Errorf("the rows reach %v, want %v", at, begin)
	}
	drain(t, reopen(), 1) // and again from there
}

// TestMissing: logs that end before what the rows follow from, and records that
// answer nothing, stop the writer.
func TestMissing(t *testing.T) {
	t.Parallel()
	events, decisions, store := newTopic(1), newTopic(1), newMemStore()
	c := newChain(t, decisions, 0)
	publish(events, c, 1, "submit j")
	publish(events, c, 2, "leased j r")
	open := func(events, decisions *memTopic) *sink.Writer {
		w, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: store})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	drain(t, open(events, decisions), 1)
	cut := func(topic *memTopic) *memTopic {
		short := newTopic(1)
		ms := topic.parts[0].messages
		for _, m := range ms[:len(ms)-1] {
			short.append(0, m)
		}
		return short
	}
	for name, w := range map[string]*sink.Writer{"events": open(cut(events), decisions), "decisions": open(events, cut(decisions))} {
		if _, err := w.Advance(context.Background(), 0); !errors.Is(err, chain.ErrMissing) {
			t.Errorf("%s cut: error %v, want ErrMissing", name, err)
		}
	}

	stray := eventlog.Position{Ledger: 9, Entry: 9}
	at := eventlog.Position{Ledger: 1, Entry: 3, Batch: -1}
	m, _ := build("q", "s", []string{"other"}, at, second)
	events.append(0, m)
	c.answer(at, 1, &chain.NotDecided{Position: stray, JobID: "j", RunID: "r"})
	if _, err := open(events, decisions).Advance(context.Background(), 0); !errors.Is(err, sink.ErrUnmatched) {
		t.Errorf("stray record: error %v, want ErrUnmatched", err)
	}
}

// TestConfig: what a writer needs is asked for.
func TestConfig(t *testing.T) {
	t.Parallel()
	one, two := newTopic(1), newTopic(2)
	for name, cfg := range map[string]sink.Config{
		"nothing": {}, "no events": {Decisions: one, DB: newMemStore()}, "no database": {Events: one, Decisions: one},
		"other partitions":         {Events: one, Decisions: two, DB: newMemStore()},
		"releases without a clock": {Events: one, Decisions: one, DB: newMemStore(), ReleaseAfter: 1},
		"a negative limit":         {Events: one, Decisions: one, DB: newMemStore(), ReleaseAfter: -1, Now: time.Now},
	} {
		if _, err := sink.New(cfg); err == nil {
			t.Errorf("%s: New took it", name)
		}
	}
}

// TestTwoWritersOnOneFile: two ingesters at once, with connections of their own,
// come to the same rows, and each notices the other.
func TestTwoWritersOnOneFile(t *testing.T) {
	t.Parallel()
	events := readRecording(t, "preempted")
	decisions := cover(t, events, 2)
	path := filepath.Join(t.TempDir(), "jobs.db")
	var group sync.WaitGroup
	var mu sync.Mutex
	moved := 0
	for range 2 {
		w, err := sink.New(sink.Config{
			Events: events, Decisions: decisions, DB: openDB(t, path), MaxRows: 10,
			Hooks: sink.Hooks{Moved: func(int) { mu.Lock(); moved++; mu.Unlock() }},
		})
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() { drain(t, w, events.Partitions()) })
	}
	group.Wait()
	mustEqualFold(t, path, events, decisions)
	t.Logf("the positions were changed by the other writer %d times", moved)
}
