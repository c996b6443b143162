package projection

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/events"
)

// TestMemoryIsAStore: of the same batches, Memory and Store hold the same, and
// show the same in scans. What a batch holds is not seen before it is committed.
func TestMemoryIsAStore(t *testing.T) {
	t.Parallel()
	store, err := OpenStore(StoreConfig{FS: vfs.NewMem(), Dir: "state", Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xff}), 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		memory := NewMemory()
		wipe := store.NewBatch()
		if err := errors.Join(wipe.DeleteRange([]byte{0}, bytes.Repeat([]byte{0xff}, 9)), store.Commit(wipe, []byte{})); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			a, b := memory.NewBatch(), store.NewBatch()
			both := func(do func(b Batch) error) {
				if err := errors.Join(do(a), do(b)); err != nil {
					t.Fatal(err)
				}
			}
			before := contents(t, memory)
			for range rapid.IntRange(0, 8).Draw(t, "operations") {
				k := key.Draw(t, "key")
				switch rapid.IntRange(0, 3).Draw(t, "operation") {
				case 0, 1:
					v := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 3)).Draw(t, "value")
					both(func(b Batch) error { return b.Set(k, v) })
				case 2:
					both(func(b Batch) error { return b.Delete(k) })
				case 3:
					to := key.Draw(t, "to")
					if bytes.Compare(k, to) < 0 {
						both(func(b Batch) error { return b.DeleteRange(k, to) })
					}
				}
				k[0] ^= 1 // a batch takes copies of keys
			}
			if diff := cmp.Diff(before, contents(t, store)); diff != "" {
				t.Fatalf("before the commit (-memory +store):\n%s", diff)
			}
			meta := rapid.SliceOfN(rapid.Byte(), 1, 3).Draw(t, "meta")
			if err := errors.Join(memory.Commit(a, meta), store.Commit(b, meta)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(contents(t, memory), contents(t, store)); diff != "" {
				t.Fatalf("after the commit (-memory +store):\n%s", diff)
			}
			from, to, most := key.Draw(t, "from"), key.Draw(t, "to"), rapid.IntRange(1, 3).Draw(t, "most")
			if diff := cmp.Diff(scan(t, memory, from, to, most), scan(t, store, from, to, most)); diff != "" {
				t.Fatalf("scan from %x to %x, %d at most (-memory +store):\n%s", from, to, most, diff)
			}
			k := key.Draw(t, "get")
			ga, errA := memory.Get(k)
			gb, errB := store.Get(k)
			ma, errC := memory.Meta()
			mb, errD := store.Meta()
			if err := errors.Join(errA, errB, errC, errD); err != nil {
				t.Fatal(err)
			}
			if (ga == nil) != (gb == nil) || !bytes.Equal(ga, gb) {
				t.Fatalf("Get(%x) = %v in memory, %v in the store", k, ga, gb)
			}
			if !bytes.Equal(ma, mb) || !bytes.Equal(ma, meta) {
				t.Fatalf("Meta = %x in memory, %x in the store, want %x", ma, mb, meta)
			}
		}
	})
}

// contents is all that a store holds but meta.
func contents(t fataler, kv KV) []string {
	t.Helper()
	return append(scan(t, kv, []byte{0}, []byte{metaKey}, math.MaxInt), scan(t, kv, []byte{metaKey + 1}, bytes.Repeat([]byte{0xff}, 9), math.MaxInt)...)
}

func scan(t fataler, kv KV, from, to []byte, most int) (out []string) {
	t.Helper()
	if bytes.Compare(from, to) > 0 {
		return nil
	}
	err := kv.Scan(from, to, func(key, value []byte) bool {
		if key[0] != metaKey {
			out = append(out, fmt.Sprintf("%x = %x", key, value))
		}
		return len(out) < most
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// delivery is one message of a history, with its publish time.
type delivery struct {
	seq     *events.Sequence
	publish int64
	horizon int64 // in force from here on
}

var (
	someJob = rapid.SampledFrom([]string{"a", "b", "c", "d", "e\x00f", ""})
	someRun = rapid.SampledFrom([]string{"1", "2", "3", "4", ""})
	someSet = rapid.SampledFrom([]string{"s", "s2", "s\x00"})
)

// someHistory has few jobs and runs, so that much happens to each of them, and
// times that leap, so that they are forgotten and come back.
var someHistory = rapid.Custom(func(t *rapid.T) []delivery {
	var out []delivery
	now, horizon := int64(0), 100*second
	for range rapid.IntRange(1, 40).Draw(t, "messages") {
		now += rapid.SampledFrom([]int64{0, 1, 1, 1, 10, 50, 101, 800}).Draw(t, "later") * second
		if rapid.IntRange(0, 30).Draw(t, "new horizon") == 0 {
			horizon = rapid.SampledFrom([]int64{0, 10, 100, 1 << 40}).Draw(t, "horizon") * second
		}
		m := delivery{seq: &events.Sequence{Queue: "q", JobSet: someSet.Draw(t, "set")}, publish: now, horizon: horizon}
		for range rapid.IntRange(1, 5).Draw(t, "events") {
			m.seq.Events = append(m.seq.Events, someEvent(t, now))
		}
		out = append(out, m)
	}
	return out
})

func someEvent(t *rapid.T, now int64) events.Event {
	ev := events.Event{
		Kind:  events.Kind(rapid.IntRange(int(events.Other), int(events.EndedRun)).Draw(t, "kind")),
		JobID: someJob.Draw(t, "job"), RunID: someRun.Draw(t, "run"),
		Created: events.Timestamp{Present: true, Seconds: now/second + rapid.Int64Range(-20, 5).Draw(t, "skew")},
		Raw:     []byte("raw"),
	}
	switch ev.Kind {
	case events.SubmitJob:
		ev.Submit = &events.Submit{RetryPolicies: "p", InitContainers: []string{"i"}, GraceSeconds: 30}
	case events.RunErrors, events.JobErrors:
		if rapid.IntRange(0, 3).Draw(t, "terminal") > 0 {
			ev.Error = &events.Error{
				Reason:       events.Reason(rapid.IntRange(0, int(events.JobRejected)).Draw(t, "reason")),
				RunAttempted: rapid.Bool().Draw(t, "attempted"), Node: rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node"),
			}
		}
	case events.CancelJobSet:
		ev.States = events.JobStates(rapid.IntRange(0, 15).Draw(t, "states"))
	case events.RunLeased, events.RunRunning, events.KnownRun, events.EndedRun:
		ev.Node = rapid.SampledFrom([]string{"", "n3", "n4"}).Draw(t, "node")
	default: // the others carry no more
	}
	return ev
}

// process processes a message, decides in a way that depends on the failure alone,
// and says what came of it.
func process(s *State, m delivery) (string, error) {
	var b bytes.Buffer
	s.Horizon = m.horizon
	m.seq.Resolve(m.publish)
	err := s.Process(m.seq, Features{Durations: true}, decided{decide: func(f *Failure) Decided {
		fmt.Fprintf(&b, "decided %q/%q %d %s%s\n", f.JobID, f.RunID, f.Time, showJob(f.Job), showFailure(f))
		return decisionOn(f)
	}})
	for _, e := range s.Effects() {
		switch e := e.(type) {
		case *ParkedEvent:
			fmt.Fprintf(&b, "parked %d %v\n", e.Event, e.Reason)
		case *Failure:
			fmt.Fprintf(&b, "failed %q/%q %s\n", e.JobID, e.RunID, showSkip(e.Skip))
		case *Readiness:
			fmt.Fprintf(&b, "ready %q/%q %d\n", e.JobID, e.RunID, e.RetryAfter)
		default:
			return "", fmt.Errorf("%T", e)
		}
	}
	return fmt.Sprintf("watermark %d\n%s", s.Watermark, &b), err
}

func decisionOn(f *Failure) Decided {
	sum := fnv.New64a()
	fmt.Fprint(sum, f.JobID, f.RunID, f.Time, f.Run.Index)
	h := sum.Sum64()
	d := Decided{Requeue: h%5 > 0, Shadow: h%7 == 0}
	if d.Requeue {
		d.Policy, d.Rule, d.Ignored = "p", []string{"", "x", "y"}[h%3], h%11 == 0
		d.ReadyAfter = f.Time + int64(h%100)*second
		d.RetryAfter = d.ReadyAfter + int64(h%3)*30*second
	}
	return d
}

// cached is a state whose batches are committed some time after they were
// flushed, in order, as an owner's are.
type cached struct {
	store   *Memory
	state   *State
	pending []flushed
	held    flushed // what the store holds
}

type flushed struct {
	batch     Batch
	number    uint64
	messages  int
	watermark int64
	horizon   int64
}

func (c *cached) flush(t *rapid.T, messages int) {
	f := flushed{batch: c.store.NewBatch(), messages: messages, watermark: c.state.Watermark, horizon: c.state.Horizon}
	var err error
	if f.number, err = c.state.Flush(f.batch); err != nil {
		t.Fatal(err)
	}
	c.pending = append(c.pending, f)
}

func (c *cached) commit(t *rapid.T) {
	f := c.pending[0]
	c.pending = c.pending[1:]
	if err := c.store.Commit(f.batch, nil); err != nil {
		t.Fatal(err)
	}
	c.state.Committed(f.number)
	c.held = f
}

// restart goes on from what was committed, and returns how far that was.
func (c *cached) restart(t *rapid.T, size int) int {
	c.pending = nil
	c.state = newState(t, c.store, c.held.watermark, c.held.horizon)
	c.state.CacheJobs = func() int { return size }
	return c.held.messages
}

// TestCacheLaw: with a cache of a few jobs, flushes and commits anywhere, and
// restarts from what was committed, each message brings the same, and the store
// ends the same, as with a large cache and one flush at the end.
func TestCacheLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := someHistory.Draw(t, "history")
		large := &cached{store: NewMemory()}
		large.held = flushed{watermark: NoWatermark, horizon: 100 * second}
		large.restart(t, 1<<20)
		var want []string
		for _, m := range history {
			out, err := process(large.state, m)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, out)
		}
		large.flush(t, len(history))
		large.commit(t)

		size := rapid.IntRange(1, 3).Draw(t, "cache size")
		small := &cached{store: NewMemory()}
		small.held = flushed{watermark: NoWatermark, horizon: 100 * second}
		small.restart(t, size)
		restarts := rapid.IntRange(0, 3).Draw(t, "restarts")
		for i := 0; i < len(history); i++ {
			out, err := process(small.state, history[i])
			if err != nil {
				t.Fatal(err)
			}
			if out != want[i] {
				t.Fatalf("message %d brings\n%swith a large cache\n%s", i, out, want[i])
			}
			if rapid.IntRange(0, 2).Draw(t, "flush") > 0 {
				small.flush(t, i+1)
			}
			for len(small.pending) > 0 && rapid.IntRange(0, 2).Draw(t, "commit") > 0 {
				small.commit(t)
			}
			if restarts > 0 && rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				restarts--
				i = small.restart(t, size) - 1
			}
		}
		small.flush(t, len(history))
		for len(small.pending) > 0 {
			small.commit(t)
		}
		if diff := cmp.Diff(shown(t, large.store), shown(t, small.store)); diff != "" {
			t.Fatalf("the store (-large cache +small cache):\n%s", diff)
		}
	})
}

// shown is what a store holds, in words.
func shown(t fataler, kv KV) (out []string) {
	t.Helper()
	err := kv.Scan([]byte{0}, []byte{0xff}, func(key, value []byte) bool {
		text := fmt.Sprintf("%q", showKey(key))
		switch key[0] {
		case jobKey:
			j, err := decodeJob(string(key[1:]), value)
			if err != nil {
				t.Fatal(err)
			}
			text += " " + showJob(j)
			if j.Latest != nil {
				text += "; latest " + j.Latest.ID + " " + showRun(j.Latest)
			}
		case runKey:
			r, err := decodeRun("", value)
			if err != nil {
				t.Fatal(err)
			}
			text += " " + showRun(r)
		}
		out = append(out, fmt.Sprintf("%s %x", text, value))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestForgetsAll: long after its last message a history leaves nothing but the
// jobs that live; and what State keeps beside its cache is gone with the commit.
func TestForgetsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := someHistory.Draw(t, "history")
		c := &cached{store: NewMemory(), held: flushed{watermark: NoWatermark, horizon: 100 * second}}
		size := rapid.IntRange(1, 3).Draw(t, "cache size")
		c.restart(t, size)
		last := history[len(history)-1]
		last.publish += 10_000 * second
		last.horizon = 100 * second
		last.seq = &events.Sequence{Queue: "q", JobSet: "s", Events: []events.Event{{Created: events.Timestamp{Present: true, Seconds: last.publish / second}}}}
		alive := map[string]bool{}
		for i, m := range append(history, last) {
			if _, err := process(c.state, m); err != nil {
				t.Fatal(err)
			}
			for id, e := range c.state.recent {
				alive[id] = e.job != nil && e.job.Known && !e.job.Ended && !e.job.Verdict
			}
			c.flush(t, i)
			c.commit(t)
			if n := len(c.state.recent) + len(c.state.older); n > 2*size+6 { // six jobs in one message
				t.Fatalf("%d jobs in a cache of %d", n, size)
			}
		}
		s := c.state
		if n := len(s.newInSet) + len(s.dirty) + len(s.touched) + len(s.forgets[0].pending) + len(s.forgets[1].pending); n > 0 {
			t.Fatalf("%d things wait for a commit: %+v", n, s)
		}
		err := c.store.Scan([]byte{0}, []byte{0xff}, func(key, value []byte) bool {
			switch key[0] {
			case jobKey:
				if !alive[string(key[1:])] {
					t.Errorf("%q is still there: %x", showKey(key), value)
				}
			case forgetKey:
				t.Errorf("%q is still there", showKey(key))
			case runKey, setKey:
				found := false
				for id := range alive {
					found = found || alive[id] && (bytes.HasPrefix(key, appendRunPrefix(nil, id)) || bytes.HasSuffix(key, append([]byte{0, 1}, id...)))
				}
				if !found {
					t.Errorf("%q is still there", showKey(key))
				}
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

var errDisk = errors.New("disk is on fire")

// faulty is a KV whose n-th call from now fails, or all from there on.
type faulty struct {
	KV
	n       int
	forGood bool
	failed  bool
}

func (f *faulty) fails() bool {
	f.n--
	if f.n == 0 || f.forGood && f.n < 0 {
		f.failed = true
		return true
	}
	return false
}

func (f *faulty) Get(key []byte) ([]byte, error) {
	if f.fails() {
		return nil, errDisk
	}
	return f.KV.Get(key)
}

func (f *faulty) Scan(from, to []byte, visit func(key, value []byte) bool) error {
	if f.fails() {
		return errDisk
	}
	return f.KV.Scan(from, to, visit)
}

// TestStoreFails: an error of the store comes out of the message in which it
// happened, wherever it happened, and nothing panics on what was not read.
func TestStoreFails(t *testing.T) {
	failed := 0
	rapid.Check(t, func(t *rapid.T) {
		history := someHistory.Draw(t, "history")
		kv := &faulty{KV: NewMemory(), n: rapid.IntRange(1, 60).Draw(t, "call"), forGood: rapid.Bool().Draw(t, "for good")}
		s, err := NewState(kv, NoWatermark, 100*second)
		if err == nil {
			s.CacheJobs = func() int { return 1 }
		}
		for i := 0; i < len(history) && err == nil; i++ {
			if _, err = process(s, history[i]); err != nil {
				break
			}
			if kv.failed {
				t.Fatalf("message %d brings no error, but the store failed", i)
			}
			b := kv.KV.(*Memory).NewBatch()
			n, flushErr := s.Flush(b)
			if err = errors.Join(flushErr, kv.KV.(*Memory).Commit(b, nil)); err != nil {
				t.Fatal(err)
			}
			s.Committed(n)
		}
		if kv.failed != (err != nil) || err != nil && !errors.Is(err, errDisk) {
			t.Fatalf("the store failed: %v; error %v", kv.failed, err)
		}
		if kv.failed {
			failed++
		}
	})
	if failed == 0 {
		t.Error("the store never failed")
	}
}

// TestDamagedRecords: whatever stands in the store, folding ends with
// ErrCorrupt or goes on; it does not panic.
func TestDamagedRecords(t *testing.T) {
	corrupt := 0
	rapid.Check(t, func(t *rapid.T) {
		history := someHistory.Draw(t, "history")
		c := &cached{store: NewMemory(), held: flushed{watermark: NoWatermark, horizon: 100 * second}}
		c.restart(t, 1)
		for i, m := range history {
			if _, err := process(c.state, m); err != nil {
				if !errors.Is(err, ErrCorrupt) {
					t.Fatalf("message %d: %v, want ErrCorrupt", i, err)
				}
				corrupt++
				return
			}
			c.flush(t, i)
			c.commit(t)
			var keys, values [][]byte
			_ = c.store.Scan([]byte{0}, []byte{0xff}, func(key, value []byte) bool {
				keys, values = append(keys, bytes.Clone(key)), append(values, bytes.Clone(value))
				return true
			})
			if len(keys) == 0 {
				continue
			}
			b := c.store.NewBatch()
			at := rapid.IntRange(0, len(keys)-1).Draw(t, "record")
			if v := values[at]; len(v) > 0 {
				v[rapid.IntRange(0, len(v)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
				_ = b.Set(keys[at], v)
			} else {
				_ = b.Delete(keys[at])
			}
			if err := c.store.Commit(b, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	if corrupt == 0 {
		t.Error("nothing was found to be corrupt")
	}
}
