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
	"github.com/refloat/refloat/internal/policy/policylog"
)

// Logs are the three logs of a deployment.
type Logs struct{ Events, Decisions, Policies eventlog.Topic }

// Verified summarizes the verification of a partition.
type Verified struct {
	Progress  evaluator.Progress
	End       chain.End
	Envelopes uint64
	Messages  uint64 // covered by the decision log
	Waiting   uint64 // not covered yet
	Ignored   map[chain.Ignored]uint64
	Claims    uint64
	// Unknown is the number of covered messages that could not be verified, because the
	// state was lost and rebuilt after them (chain.StateRebuilt).
	Unknown uint64
	// RebuiltFrom is the position from which the last such rebuild started, if Unknown
	// is not 0.
	RebuiltFrom eventlog.Position
	RebuiltBy   string
}

// ErrDifferent reports that deciding again gives a different result than the decision
// log. The error names the first difference.
var ErrDifferent = errors.New("decision log differs from its input")

// Verify re-derives everything in a partition's decision log, by the policies that the
// log names, and compares links, ranges, counts and every byte of every derived record.
// It returns ErrDifferent, or the error of a log that cannot be read.
func Verify(ctx context.Context, logs Logs, partition int) (Verified, error) {
	v := Verified{Ignored: map[chain.Ignored]uint64{}}
	policies, err := policylog.Open(logs.Policies)
	if err != nil {
		return v, err
	}
	defer policies.Close()
	if err := policies.Refresh(); err != nil {
		return v, err
	}
	f, err := follow.Open(logs.Events, logs.Decisions, partition, follow.Beginning)
	if err != nil {
		return v, err
	}
	defer func() { _ = f.Close() }()
	loose := 0 // envelopes of the current owner that do not follow the last accepted one
	onIgnored := func(why chain.Ignored, _ eventlog.Position) {
		v.Ignored[why]++
		if why == chain.NotNext || why == chain.WrongLink || why == chain.WrongRange {
			loose++
		}
	}
	f.OnIgnored = onIgnored
	p, store, err := newProcessor(evaluator.DefaultHorizon)
	if err != nil {
		return v, err
	}
	p.Rules = evaluator.Rules{Set: policyfile.Empty().Set}
	for {
		s, err := f.Next()
		if err != nil {
			d, err := v.beyondLost(ctx, logs, policies, partition, err)
			if err != nil {
				return v, err
			}
			_ = f.Close()
			p, store, f, loose = d.p, d.store, d.f, 0
			f.OnIgnored = onIgnored
			continue
		}
		if s == nil {
			v.Progress = p.Progress
			if loose > 0 {
				return v, fmt.Errorf("%w: the chain ends at envelope %d, but %d later envelopes of its owner do not follow it", ErrDifferent, v.End.Seq, loose)
			}
			return v, v.countWaiting(logs.Events, partition)
		}
		if err := ctx.Err(); err != nil {
			return v, err
		}
		if err := verifyBatch(p, policies, s); err != nil {
			return v, err
		}
		if r := s.Rebuilt(); r != nil {
			d, err := deriveRebuilt(ctx, logs, policies, partition, follow.Rebuilt{Seq: s.Envelope.Seq, From: r.From, By: r.By})
			if err != nil {
				return v, err
			}
			p, store = d.p, d.store
			if err := d.f.Close(); err != nil {
				return v, err
			}
		}
		loose = 0
		v.Envelopes, v.Messages, v.End = v.Envelopes+1, v.Messages+s.Envelope.InCount, s.End
		if s.Claim != nil {
			v.Claims++
		}
		if p.State.Unflushed() >= flushAt {
			if err := flush(p, store); err != nil {
				return v, err
			}
		}
	}
}

func verifyBatch(p *evaluator.Processor, policies *policylog.Log, s *follow.Batch) error {
	before := p.Progress.Generation
	p.Activate(s.Records)
	if slices.ContainsFunc(s.Records, activatesPolicy) {
		set, ok, err := policies.Held(p.Progress.Generation)
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("%w: envelope %d activates policy generation %d, but the policies log does not hold it", ErrDifferent, s.Envelope.Seq, p.Progress.Generation)
		case p.Progress.Generation < before:
			return fmt.Errorf("%w: envelope %d goes back from policy generation %d to %d", ErrDifferent, s.Envelope.Seq, before, p.Progress.Generation)
		case set.Digest() != p.Progress.PolicySet:
			return fmt.Errorf("%w: envelope %d activates policy generation %d with another digest than the policies log has", ErrDifferent, s.Envelope.Seq, p.Progress.Generation)
		case set.Horizon().Nanoseconds() != p.State.Horizon:
			return fmt.Errorf("%w: envelope %d activates policy generation %d with another horizon than the policies log has", ErrDifferent, s.Envelope.Seq, p.Progress.Generation)
		}
		p.Rules = evaluator.Rules{Generation: p.Progress.Generation, Set: set.Set}
	}
	if len(s.Messages) > 0 && p.Progress.Semantics == 0 {
		return fmt.Errorf("%w: envelope %d covers messages before any version of the semantics was activated", ErrDifferent, s.Envelope.Seq)
	}
	logged := evaluator.LoggedIn(s.Accepted)
	for i := range s.Messages {
		m := &s.Messages[i]
		out, err := p.StepAs(logged.FormOf(m), m)
		if err != nil {
			return err
		}
		for k, b := range out.Bytes {
			if len(logged.Bytes) == 0 {
				return fmt.Errorf("%w: envelope %d, message at %v: the log does not have %s", ErrDifferent, s.Envelope.Seq, m.OriginPosition(), Describe(out.Records[k]))
			}
			if !bytes.Equal(b, logged.Bytes[0]) {
				return fmt.Errorf("%w: envelope %d, message at %v: the log has %s, but deciding again gives %s",
					ErrDifferent, s.Envelope.Seq, m.OriginPosition(), Describe(logged.Records[0]), Describe(out.Records[k]))
			}
			logged.Records, logged.Bytes = logged.Records[1:], logged.Bytes[1:]
		}
	}
	if len(logged.Records) > 0 {
		return fmt.Errorf("%w: envelope %d: the log has %s, but its input does not produce it", ErrDifferent, s.Envelope.Seq, Describe(logged.Records[0]))
	}
	return nil
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
