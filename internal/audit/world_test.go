package audit_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/model"
)

// topic is an in-memory partition.
type topic []eventlog.Message

func (x *topic) put(payload []byte) {
	*x = append(*x, eventlog.Message{Position: eventlog.Position{Ledger: 9, Entry: int64(len(*x))}, Payload: payload})
}

func (*topic) Partitions() int { return 1 }

func (x *topic) Beginning(int) (eventlog.Position, error) { return eventlog.Start, nil }

func (x *topic) End(int) (eventlog.Position, error) {
	if len(*x) == 0 {
		return eventlog.Start, nil
	}
	return (*x)[len(*x)-1].Position, nil
}

func (x *topic) Open(_ int, after eventlog.Position) (eventlog.Reader, error) {
	left := *x
	for len(left) > 0 && left[0].Position.Compare(after) <= 0 {
		left = left[1:]
	}
	return &reader{left}, nil
}

type reader struct{ left topic }

func (r *reader) Read(dst []eventlog.Message) (int, error) {
	n := copy(dst, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (*reader) Changed() <-chan struct{} { return nil }
func (*reader) Close() error             { return nil }

// world is the work of an owner, or of several in turn, on a random history: two policy
// generations, and a chain that tests may tamper with.
type world struct {
	events, policies topic
	envelopes        []*chain.Envelope // in force
	sets             []*policyfile.Set // generation i+1
	running          chain.Hash
	semantics        uint32
}

// newWorld decides a history with at least n records from input.
func newWorld(t testing.TB, seed uint64, records int) *world {
	t.Helper()
	return newWorldBy(t, evaluator.SemanticsVersion, seed, records)
}

// newWorldBy is newWorld with a version of the semantics.
func newWorldBy(t testing.TB, semantics uint32, seed uint64, records int) *world {
	t.Helper()
	for ; ; seed++ {
		h := model.Generate(seed, model.Options{})
		w := worldOf(t, semantics, h.Messages, h.YAML(), model.Generate(seed+1, model.Options{}).YAML())
		if w.answer(t, rand.New(rand.NewPCG(seed, 2))) >= records {
			return w
		}
	}
}

// worldOf is a history that is not decided yet.
func worldOf(t testing.TB, semantics uint32, messages []model.Message, policies ...[]model.File) *world {
	t.Helper()
	w := &world{semantics: semantics}
	for _, m := range messages {
		at := eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}
		w.events = append(w.events, eventlog.Message{Position: at, Publish: m.Publish, Payload: m.Payload})
	}
	for _, files := range policies {
		w.publish(t, files)
	}
	return w
}

func (w *world) publish(t testing.TB, files []model.File) {
	t.Helper()
	var in []policyfile.File
	for _, f := range files {
		in = append(in, policyfile.File{Name: f.Name, Data: f.Data})
	}
	set, err := policyfile.Parse(in)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "test", Time: 0})
	if err != nil {
		t.Fatal(err)
	}
	w.sets = append(w.sets, set)
	w.policies.put(payload)
}

// answer writes the chain as an owner does: a claim, the first generation, some
// envelopes, another owner's claim, the second generation, the rest.
func (w *world) answer(t testing.TB, rng *rand.Rand) (records int) {
	t.Helper()
	state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, evaluator.DefaultHorizon)
	if err != nil {
		t.Fatal(err)
	}
	p := &evaluator.Processor{State: state}
	left := w.events
	batch := func(n int) {
		e := &chain.Envelope{}
		for _, m := range left[:min(n, len(left))] {
			out, err := p.Step(&m)
			if err != nil {
				t.Fatal(err)
			}
			e.InTo, e.InCount = m.Position, e.InCount+1
			for _, b := range out.Bytes {
				e.Records = append(e.Records, bytes.Clone(b)) // the next step overwrites them
				records++
			}
		}
		left = left[e.InCount:]
		w.envelopes = append(w.envelopes, e)
	}
	activate := func(generation uint64) {
		set := w.sets[generation-1]
		front := []chain.Record{
			&chain.SemanticsActivated{Version: w.semantics},
			&chain.PolicyActivated{Generation: generation, Digest: set.Digest(), HorizonMS: set.Horizon().Milliseconds()},
		}
		p.Activate(front)
		p.Rules = evaluator.Rules{Generation: generation, Set: set.Set}
		w.envelopes = append(w.envelopes, &chain.Envelope{Records: [][]byte{chain.AppendRecord(nil, front[0]), chain.AppendRecord(nil, front[1])}})
	}
	for generation := uint64(1); generation <= 2; generation++ {
		w.envelopes = append(w.envelopes, &chain.Envelope{Records: [][]byte{chain.AppendRecord(nil, &chain.OwnerClaim{})}})
		activate(generation)
		for half := len(w.events) / 2; len(left) > half || generation == 2 && len(left) > 0; {
			batch(1 + rng.IntN(7))
		}
	}
	w.running = p.Progress.Running
	return records
}

// isClaim reports whether an envelope is a claim.
func isClaim(e *chain.Envelope) *chain.OwnerClaim {
	if len(e.Records) != 1 {
		return nil
	}
	r, _ := chain.DecodeRecord(e.Records[0])
	c, _ := r.(*chain.OwnerClaim)
	return c
}

// link makes the current envelopes a chain: it recomputes seq, links, epochs, ranges
// and the fields of claims, as a capable forger would.
func link(envelopes []*chain.Envelope) *topic {
	x, end := &topic{}, chain.Beginning
	for _, e := range envelopes {
		e := *e
		if c := isClaim(&e); c != nil {
			e.Epoch, e.Owner = end.Epoch+1, chain.OwnerID{byte(end.Epoch + 1)}
			c.Epoch, c.Owner, c.LastSeq, c.LastLink = e.Epoch, e.Owner, end.Seq, end.Link
			e.Records = [][]byte{chain.AppendRecord(nil, c)}
		} else {
			e.Epoch, e.Owner = end.Epoch, end.Owner
		}
		e.Seq, e.Link, e.InFrom = end.Seq+1, end.Link, end.InTo
		if e.InCount == 0 {
			e.InTo = e.InFrom
		}
		raw := e.Append(nil)
		end = chain.End{Seq: e.Seq, Link: chain.Link(raw), Epoch: e.Epoch, Owner: e.Owner, InTo: e.InTo}
		x.put(raw)
	}
	return x
}

func (w *world) verify(decisions *topic) (audit.Verified, error) {
	return audit.Verify(context.Background(), audit.Logs{Events: &w.events, Decisions: decisions, Policies: &w.policies}, 0)
}
