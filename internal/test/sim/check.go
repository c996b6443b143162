package sim

import (
	"bytes"
	"fmt"

	"github.com/refloat/refloat/internal/policy/policyfile"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// seeRecords notes what an accepted envelope holds.
func (w *world) seeRecords(a *accepted) {
	for _, r := range a.records {
		switch r := r.(type) {
		case *chain.Decision:
			w.seeDecision(r)
		case *chain.NotDecided:
			w.saw(SawNotDecided)
			if r.Reason == chain.UnknownJob {
				w.saw(SawUnknownJob)
			}
		case *chain.Parked:
			w.saw(SawParked)
		case *chain.RetryReady:
			w.saw(SawReady)
		case *chain.PolicyActivated:
			w.saw(SawActivation)
		case *chain.GroupBound:
			w.saw(SawBound)
		case *chain.GroupFinding:
			w.saw(SawFinding)
		case *chain.MemberChange:
			if sight, ok := changeSights[r.Change]; ok {
				w.saw(sight)
			}
		case *chain.UnitEnded:
			w.saw(SawUnitEnded)
		case *chain.GroupEnded:
			w.saw(SawGroupEnded)
		default: // claims are seen when they land
		}
	}
}

func (w *world) seeDecision(d *chain.Decision) {
	if d.Requeue {
		w.saw(SawRequeue)
	} else {
		w.saw(SawFail)
	}
	if d.Shadow {
		w.saw(SawShadow)
	}
	if v := d.Group; v != nil && v.Refused {
		w.saw(SawRestartRefused)
	}
	switch d.Code {
	case policy.GangRetry:
		w.saw(SawGangRetry)
	case policy.UnitLimit:
		w.saw(SawUnitLimit)
	case policy.GroupOver:
		w.saw(SawOfEnded)
	case policy.GroupRestart:
		if d.Group == nil {
			w.saw(SawStoppedRun)
		} else {
			w.saw(SawGroupRestart)
		}
	case policy.KillSwitch:
		w.saw(SawKillSwitch)
	case policy.RuleLimit, policy.PolicyLimit, policy.GlobalLimit:
		w.saw(SawLimit)
	case policy.LegacyReturn:
		w.saw(SawLegacy)
	default:
	}
}

// check holds everything against the logs, when all is at rest.
func (w *world) check() {
	w.checkMoved()
	for p := range w.chains {
		if w.cut {
			w.checkCut(p)
			continue
		}
		w.checkChain(p)
		w.checkGroups(p)
		w.checkStates(p)
		w.checkModel(p)
		w.checkRows(p)
		if w.over() {
			return
		}
	}
}

// checkChain: protocol.md 1 and 4, and what must hold of each record by itself.
func (w *world) checkChain(p int) {
	c, input := &w.chains[p], w.events.parts[p].all
	var generation, number uint64
	for i := range c.envelopes {
		e := &c.envelopes[i]
		n := 0
		for n < len(input) && input[n].Position.Compare(e.env.InTo) <= 0 {
			n++
		}
		if skips(e.records) {
			input = input[n:]
			continue
		}
		if uint64(n) != e.env.InCount || n > 0 && input[n-1].Position != e.env.InTo {
			w.fail("envelope %d answers %d messages up to %v, the log has %d", e.env.Seq, e.env.InCount, e.env.InTo, n)
			return
		}
		for _, r := range e.records {
			if at, ok := chain.PositionOf(r); ok {
				k := 0
				for k < n && input[k].OriginPosition() != at {
					k++
				}
				if k == n {
					w.fail("envelope %d: %T names position %v, which it does not answer", e.env.Seq, r, at)
					return
				}
			}
			switch r := r.(type) {
			case *chain.PolicyActivated:
				if err := w.checkActivation(r, generation); err != nil {
					w.fail("envelope %d: %w", e.env.Seq, err)
				}
				generation = r.Generation
			case *chain.Decision:
				number++
				if err := checkDecision(r, number, generation); err != nil {
					w.fail("envelope %d: decision %d: %w", e.env.Seq, r.Number, err)
				}
			default:
			}
		}
		input = input[n:]
	}
	if len(input) > 0 {
		w.fail("partition %d: %d messages are not answered", p, len(input))
	}
}

// checkActivation checks that a generation is its index in the policies log, and never decreases.
func (w *world) checkActivation(r *chain.PolicyActivated, before uint64) error {
	switch g := r.Generation; {
	case g <= before:
		return fmt.Errorf("generation %d is activated after %d", g, before)
	case g > uint64(len(w.generations)) || w.generations[g-1] < 0:
		return fmt.Errorf("generation %d is activated, which is not in the policies log or cannot be used", g)
	case r.Digest != w.cfg.Sets.sets[w.generations[g-1]].Digest():
		return fmt.Errorf("generation %d is activated with another digest than it has", g)
	}
	return nil
}

// checkDecision checks what must hold of a decision by itself (semantics.md 5 and 11).
func checkDecision(d *chain.Decision, number, generation uint64) error {
	policied := d.Code == policy.RuleRetry || d.Code == policy.DefaultRetry || d.Code == policy.GangRetry && d.LimitFrom != policy.FromNowhere
	switch {
	case d.Number != number:
		return fmt.Errorf("it should have number %d", number)
	case d.Generation != generation:
		return fmt.Errorf("it names generation %d, in force is %d", d.Generation, generation)
	case d.Requeue && d.RetryAfter < d.Time:
		return fmt.Errorf("retry after %d, before its failure at %d", d.RetryAfter, d.Time)
	case d.Group != nil && d.Group.Action.Restarts() != (d.Code == policy.GroupRestart):
		return fmt.Errorf("code %v, and the group's action is %v", d.Code, d.Group.Action)
	case d.Requeue && policied && (d.RuleUsed > d.RuleLimit || d.GlobalUsed > d.GlobalLimit):
		return fmt.Errorf("a retry past its limit: %d of %d, in all %d of %d", d.RuleUsed, d.RuleLimit, d.GlobalUsed, d.GlobalLimit)
	}
	return nil
}

// checkStates derives everything again from the input and the activations. The records must equal those of the
// log, byte for byte, and each store and its progress must equal the state derived up to its position
// (protocol.md, "What follows").
func (w *world) checkStates(p int) {
	disk := &kv{}
	state, err := projection.NewState(disk, projection.NoWatermark, evaluator.DefaultHorizon)
	if err != nil {
		w.fail("derive: %v", err)
		return
	}
	proc := &evaluator.Processor{State: state, Rules: evaluator.Rules{Set: policyfile.Empty().Set}}
	input := w.events.parts[p].all
	at := map[uint64][]*machine{}
	for _, m := range w.machines {
		if m.part == p {
			end := w.keptIn(m.store.meta).Positions.Chain
			if w.cut && !w.chains[p].contains(end.Seq, end.Link) {
				continue // it went another way
			}
			if !w.keptIn(m.store.meta).Rebuilding {
				at[end.Seq] = append(at[end.Seq], m)
			}
		}
	}
	for i := range w.chains[p].envelopes {
		e := &w.chains[p].envelopes[i]
		if w.cut && !w.answers(p, e.env, input) {
			return // of events that were cut, some had been answered
		}
		raw := e.env.Records
		proc.Activate(e.records)
		for len(raw) > 0 && !e.records[len(e.records)-len(raw)].FromInput() {
			raw = raw[1:]
		}
		if g := proc.Progress.Generation; g > 0 {
			proc.Rules = evaluator.Rules{Generation: g, Set: w.cfg.Sets.sets[w.generations[g-1]].Set}
		}
		if skips(e.records) {
			input = after(input, e.env.InTo)
		}
		if from, ok := rebuilt(e.records); ok {
			if disk, proc = w.rebuild(p, i, from); proc == nil {
				return
			}
			state = proc.State
		}
		for range e.env.InCount {
			out, err := proc.Step(&input[0])
			if err != nil {
				w.fail("derive: %v", err)
				return
			}
			for _, b := range out.Bytes {
				if len(raw) == 0 || !bytes.Equal(raw[0], b) {
					w.fail("envelope %d: the message at %v gives another record than the log has", e.env.Seq, input[0].Position)
					return
				}
				raw = raw[1:]
			}
			input = input[1:]
		}
		if len(raw) > 0 {
			w.fail("envelope %d: %d records that follow from none of its messages", e.env.Seq, len(raw))
			return
		}
		if len(at[e.env.Seq]) == 0 {
			continue
		}
		batch := &commit{}
		flush, err := state.Flush(batch)
		if err != nil {
			w.fail("derive: %v", err)
			return
		}
		disk.apply(batch)
		state.Committed(flush)
		for _, m := range at[e.env.Seq] {
			w.checkStore(m, disk, proc, e)
		}
	}
}

// answers says whether an envelope answers the messages that come next.
func (w *world) answers(p int, env *chain.Envelope, input []eventlog.Message) bool {
	n := uint64(0)
	for n < uint64(len(input)) && input[n].Position.Compare(env.InTo) <= 0 {
		n++
	}
	return n == env.InCount
}

func (w *world) checkStore(m *machine, want *kv, proc *evaluator.Processor, e *accepted) {
	got := w.keptIn(m.store.meta)
	if got.Progress != proc.Progress {
		w.fail("%v holds progress %+v after envelope %d, want %+v", m, got.Progress, e.env.Seq, proc.Progress)
	}
	end := chain.End{Seq: e.env.Seq, Link: e.link, Epoch: e.env.Epoch, Owner: e.env.Owner, InTo: e.env.InTo}
	if got.Positions.Chain != end || got.Positions.Decisions != e.at && !w.cut {
		w.fail("%v holds positions %+v, want %+v at %v", m, got.Positions, end, e.at)
	}
	if a, b := dump(want), dump(&m.store.kv); a != b {
		w.fail("%v holds after envelope %d\n%swant\n%s", m, e.env.Seq, b, a)
	}
}

// dump is all that a store holds but its meta record.
func dump(m *kv) string {
	var b bytes.Buffer
	for _, p := range m.pairs {
		fmt.Fprintf(&b, "%q %q\n", p.key, p.value)
	}
	return b.String()
}
