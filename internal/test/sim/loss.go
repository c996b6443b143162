package sim

import (
	"errors"
	"slices"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/projection"
)

// loseEvents deletes events that are not decided, or whose effect some or all owners do
// not hold, and restarts the owners with the operator's acceptance. What the job database
// still needs of the decided input stays: without it ingesters stop, and no acceptance
// helps them. It returns false if nothing can be deleted now.
func (w *world) loseEvents() bool {
	p := w.rng.IntN(len(w.chains))
	held, rows := w.events.parts[p].held, w.db.parts[p].positions.Chain.InTo
	n := len(held)
	if w.chains[p].inTo != rows {
		n -= len(after(held, rows))
	}
	if n == 0 {
		return false
	}
	if w.one(2) {
		n = 1 + w.rng.IntN(n)
	}
	w.events.trim(p, n)
	w.accepted[p] = true
	w.logf("the events of partition %d up to %v are lost", p, w.events.parts[p].trimmed)
	for _, m := range w.machines {
		if m.part != p || m.stopped != nil {
			continue
		}
		m.crash()
		if w.one(3) {
			m.forgetMost()
		}
	}
	// An envelope that covers what is gone must not come any more: it would be decided
	// input that the job database cannot read (see also answersGone).
	w.lost = nil
	w.sends = slices.DeleteFunc(w.sends, func(x *send) bool { return x.from.m.part == p })
	return true
}

// answersGone reports whether an envelope covers events that are lost. A stranger does not
// write it again: it may have come too early before, and would be accepted now.
func (w *world) answersGone(p int, raw []byte) bool {
	env, err := chain.DecodeEnvelope(raw)
	return w.accepted[p] && err == nil && env.InCount > 0 && env.InFrom.Compare(w.events.parts[p].trimmed) < 0
}

// acceptHistory is what the operator passes to the owners of a partition.
func (w *world) acceptHistory(p int) *eventlog.Position {
	if !w.accepted[p] {
		return nil
	}
	from := eventlog.Start
	return &from
}

func inputGone(err error) bool {
	return errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, follow.ErrInputGone)
}

// usable is the position of a state that its next owner may use.
func (k kept) usable() follow.Positions {
	if k.Rebuilding {
		return follow.Beginning
	}
	return k.Positions
}

// seeRebuild lets a machine go back if it began to rebuild its state.
func (m *machine) seeRebuild() {
	if k := m.w.keptIn(m.store.meta); k.Rebuilding && k.Positions.Chain.Seq < m.positions.Chain.Seq {
		m.positions, m.acked = k.Positions, 0
	}
}

// checkLoss checks that what an envelope declares lost is not in the log, and that an operator acknowledged the
// loss.
func (w *world) checkLoss(p int, a *accepted) {
	gone := w.events.parts[p].trimmed
	if skips(a.records) {
		w.saw(SawHistoryAccepted)
		if !w.accepted[p] || a.env.InTo.Compare(gone) > 0 {
			w.fail("envelope %d gives up the events up to %v, and those up to %v are gone (accepted: %v)", a.env.Seq, a.env.InTo, gone, w.accepted[p])
		}
	}
	if from, ok := rebuilt(a.records); ok {
		w.saw(SawStateRebuilt)
		if !w.accepted[p] || from.Compare(gone) > 0 {
			w.fail("envelope %d rebuilds the state from %v, and events up to %v are gone (accepted: %v)", a.env.Seq, from, gone, w.accepted[p])
		}
	}
}

// skips reports whether the records are those of an accepted history.
func skips(records []chain.Record) bool {
	if len(records) == 0 {
		return false
	}
	_, ok := records[0].(*chain.HistoryAccepted)
	return ok
}

// rebuilt returns where the input of a rebuilt state begins.
func rebuilt(records []chain.Record) (from eventlog.Position, ok bool) {
	if len(records) == 0 {
		return from, false
	}
	r, ok := records[0].(*chain.StateRebuilt)
	if ok {
		from = r.From
	}
	return from, ok
}

// after returns the messages after a position.
func after(messages []eventlog.Message, at eventlog.Position) []eventlog.Message {
	n := 0
	for n < len(messages) && messages[n].Position.Compare(at) <= 0 {
		n++
	}
	return messages[n:]
}

// rebuild derives the state that a StateRebuilt, in the envelope with index last, defines:
// from the input after a position, with the decisions in the log.
func (w *world) rebuild(p, last int, from eventlog.Position) (*kv, *evaluator.Processor) {
	disk := &kv{}
	state, err := projection.NewState(disk, projection.NoWatermark, evaluator.DefaultHorizon)
	if err != nil {
		w.fail("derive a rebuilt state: %v", err)
		return nil, nil
	}
	proc := &evaluator.Processor{State: state, Rules: evaluator.Rules{Set: policyfile.Empty().Set}}
	input := after(w.events.parts[p].all, from)
	for i := range w.chains[p].envelopes[:last+1] {
		e := &w.chains[p].envelopes[i]
		rest := after(input, e.env.InTo)
		messages := input[:len(input)-len(rest)]
		input = rest
		proc.Activate(e.records)
		if skips(e.records) {
			continue
		}
		logged := evaluator.LoggedIn(&chain.Accepted{Envelope: e.env, Records: e.records})
		if err := proc.Rebuild(messages, logged); err != nil {
			w.fail("derive a rebuilt state: %v", err)
			return nil, nil
		}
	}
	return disk, proc
}
