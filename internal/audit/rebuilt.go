package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
)

// derived is a state re-derived up to an envelope, with the follower that continues
// after it.
type derived struct {
	p     *evaluator.Processor
	store *projection.Memory
	f     *follow.Follower
	// Counts of what was read without verification.
	envelopes, claims, messages uint64
	end                         chain.End
}

// lastRebuilt returns the last StateRebuilt of a chain; Seq 0: there is none.
func lastRebuilt(ctx context.Context, logs Logs, partition int) (_ follow.Rebuilt, err error) {
	scan, err := follow.OpenScan(logs.Decisions, partition)
	if err != nil {
		return follow.Rebuilt{}, err
	}
	defer func() { err = errors.Join(err, scan.Close()) }()
	for {
		progress, done, err := scan.Advance()
		if err = errors.Join(err, ctx.Err()); done || !progress || err != nil {
			return scan.Last(), err
		}
	}
}

// deriveRebuilt re-derives the state that a StateRebuilt defines.
func deriveRebuilt(ctx context.Context, logs Logs, policies *policylog.Log, partition int, r follow.Rebuilt) (_ *derived, err error) {
	d := &derived{}
	if d.p, d.store, err = newProcessor(evaluator.DefaultHorizon); err != nil {
		return nil, err
	}
	if d.f, err = follow.OpenRest(logs.Events, logs.Decisions, partition, r.From); err != nil {
		return nil, err
	}
	for d.end.Seq < r.Seq {
		s, err := d.f.Next()
		if err == nil && s == nil {
			err = fmt.Errorf("%w: the log does not hold envelope %d, which rebuilt the state", chain.ErrMissing, r.Seq)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, errors.Join(err, d.f.Close())
		}
		d.p.Activate(s.Records)
		if err := d.p.Rebuild(s.Messages, evaluator.LoggedIn(s.Accepted)); err != nil {
			return nil, errors.Join(err, d.f.Close())
		}
		if d.p.State.Unflushed() >= flushAt {
			if err := flush(d.p, d.store); err != nil {
				return nil, errors.Join(err, d.f.Close())
			}
		}
		d.end, d.envelopes, d.messages = s.End, d.envelopes+1, d.messages+s.Envelope.InCount
		if s.Claim != nil {
			d.claims++
		}
	}
	set, ok, err := policies.Held(d.p.Progress.Generation)
	if err == nil && !ok {
		err = fmt.Errorf("%w: policy generation %d is in force at envelope %d, but the policies log does not hold it", ErrDifferent, d.p.Progress.Generation, r.Seq)
	}
	if err != nil {
		return nil, errors.Join(err, d.f.Close())
	}
	d.p.Rules = evaluator.Rules{Generation: d.p.Progress.Generation, Set: set.Set}
	return d, nil
}

// beyondLost continues after the last StateRebuilt if earlier input has been deleted.
// It returns cause if there is none ahead.
func (x *verification) beyondLost(ctx context.Context, cause error) error {
	if !errors.Is(cause, chain.ErrMissing) && !errors.Is(cause, eventlog.ErrTrimmed) {
		return cause
	}
	last, err := lastRebuilt(ctx, x.logs, x.partition)
	if err != nil || last.Seq <= x.v.End.Seq {
		return x.missing(ctx, errors.Join(cause, err))
	}
	d, err := deriveRebuilt(ctx, x.logs, x.policies, x.partition, last)
	if err != nil {
		return x.missing(ctx, errors.Join(cause, err))
	}
	v := &x.v
	v.Unknown, v.RebuiltFrom, v.RebuiltBy = d.messages-v.Messages, last.From, last.By
	v.LinkedEnvelopes, v.LinkedDecisions = d.envelopes-v.Envelopes, d.p.Progress.Decisions-x.p.Progress.Decisions
	v.Envelopes, v.Claims, v.End = d.envelopes, d.claims, d.end
	_ = x.f.Close()
	x.p, x.store, x.f, x.loose = d.p, d.store, d.f, 0
	x.f.OnIgnored = x.ignored
	return nil
}
