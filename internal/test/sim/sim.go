package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
)

// Config of runs. It is not changed by them, and may be used side by side.
type Config struct {
	// Sets are the policy sets that generations are drawn from.
	Sets *Sets
	// Without are faults that do not happen although the seed draws them.
	Without Faults
	// Trace, if set, gets a line for each action.
	Trace io.Writer
}

// Result is what one run came to.
type Result struct {
	Faults Faults // that could happen
	Steps  int    // of both halves
	Seen   [sights]bool
	Err    error // a violation; nil: all holds
}

// world is one run.
type world struct {
	cfg     Config
	rng     *rand.Rand
	faults  Faults
	calm    bool // no faults any more
	now     int64
	steps   int
	tracing bool
	nested  bool // an ingester works within a step of another
	result  Result

	events, decisions, policies *topic

	chains    []plain
	machines  []*machine
	ingesters []*ingester
	db        *database
	sends     []*send
	lost      [][]byte // envelopes that did not land; a stranger may have them
	copies    [][]kv   // checkpoints, by partition, oldest first
	cut       bool
	accepted  []bool // by partition: an operator accepted the loss of events

	direct     bool // copies are made of failed jobs too
	lateCopies []lateCopy

	decisionsGrow int64 // when decisions get the partition that events have; 0: events have not grown

	limit       time.Duration // how old an event gets before it is released
	mode        timing
	histories   []history // by partition
	family      family    // policy sets of the groups that the histories are about; nil: there are none
	generations []int     // index of each in Sets; -1: unusable
}

// timing says what the times of events are.
type timing int

const (
	ownTimes timing = iota // those of the history
	liveTimes
	recordedTimes // those of the history, as of a recording
)

// beginning is about when histories happen.
var beginning = time.Date(2026, 8, 21, 12, 30, 0, 0, time.UTC)

// Run runs the world of one seed.
func Run(seed uint64, cfg Config) (r Result) {
	w := &world{cfg: cfg, rng: rand.New(rand.NewPCG(seed, 0xdecade)), now: beginning.UnixNano(), tracing: cfg.Trace != nil}
	drawn := Faults(w.rng.Uint32())
	w.faults = drawn & allFaults &^ (rare &^ (drawn >> 8))
	if w.one(12) {
		w.faults = 0
	}
	if !w.one(5) {
		w.faults &^= Cuts
	}
	if w.faults&Cuts != 0 {
		w.faults &^= Losses // an operator cannot acknowledge a loss in the log itself
	}
	w.faults &^= cfg.Without
	w.result.Faults = w.faults
	defer func() {
		if p := recover(); p != nil {
			w.fail("panic: %v\n%s", p, debug.Stack())
		}
		w.result.Steps = w.steps
		r = w.result
	}()
	w.build()
	w.storm()
	if !w.over() {
		w.settle()
	}
	if w.result.Err == nil {
		w.check()
	}
	return w.result
}

// Read makes the world a source of owner ids.
func (w *world) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(w.rng.Uint32())
	}
	return len(p), nil
}

// one is true once in n times.
func (w *world) one(n int) bool { return w.rng.IntN(n) == 0 }

// has says whether faults of a kind happen now.
func (w *world) has(f Faults) bool { return !w.calm && w.faults&f != 0 }

func (w *world) saw(s Sight) { w.result.Seen[s] = true }

// fail notes a violation; the first one ends the run.
func (w *world) fail(format string, args ...any) {
	if w.result.Err == nil {
		w.result.Err = fmt.Errorf(format, args...)
		w.logf("VIOLATION: %v", w.result.Err)
	}
}

func (w *world) over() bool { return w.result.Err != nil }

func (w *world) logf(format string, args ...any) {
	if w.tracing {
		fmt.Fprintf(w.cfg.Trace, "%6d %12.6fs  %s\n", w.steps, float64(w.now-beginning.UnixNano())/1e9, fmt.Sprintf(format, args...))
	}
}

func (w *world) build() {
	partitions := 1
	if w.one(5) {
		partitions = 2
	}
	if w.one(3) {
		w.family = w.cfg.Sets.families[w.rng.IntN(len(w.cfg.Sets.families))]
	}
	w.mode = timing(w.rng.IntN(3))
	if w.mode == ownTimes && w.faults&Releases != 0 {
		w.mode = liveTimes // the age of an event counts from its append
	}
	w.direct = w.faults&Copies != 0 && w.one(2)
	w.limit = time.Duration(1+w.rng.Int64N(5000)) * time.Millisecond
	w.events, w.decisions, w.policies = newTopic(w, "events", partitions), newTopic(w, "decisions", partitions), newTopic(w, "policies", 1)
	w.accepted = make([]bool, partitions)
	w.chains, w.copies, w.db = make([]plain, partitions), make([][]kv, partitions), newDatabase(w, partitions)
	for p := range partitions {
		w.chains[p].inTo = eventlog.Start
		w.histories = append(w.histories, w.newHistory(partitions))
		for i := range 1 + w.rng.IntN(3) {
			w.machines = append(w.machines, &machine{w: w, part: p, number: i, store: newStore(kv{}), wanted: i == 0})
		}
	}
	for i := range 2 {
		w.ingesters = append(w.ingesters, &ingester{w: w, number: i})
	}
	first := w.rng.IntN(3)
	if w.family != nil && !w.one(8) {
		first++
	}
	for range first {
		w.activateSet()
	}
}

// storm is the half in which faults happen. It continues for some time after the last message was fed.
func (w *world) storm() {
	after := 20 + w.rng.IntN(100)
	cutAt, loseAt, growAt := -1, -1, -1
	if w.has(Growth) {
		growAt = w.rng.IntN(120)
	}
	if w.has(Losses) {
		loseAt = w.rng.IntN(160)
	}
	if w.has(Cuts) {
		cutAt = w.rng.IntN(160)
	}
	for after > 0 && !w.over() {
		w.steps++
		w.pass()
		w.land()
		w.landCopies()
		if w.fed() {
			after--
		}
		if w.steps > growAt && growAt >= 0 {
			growAt = -1
			w.grow()
		}
		w.growDecisions()
		if w.steps > cutAt && cutAt >= 0 && w.cutLog() {
			cutAt = -1
		}
		if w.steps > loseAt && loseAt >= 0 && w.loseEvents() {
			loseAt = -1
		}
		switch n := w.rng.IntN(100); {
		case n < 55:
			m := w.machines[w.rng.IntN(len(w.machines))]
			for range 1 + w.rng.IntN(5) {
				if !m.step() || w.over() {
					break
				}
			}
		case n < 72:
			w.ingesters[w.rng.IntN(len(w.ingesters))].step(w.rng.IntN(len(w.chains)))
		case n < 86:
			w.feed()
		default:
			w.disturb(n - 86)
		}
	}
}

// pass advances the clock: mostly little, sometimes beyond any timeout.
func (w *world) pass() {
	if w.anyDown() {
		w.now += w.rng.Int64N(1000 * millisecond)
		return
	}
	switch n := w.rng.IntN(200); {
	case n < 150:
		w.now += w.rng.Int64N(20 * millisecond)
	case n < 199:
		w.now += w.rng.Int64N(300 * millisecond)
	default:
		w.now += w.rng.Int64N(8000 * millisecond)
	}
}

// disturb does one of 14 things, if its kind is among the faults.
func (w *world) disturb(n int) {
	m := w.machines[w.rng.IntN(len(w.machines))]
	g := w.ingesters[w.rng.IntN(len(w.ingesters))]
	switch {
	case n < 2 && w.has(Crashes) && m.stopped == nil:
		if m.owner != nil && w.one(2) {
			w.saw(SawCrash)
			w.logf("%v crashes", m)
			m.crash()
		}
	case n == 2 && w.has(Crashes):
		g.crash()
	case n == 3 && w.has(Pauses) && w.one(2):
		m.wake = w.now + w.rng.Int64N(12_000*millisecond)
		w.logf("%v stands still until %.6fs", m, float64(m.wake-beginning.UnixNano())/1e9)
	case n == 4 && w.has(Pauses):
		g.wake = w.now + w.rng.Int64N(6000*millisecond)
	case n < 7 && w.has(Moves):
		w.move(m)
	case n == 7 && w.has(Policies):
		w.activateSet()
	case n >= 8 && n < 10 && w.has(Strangers):
		w.strange()
	case n >= 10 && n < 12 && w.has(OldStates|Trims):
		w.copyState(m)
	case n == 12 && w.has(Trims) && w.one(3):
		w.trim(w.rng.IntN(len(w.chains)))
	case n == 13 && w.has(Outages):
		w.beginOutage()
	}
}

// move changes the placement of a partition: some machine takes it; those that
// had it hear of it later, or not at all.
func (w *world) move(to *machine) {
	w.logf("the placement moves to %v", to)
	for _, o := range w.machines {
		if o.part == to.part && o.wanted && o != to && !w.one(4) {
			o.wanted, o.notices = false, w.now+w.rng.Int64N(4000*millisecond)
		}
	}
	to.wanted = true
}

// settle is the half without faults: one owner per partition, and all comes to rest.
func (w *world) settle() {
	w.calm = true
	w.logf("no more faults")
	w.growDecisions()
	for p := range w.chains {
		var ready []*machine
		for _, m := range w.machines {
			if m.part == p {
				m.wanted, m.notices, m.wake = false, w.now, 0
				if m.stopped == nil {
					ready = append(ready, m)
				}
			}
		}
		if len(ready) > 0 {
			ready[w.rng.IntN(len(ready))].wanted = true
		}
	}
	for _, g := range w.ingesters {
		g.wake = 0
	}
	const enough = 4000
	idle := 0
	for n := 0; !w.over(); n++ {
		if n == enough {
			w.fail("no rest after %d steps without faults: %s", enough, w.unrest())
			return
		}
		w.steps++
		w.now += 20 * millisecond
		w.land()
		w.landCopies()
		progress := false
		for _, m := range w.machines {
			progress = m.step() || progress
		}
		for _, g := range w.ingesters {
			for p := range w.chains {
				progress = g.step(p) || progress
			}
		}
		switch {
		case progress:
			idle = 0
			continue
		case len(w.sends) == 0 && !w.cut && w.unrest() == "":
			return
		}
		if idle++; idle > 10 {
			w.now += readBackTimeout
			if idle > 20 && w.cut {
				return // those that are left have nothing more to do
			}
		}
	}
}

// unrest says what is still to be done.
func (w *world) unrest() string {
	for p := range w.chains {
		c := &w.chains[p]
		end, _ := w.events.End(p)
		if len(w.db.parts[p].waits)+len(w.lateCopies) > 0 {
			return fmt.Sprintf("%d copies of decisions of partition %d are due, and %d are on their way", len(w.db.parts[p].waits), p, len(w.lateCopies))
		}
		at := slices.IndexFunc(w.machines, func(m *machine) bool { return m.part == p && m.wanted })
		switch m := w.machines[at]; {
		case end != c.inTo && end != eventlog.Start:
			return fmt.Sprintf("partition %d is answered up to %v of %v", p, c.inTo, end)
		case m.owner == nil || !m.owner.Drained() || m.positions.Chain.Seq != c.seq:
			return fmt.Sprintf("%v is at envelope %d of %d", m, m.positions.Chain.Seq, c.seq)
		case w.db.parts[p].positions.Chain.Seq != c.seq:
			return fmt.Sprintf("the job database is at envelope %d of %d", w.db.parts[p].positions.Chain.Seq, c.seq)
		}
	}
	return ""
}
