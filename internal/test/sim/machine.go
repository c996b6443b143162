package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policylog"
)

// readBackTimeout is the owners' timeout for reading back what they published.
const readBackTimeout = 5000 * millisecond

// machine is a process with a disk that may own one partition.
type machine struct {
	w      *world
	part   int
	number int

	store    *store
	policies *policylog.Log
	owner    *evaluator.Owner // nil: not running
	sender   *sender
	phase    string
	drained  bool // it was asked to drain

	wanted    bool  // by the placement
	notices   int64 // when it hears that it is not
	wake      int64 // it is paused until then
	stopped   error // for good, loudly
	positions follow.Positions
	opened    int    // number of partitions of the process's topics; 0: it is not running
	recount   int64  // when the process notices that there are more
	allowed   int    // number of partitions that an operator accepted; 0: none
	cutOff    bool   // by an outage, and not live since
	acked     uint64 // the last envelope whose input was acknowledged
}

func (m *machine) String() string { return fmt.Sprintf("owner %d/%d", m.part, m.number) }

var errCrash = errors.New("crash")

// kept is an owner's meta record, in the order of its fields.
type kept struct {
	Positions follow.Positions
	Progress  evaluator.Progress
	Watermark int64
	Horizon   int64
	// Rebuilding: only the machine that wrote it may use it.
	Rebuilding bool
}

func (w *world) keptIn(meta []byte) kept {
	k := kept{Positions: follow.Beginning}
	if meta == nil {
		return k
	}
	if _, err := binary.Decode(meta[1:], binary.BigEndian, &k); err != nil || len(meta) != 1+binary.Size(k) {
		w.fail("meta record %x of %d bytes: %v", meta, len(meta), err)
	}
	return k
}

func (m *machine) start() bool {
	w := m.w
	if !m.open() {
		return false
	}
	if m.policies == nil {
		policies, err := policylog.Open(w.policies)
		if err != nil {
			m.backOff()
			return false
		}
		policies.OnUnusable = func(uint64, error) { w.saw(SawUnusable) }
		m.policies = policies
	}
	if w.has(Fencing) {
		for _, o := range w.machines {
			if o.part == m.part && o.sender != nil {
				o.sender.fenced = true
			}
		}
	}
	m.sender = &sender{m: m}
	k := w.keptIn(m.store.meta)
	if k.Rebuilding {
		w.saw(SawHalfRebuilt)
	}
	m.positions = k.usable()
	m.owner = evaluator.NewOwner(evaluator.Config{
		AcceptPartitions: m.allowed, AcceptHistory: w.acceptHistory(m.part), AcceptedBy: m.String(),
		Partition: m.part, Store: m.store, Events: opened{w.events, m.opened}, Decisions: opened{w.decisions, m.opened}, Policies: m.policies,
		Semantics: w.semantics(), Publisher: m.sender, Random: w, Window: 1 + w.rng.IntN(5), MaxMessages: 1 + w.rng.IntN(6), ReadBackTimeout: time.Duration(readBackTimeout),
		Synced: m.synced, SaveEvery: time.Duration(m.number%2) * 50 * time.Millisecond,
		Hooks: evaluator.Hooks{
			Point:   m.point,
			Ignored: m.ignored,
			Committed: func(c evaluator.Commit) {
				w.mustBeInChain(m, m.part, chain.End{Seq: c.Envelope.Seq, Link: chain.Link(c.Envelope.Append(nil))})
			},
		},
	})
	if w.tracing {
		w.logf("%v starts at envelope %d", m, m.positions.Chain.Seq)
	}
	return true
}

// semantics is the version that an owner is told to decide by: mostly none, if there are groups.
func (w *world) semantics() uint32 {
	if w.family != nil && !w.one(8) {
		return 0
	}
	return uint32(w.rng.IntN(evaluator.SemanticsVersion + 1))
}

// point is a point within a step at which the process may crash, or other actors may run.
func (m *machine) point(name string) error {
	w := m.w
	switch {
	case w.has(Crashes) && w.one(250):
		w.saw(SawCrashInside)
		w.logf("%v crashes at %q", m, name)
		return errCrash
	case w.one(40):
		w.now += w.rng.Int64N(50 * millisecond)
		w.land()
	}
	return nil
}

func (m *machine) ignored(why chain.Ignored) {
	if s, ok := ignoredSight(why); ok {
		m.w.saw(s)
	}
}

// synced is the hook at which a program acknowledges. What it acknowledges must survive.
func (m *machine) synced(positions follow.Positions) error {
	if durable := m.w.keptIn(m.store.durable.meta).Positions; durable != positions {
		m.w.fail("%v acknowledges up to envelope %d, and %d is durable", m, positions.Chain.Seq, durable.Chain.Seq)
	}
	m.acked = positions.Chain.Seq
	return nil
}

// step lets the machine do something. It says whether there was anything to do.
func (m *machine) step() bool {
	w := m.w
	switch {
	case m.stopped != nil || w.now < m.wake:
		return false
	case m.opened != 0 && m.opened != w.events.Partitions() && w.now >= m.recount:
		m.quit()
		return true
	case !m.wanted && (m.owner == nil || w.now >= m.notices && !m.draining()):
		m.close()
		return false
	case m.wanted && m.drained: // it is given the partition again: a new life
		m.close()
		return true
	case m.owner == nil && !m.start():
		return true
	}
	progress, err := m.owner.Advance(w.now)
	m.inspect(progress, err)
	if w.tracing && (progress || err != nil) {
		w.logf("%v: %s, at envelope %d, error %v", m, m.owner.Phase(), m.positions.Chain.Seq, err)
	}
	m.after(err)
	return progress || err != nil
}

// draining reports whether a machine that lost its partition still waits for its sends.
func (m *machine) draining() bool {
	switch {
	case m.drained:
		return !m.owner.Drained() && m.w.now < m.notices+readBackTimeout
	case m.owner.Phase() == "live" && m.w.one(2):
		m.owner.Drain()
		m.drained = true
		m.w.saw(SawDrained)
		return true
	}
	return false
}

// inspect holds against the chain what the machine took in, and notes what can be seen.
func (m *machine) inspect(progress bool, err error) {
	w, positions, phase := m.w, m.owner.Positions(), m.owner.Phase()
	if positions.Chain.Seq < m.positions.Chain.Seq {
		m.seeRebuild()
	}
	if positions != m.positions && positions != (follow.Positions{}) {
		if positions.Chain.Seq < m.positions.Chain.Seq {
			w.fail("%v goes back from envelope %d to %d", m, m.positions.Chain.Seq, positions.Chain.Seq)
		}
		w.mustBeInChain(m, m.part, positions.Chain)
		m.positions = positions
		if phase == "catching up" {
			w.saw(SawCatchUp)
		}
	}
	if phase == "awaiting policies" && !progress && err == nil {
		w.saw(SawStaleGeneration)
	}
	if phase == "live" && m.phase != "live" {
		if m.cutOff {
			m.cutOff = false
			w.saw(SawOwnerBack)
		}
		for _, o := range w.machines {
			if o != m && o.part == m.part && o.phase == "live" {
				w.saw(SawTwoLive)
			}
		}
	}
	m.phase = phase
}

func (m *machine) after(err error) {
	w := m.w
	switch {
	case err == nil:
	case errors.Is(err, errCrash):
		m.crash()
	case errors.Is(err, evaluator.ErrLost), errors.Is(err, eventlog.ErrFenced), errors.Is(err, eventlog.ErrTransient):
		m.cutOff = m.cutOff || w.longDown()
		if m.phase == "live" && !m.owner.Drained() {
			w.saw(SawAheadDropped)
		}
		if m.sender.last < w.now-readBackTimeout && errors.Is(err, evaluator.ErrLost) {
			w.saw(SawReadBackTimeout)
		}
		m.close()
		m.backOff()
	case errors.Is(err, chain.ErrMissing) && w.cut:
		w.saw(SawOwnerMissing)
		w.logf("%v stops: %v", m, err)
		m.close()
		m.stopped = err
	case errors.Is(err, evaluator.ErrRepartitioned) && m.allowed != m.opened && w.faults&Growth != 0:
		m.refuseCount(err)
	case w.accepted[m.part] && inputGone(err):
		w.logf("%v starts again without what is gone: %v", m, err)
		m.close()
		m.backOff()
	case (errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, evaluator.ErrHistory)) && m.positions.Chain.InTo.Compare(w.events.parts[m.part].trimmed) < 0:
		w.saw(SawRefused)
		w.logf("%v is given a newer copy: %v", m, err)
		m.close()
		m.restore(w.newestCopy(m.part))
	default:
		w.fail("%v stops: %v", m, err)
		m.stopped = err
	}
}

func (m *machine) close() {
	if m.owner == nil {
		return
	}
	if err := m.owner.Close(); err != nil {
		m.w.fail("%v closes: %v", m, err)
	}
	m.owner, m.phase, m.drained = nil, "", false
}

func (m *machine) backOff() { m.wake = m.w.now + m.w.rng.Int64N(400*millisecond) }

// crash ends the process, and the machine with it: what was not synced may be gone.
func (m *machine) crash() {
	w := m.w
	if n := len(m.store.pending); n > 0 {
		keeps := w.rng.IntN(n + 1)
		if keeps < n {
			w.saw(SawCommitsLost)
		}
		m.store.crash(keeps)
	}
	m.seeRebuild()
	if seq := w.keptIn(m.store.meta).Positions.Chain.Seq; seq < m.acked {
		w.fail("%v comes back at envelope %d, and acknowledged %d before", m, seq, m.acked)
	}
	if w.one(2) { // what was still in its buffers
		w.sends = slices.DeleteFunc(w.sends, func(x *send) bool { return x.from.m == m && w.one(2) })
	}
	m.owner, m.phase, m.policies, m.drained, m.opened = nil, "", nil, false, 0
	m.wake = w.now + w.rng.Int64N(3000*millisecond)
	if !w.has(OldStates) || !w.one(2) {
		w.saw(SawFromOwn)
		return
	}
	m.forgetMost()
}

// forgetMost gives the machine an older copy for its store, or nothing.
func (m *machine) forgetMost() {
	w, copies := m.w, m.w.copies[m.part]
	switch {
	case w.one(3):
		w.saw(SawFromNothing)
		m.restore(kv{})
		w.logf("%v lost its store", m)
	case len(copies) > 0:
		w.saw(SawFromOlder)
		m.restore(copies[w.rng.IntN(len(copies))])
		w.logf("%v lost its store and gets a copy", m)
	}
}

func (m *machine) restore(from kv) { m.store, m.acked = newStore(from), 0 }

// newestCopy returns the copy that is furthest ahead.
func (w *world) newestCopy(p int) (newest kv) {
	seq := uint64(0)
	for _, c := range w.copies[p] {
		if at := w.keptIn(c.meta).usable().Chain.Seq; at >= seq {
			newest, seq = c, at
		}
	}
	return newest
}
