package sim

import (
	"reflect"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/model"
)

// checkModel lets the naive model, which shares no code with the engine, run over
// the same messages with the same activations: its records are those of the
// chain, each once, in the same order (PROTOCOL, "What follows").
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
				if r.FromInput() {
					got = append(got, plainRecord(r))
				}
			}
		}
		var want []model.Record
		for range e.env.InCount {
			records := m.Step(input[0])
			if at := len(w.events.parts[p].all) - len(input); len(records) > 0 && isCopy(&w.events.parts[p].all[at]) {
				w.fail("the model has %d records of the copy at %v", len(records), w.events.parts[p].all[at].Position)
			}
			want = append(want, records...)
			input = input[1:]
		}
		for k := range want {
			normalize(&want[k])
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

// normalize makes one of two ways to say nothing, and names of a RetryReady the
// job alone, as ours does.
func normalize(r *model.Record) {
	if len(r.AvoidNodes) == 0 {
		r.AvoidNodes = nil
	}
	if len(r.SkippedPolicies) == 0 {
		r.SkippedPolicies = nil
	}
	if len(r.Raw) == 0 {
		r.Raw = nil
	}
	if r.Kind == model.RetryReady {
		r.Queue, r.JobSet = "", ""
	}
}

func parkReason(r events.ParkReason) string {
	switch r {
	case events.NotProtobuf:
		return model.Unreadable
	case events.NoQueue:
		return model.NoQueue
	case events.NoJobSet:
		return model.NoJobSet
	case events.NoEvents:
		return model.NoEvents
	case events.NoJob:
		return model.EventWithoutJob
	case events.NoRun:
		return model.EventWithoutRun
	default:
		return r.String()
	}
}

// plainRecord says what a record says in the model's words.
func plainRecord(r chain.Record) model.Record {
	at, _ := chain.PositionOf(r)
	out := model.Record{Ledger: at.Ledger, Entry: at.Entry, Batch: at.Batch}
	switch r := r.(type) {
	case *chain.NotDecided:
		out.Kind, out.Reason = model.NotDecided, r.Reason.String()
		out.Queue, out.JobSet, out.JobID, out.RunID, out.T = r.Queue, r.JobSet, r.JobID, r.RunID, r.Time
	case *chain.Parked:
		out.Kind, out.Reason, out.Event, out.Raw = model.Parked, parkReason(r.Reason), int(r.Event), r.Raw
	case *chain.RetryReady:
		out.Kind, out.JobID, out.RunID, out.RetryAfter = model.RetryReady, r.JobID, r.RunID, r.RetryAfter
	case *chain.Decision:
		plainDecision(&out, r)
	}
	normalize(&out)
	return out
}

func plainDecision(out *model.Record, d *chain.Decision) {
	out.Kind = model.JobFailed
	out.Number, out.Queue, out.JobSet, out.JobID, out.RunID = int64(d.Number), d.Queue, d.JobSet, d.JobID, d.RunID
	out.RunIndex, out.Code, out.Policy, out.Rule, out.T = int(d.RunIndex), d.Code.String(), d.Policy, d.Rule, d.Time
	out.GlobalUsed, out.GlobalLimit = int(d.GlobalUsed), int(d.GlobalLimit)
	out.SkippedPolicies, out.Shadow = d.Skipped, d.Shadow
	if d.LimitFrom != policy.FromNowhere {
		out.RuleUsed, out.RuleLimit, out.LimitFrom = int(d.RuleUsed), int(d.RuleLimit), d.LimitFrom.String()
	}
	if d.Requeue {
		out.Kind = model.JobRequeued
		out.DelayMs, out.RetryAfter, out.PodName, out.AvoidNodes = d.DelayMS, d.RetryAfter, d.PodName, d.AvoidNodes
		out.NodesLeftOut = int(d.NodesLeftOut)
	}
}
