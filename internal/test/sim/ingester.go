package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// ingester is a process that writes the job database.
type ingester struct {
	w       *world
	number  int
	writer  *sink.Writer // nil: not running
	opened  int          // number of partitions of the process's topics
	recount int64        // when the process notices that there are more
	wake    int64
	stopped error
	cutOff  bool // by an outage, and nothing was committed since
}

func (g *ingester) String() string { return fmt.Sprintf("ingester %d", g.number) }

func (g *ingester) start() {
	w := g.w
	g.opened = w.events.Partitions()
	cfg := sink.Config{
		Events: opened{w.events, g.opened}, Decisions: opened{w.decisions, w.decisions.Partitions()}, DB: w.db,
		MaxRows: 1 + w.rng.IntN(25), KeepRows: 1 + w.rng.IntN(1+w.rng.IntN(300)),
		Now:   func() time.Time { return time.Unix(0, w.now) },
		Hit:   g.hit,
		Hooks: sink.Hooks{Moved: func(int) { w.saw(SawMoved) }},
	}
	if w.faults&Copies != 0 {
		cfg.Mirror = func(p int) sink.Mirror { return &mirror{w: w, part: p} }
	}
	if w.has(Releases) {
		cfg.ReleaseAfter = w.limit
	}
	var err error
	g.writer, err = sink.New(cfg)
	if err == nil {
		return
	}
	if g.opened == w.decisions.Partitions() {
		w.fail("%v: %v", g, err)
	}
	w.saw(SawUnequalTopics)
	g.crash()
}

// hit is a point in a transaction at which the process may crash, the connection may break, or another ingester
// may run.
func (g *ingester) hit(label string) error {
	w := g.w
	switch {
	case w.has(Crashes) && w.one(80):
		w.saw(SawIngesterCrash)
		w.logf("%v crashes at %q", g, label)
		w.db.disconnect()
		return errCrash
	case w.has(Pauses) && w.one(60): // it is paused, and its connection is lost
		w.db.disconnect()
		w.othersGoOn(g)
	case w.one(25):
		w.othersGoOn(g)
	}
	return nil
}

// othersGoOn lets the other ingesters work within a step of this one.
func (w *world) othersGoOn(g *ingester) {
	if w.nested {
		return
	}
	w.nested = true
	for range 1 + w.rng.IntN(4) {
		if o := w.ingesters[w.rng.IntN(len(w.ingesters))]; o != g {
			o.step(w.rng.IntN(len(w.chains)))
		}
	}
	w.nested = false
}

func (g *ingester) step(p int) bool {
	w := g.w
	if g.stopped != nil || w.now < g.wake {
		return false
	}
	if g.writer != nil && g.opened != w.events.Partitions() && w.now >= g.recount {
		g.crash()
		return true
	}
	if g.writer == nil {
		g.start()
	}
	if g.writer == nil || p >= g.opened {
		return false
	}
	progress, err := g.writer.Advance(context.Background(), p)
	if w.tracing && (progress || err != nil) {
		w.logf("%v, partition %d: at envelope %d, error %v", g, p, w.db.parts[p].positions.Chain.Seq, err)
	}
	switch {
	case err == nil:
		if progress && g.cutOff {
			g.cutOff = false
			w.saw(SawIngesterBack)
		}
	case errors.Is(err, errCrash):
		g.crash()
	case errors.Is(err, jobdb.ErrUnavailable), errors.Is(err, eventlog.ErrTransient):
		g.cutOff = g.cutOff || w.longDown()
	case errors.Is(err, eventlog.ErrTrimmed) && w.db.parts[p].positions.Chain.InTo.Compare(w.events.parts[p].trimmed) >= 0:
		g.crash() // the others were quicker than retention, this one was not
	case w.accepted[p] && inputGone(err):
		g.crash() // until an owner has recorded in the chain that it is gone
	case errors.Is(err, chain.ErrMissing) && w.cut:
		w.saw(SawIngesterMissing)
		g.stopped = err
	default:
		w.fail("%v stops: %v", g, err)
		g.stopped = err
	}
	return progress || err != nil
}

func (g *ingester) crash() {
	g.writer = nil
	g.wake = g.w.now + g.w.rng.Int64N(2000*millisecond)
}
