package sim

import (
	"reflect"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/test/model"
	"github.com/refloat/refloat/internal/test/modelrecord"
)

// checkModel lets the naive model, which shares no code with the engine, run over
// the same messages with the same activations: its records are those of the
// chain, each once, in the same order (protocol.md, "What follows").
func (w *world) checkModel(p int) {
	m := model.New(model.Policies{})
	version, input := uint32(0), w.histories[p].fed
	for i := range w.chains[p].envelopes {
		e := &w.chains[p].envelopes[i]
		if skips(e.records) {
			rest := w.events.parts[p].all[len(w.histories[p].fed)-len(input):]
			input = input[len(rest)-len(after(rest, e.env.InTo)):]
			continue
		}
		if _, ok := rebuilt(e.records); ok {
			return // the model does not know what a rebuilt state has forgotten
		}
		var got []model.Record
		for _, r := range e.records {
			switch r := r.(type) {
			case *chain.PolicyActivated:
				m.Use(w.cfg.Sets.naive[w.generations[r.Generation-1]])
			case *chain.SemanticsActivated:
				m.UseVersion(int(r.Version))
				if version != 0 {
					w.saw(SawNewSemantics)
				}
				version = r.Version
			default:
				if r.FromInput() && modelrecord.Has(r) {
					got = append(got, modelrecord.Of(r))
				}
			}
		}
		var want []model.Record
		for range e.env.InCount {
			records := m.Step(input[0])
			modelrecord.Normalize(records)
			at := len(w.events.parts[p].all) - len(input)
			if msg := &w.events.parts[p].all[at]; isCopy(msg) {
				w.checkAnswersCopy(msg, records)
			}
			want = append(want, records...)
			input = input[1:]
		}
		if len(got) != len(want) {
			w.fail("envelope %d holds %d records, the model has %d", e.env.Seq, len(got), len(want))
			return
		}
		for k := range want {
			if !reflect.DeepEqual(want[k], got[k]) {
				w.fail("envelope %d, record %d is\n%+v\nthe model has\n%+v", e.env.Seq, k, got[k], want[k])
				return
			}
		}
	}
	for name := range m.Seen {
		if len(name) > 9 && name[:9] == "forgotten" {
			w.saw(SawForgotten)
		}
	}
}

// checkAnswersCopy checks that a copy of a decision causes nothing by itself. It is a message
// of its partition all the same: what a group does after each message may come with it.
func (w *world) checkAnswersCopy(m *eventlog.Message, records []model.Record) {
	for _, r := range records {
		switch r.Kind {
		case model.MemberReleased, model.MemberRestart, model.MemberHeld, model.MemberStopped, model.UnitEnded, model.GroupEnded:
		default:
			w.fail("the model has a record of the copy at %v: %+v", m.Position, r)
		}
	}
}
