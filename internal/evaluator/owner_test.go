package evaluator_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/model"
)

func short(t *testing.T, full, quick uint64) uint64 {
	t.Helper()
	if testing.Short() {
		return quick
	}
	return full
}

// TestBatchLaw: whatever the size of a batch, the window and the store, the records and
// the state are those of single steps.
func TestBatchLaw(t *testing.T) {
	t.Parallel()
	for seed := range short(t, 300, 30) {
		h := model.Generate(seed, model.Options{})
		var first []byte
		for _, c := range []evaluator.Config{
			{MaxMessages: 1, Window: 1},
			{MaxMessages: 3, Window: 4},
			{MaxMessages: 1000, Window: 1},
			{MaxMessages: 7, Window: 2, Store: projection.NewMemory()},
		} {
			w := newWorld(t, seed)
			w.feed(h)
			m := w.start("state", c)
			if err := m.drain(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if got, want := w.verified().Progress.Running, direct(t, w); got != want {
				t.Fatalf("seed %d, batch %d: running hash %v, want %v", seed, c.MaxMessages, got, want)
			}
			got := dump(t, m.cfg.Store)
			if first == nil {
				first = got
			}
			if !bytes.Equal(first, got) {
				t.Fatalf("seed %d, batch %d: state\n%s\nwant\n%s", seed, c.MaxMessages, got, first)
			}
			m.stop()
		}
	}
}

var errCrash = errors.New("crash")

// TestCrashPoints crashes the machine at every point of the loop, at each of its
// first visits, keeping none, half or all of what was not synced, and goes on.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	h := model.Generate(7, model.Options{})
	for seed := uint64(8); len(h.Messages) < 40; seed++ {
		h = model.Generate(seed, model.Options{})
	}
	crashEverywhere(t, h, []int{0, 50, 100})
}

// TestCrashPointsOfGroups does the same while groups restart: what follows from one failure is
// many records, and the pieces of a restart may stand in the log or not.
func TestCrashPointsOfGroups(t *testing.T) {
	t.Parallel()
	for seed := uint64(0); ; seed++ {
		h := model.GenerateGroups(seed, model.GroupOptions{})
		if len(h.Messages) < 25 || len(h.Messages) > 80 {
			continue
		}
		w := newWorld(t, 1)
		w.feed(h)
		crashOnce(t, w, "", 0, 0)
		if restarts := w.restarts(); restarts < 12 {
			continue
		}
		crashEverywhere(t, h, []int{0, 100})
		return
	}
}

// restarts counts the members that were restarted.
func (w *world) restarts() (n int) {
	for _, b := range w.payloads(w.decisions) {
		env, err := chain.DecodeEnvelope(b)
		if err != nil {
			w.t.Fatal(err)
		}
		records, err := env.Decode()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range records {
			if m, ok := r.(*chain.MemberChange); ok && m.Change == chain.MemberRestart {
				n++
			}
		}
	}
	return n
}

// crashEverywhere crashes a machine that processes a history at every visit of every point,
// and checks that it comes to the same state.
func crashEverywhere(t *testing.T, h model.History, percents []int) {
	t.Helper()
	covered := map[string]int{}
	var want []byte
	for _, percent := range percents {
		for _, point := range evaluator.Points {
			for visit := 1; ; visit++ {
				w := newWorld(t, uint64(visit))
				w.feed(h)
				crashed, state := crashOnce(t, w, point, visit, percent)
				if want == nil {
					want = state
				}
				if !bytes.Equal(state, want) {
					t.Fatalf("crash at visit %d of %s, %d %% kept: state\n%s\nwant\n%s", visit, point, percent, state, want)
				}
				if !crashed {
					break
				}
				covered[point]++
			}
		}
	}
	total := 0
	for _, point := range evaluator.Points {
		if covered[point] == 0 {
			t.Errorf("no crash at %s", point)
		}
		total += covered[point]
	}
	t.Logf("%d crashes, by point: %v", total, covered)
}

// crashOnce runs to the end with one crash on the way, if the point is visited so often.
func crashOnce(t *testing.T, w *world, point string, visit, percent int) (bool, []byte) {
	t.Helper()
	seen := 0
	m := w.start("state", evaluator.Config{MaxMessages: 5, Window: 3, Hooks: evaluator.Hooks{Point: func(p string) error {
		if p == point {
			if seen++; seen == visit {
				return errCrash
			}
		}
		return nil
	}}})
	err := m.drain()
	crashed := errors.Is(err, errCrash)
	if err != nil && !crashed {
		t.Fatalf("%s %d: %v", point, visit, err)
	}
	if crashed {
		w.crash(percent)
		m = w.start("state", evaluator.Config{MaxMessages: 4})
		if err := m.drain(); err != nil {
			t.Fatalf("after a crash at visit %d of %s, %d %% kept: %v", visit, point, percent, err)
		}
	}
	if got, want := w.verified().Progress.Running, direct(t, w); got != want {
		t.Fatalf("%s %d: running hash %v, want %v", point, visit, got, want)
	}
	state := dump(t, m.cfg.Store)
	m.stop()
	return crashed, state
}

// TestRestartLaw: a new life at any moment, with crashes of the machine in
// between, ends as one life does.
func TestRestartLaw(t *testing.T) {
	t.Parallel()
	crashes := 0
	for seed := range short(t, 300, 30) {
		h := model.Generate(seed+1000, model.Options{})
		w := newWorld(t, seed)
		w.feed(h)
		m := w.start("state", evaluator.Config{MaxMessages: 1 + w.rng.IntN(8)})
		for range 6 {
			for range w.rng.IntN(12) {
				w.now += 1e6
				if _, err := m.owner.Advance(w.now); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if w.rng.IntN(2) == 0 {
					if err := w.decisions.Commit(); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.crash(w.rng.IntN(101))
			crashes++
			m = w.start("state", evaluator.Config{MaxMessages: 1 + w.rng.IntN(8)})
		}
		if err := m.drain(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got, want := w.verified().Progress.Running, direct(t, w); got != want {
			t.Fatalf("seed %d: running hash %v, want %v", seed, got, want)
		}
		m.stop()
	}
	t.Logf("%d crashes", crashes)
}

// held is a publisher whose messages reach the log when the test lets them.
type held struct {
	w       *world
	waiting [][]byte
}

func (h *held) Publish(payload []byte) error {
	h.waiting = append(h.waiting, append([]byte(nil), payload...))
	return nil
}

func (h *held) Err() error { return nil }

func (h *held) Close() error { return nil }

// deliver writes the first n, some of them twice.
func (h *held) deliver(n int) {
	pub := h.w.decisions.Publisher(0)
	for range min(n, len(h.waiting)) {
		for range 1 + h.w.rng.IntN(8)/7 {
			if err := pub.Publish(h.waiting[0]); err != nil {
				h.w.t.Fatal(err)
			}
		}
		h.waiting = h.waiting[1:]
	}
}

// TestTwoOwners: two owners at once on one log, each slow at times and coming
// back with its old envelopes, give the records of one.
func TestTwoOwners(t *testing.T) {
	t.Parallel()
	ignored := map[chain.Ignored]uint64{}
	losses := 0
	for seed := range short(t, 400, 40) {
		h := model.Generate(seed+5000, model.Options{})
		w := newWorld(t, seed)
		w.feed(h)
		pubs := [2]*held{{w: w}, {w: w}}
		var owners [2]*machine
		for i := range owners {
			owners[i] = w.start(fmt.Sprintf("state%d", i), evaluator.Config{MaxMessages: 1 + w.rng.IntN(5), Publisher: pubs[i]})
		}
		for range 200 {
			i := w.rng.IntN(2)
			w.now += 1e6
			if _, err := owners[i].owner.Advance(w.now); errors.Is(err, evaluator.ErrLost) {
				losses++
				owners[i].renew() // what it sent may still arrive
			} else if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if w.rng.IntN(3) == 0 {
				pubs[w.rng.IntN(2)].deliver(1 + w.rng.IntN(4))
				if err := w.decisions.Commit(); err != nil {
					t.Fatal(err)
				}
			}
		}
		pubs[0].deliver(1 << 20)
		pubs[1].deliver(1 << 20)
		last := owners[0]
		last.cfg.Publisher = nil
		last.renew()
		if err := last.drain(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		v := w.verified()
		if want := direct(t, w); v.Progress.Running != want {
			t.Fatalf("seed %d: running hash %v, want %v", seed, v.Progress.Running, want)
		}
		for why, n := range v.Ignored {
			ignored[why] += n
		}
		owners[0].stop()
		owners[1].stop()
	}
	t.Logf("%d losses; ignored: %v", losses, ignored)
	for _, why := range []chain.Ignored{chain.Repeated, chain.OldEpoch, chain.LostClaim} {
		if ignored[why] == 0 {
			t.Errorf("no envelope was ignored as %v: the test does not reach what it is for", why)
		}
	}
}
