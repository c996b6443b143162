package evaluator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/model"
)

// historyOf is a history of so many messages, at least.
func historyOf(seed uint64, messages int) model.History {
	for ; ; seed++ {
		if h := model.Generate(seed, model.Options{}); len(h.Messages) >= messages {
			return h
		}
	}
}

// fatal is a logger for Pebble, which says Fatalf, or panics, where it cannot go
// on. In a program both end the process. Here a goroutine that comes to Fatalf
// stays there for ever, as nothing of Pebble's may run after it, not even what
// it has deferred; and the others do nothing more that another life could see.
type fatal struct {
	quiet
	mu       sync.Mutex
	what     string
	reported chan struct{} // closed when what is set
}

func newFatal() *fatal { return &fatal{reported: make(chan struct{})} }

func (f *fatal) Fatalf(format string, args ...any) {
	f.die(fmt.Sprintf(format, args...))
	select {}
}

func (f *fatal) die(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.what == "" {
		f.what = what
		close(f.reported)
	}
}

var errFatal = errors.New("the store could not go on")

// within runs a part of a life in a goroutine of its own. It does not wait for
// it when Pebble could not go on, for it may be waiting for Pebble.
func (f *fatal) within(part func() error) (err error) {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				f.die(fmt.Sprint("panic: ", r))
				done <- nil
			}
		}()
		done <- part()
	}()
	select {
	case err = <-done:
	case <-f.reported:
	}
	select {
	case <-f.reported:
		return fmt.Errorf("%w: %s", errFatal, f.what)
	default:
		return err
	}
}

// alive does what another life could see, unless this one is over.
func (f *fatal) alive(do func() error) error {
	f.mu.Lock()
	if f.what != "" {
		f.mu.Unlock()
		select {}
	}
	defer f.mu.Unlock()
	return do()
}

// mortal is a publisher of a life.
type mortal struct {
	eventlog.Publisher
	*fatal
}

func (m mortal) Publish(payload []byte) error {
	return m.alive(func() error { return m.Publisher.Publish(payload) })
}

// life is one life of an owner on a store in a directory: from opening it to
// the end of the input, or to an error. A store that could not go on is left
// alone, as a process that panicked leaves it.
func (w *world) life(fs vfs.FS, batch int) (state []byte, err error) {
	f := newFatal()
	var store *projection.Store
	err = f.within(func() (err error) {
		store, err = projection.OpenStore(projection.StoreConfig{FS: fs, Dir: "state", Logger: f})
		return err
	})
	if err != nil {
		return nil, err
	}
	m := w.start("", evaluator.Config{Store: store, MaxMessages: batch, Window: 3, Publisher: mortal{w.decisions.Publisher(0), f}})
	m.alive = f.alive
	err = f.within(func() error {
		err := m.drain()
		if err == nil {
			state, err = dumpOf(store)
		}
		return errors.Join(err, m.owner.Close())
	})
	if errors.Is(err, errFatal) {
		return nil, err
	}
	if closing := f.within(store.Close); closing != nil {
		return nil, errors.Join(err, closing)
	}
	return state, err
}

// dumpOf is dump, but with errors, as reading may fail here.
func dumpOf(kv projection.KV) ([]byte, error) {
	var b bytes.Buffer
	err := kv.Scan([]byte{0}, []byte{0xff}, func(k, v []byte) bool {
		if k[0] != 'm' { // meta: it has positions
			fmt.Fprintf(&b, "%q %q\n", k, v)
		}
		return true
	})
	return b.Bytes(), err
}

// sound checks what stands in the decision log, however far it came.
func (w *world) sound() error {
	_, err := audit.Verify(context.Background(), w.logs(), 0)
	return err
}

// TestEveryStoreError: each operation on the store's files fails once, in turn
// (but for those at which Pebble ends the process), or from there on very many,
// in a life that begins with nothing and in one that goes on from a crash. The
// owner stops with an error, what stands in the log is right, and another life
// on the same files, or on what a crash leaves of them, ends as one without
// errors does.
func TestEveryStoreError(t *testing.T) {
	t.Parallel()
	h := historyOf(7, 25)
	reference := newWorld(t, 1)
	reference.feed(h)
	want, err := reference.life(vfs.NewMem(), 4)
	if err != nil {
		t.Fatal(err)
	}
	running := reference.verified().Progress.Running
	for _, from := range []string{"nothing", "a crash"} {
		for _, forGood := range []bool{false, true} {
			t.Run(fmt.Sprintf("from %s/once=%v", from, !forGood), func(t *testing.T) {
				t.Parallel()
				s := storeErrors{t: t, history: h, fromCrash: from == "a crash", forGood: forGood, want: want, running: running}
				step := 1
				if testing.Short() {
					step = 7
				}
				for s.at(s.index) {
					s.index += step
				}
				t.Logf("%d stopped, %d of them by what would be a panic %v; %d survived", s.stopped, s.fatals, s.reported, s.survived)
				if s.stopped == 0 {
					t.Error("no error stopped anything")
				}
			})
		}
	}
}

// fullFor is how many operations fail until there is space again. It must end,
// for Pebble tries to flush what its log holds for ever before it is open.
const fullFor = 300

type storeErrors struct {
	t                         *testing.T
	history                   model.History
	fromCrash, forGood        bool
	want                      []byte
	running                   chain.Hash
	index                     int
	stopped, fatals, survived int
	reported                  []string
}

// endsProcess says whether Pebble (v2.1.7) ends the process when an operation
// fails, from a goroutine of its own: so for its manifest and markers, and when
// it cannot begin a new log or its options after it has begun to flush the old
// one. That is no other than a crash.
func endsProcess(op errorfs.Op) bool {
	for _, name := range []string{"MANIFEST", "marker", "temporary", "OPTIONS"} {
		if strings.Contains(op.Path, name) {
			return true
		}
	}
	return op.Path == "state" || op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".log")
}

// at lets the operation with an index fail. It says whether there is one.
func (s *storeErrors) at(index int) bool {
	t := s.t
	t.Helper()
	w, mem := newWorld(t, 1), vfs.NewCrashableMem()
	if s.fromCrash {
		half := s.history
		half.Messages = half.Messages[:len(half.Messages)/2]
		w.feed(half)
		if err := w.toTheMiddle(mem, false); err != nil {
			t.Fatal(err)
		}
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
		w.append(s.history.Messages[len(half.Messages):])
	} else {
		w.feed(s.history)
	}
	var mu sync.Mutex
	count, failed := 0, ""
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if endsProcess(op) {
			return nil
		}
		count++
		last := index
		if s.forGood {
			last += fullFor
		}
		if at := count - 1; at < index || at > last {
			return nil
		}
		if failed == "" {
			failed = fmt.Sprintf("operation %d (%v of %s)", index, op.Kind, op.Path)
		}
		return errorfs.ErrInjected
	}))
	state, err := w.life(fs, 4)
	mu.Lock()
	what := failed
	mu.Unlock()
	if what == "" {
		return false
	}
	switch {
	case errors.Is(err, errFatal):
		s.fatals++
		if text := err.Error(); !slices.Contains(s.reported, text) {
			s.reported = append(s.reported, text)
		}
		s.stopped++
	case err != nil:
		s.stopped++
	case !bytes.Equal(state, s.want):
		t.Fatalf("%s: no error, and the state is\n%s\nwant\n%s", what, state, s.want)
	default:
		s.survived++ // Pebble could do without
	}
	if err := w.sound(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, percent := range []int{100, 50, 0} {
		again := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(index), 1))})
		state, err := w.life(again, 3)
		if err != nil {
			t.Fatalf("after %s, another life on %d %% of what was not synced: %v", what, percent, err)
		}
		if !bytes.Equal(state, s.want) {
			t.Fatalf("after %s, another life on %d %% of what was not synced: state\n%s\nwant\n%s", what, percent, state, s.want)
		}
	}
	if got := w.verified().Progress.Running; got != s.running {
		t.Fatalf("after %s: running hash %v, want %v", what, got, s.running)
	}
	return true
}

// TestBitRot: bits of the store's files change while no owner runs. Another
// life on them stops with an error, or goes back to what it can trust and ends
// as it should; it never goes on from something else. A copy that was stopped
// can be rebuilt from the logs alone.
func TestBitRot(t *testing.T) {
	t.Parallel()
	h := historyOf(11, 60)
	half := h
	half.Messages = h.Messages[:len(h.Messages)/2]

	w := newWorld(t, 1)
	w.feed(h)
	whole, err := w.life(vfs.NewMem(), 4)
	if err != nil {
		t.Fatal(err)
	}
	running := w.verified().Progress.Running

	// Two stores that stand in the middle: closed well, where all is in tables, and
	// as a crash leaves it, where it is in the write-ahead log.
	for _, kind := range []string{"closed", "crashed"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.feed(half)
			mem := vfs.NewCrashableMem()
			if err := w.toTheMiddle(mem, kind == "closed"); err != nil {
				t.Fatal(err)
			}
			mem = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
			w.append(h.Messages[len(half.Messages):])

			files := stateFiles(t, mem)
			rng := rand.New(rand.NewPCG(3, 3))
			tried, stopped, healed := map[string]int{}, 0, 0
			for _, name := range files {
				if kind := kindOf(name); kind != "sst" && kind != "log" {
					continue
				}
				content := readAll(t, mem, name)
				for range flips(len(content)) {
					at, bit := rng.IntN(len(content)), byte(1)<<rng.IntN(8)
					copied := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
					rotten := slices.Clone(content)
					rotten[at] ^= bit
					writeAll(t, copied, name, rotten)
					what := fmt.Sprintf("bit %#02x of byte %d of %s (%d bytes)", bit, at, name, len(content))
					tried[kindOf(name)]++

					mine := w.copy(t)
					state, err := mine.life(copied, 4)
					if err := mine.sound(); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					if err != nil {
						stopped++
						continue
					}
					healed++
					if !bytes.Equal(state, whole) {
						t.Fatalf("%s: no error, and the state is\n%s\nwant\n%s", what, state, whole)
					}
					if got := mine.verified().Progress.Running; got != running {
						t.Fatalf("%s: no error, and the running hash is %v, want %v", what, got, running)
					}
				}
			}
			t.Logf("flips by kind of file: %v; %d stopped, %d came to the right end", tried, stopped, healed)
			if state, err := w.life(vfs.NewMem(), 4); err != nil || !bytes.Equal(state, whole) {
				t.Fatalf("rebuilt from the logs: %v, state\n%s\nwant\n%s", err, state, whole)
			}
		})
	}
}

// toTheMiddle runs an owner over all that is fed so far.
func (w *world) toTheMiddle(fs vfs.FS, closeWell bool) error {
	if closeWell {
		// Opening again puts what the write-ahead log holds into tables.
		if _, err := w.life(fs, 4); err != nil {
			return err
		}
		_, err := w.life(fs, 4)
		return err
	}
	store, err := projection.OpenStore(projection.StoreConfig{FS: fs, Dir: "state", Logger: quiet{}})
	if err != nil {
		return err
	}
	w.t.Cleanup(func() { _ = store.Close() })
	return w.start("", evaluator.Config{Store: store, MaxMessages: 4}).drain()
}

// copy is a world with the same logs, that goes its own way.
func (w *world) copy(t *testing.T) *world {
	t.Helper()
	c := &world{t: t, rng: rand.New(rand.NewPCG(5, 5)), now: w.now}
	c.fs = w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: c.rng})
	c.open()
	return c
}

// flips is how many bits of a file are changed, one at a time.
func flips(size int) int {
	if size == 0 {
		return 0
	}
	if testing.Short() {
		return 8
	}
	return 60
}

func kindOf(name string) string {
	for _, kind := range []string{".sst", ".log", "MANIFEST", "OPTIONS", "marker"} {
		if strings.Contains(name, kind) {
			return strings.TrimPrefix(kind, ".")
		}
	}
	return name
}

func stateFiles(t *testing.T, fs vfs.FS) (files []string) {
	t.Helper()
	names, err := fs.List("state")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		if name != "LOCK" {
			files = append(files, fs.PathJoin("state", name))
		}
	}
	return files
}

func readAll(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
		t.Fatal(err)
	}
	return b
}

func writeAll(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedMeta: a meta record that cannot be what was written is refused.
func TestDamagedMeta(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.feed(historyOf(7, 25))
	store := projection.NewMemory()
	if err := w.start("", evaluator.Config{Store: store, MaxMessages: 4}).drain(); err != nil {
		t.Fatal(err)
	}
	good, err := store.Meta()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		meta []byte
	}{
		{"of another version", append([]byte{good[0] + 1}, good[1:]...)},
		{"empty", []byte{}},
		{"cut", good[:len(good)/2]},
		{"not JSON", append([]byte{good[0]}, "null x"...)},
	} {
		if err := store.Commit(store.NewBatch(), tt.meta); err != nil {
			t.Fatal(err)
		}
		if err := w.start("", evaluator.Config{Store: store}).drain(); !errors.Is(err, projection.ErrCorrupt) {
			t.Errorf("%s: error %v, want ErrCorrupt", tt.name, err)
		}
	}
	w.verified()
}

// TestLogBehindState: the decision log lost its end, which the state was
// committed with. An owner must stop, for a claim at an end that the log does
// not hold would stop everyone else, for ever.
func TestLogBehindState(t *testing.T) {
	t.Parallel()
	h := historyOf(7, 25)
	w := newWorld(t, 1)
	w.feed(h)
	store := projection.NewMemory()
	m := w.start("", evaluator.Config{Store: store, MaxMessages: 4})
	if err := m.drain(); err != nil {
		t.Fatal(err)
	}
	decisions := w.payloads(w.decisions)
	for n := range decisions {
		c := newWorld(t, 1)
		c.feed(h)
		for _, b := range decisions[:n] {
			if err := c.decisions.AppendSync(context.Background(), 0, []eventlog.Message{{Payload: b}}); err != nil {
				t.Fatal(err)
			}
		}
		err := c.start("", evaluator.Config{Store: copyOf(t, store), MaxMessages: 4}).drain()
		if !errors.Is(err, chain.ErrMissing) && !errors.Is(err, eventlog.ErrCorrupt) {
			t.Errorf("a log of %d of %d envelopes: error %v, want ErrMissing or ErrCorrupt", n, len(decisions), err)
		}
		if err := c.sound(); err != nil {
			t.Errorf("a log of %d of %d envelopes: then %v", n, len(decisions), err)
		}
	}
}

// payloads are the messages of a log.
func (w *world) payloads(log *filelog.Log) (out [][]byte) {
	r, err := log.Open(0, eventlog.Start)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	chunk := make([]eventlog.Message, 64)
	for {
		n, err := r.Read(chunk)
		if err != nil {
			w.t.Fatal(err)
		}
		if n == 0 {
			return out
		}
		for _, m := range chunk[:n] {
			out = append(out, m.Payload)
		}
	}
}

func copyOf(t *testing.T, m *projection.Memory) *projection.Memory {
	t.Helper()
	c := projection.NewMemory()
	b := c.NewBatch()
	if err := m.Scan([]byte{0}, []byte{0xff}, func(k, v []byte) bool { return b.Set(k, bytes.Clone(v)) == nil }); err != nil {
		t.Fatal(err)
	}
	meta, err := m.Meta()
	if err == nil {
		err = c.Commit(b, meta)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}
