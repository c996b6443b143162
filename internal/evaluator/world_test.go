package evaluator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/model"
)

// world is one machine in memory: a crashable disk with the three logs and the
// owners' stores. Logs commit when the test says so; the clock is a counter.
type world struct {
	t   *testing.T
	fs  *vfs.MemFS
	rng *rand.Rand

	events, decisions, policies *filelog.Log
	now                         int64
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, fs: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(seed, 1))}
	w.open()
	return w
}

func (w *world) open() {
	w.t.Helper()
	w.events, w.decisions, w.policies = w.openLog("events"), w.openLog("decisions"), w.openLog("policies")
}

func (w *world) openLog(dir string) *filelog.Log {
	w.t.Helper()
	log, err := filelog.Open(filelog.Config{FS: w.fs, Dir: dir, Partitions: 1, Manual: true, SegmentBytes: 64 << 10})
	if err != nil {
		w.t.Fatalf("open %s: %v", dir, err)
	}
	return log
}

// crash loses the machine's memory and part of what was not synced.
func (w *world) crash(unsyncedPercent int) {
	w.t.Helper()
	w.fs = w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: w.rng})
	w.open()
}

func (w *world) logs() audit.Logs {
	return audit.Logs{Events: w.events, Decisions: w.decisions, Policies: w.policies}
}

// feed puts a history's messages and its policy set into the logs, durably. A
// message's position meant is that of the history.
func (w *world) feed(h model.History) {
	w.t.Helper()
	w.publish(h.YAML())
	w.append(h.Messages)
}

func (w *world) append(messages []model.Message) {
	w.t.Helper()
	for len(messages) > 0 {
		n := 1 + w.rng.IntN(min(5, len(messages)))
		var msgs []eventlog.Message
		for _, m := range messages[:n] {
			at := eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}
			msgs = append(msgs, eventlog.Message{Payload: m.Payload, Origin: eventlog.Origin{Recording: "history", Position: at, Publish: m.Publish}})
		}
		if err := w.events.AppendSync(context.Background(), 0, msgs); err != nil {
			w.t.Fatal(err)
		}
		messages = messages[n:]
	}
}

func (w *world) publish(files []model.File) {
	w.t.Helper()
	set, err := parse(files)
	if err != nil {
		w.t.Fatal(err)
	}
	payload, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "test", Time: w.now})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.policies.AppendSync(context.Background(), 0, []eventlog.Message{{Payload: payload}}); err != nil {
		w.t.Fatal(err)
	}
}

// seeded is a stream of bytes from a generator.
type seeded struct{ *rand.Rand }

func (s seeded) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.Uint32())
	}
	return len(p), nil
}

var _ io.Reader = seeded{}

// machine is one owner with its store.
type machine struct {
	w        *world
	dir      string
	cfg      evaluator.Config
	policies *policylog.Log
	owner    *evaluator.Owner
	close    func() error
	alive    func(func() error) error // does what others can see
}

func (w *world) start(dir string, cfg evaluator.Config) *machine {
	w.t.Helper()
	m := &machine{w: w, dir: dir, cfg: cfg, alive: func(do func() error) error { return do() }}
	if cfg.Store == nil {
		store, err := projection.OpenStore(projection.StoreConfig{FS: w.fs, Dir: dir, Logger: quiet{}})
		if err != nil {
			w.t.Fatal(err)
		}
		m.cfg.Store, m.close = store, store.Close
	}
	m.renew()
	return m
}

// renew begins a new life of the owner on the same store.
func (m *machine) renew() {
	m.w.t.Helper()
	policies, err := policylog.Open(m.w.policies)
	if err != nil {
		m.w.t.Fatal(err)
	}
	c := m.cfg
	c.Events, c.Decisions, c.Policies = m.w.events, m.w.decisions, policies
	if c.Publisher == nil {
		c.Publisher = m.w.decisions.Publisher(0)
	}
	c.Random = seeded{rand.New(rand.NewPCG(m.w.rng.Uint64(), 1))}
	m.policies, m.owner = policies, evaluator.NewOwner(c)
}

func (m *machine) stop() {
	if m.close != nil {
		if err := m.close(); err != nil {
			m.w.t.Fatal(err)
		}
	}
}

var errStuck = errors.New("no progress")

// drain runs until all input is answered and committed, or an error.
func (m *machine) drain() error {
	for idle := 0; idle < 3; {
		var now int64
		_ = m.alive(func() error { m.w.now += 1e6; now = m.w.now; return nil })
		progress, err := m.owner.Advance(now)
		if err != nil {
			return err
		}
		if err := m.alive(m.w.decisions.Commit); err != nil {
			return err
		}
		if progress {
			idle = 0
			continue
		}
		idle++
	}
	end, err := m.w.events.End(0)
	if err != nil {
		return err
	}
	if !m.owner.Drained() || m.owner.Positions().Chain.InTo != end {
		return fmt.Errorf("%w: phase %s, at %v of %v", errStuck, m.owner.Phase(), m.owner.Positions().Chain.InTo, end)
	}
	return nil
}

// verified checks the chain against its input and returns what it holds.
func (w *world) verified() audit.Verified {
	w.t.Helper()
	v, err := audit.Verify(context.Background(), w.logs(), 0)
	if err != nil {
		w.t.Fatalf("verify: %v", err)
	}
	if v.Waiting != 0 {
		w.t.Fatalf("%d messages are not answered", v.Waiting)
	}
	return v
}

// dump is all that a store holds but its meta record, which has positions.
func dump(t *testing.T, kv projection.KV) []byte {
	t.Helper()
	var b bytes.Buffer
	err := kv.Scan([]byte{'n'}, []byte{0xff}, func(k, v []byte) bool { fmt.Fprintf(&b, "%q %q\n", k, v); return true })
	if err == nil {
		err = kv.Scan([]byte{0}, []byte{'m'}, func(k, v []byte) bool { fmt.Fprintf(&b, "%q %q\n", k, v); return true })
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// direct is the running hash that Step gives message by message, with nothing around it.
func direct(t *testing.T, w *world) chain.Hash {
	t.Helper()
	p, err := policylog.Open(w.policies)
	if err != nil {
		t.Fatal(err)
	}
	p.OnUnusable = func(_ uint64, err error) { t.Fatal(err) }
	if err := p.Refresh(); err != nil {
		t.Fatal(err)
	}
	_, set := p.Newest()
	progress, err := audit.Replay(context.Background(), w.events, 0, set.Set, func(*eventlog.Message, *evaluator.Output) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return progress.Running
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
