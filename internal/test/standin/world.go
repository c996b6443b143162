package standin

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// Config of a World. Nothing is required.
type Config struct {
	Seed uint64
	// Log is the events topic. Default: one in memory, of Partitions partitions
	// (default 3).
	Log        Log
	Partitions int
	// URL is a database with Armada's tables. Default: a new one.
	URL string
	// Begin is when the world's clock begins. Default: 2026.
	Begin time.Time

	Executors []Executor // default: east and west, each of two nodes with two slots

	MaxRetries      int           // of returned leases (scheduling.maxRetries); default 3, below 0 none
	ExecutorTimeout time.Duration // after which the leases of a silent executor expire; default 1 h
	LeasePeriod     time.Duration // between an executor's questions for leases; default 5 s
	MaxEvents       int           // of one message; default 1000

	// SecondRaise makes the scheduler ignore a job that returns to it while it knows no other job, until its
	// queued version is bumped once more. This was seen on a live Armada.
	SecondRaise bool
	// TolerateOutage has steps go on when the database or the log is not reachable.
	TolerateOutage bool
}

// Executor is an executor with its cluster.
type Executor struct {
	Name  string
	Nodes []Node
	// FailedPodExpiry is for how long a failed pod is kept, whose name then is
	// taken. Default 10 min.
	FailedPodExpiry time.Duration
	// DeleteFailed has failed pods deleted before they are reported (categories
	// with action: Delete).
	DeleteFailed bool
}

// Node is a node of a cluster. Its name is its label kubernetes.io/hostname, too.
type Node struct {
	Name   string
	Slots  int // cpu
	Labels map[string]string
}

const period = time.Second // of the scheduler's cycles

func (c Config) withDefaults(t testing.TB, now func() time.Time) Config {
	t.Helper()
	if c.Partitions == 0 {
		c.Partitions = 3
	}
	if c.Log == nil {
		c.Log = memoryLog(t, c.Partitions, now)
	}
	if c.URL == "" {
		c.URL = newDatabase(t)
	}
	if c.Executors == nil {
		c.Executors = []Executor{
			{Name: "east", Nodes: []Node{{Name: "east-1", Slots: 2}, {Name: "east-2", Slots: 2}}},
			{Name: "west", Nodes: []Node{{Name: "west-1", Slots: 2}, {Name: "west-2", Slots: 2}}},
		}
	}
	if c.MaxRetries == 0 {
		c.MaxRetries = 3
	}
	c.MaxRetries = max(c.MaxRetries, 0)
	if c.ExecutorTimeout == 0 {
		c.ExecutorTimeout = time.Hour
	}
	if c.LeasePeriod == 0 {
		c.LeasePeriod = 5 * time.Second
	}
	if c.MaxEvents == 0 {
		c.MaxEvents = 1000
	}
	return c
}

func memoryLog(t testing.TB, partitions int, now func() time.Time) Log {
	t.Helper()
	log, err := filelog.Open(filelog.Config{FS: vfs.NewMem(), Dir: "events", Partitions: partitions, Now: now})
	if err != nil {
		t.Fatalf("armadatest: open the events topic: %v", err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Errorf("armadatest: close the events topic: %v", err)
		}
	})
	return log
}

func newDatabase(t testing.TB) string {
	t.Helper()
	url := pgtest.Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("armadatest: connect: %v", err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := schema.Create(t.Context(), conn); err != nil {
		t.Fatalf("armadatest: %v", err)
	}
	return url
}

// World is an Armada without an ingester. Its methods are for one goroutine; Now
// is for any.
type World struct {
	t         testing.TB
	cfg       Config
	clock     atomic.Int64
	db        *database
	out       *publisher
	sched     *scheduler
	executors []*executor
	random    *rand.Rand

	jobs       map[string]*record
	pods       map[string]*Pod // by run
	violations []string
	wedged     error
	seen       lookout
}

// NewWorld makes a World. It goes with the test.
func NewWorld(t testing.TB, cfg Config) *World {
	t.Helper()
	w := &World{t: t, random: rand.New(rand.NewPCG(cfg.Seed, 1)), jobs: map[string]*record{}, pods: map[string]*Pod{}}
	if cfg.Begin.IsZero() {
		cfg.Begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	w.clock.Store(cfg.Begin.UnixNano())
	w.cfg = cfg.withDefaults(t, w.Now)
	w.db = &database{url: w.cfg.URL}
	t.Cleanup(func() {
		if err := w.db.close(); err != nil {
			t.Logf("armadatest: close the connection: %v", err)
		}
	})
	w.out = &publisher{log: w.cfg.Log, maxEvents: w.cfg.MaxEvents}
	w.sched = &scheduler{
		cfg: &w.cfg, db: w.db, out: w.out, random: rand.New(rand.NewPCG(cfg.Seed, 2)), demands: map[string]demand{},
	}
	w.sched.restart()
	for _, x := range w.cfg.Executors {
		if x.FailedPodExpiry == 0 {
			x.FailedPodExpiry = 10 * time.Minute
		}
		phase := time.Duration(w.random.Int64N(int64(w.cfg.LeasePeriod)))
		w.executors = append(w.executors, &executor{
			Executor: x, w: w, pods: map[string]*pod{}, known: map[string]bool{}, next: w.Now().Add(phase),
		})
	}
	w.seen = lookout{w: w, states: map[string]string{}}
	return w
}

// Now is the time in this world.
func (w *World) Now() time.Time { return time.Unix(0, w.clock.Load()).UTC() }

// Log is the events topic.
func (w *World) Log() Log { return w.cfg.Log }

// URL is the database's.
func (w *World) URL() string { return w.cfg.URL }

// Step lets a second pass: the executors and the scheduler do what they have to,
// in an order that the seed says.
func (w *World) Step() {
	w.t.Helper()
	w.clock.Add(int64(period))
	parts := []func(){w.Cycle}
	for _, x := range w.executors {
		parts = append(parts, func() { w.outage("executor "+x.Name, x.step(w.t.Context(), w.Now())) })
	}
	for _, i := range w.random.Perm(len(parts)) {
		parts[i]()
	}
}

// Cycle is one cycle of the scheduler alone, for which no time passes.
func (w *World) Cycle() {
	w.t.Helper()
	c, err := w.sched.cycle(w.t.Context(), w.Now())
	if wedge := (*wedge)(nil); errors.As(err, &wedge) {
		if w.wedged == nil || w.wedged.Error() != err.Error() {
			w.violate("every cycle of the scheduler fails: %v", err)
		}
		w.wedged = err
		return
	}
	if err != nil {
		w.outage("scheduler", err)
		return
	}
	w.wedged = nil
	w.learn(c)
}

// Wedged is the error with which the scheduler's last cycle failed, if it will fail
// so again until rows are mended.
func (w *World) Wedged() error { return w.wedged }

// RestartScheduler replaces the scheduler by one with an empty memory: it waits for its markers, and then reads
// the unfinished jobs.
func (w *World) RestartScheduler() { w.sched.restart() }

// PowerCut takes an executor and its pods away, without a word, until PowerBack.
func (w *World) PowerCut(executor string) {
	w.t.Helper()
	w.executor(executor).cut(w.Now())
}

// PowerBack brings an executor back. It first reports what became of its pods, also
// of those whose leases have expired, and then learns of that.
func (w *World) PowerBack(executor string) {
	w.t.Helper()
	w.executor(executor).back(w.Now())
}

func (w *World) executor(name string) *executor {
	w.t.Helper()
	for _, x := range w.executors {
		if x.Name == name {
			return x
		}
	}
	w.t.Fatalf("armadatest: there is no executor %q", name)
	return nil
}

// outage accepts an error that may not recur in the next step.
func (w *World) outage(who string, err error) {
	w.t.Helper()
	if err != nil && !w.cfg.TolerateOutage {
		w.t.Fatalf("armadatest: %s: %v", who, err)
	}
}
