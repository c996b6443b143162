package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/model"
)

// storm is one random history of changes: replicas of the API and owners of one
// partition over three logs, in one goroutine, with all choices from one seed.
//
// Replicas and owners stop and start anew at any moment. Whatever one of them does
// in the middle of its step, another may do something first: appends to the policies
// log come late, twice, never, or although they failed; readers lag and fail. In the
// end nothing fails any more, and all comes to rest.
type storm struct {
	ctx   context.Context
	rng   *rand.Rand
	trace io.Writer // nil: no trace
	err   error     // the first violation
	calm  bool
	depth int   // of what happens in the middle of something else
	now   int64 // of the jobs, and of the clients
	clock int64 // of the owners

	events, decisions, policies *shelf
	plain                       plainLog

	pool     []map[policyfile.ID]doc
	waiting  []model.Message // events still to be fed
	fed      []model.Message
	floors   []uint64 // of each: the newest generation that was acknowledged before it came
	acked    uint64
	replicas []*replica
	machines []*machine
	ops      []*operation
	late     []func()

	seen map[string]int
}

// changesPool are the resources that changes are made of, by the policy sets that
// they stand in together.
var changesPool = sync.OnceValues(func() (pool []map[policyfile.ID]doc, err error) {
	for seed := range uint64(40) {
		p := model.Generate(1000+seed, model.Options{}).Policies
		docs, err := docsOf(p)
		if err != nil {
			return nil, err
		}
		pool = append(pool, docs)
	}
	return pool, nil
})

// weather runs the history of a seed.
func weather(seed uint64, trace io.Writer) *storm {
	s := &storm{ctx: context.Background(), rng: rand.New(rand.NewPCG(seed, 0xc4a46e)), trace: trace, seen: map[string]int{}}
	s.events, s.decisions, s.policies = &shelf{s: s, name: "events"}, &shelf{s: s, name: "decisions"}, &shelf{s: s, name: "policies"}
	lags := s.one(2)
	s.events.lags, s.decisions.lags, s.policies.lags = lags, lags, lags
	defer func() {
		if p := recover(); p != nil {
			s.fail("panic: %v\n%s", p, debug.Stack())
		}
	}()
	pool, err := changesPool()
	if err != nil {
		s.fail("%w", err)
		return s
	}
	for range 2 + s.rng.IntN(4) {
		s.pool = append(s.pool, pool[s.rng.IntN(len(pool))])
	}
	for len(s.waiting) < 30 {
		s.waiting = model.Generate(s.rng.Uint64(), model.Options{}).Messages
	}
	s.waiting = s.waiting[:min(len(s.waiting), 60)]
	s.now = s.waiting[0].Publish
	for i := range 2 + s.rng.IntN(2) {
		s.replicas = append(s.replicas, &replica{s: s, number: i})
	}
	for i := range 2 {
		s.machines = append(s.machines, &machine{s: s, number: i, store: projection.NewMemory()})
	}
	for n := 80 + s.rng.IntN(80); n > 0 && s.err == nil; n-- {
		s.act()
	}
	if s.err == nil {
		s.settle()
	}
	if s.err == nil {
		s.overridesHold()
	}
	if s.err == nil {
		s.check()
	}
	return s
}

func (s *storm) one(n int) bool { return s.rng.IntN(n) == 0 }

// Read makes the storm a source of owner ids.
func (s *storm) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.rng.Uint32())
	}
	return len(p), nil
}

func (s *storm) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
		s.logf("VIOLATION: %v", s.err)
	}
}

func (s *storm) logf(format string, args ...any) {
	if s.trace != nil {
		fmt.Fprintf(s.trace, "%s%s\n", strings.Repeat("  ", s.depth), fmt.Sprintf(format, args...))
	}
}

// meanwhile lets others do up to n things in the middle of something.
func (s *storm) meanwhile(n int) {
	if s.calm || s.depth == 3 {
		return
	}
	s.depth++
	defer func() { s.depth-- }()
	for range s.rng.IntN(n + 1) {
		s.act()
	}
}

// act performs one random action.
func (s *storm) act() {
	if s.err != nil {
		return
	}
	s.clock += s.rng.Int64N(50e6)
	if s.one(100) {
		s.clock += 6e9
	}
	r, m := s.replicas[s.rng.IntN(len(s.replicas))], s.machines[s.rng.IntN(len(s.machines))]
	switch n := s.rng.IntN(100); {
	case n < 45:
		for range 1 + s.rng.IntN(4) {
			m.step()
		}
	case n < 63:
		s.feed()
	case n < 83:
		if r.ready() {
			s.ask(r)
		}
	case n < 89:
		if r.ready() {
			s.askAgain(r)
		}
	case n < 92:
		if len(s.late) > 0 {
			i := s.rng.IntN(len(s.late))
			land := s.late[i]
			s.late = slices.Delete(s.late, i, i+1)
			land()
		}
	case n < 94:
		r.stop()
	case n < 96:
		m.stop()
	case n < 97 && s.one(3):
		s.policies.append(eventlog.Message{Payload: []byte("garbage")})
	}
}

func (s *storm) feed() {
	for range min(len(s.waiting), 1+s.rng.IntN(3)) {
		s.send(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
}

// send appends one message of events.
func (s *storm) send(m model.Message) {
	s.now = max(s.now, m.Publish)
	s.events.append(eventlog.Message{Payload: m.Payload, Publish: s.now, Origin: eventlog.Origin{
		Recording: "history", Position: eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}, Publish: m.Publish,
	}})
	s.fed, s.floors = append(s.fed, m), append(s.floors, s.acked)
}

// replica is one process that serves policies.
type replica struct {
	s       *storm
	number  int
	busy    bool
	store   *policylog.Store // nil: it does not run
	service *api.Service
	armada  *api.Armada
}

func (r *replica) String() string { return fmt.Sprintf("replica %d", r.number) }

// ready starts a replica that does not run. It is not where it is in the middle of
// something, or cannot start now.
func (r *replica) ready() bool {
	if r.busy || r.store != nil {
		return !r.busy
	}
	now := func() time.Time { return time.Unix(0, r.s.now) }
	store, err := policylog.OpenStore(r.s.policies, r.write, now)
	if err != nil {
		return false
	}
	r.store, r.service = store, &api.Service{Store: store, Now: now}
	r.armada = &api.Armada{Service: r.service}
	return true
}

func (r *replica) stop() {
	if !r.busy && r.store != nil {
		_ = r.store.Close()
		r.store = nil
		r.s.seen["replica restarted"]++
	}
}

var errWrite = fmt.Errorf("%w: connection lost", eventlog.ErrTransient)

// write appends to the policies log: late, twice, never, or although it fails.
func (r *replica) write(_ context.Context, payload []byte) error {
	s := r.s
	land := func() { s.policies.append(eventlog.Message{Payload: payload}) }
	s.meanwhile(3)
	defer s.meanwhile(3)
	switch n := s.rng.IntN(40); {
	case s.calm:
	case n < 2:
		return errWrite
	case n < 5:
		s.late = slices.Concat(s.late, []func(){land})
		return errWrite
	case n < 8:
		land()
		return errWrite
	case n < 10:
		s.late = slices.Concat(s.late, []func(){land}) // twice
	}
	land()
	return nil
}

// machine is a process that may own the partition.
type machine struct {
	s        *storm
	number   int
	busy     bool
	store    *projection.Memory
	policies *policylog.Log
	owner    *evaluator.Owner // nil: it does not run
	wake     int64
	broken   bool // what it publishes fails
}

var errCrash = errors.New("crash")

func (m *machine) start() bool {
	if m.policies == nil {
		log, err := policylog.Open(m.s.policies)
		if err != nil {
			return false
		}
		m.policies = log
	}
	m.broken = false
	m.owner = evaluator.NewOwner(evaluator.Config{
		Store: m.store, Events: m.s.events, Decisions: m.s.decisions, Policies: m.policies, Publisher: m, Random: m.s,
		Window: 1 + m.s.rng.IntN(4), MaxMessages: 1 + m.s.rng.IntN(6), ReadBackTimeout: 5 * time.Second,
		Hooks: evaluator.Hooks{Point: m.point},
	})
	return true
}

func (m *machine) point(string) error {
	switch {
	case m.s.calm:
	case m.s.one(150):
		return errCrash
	case m.s.one(12):
		m.s.meanwhile(2)
	}
	return nil
}

// Publish appends to the decision log, late now and then, or never.
func (m *machine) Publish(payload []byte) error {
	s := m.s
	land := func() { s.decisions.append(eventlog.Message{Payload: payload}) }
	switch {
	case s.calm || !s.one(12):
		land()
	case s.one(2):
		s.late = append(s.late, land)
	case s.one(2):
		m.broken = true
	}
	return m.Err()
}

// Err is why it publishes no more.
func (m *machine) Err() error {
	if m.broken {
		return eventlog.ErrTransient
	}
	return nil
}

// Close has nothing to do.
func (m *machine) Close() error { return nil }

// step lets the machine do what it can now, and says whether that was anything.
func (m *machine) step() bool {
	s := m.s
	if m.busy || s.clock < m.wake || s.err != nil || m.owner == nil && !m.start() {
		return false
	}
	m.busy = true
	progress, err := m.owner.Advance(s.clock)
	m.busy = false
	switch {
	case err == nil:
		return progress
	case errors.Is(err, evaluator.ErrLost), errors.Is(err, eventlog.ErrTransient), errors.Is(err, errCrash):
		s.logf("owner %d: %v", m.number, err)
		m.stop()
		if !s.calm {
			m.wake = s.clock + s.rng.Int64N(1e9)
		}
	default:
		s.fail("owner %d stops: %w", m.number, err)
	}
	return true
}

// stop ends the process, which may have to read all from the beginning when it
// comes back.
func (m *machine) stop() {
	if m.busy || m.owner == nil {
		return
	}
	m.s.seen["owner restarted"]++
	_ = m.owner.Close()
	m.owner, m.policies = nil, nil
	if !m.s.calm && m.s.one(3) {
		m.store = projection.NewMemory()
	}
}

// drain lets one owner answer all that there is.
func (s *storm) drain() {
	m := s.machines[0]
	for idle := 0; idle < 40 && s.err == nil; {
		s.clock += 200e6
		if idle++; m.step() {
			idle = 0
		}
	}
	end, _ := s.events.End(0)
	if m.owner == nil || !m.owner.Drained() || m.owner.Positions().Chain.InTo != end {
		s.fail("the owner does not come to an end")
	}
}

// settle ends all faults: requests with unknown outcome are repeated until they are answered. Refused ones are not
// repeated.
func (s *storm) settle() {
	s.calm = true
	s.logf("no more faults")
	for _, land := range s.late {
		land()
	}
	s.late = nil
	s.machines[1].stop()
	s.clock += 10e9
	for len(s.waiting) > 0 {
		s.feed()
	}
	for _, op := range s.ops {
		if r := s.replicas[s.rng.IntN(len(s.replicas))]; op.unknown && !op.refused && op.id != "" && r.ready() {
			s.try(op, r)
			if !op.settled {
				s.fail("%v is not known although nothing fails", op)
			}
		}
	}
	s.poll()
	s.drain()
}

func changesEnv(t *testing.T, name string, absent uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return absent
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestChangeHistories runs CHANGES random histories of changes (500; fewer in
// the quick tests), or that of CHANGES_SEED alone with its trace.
func TestChangeHistories(t *testing.T) {
	t.Parallel()
	if seed := changesEnv(t, "CHANGES_SEED", 0); seed != 0 {
		if s := weather(seed, os.Stdout); s.err != nil {
			t.Error(s.err)
		}
		return
	}
	absent := uint64(500)
	if testing.Short() {
		absent = 100
	}
	n := changesEnv(t, "CHANGES", absent)
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen, next, failed := map[string]int{}, uint64(0), []uint64(nil)
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next, next <= n && len(failed) == 0
	}
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				s := weather(seed, nil)
				mu.Lock()
				for what, times := range s.seen {
					seen[what] += times
				}
				if s.err != nil {
					failed = append(failed, seed)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(failed) > 0 {
		var trace bytes.Buffer
		seed := slices.Min(failed)
		s := weather(seed, &trace)
		lines := bytes.SplitAfter(trace.Bytes(), []byte("\n"))
		t.Fatalf("seed %d: %v\nrun again: CHANGES_SEED=%d go test ./internal/api -run TestChangeHistories\n%s",
			seed, s.err, seed, bytes.Join(lines[max(0, len(lines)-40):], nil))
	}
	t.Logf("%d histories: %v", n, seen)
	for _, what := range mustBeSeen {
		if n >= 100 && seen[what] == 0 {
			t.Errorf("never in %d histories: %s", n, what)
		}
	}
}
