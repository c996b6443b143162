package sink_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/sink"
)

// gated is a topic of one partition of which so many messages are durable, and
// readers see so many of them.
type gated struct {
	*memTopic
	durable, readable int
}

func (g *gated) End(int) (eventlog.Position, error) {
	if g.durable == 0 {
		return eventlog.Start, nil
	}
	return g.parts[0].messages[g.durable-1].Position, nil
}

func (g *gated) Open(_ int, after eventlog.Position) (eventlog.Reader, error) {
	r := &gatedReader{g: g}
	for r.next < len(g.parts[0].messages) && g.parts[0].messages[r.next].Position.Compare(after) <= 0 {
		r.next++
	}
	return r, nil
}

type gatedReader struct {
	g    *gated
	next int
}

func (r *gatedReader) Read(dst []eventlog.Message) (int, error) {
	end := max(r.g.readable, r.next)
	n := copy(dst, r.g.parts[0].messages[r.next:end])
	r.next += n
	return n, nil
}

func (r *gatedReader) Changed() <-chan struct{} { return nil }
func (r *gatedReader) Close() error             { return nil }

// show makes the first n messages durable, and all of them readable.
func (g *gated) show(n int) { g.durable, g.readable = n, n }

func all(topic *memTopic) *gated {
	n := len(topic.parts[0].messages)
	return &gated{memTopic: topic, durable: n, readable: n}
}

// seqs are the seq of the chain's end after each message of a decisions log.
func seqs(decisions *memTopic) []uint64 {
	list, end := []uint64{0}, chain.Beginning
	for _, m := range decisions.parts[0].messages {
		if acc, _, err := end.Offer(m.Payload); err == nil && acc != nil {
			end = acc.End
		}
		list = append(list, end.Seq)
	}
	return list
}

// world is two writers with one database, whose logs come bit by bit.
type world struct {
	r                 *rapid.T
	events, decisions *gated
	store             *memStore
	clock             int64 // seconds
	limit             int64
	seqs              []uint64
	crashes, cuts     int
	writers           []*sink.Writer
	inside            bool // another writer is at work before a transaction begins
	released          []jobdb.Release
	final             map[string]jobdb.Job
	retain            sink.Retention
	prune             func(sink.Prune)
}

func (x *world) n(low, high int, label string) int {
	return rapid.IntRange(low, high).Draw(x.r, label)
}

func (x *world) open() *sink.Writer {
	limit := x.limit
	if x.n(1, 8, "patient") == 8 {
		limit = 0
	}
	w, err := sink.New(sink.Config{
		Events: x.events, Decisions: x.decisions, DB: x, Hit: x.hit,
		MaxRows: x.n(1, 40, "rows"), KeepRows: rapid.SampledFrom([]int{1, 10, 1000}).Draw(x.r, "keep"),
		ReleaseAfter: time.Duration(limit * second), Now: func() time.Time { return time.Unix(x.clock, 0) },
		Hooks: sink.Hooks{Released: x.checkReleased, Pruned: x.prune}, Retain: x.retain,
	})
	if err != nil {
		x.r.Fatal(err)
	}
	return w
}

func (x *world) hit(string) error {
	if x.crashes < 20 && x.n(0, 19, "crash") == 0 {
		x.crashes++
		return errCrash
	}
	return nil
}

// Begin lets the other writer go first, now and then.
func (x *world) Begin(ctx context.Context, p int) (jobdb.Tx, error) {
	if !x.inside && x.n(0, 5, "overtake") == 0 {
		x.inside = true
		x.advance(x.n(0, 1, "other"))
		x.inside = false
	}
	return flaky{x.store, x.plan}.Begin(ctx, p)
}

func (x *world) plan() string {
	if x.cuts > 20 {
		return ""
	}
	x.cuts++
	return rapid.SampledFrom([]string{"", "", "", "", "lost", "unknown"}).Draw(x.r, "commit")
}

// checkReleased checks a release when it was made: all of the chain that is durable was
// taken in, and no message in it is too young.
func (x *world) checkReleased(r jobdb.Release) {
	x.released = append(x.released, r)
	if want := x.seqs[x.decisions.durable]; r.Seq != want {
		x.r.Errorf("released after envelope %d, the chain has %d", r.Seq, want)
	}
	n := uint64(0)
	for _, m := range x.events.parts[0].messages {
		if m.Position.Compare(r.From) <= 0 || m.Position.Compare(r.To) > 0 {
			continue
		}
		n++
		if m.Publish+x.limit*second > x.clock*second {
			x.r.Errorf("at %d s, released a message of %d s; the limit is %d s", x.clock, m.Publish/second, x.limit)
		}
	}
	if n != r.Messages || n == 0 || r.When != x.clock*second {
		x.r.Errorf("release %+v at %d s of %d messages", r, x.clock, n)
	}
}

// advance lets a writer do one step, and says whether nothing is left to do.
func (x *world) advance(i int) (idle bool) {
	w := x.writers[i]
	if x.inside {
		w = x.open() // the one that waits must not be used twice at once
	}
	progress, err := w.Advance(context.Background(), 0)
	switch {
	case errors.Is(err, errCrash):
		x.writers[i] = x.open()
	case err != nil && !errors.Is(err, jobdb.ErrUnavailable):
		x.r.Fatal(err)
	}
	x.stay()
	return !progress && err == nil
}

// stay: what is final is so for ever.
func (x *world) stay() {
	for id, j := range x.store.jobs {
		if was, ok := x.final[id]; ok && was.Since == j.Since && (j.State != was.State || !j.Final || j.Times.Ended != was.Times.Ended) {
			x.r.Errorf("job %s was final as %v and became %v", id, was.State, j.State)
		}
		if j.Final {
			x.final[id] = j
		}
	}
}

// pass lets time go by, and the logs come.
func (x *world) pass() {
	grow := func(n *int, most int, label string) { *n += x.n(0, min(3, most-*n), label) }
	switch x.n(0, 3, "pass") {
	case 0:
		x.clock += int64(x.n(5, 40, "seconds"))
	case 1:
		grow(&x.decisions.durable, len(x.decisions.parts[0].messages), "durable")
	case 2:
		x.decisions.readable = x.decisions.durable - x.n(0, min(1, x.decisions.durable-x.decisions.readable), "behind")
	case 3:
		grow(&x.events.readable, x.events.durable, "events")
	}
}

// TestReleaseLaws: whatever is released, whenever the chain comes, whoever
// overtakes whom or crashes, the rows are those of the fold with the releases.
func TestReleaseLaws(t *testing.T) {
	t.Parallel()
	releases, superseded, runs := 0, 0, 0
	rapid.Check(t, func(r *rapid.T) {
		events, decisions := history(t, r)
		x := &world{
			r: r, events: all(events), decisions: &gated{memTopic: decisions}, store: newMemStore(),
			limit: 5, seqs: seqs(decisions), final: map[string]jobdb.Job{},
		}
		x.events.readable = 0
		x.writers = []*sink.Writer{x.open(), x.open()}
		for range x.n(60, 150, "steps") {
			if x.n(0, 1, "what") == 0 {
				x.pass()
			} else {
				x.advance(x.n(0, 1, "writer"))
			}
		}
		x.events.readable = x.events.durable
		x.decisions.show(len(decisions.parts[0].messages))
		for idle := 0; idle < 2; {
			if x.advance(x.n(0, 1, "writer")) && x.store.positions(0).Chain.Seq == x.seqs[len(x.seqs)-1] {
				idle++
			}
		}
		got := x.store.contents(0)
		want, err := sink.Fold(events, decisions, 0, 0, got.Releases...)
		if err != nil {
			r.Fatal(err)
		}
		for _, d := range sink.Compare(want, got) {
			r.Errorf("%v", d)
		}
		checkSuperseded(r, got)
		checkStates(r, got)
		checkCosts(r, got, x.store.rest[0].Costs)
		releases += len(got.Releases)
		runs++
		for _, d := range got.Decisions {
			if d.Superseded {
				superseded++
			}
		}
	})
	t.Logf("%d histories, %d releases, %d superseded decisions", runs, releases, superseded)
	// Of fewer histories, as -short has, too many have none of these by chance.
	if runs >= 100 && (releases < runs/4 || superseded < runs/20) {
		t.Errorf("only %d releases and %d superseded decisions in %d histories", releases, superseded, runs)
	}
}

// checkSuperseded: a record is superseded if and only if its message was
// released, and then it changed nothing.
func checkSuperseded(r interface {
	Errorf(format string, args ...any)
}, c *jobdb.Contents,
) {
	check := func(what string, w *jobdb.Where, acted bool) {
		inside := false
		for _, r := range c.Releases {
			inside = inside || w.Log.Compare(r.From) > 0 && w.Log.Compare(r.To) <= 0
		}
		if inside != w.Superseded || inside && acted {
			r.Errorf("%s of message %v: superseded %v, acted %v; released: %v", what, w.Log, w.Superseded, acted, inside)
		}
	}
	for _, d := range c.Decisions {
		check("decision", &d.Where, d.Acted)
	}
	for _, n := range c.NotDecided {
		check("NotDecided", &n.Where, false)
	}
	for _, d := range c.Ready {
		check("RetryReady", &d.Where, d.Acted)
	}
	for _, p := range c.Parked {
		check("Parked", &p.Where, false)
	}
	for _, run := range c.Runs {
		if run.Outcome == jobdb.Released && (run.Decision != 0 || run.State != jobdb.RunFailed) {
			r.Errorf("released run %+v", run)
		}
	}
}

// checkCosts: what a failed run held is noted once, whether it was decided, released or neither.
func checkCosts(r interface {
	Errorf(format string, args ...any)
}, c *jobdb.Contents, costs []*jobdb.Cost,
) {
	noted, failed := 0, 0
	for _, cost := range costs {
		if cost.Kind == jobdb.FailedRun {
			noted++
		}
	}
	for _, run := range c.Runs {
		if run.State == jobdb.RunFailed && run.Times.Ended != 0 { // not one that a cut-over made known
			failed++
		}
	}
	if noted != failed {
		r.Errorf("what %d failed runs held is noted, of %d", noted, failed)
	}
}

// checkStates: lists find jobs and runs that are not over by their end, others behind it, and pending retries by their time.
func checkStates(r interface {
	Errorf(format string, args ...any)
}, c *jobdb.Contents,
) {
	for _, j := range c.Jobs {
		if j.Times.Ended < 0 || j.State.Terminal() != (j.Times.Ended > 0) || j.Queueing.RetryAfter != 0 && !j.State.Waiting() {
			r.Errorf("job %s is %v, ended at %d, not before %d", j.JobID, j.State, j.Times.Ended, j.Queueing.RetryAfter)
		}
	}
	for _, run := range c.Runs {
		live := run.State >= jobdb.RunLeased && run.State <= jobdb.RunRunning
		if live && run.Times.Ended != 0 || (run.State == jobdb.RunSucceeded || run.Error.Category != "") && run.Times.Ended <= 0 {
			r.Errorf("run %s is %v, ended at %d", run.RunID, run.State, run.Times.Ended)
		}
	}
}

// TestReleaseCrashImages: whatever a crash at any label leaves of the files,
// before, while and after events are released, a new writer on them comes to the
// rows that the logs and the releases in the files demand.
func TestReleaseCrashImages(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	images, releases := 0, 0
	for seed := range 3 {
		var events, decisions *memTopic
		rapid.Custom(func(r *rapid.T) int { events, decisions = history(t, r); return 0 }).Example(seed + 10)
		n := len(decisions.parts[0].messages)
		chained := &gated{memTopic: decisions}
		dir := t.TempDir()
		db := openDB(t, filepath.Join(dir, "jobs.db"))
		var copies []string
		clock := int64(0)
		w, err := sink.New(sink.Config{
			Events: all(events), Decisions: chained, DB: db, MaxRows: 10, ReleaseAfter: 10 * time.Second,
			Now: func() time.Time { return time.Unix(clock, 0) },
			Hit: func(label string) error { copies = append(copies, image(t, dir, label)); return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		for shown := 0; shown <= n; shown += max(1, n/4) {
			chained.show(shown)
			clock += 25
			drain(t, w, 1)
		}
		chained.show(n)
		drain(t, w, 1)
		for i, path := range copies {
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
			got := contents(t, path, 0)
			want, err := sink.Fold(events, decisions, 0, 0, got.Releases...)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range sink.Compare(want, got) {
				t.Errorf("seed %d, image %d: %v", seed, i, d)
			}
			releases += len(got.Releases)
		}
	}
	t.Logf("%d crash images with %d releases", images, releases)
	if releases == 0 {
		t.Error("nothing was released")
	}
}

// TestTwoWritersReleaseOnOneFile: two ingesters at once, with connections of
// their own, release and apply while the chain is being written.
func TestTwoWritersReleaseOnOneFile(t *testing.T) {
	t.Parallel()
	events := readRecording(t, "preempted")
	whole := cover(t, events, 2)
	decisions := newTopic(events.Partitions())
	path := filepath.Join(t.TempDir(), "jobs.db")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	committed := make(chan bool, 1000)
	hooks := sink.Hooks{Committed: func(sink.Batch) {
		select {
		case committed <- true:
		default:
		}
	}}
	var group sync.WaitGroup
	for range 2 {
		w, err := sink.New(sink.Config{
			Events: events, Decisions: decisions, DB: openDB(t, path), MaxRows: 10, Hooks: hooks,
			ReleaseAfter: time.Nanosecond, Now: time.Now, // the recording is older
		})
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			for ctx.Err() == nil {
				drain(t, w, events.Partitions())
			}
			drain(t, w, events.Partitions())
		})
	}
	<-committed // so there is a release: no envelope was there
	for i, more := 0, true; more; i++ {
		more = false
		for p := range events.Partitions() {
			if ms := whole.parts[p].messages; i < len(ms) {
				more = true
				decisions.append(p, ms[i])
			}
		}
		select { // the chain is about as fast as the writers, until everything is released
		case <-committed:
		case <-time.NewTimer(time.Millisecond).C:
		}
	}
	cancel()
	group.Wait()
	releases := 0
	for p := range events.Partitions() {
		got := contents(t, path, p)
		want, err := sink.Fold(events, whole, p, 0, got.Releases...)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range sink.Compare(want, got) {
			t.Errorf("partition %d: %v", p, d)
		}
		releases += len(got.Releases)
	}
	t.Logf("%d releases", releases)
	if releases == 0 {
		t.Error("nothing was released")
	}
}
