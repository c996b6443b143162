package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
)

// Logs are the three logs of a deployment.
type Logs struct{ Events, Decisions, Policies eventlog.Topic }

// Verified summarizes the verification of a partition.
type Verified struct {
	Progress  evaluator.Progress
	Begin     chain.End // verified is what comes after it
	Given     uint64    // decisions up to Begin, which are in the state that is taken as given
	End       chain.End
	Decisions eventlog.Position // of the last verified envelope in the decision log
	Envelopes uint64            // read
	Messages  uint64            // decided again
	Waiting   uint64            // not covered yet
	Ignored   map[chain.Ignored]uint64
	Claims    uint64
	Records   map[string]uint64 // by kind (KindName)
	// What was put in force, in order.
	Generations []Activation
	Semantics   []Activation
	// Unknown is the number of covered messages that could not be verified, because the
	// state was lost and rebuilt after them (chain.StateRebuilt). Of their envelopes and
	// decisions it is known only that they are accepted ones, each linked to the one before.
	Unknown                          uint64
	LinkedEnvelopes, LinkedDecisions uint64
	// RebuiltFrom is the position from which the last such rebuild started, if Unknown
	// is not 0.
	RebuiltFrom eventlog.Position
	RebuiltBy   string
}

// Activation puts a policy generation, or a version of the semantics, in force.
type Activation struct {
	Envelope uint64
	Number   uint64 // generation or version
	Digest   [32]byte
}

// ErrDifferent reports that deciding again gives a different result than the decision
// log. The error names the first difference.
var ErrDifferent = errors.New("decision log differs from its input")

// Options limits a verification.
type Options struct {
	// Until is the envelope with which the verification ends; 0: the last one.
	Until uint64
	// From is where it begins; nil: at the first envelope.
	From *Start
	// Policies is used instead of a reader of its own.
	Policies *policylog.Log
	// Progress, if set, is called after each envelope.
	Progress func(*Verified)
}

// Start is a state that is taken as given, such as a checkpoint.
type Start struct {
	At        follow.Positions
	Processor *evaluator.Processor
	Store     Store
}

// Store receives the changes of a state.
type Store interface {
	NewBatch() projection.Batch
	Commit(b projection.Batch, meta []byte) error
}

// verification is the verification of one partition.
type verification struct {
	logs      Logs
	partition int
	o         Options
	// assume replaces the version of the semantics from an envelope on, to find out
	// whether the log names another one than it was decided by; nil: nothing.
	assume *Activation
	// byBytes: records that follow from input are compared without decoding them, which is enough
	// while they are equal. After an error it starts again and decodes them.
	byBytes bool

	policies *policylog.Log
	p        *evaluator.Processor
	store    Store
	f        *follow.Follower
	loose    int // envelopes of the current owner that do not follow the last accepted one
	v        Verified
}

// Verify re-derives everything in a partition's decision log, by the policies that the
// log names, and compares links, ranges, counts and every byte of every derived record.
// Its error is a *Difference, or that of a log that cannot be read.
func Verify(ctx context.Context, logs Logs, partition int) (Verified, error) {
	return VerifyRange(ctx, logs, partition, Options{})
}

// VerifyRange verifies part of a partition's decision log.
func VerifyRange(ctx context.Context, logs Logs, partition int, o Options) (Verified, error) {
	x := &verification{logs: logs, partition: partition, o: o, policies: o.Policies}
	if x.policies == nil {
		policies, err := policylog.Open(x.logs.Policies)
		if err != nil {
			return x.v, err
		}
		defer policies.Close()
		x.policies = policies
	}
	err := x.policies.Refresh()
	if err == nil {
		x.byBytes = o.From == nil // a state that is given can be used once
		if err = x.run(ctx); err != nil && x.byBytes {
			x.byBytes = false
			err = x.run(ctx)
		}
	}
	if err != nil {
		err = x.nameError(ctx, err)
	}
	return x.v, err
}

func (x *verification) run(ctx context.Context) error {
	x.v = Verified{Ignored: map[chain.Ignored]uint64{}, Records: map[string]uint64{}, Begin: chain.Beginning, End: chain.Beginning, Decisions: eventlog.Start}
	if err := x.begin(); err != nil {
		return err
	}
	defer func() { _ = x.f.Close() }()
	for x.o.Until == 0 || x.v.End.Seq < x.o.Until {
		s, err := x.f.Next()
		if err != nil {
			if x.byBytes {
				return err
			}
			if err := x.beyondLost(ctx, err); err != nil {
				return err
			}
			continue
		}
		if s == nil {
			return x.atEnd(ctx)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.step(ctx, s); err != nil {
			return err
		}
	}
	x.v.Progress = x.p.Progress
	return nil
}

// begin opens the logs and the state.
func (x *verification) begin() (err error) {
	at := follow.Beginning
	if from := x.o.From; from != nil {
		at, x.p, x.store = from.At, from.Processor, from.Store
		x.v.Begin, x.v.End, x.v.Decisions, x.v.Given = at.Chain, at.Chain, at.Decisions, x.p.Progress.Decisions
		if err := x.inForce(at.Chain.Seq); err != nil {
			return err
		}
	} else {
		var store *projection.Memory
		if x.p, store, err = newProcessor(evaluator.DefaultHorizon); err != nil {
			return err
		}
		x.store, x.p.Rules = store, evaluator.Rules{Set: policyfile.Empty().Set}
	}
	x.f, err = follow.Open(x.logs.Events, x.logs.Decisions, x.partition, at)
	if err == nil {
		x.f.OnIgnored, x.f.FrontOnly, x.loose = x.ignored, x.byBytes, 0
	}
	return err
}

func (x *verification) ignored(why chain.Ignored, _ eventlog.Position) {
	x.v.Ignored[why]++
	if why == chain.NotNext || why == chain.WrongLink || why == chain.WrongRange {
		x.loose++
	}
}

// atEnd ends the verification where the log ends.
func (x *verification) atEnd(ctx context.Context) error {
	x.v.Progress = x.p.Progress
	if x.loose > 0 {
		return x.broken(ctx, fmt.Errorf("%w: the chain ends at envelope %d, but %d later envelopes of its owner do not follow it", ErrDifferent, x.v.End.Seq, x.loose))
	}
	if x.o.Until > 0 {
		return fmt.Errorf("%w: the decision log ends with envelope %d, not %d", chain.ErrMissing, x.v.End.Seq, x.o.Until)
	}
	return x.v.countWaiting(x.logs.Events, x.partition)
}

// step verifies an envelope.
func (x *verification) step(ctx context.Context, s *follow.Batch) error {
	if err := x.batch(ctx, s); err != nil {
		return err
	}
	if r := s.Rebuilt(); r != nil {
		d, err := deriveRebuilt(ctx, x.logs, x.policies, x.partition, follow.Rebuilt{Seq: s.Envelope.Seq, From: r.From, By: r.By})
		if err != nil {
			return err
		}
		x.p, x.store = d.p, d.store
		if err := d.f.Close(); err != nil {
			return err
		}
	}
	x.loose = 0
	x.v.count(s)
	if x.o.Progress != nil {
		x.o.Progress(&x.v)
	}
	if x.p.State.Unflushed() >= flushAt {
		return flush(x.p, x.store)
	}
	return nil
}

// Again returns the number of decisions that were derived again, of a verification that came to its end.
func (v *Verified) Again() uint64 { return v.Progress.Decisions - v.Given - v.LinkedDecisions }

// count counts a verified envelope.
func (v *Verified) count(s *follow.Batch) {
	v.Envelopes, v.Messages, v.End, v.Decisions = v.Envelopes+1, v.Messages+s.Envelope.InCount, s.End, s.Position
	if s.Claim != nil {
		v.Claims++
	}
	for _, r := range s.Records {
		v.Records[KindName(r)]++
		switch r := r.(type) {
		case *chain.PolicyActivated:
			v.Generations = append(v.Generations, Activation{s.Envelope.Seq, r.Generation, r.Digest})
		case *chain.SemanticsActivated:
			v.Semantics = append(v.Semantics, Activation{Envelope: s.Envelope.Seq, Number: uint64(r.Version)})
		}
	}
}

// batch derives the records of an envelope again and compares them.
func (x *verification) batch(ctx context.Context, s *follow.Batch) error {
	if err := x.activate(s); err != nil {
		return err
	}
	logged := evaluator.LoggedIn(s.Accepted)
	for i := range s.Messages {
		m := &s.Messages[i]
		out, err := x.p.StepAs(logged.FormOf(m), m)
		if err != nil {
			return err
		}
		n := len(out.Bytes)
		if n > len(logged.Bytes) || !slices.EqualFunc(out.Bytes, logged.Bytes[:n], bytes.Equal) {
			return x.compareRest(ctx, s, i+1, out, logged)
		}
		logged.Skip(n)
		for _, r := range out.Records {
			if x.byBytes { // else count does so
				x.v.Records[KindName(r)]++
			}
		}
	}
	if len(logged.Bytes) > 0 {
		return x.compareRest(ctx, s, len(s.Messages), nil, logged)
	}
	return nil
}

// activate puts in force what an envelope activates, and compares it with the policies log.
func (x *verification) activate(s *follow.Batch) error {
	p, seq, before := x.p, s.Envelope.Seq, x.p.Progress.Generation
	p.Activate(s.Records)
	if x.assume != nil && seq >= x.assume.Envelope && slices.ContainsFunc(s.Records, activatesSemantics) || x.assume != nil && seq == x.assume.Envelope {
		p.Progress.Semantics = uint32(x.assume.Number)
	}
	if slices.ContainsFunc(s.Records, activatesPolicy) {
		if p.Progress.Generation < before {
			return differs(PolicyChanged, seq, " goes back from policy generation %d to %d", before, p.Progress.Generation)
		}
		if err := x.inForce(seq); err != nil {
			return err
		}
	}
	if len(s.Messages) > 0 && p.Progress.Semantics == 0 {
		return differs(SemanticsChanged, seq, " covers messages before any version of the semantics was activated")
	}
	return nil
}

// inForce takes the policies in force from the policies log.
func (x *verification) inForce(seq uint64) error {
	p := x.p
	if p.Progress.Generation == 0 && x.o.From != nil {
		p.Rules = evaluator.Rules{Set: policyfile.Empty().Set}
		return nil
	}
	set, ok, err := x.policies.Held(p.Progress.Generation)
	switch {
	case err != nil:
		return err
	case !ok:
		return differs(PolicyChanged, seq, " activates policy generation %d, but the policies log does not hold it", p.Progress.Generation)
	case set.Digest() != p.Progress.PolicySet:
		return differs(PolicyChanged, seq, " activates policy generation %d with another digest than the policies log has", p.Progress.Generation)
	case set.Horizon().Nanoseconds() != p.State.Horizon:
		return differs(PolicyChanged, seq, " activates policy generation %d with another horizon than the policies log has", p.Progress.Generation)
	case !slices.Equal(evaluator.Activation(p.Progress.Generation, set.Set, p.Progress.Semantics).Budgets, p.State.Budgets()):
		return differs(PolicyChanged, seq, " activates policy generation %d with other budgets than the policies log has", p.Progress.Generation)
	}
	p.Rules = evaluator.Rules{Generation: p.Progress.Generation, Set: set.Set}
	return nil
}

func activatesSemantics(r chain.Record) bool {
	_, ok := r.(*chain.SemanticsActivated)
	return ok
}

func activatesPolicy(r chain.Record) bool {
	_, ok := r.(*chain.PolicyActivated)
	return ok
}

func (v *Verified) countWaiting(events eventlog.Topic, partition int) error {
	r, err := events.Open(partition, orStart(v.End))
	if err != nil {
		return err
	}
	defer r.Close()
	chunk := make([]eventlog.Message, 256)
	for {
		eventlog.Release(r)
		n, err := r.Read(chunk)
		if err != nil || n == 0 {
			return err
		}
		v.Waiting += uint64(n)
	}
}

func orStart(e chain.End) eventlog.Position {
	if e.Seq == 0 {
		return eventlog.Start
	}
	return e.InTo
}
