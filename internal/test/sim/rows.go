package sim

import (
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// checkRelease: a release holds what is older than the limit, and nothing that
// the chain had answered when its transaction began.
func (w *world) checkRelease(r *jobdb.Release, t *tx) {
	w.saw(SawRelease)
	w.logf("events of partition %d from %v to %v are released", r.Partition, r.From, r.To)
	if r.From != t.p.positions.Events {
		w.fail("a release begins at %v, the rows stand at %v", r.From, t.p.positions.Events)
	}
	if !w.cut && t.covered.Compare(r.From) > 0 {
		w.fail("the events after %v are released, and the chain had answered up to %v", r.From, t.covered)
	}
	n := uint64(0)
	for _, m := range w.events.parts[r.Partition].all {
		if m.Position.Compare(r.From) > 0 && m.Position.Compare(r.To) <= 0 {
			n++
			if m.Publish+int64(w.limit) > t.began {
				w.fail("the event at %v is released %.3fs after it came", m.Position, float64(t.began-m.Publish)/1e9)
			}
		}
	}
	if n != r.Messages && !w.cut {
		w.fail("a release from %v to %v says %d messages, the log has %d", r.From, r.To, r.Messages, n)
	}
}

// checkRows checks that the job database is the fold of the logs and the releases (protocol.md, "What follows"), and that late
// decisions on released messages are kept and had no effect.
func (w *world) checkRows(p int) {
	got := w.db.parts[p].contents()
	w.checkNotReleased(p, got.Decisions)
	want, err := sink.Fold(inert{archive{w.events}}, archive{w.decisions}, p, 0, got.Releases...)
	if err != nil {
		w.fail("fold of partition %d: %w", p, err)
		return
	}
	for _, d := range sink.Compare(want, got) {
		w.fail("the job database's partition %d: %v", p, d)
	}
	released := func(at eventlog.Position) bool {
		for _, r := range got.Releases {
			if at.Compare(r.From) > 0 && at.Compare(r.To) <= 0 {
				return true
			}
		}
		return false
	}
	for _, d := range got.Decisions {
		w.checkSuperseded(d.Where, released(d.Log), d.Acted)
		if d.Superseded {
			w.saw(SawSuperseded)
		}
	}
	for _, r := range got.Ready {
		w.checkSuperseded(r.Where, released(r.Log), r.Acted)
		if d := decisionBefore(got.Decisions, r); d != nil && d.Superseded && !r.Superseded {
			w.saw(SawReadyOfReleased)
			if r.Acted {
				w.fail("record %d of envelope %d, a RetryReady of a superseded requeue, acted", r.Record, r.Seq)
			}
		}
	}
	for _, r := range got.NotDecided {
		w.checkSuperseded(r.Where, released(r.Log), false)
	}
	for _, r := range got.Parked {
		w.checkSuperseded(r.Where, released(r.Log), false)
	}
	for i := range w.chains[p].envelopes {
		e := w.chains[p].envelopes[i].env
		for _, r := range got.Releases {
			if e.InFrom.Compare(r.To) < 0 && r.To.Compare(e.InTo) < 0 {
				w.saw(SawPartlyReleased)
			}
		}
	}
}

func (w *world) checkSuperseded(at jobdb.Where, released, acted bool) {
	if at.Superseded != released || released && acted {
		w.fail("record %d of envelope %d: superseded %v, acted %v; released %v", at.Record, at.Seq, at.Superseded, acted, released)
	}
}

// decisionBefore is the decision that a RetryReady is about: the last one on its
// run. (There may be others: of a run that was forgotten and came again.)
func decisionBefore(all []*jobdb.Decision, r *jobdb.Ready) (last *jobdb.Decision) {
	for _, d := range all {
		earlier := d.Seq < r.Seq || d.Seq == r.Seq && d.Record < r.Record
		if earlier && d.JobID == r.JobID && d.RunID == r.RunID {
			last = d
		}
	}
	return last
}
