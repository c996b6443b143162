package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
)

// nameError makes a difference of an error that stopped a verification, if it is one of
// the logs' content, and looks for what explains a difference of records best.
func (x *verification) nameError(ctx context.Context, err error) error {
	if d, ok := errors.AsType[*Difference](err); ok {
		return x.bySemantics(ctx, d)
	}
	kind := Kind("")
	switch {
	case errors.Is(err, eventlog.ErrCorrupt):
		kind = LogDamaged
	case errors.Is(err, eventlog.ErrTrimmed):
		kind = InputGone
	case errors.Is(err, chain.ErrMissing):
		kind = EnvelopeDropped
	default:
		return err
	}
	return &Difference{Kind: kind, Envelope: x.v.End.Seq + 1, At: eventlog.Start, Event: eventlog.Start, cause: err}
}

// missing names the difference behind an error of the follower: a log lacks something.
func (x *verification) missing(ctx context.Context, err error) error {
	d := &Difference{Envelope: x.v.End.Seq + 1, At: eventlog.Start, Event: eventlog.Start, cause: err}
	count := (*follow.CountError)(nil)
	switch {
	case errors.Is(err, eventlog.ErrTrimmed), errors.Is(err, follow.ErrInputGone):
		d.Kind = InputGone
	case errors.As(err, &count) && count.Held > count.Covers:
		d.Kind, d.Event = InputAdded, count.To
	case errors.As(err, &count), x.f.Waits():
		d.Kind = InputDropped
	default:
		return x.broken(ctx, err)
	}
	return d
}

// broken finds out why the chain does not continue after the last accepted envelope: what
// became of the next one.
func (x *verification) broken(ctx context.Context, cause error) error {
	end, after := x.v.End, x.v.Decisions
	d := &Difference{Kind: EnvelopeDropped, Envelope: end.Seq + 1, At: eventlog.Start, Event: eventlog.Start}
	what := fmt.Sprintf("envelope %d is gone", end.Seq+1)
	found := func(kind Kind, at eventlog.Position, format string, args ...any) {
		d.Kind, d.At, what = kind, at, fmt.Sprintf(format, args...)
	}
	err := x.eachEnvelope(ctx, func(m *eventlog.Message, env *chain.Envelope) (done bool) {
		past := m.Position.Compare(after) > 0
		switch {
		case env == nil:
			if past && d.Kind == EnvelopeDropped {
				found(EnvelopeDamaged, m.Position, "what stands at %v, where envelope %d should be, is no envelope: bytes of it were changed or lost", m.Position, end.Seq+1)
			}
		case env.Seq != end.Seq+1 || env.Epoch < end.Epoch:
		case env.Link == end.Link && env.InFrom == end.InTo:
			if _, err := env.Decode(); err != nil {
				found(EnvelopeDamaged, m.Position, "envelope %d at %v cannot be read: %v", env.Seq, m.Position, err)
				return true
			}
			found(EnvelopesReordered, m.Position, "envelope %d stands at %v, which is not its place", env.Seq, m.Position)
			return true
		case past && env.Link == end.Link:
			found(EnvelopeChanged, m.Position, "envelope %d at %v does not begin where envelope %d ended", env.Seq, m.Position, end.Seq)
		case past && d.Kind == EnvelopeDropped:
			d.Envelope = end.Seq
			found(EnvelopeChanged, after, "envelope %d at %v names another hash of envelope %d than that has: one of the two was changed", env.Seq, m.Position, end.Seq)
		}
		return false
	})
	if err != nil {
		return errors.Join(cause, err)
	}
	d.cause = fmt.Errorf("%w (%s)", cause, what)
	return d
}

// eachEnvelope visits all messages of the decision log; env is nil for what is no
// envelope.
func (x *verification) eachEnvelope(ctx context.Context, visit func(m *eventlog.Message, env *chain.Envelope) (done bool)) error {
	r, err := x.logs.Decisions.Open(x.partition, eventlog.Start)
	if err != nil {
		return err
	}
	defer r.Close()
	chunk := make([]eventlog.Message, 64)
	for {
		n, err := r.Read(chunk)
		if err = errors.Join(err, ctx.Err()); err != nil || n == 0 {
			return err
		}
		for i := range chunk[:n] {
			env, err := chain.DecodeEnvelope(chunk[i].Payload)
			if err != nil {
				env = nil
			}
			if visit(&chunk[i], env) {
				return nil
			}
		}
	}
}

// bySemantics finds out whether another version of the semantics gives the records that
// the log has.
func (x *verification) bySemantics(ctx context.Context, d *Difference) error {
	switch d.Kind {
	case RecordChanged, RecordDropped, RecordAdded, RecordsReordered:
	default:
		return d
	}
	byVersion := func(f FieldDifference) bool {
		return slices.Contains([]string{"Code", "PodName", "AvoidNodes", "NodesLeftOut", "RetryAfter", "Group", "Budget"}, f.Field)
	}
	if x.o.From != nil || len(d.Fields) > 0 && !slices.ContainsFunc(d.Fields, byVersion) {
		return d
	}
	inForce := Activation{Envelope: 1}
	if n := len(x.v.Semantics); n > 0 {
		inForce = x.v.Semantics[n-1]
	}
	for version := uint64(1); version <= chain.NewestSemantics; version++ {
		if version == inForce.Number {
			continue
		}
		for _, from := range []uint64{inForce.Envelope, d.Envelope} {
			try := &verification{logs: x.logs, partition: x.partition, policies: x.policies, o: Options{Until: d.Envelope}, assume: &Activation{Envelope: from, Number: version}}
			if try.run(ctx) == nil {
				d.Kind = SemanticsChanged
				d.cause = fmt.Errorf("%w (version %d of the semantics is in force there since envelope %d, but the log has what version %d gives from envelope %d on)",
					d.cause, inForce.Number, inForce.Envelope, version, from)
				return d
			}
		}
	}
	return d
}
