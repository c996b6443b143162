package audit

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
)

// reading is one record of an envelope, as the log has it or as it was derived again.
type reading struct {
	record  chain.Record
	bytes   []byte
	id      string
	message eventlog.Position // of the input message; derived ones only
}

// compareRest names the difference between what an envelope has from some message on and
// what its input gives.
func (x *verification) compareRest(ctx context.Context, s *follow.Batch, i int, out *evaluator.Output, logged *evaluator.Logged) error {
	want, err := x.deriveRest(s, i, out, logged)
	if err != nil {
		return err
	}
	have := make([]reading, len(logged.Records))
	for k, r := range logged.Records {
		have[k] = reading{record: r, bytes: logged.Bytes[k], id: identity(r)}
	}
	d := x.name(ctx, s, want, have)
	d.At = s.Position
	return d
}

// deriveRest derives the records of the message at index i, whose output is known, and of
// those after it. What it returns outlives the processor's next step.
func (x *verification) deriveRest(s *follow.Batch, i int, out *evaluator.Output, logged *evaluator.Logged) (all []reading, err error) {
	for ; i <= len(s.Messages); i++ {
		if out != nil {
			for _, b := range out.Bytes {
				b = bytes.Clone(b)
				r, err := chain.DecodeRecord(b)
				if err != nil {
					return nil, err
				}
				all = append(all, reading{r, b, identity(r), s.Messages[i-1].OriginPosition()})
			}
		}
		if i == len(s.Messages) {
			break
		}
		m := &s.Messages[i]
		if out, err = x.p.StepAs(about(logged, m).FormOf(m), m); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// about returns the records of a message.
func about(l *evaluator.Logged, m *eventlog.Message) *evaluator.Logged {
	of := &evaluator.Logged{}
	for k, r := range l.Records {
		if at, ok := chain.PositionOf(r); ok && at == m.OriginPosition() {
			of.Records, of.Bytes = append(of.Records, r), append(of.Bytes, l.Bytes[k])
		}
	}
	return of
}

// name compares the records that an envelope should have with those that it has. They
// differ somewhere.
func (x *verification) name(ctx context.Context, s *follow.Batch, want, have []reading) *Difference {
	seq := s.Envelope.Seq
	missing, extra := without(want, have), without(have, want)
	if i := slices.IndexFunc(missing, isParked); i >= 0 && !slices.ContainsFunc(have, isParked) {
		d := differs(InputChanged, seq, ", message at %v: it cannot be read now: deciding again gives %s, which the log does not have", missing[i].message, Describe(missing[i].record))
		return readings(d, nil, &missing[i])
	}
	switch {
	case len(missing) > 0 && len(extra) == 0:
		return x.notThere(ctx, seq, missing[0])
	case len(missing) == 0 && len(extra) > 0:
		return x.tooMany(ctx, s, extra[0])
	case len(missing) > 0:
		return x.inItsPlace(ctx, s, missing[0], extra[0])
	}
	for k := range want {
		if want[k].id != have[k].id {
			return readings(differs(RecordsReordered, seq, ", message at %v: the log has %s, but deciding again gives %s first",
				want[k].message, Describe(have[k].record), Describe(want[k].record)), &have[k], &want[k])
		}
	}
	for k := range want {
		if !bytes.Equal(want[k].bytes, have[k].bytes) {
			return x.changed(seq, &have[k], &want[k])
		}
	}
	return differs(RecordChanged, seq, ": the records differ")
}

func isParked(r reading) bool {
	_, ok := r.record.(*chain.Parked)
	return ok
}

// without returns the readings in a that have no counterpart in b.
func without(a, b []reading) (rest []reading) {
	n := map[string]int{}
	for i := range b {
		n[b[i].id]++
	}
	for i := range a {
		if n[a[i].id]--; n[a[i].id] < 0 {
			rest = append(rest, a[i])
		}
	}
	return rest
}

func readings(d *Difference, logged, derived *reading) *Difference {
	if logged != nil {
		d.Logged = logged.record
		d.Event, _ = chain.PositionOf(logged.record)
	}
	if derived != nil {
		d.Derived, d.Event = derived.record, derived.message
	}
	if logged != nil && derived != nil && logged.id == derived.id {
		d.Fields = fieldsOf(logged.record, derived.record)
	}
	return d
}

func (x *verification) changed(seq uint64, logged, derived *reading) *Difference {
	d := readings(differs(RecordChanged, seq, ", message at %v: the log has %s, but deciding again gives %s",
		derived.message, Describe(logged.record), Describe(derived.record)), logged, derived)
	ofGroup := func(f FieldDifference) bool { return f.Field == "Digest" } // of a group's policy
	if x.byOthers(logged.record) || slices.ContainsFunc(d.Fields, ofGroup) {
		d.Kind = PolicyChanged
	}
	if len(d.Fields) > 0 {
		f := d.Fields[0]
		d.cause = fmt.Errorf("%w; %s: %.80s in the log, %.80s derived", d.cause, f.Field, f.Logged, f.Derived)
	}
	return d
}

// notThere: the log lacks a record, at least in this envelope.
func (x *verification) notThere(ctx context.Context, seq uint64, want reading) *Difference {
	d := differs(RecordDropped, seq, ", message at %v: the log does not have %s", want.message, Describe(want.record))
	if at := x.find(ctx, want.id, seq); at > 0 {
		d = differs(RecordsReordered, seq, ", message at %v: the log has %s in envelope %d instead", want.message, Describe(want.record), at)
	}
	return readings(d, nil, &want)
}

// byOthers reports whether a record names other policies than are in force.
func (x *verification) byOthers(r chain.Record) bool {
	d, ok := r.(*chain.Decision)
	return ok && (d.Generation != x.p.Progress.Generation || d.PolicySet != x.p.Progress.PolicySet)
}

// tooMany: the log has a record that its input does not produce there.
func (x *verification) tooMany(ctx context.Context, s *follow.Batch, extra reading) *Difference {
	seq, n := s.Envelope.Seq, 0
	for _, r := range s.Records {
		if r.FromInput() && identity(r) == extra.id {
			n++
		}
	}
	d := differs(RecordAdded, seq, ": the log has %s, but its input does not produce it", Describe(extra.record))
	if n > 1 {
		d = differs(RecordDoubled, seq, ": the log has %s twice, but its input does not produce it twice", Describe(extra.record))
	} else if at := x.find(ctx, extra.id, seq); at > 0 {
		d = differs(RecordDoubled, seq, ": the log has %s, but its input does not produce it: envelope %d has it, too", Describe(extra.record), at)
	} else if x.byOthers(extra.record) {
		d.Kind = PolicyChanged
	}
	return readings(d, &extra, nil)
}

// inItsPlace: the log has a record in the place of another one.
func (x *verification) inItsPlace(ctx context.Context, s *follow.Batch, missing, extra reading) *Difference {
	if x.find(ctx, missing.id, s.Envelope.Seq) > 0 {
		return x.notThere(ctx, s.Envelope.Seq, missing)
	}
	if d := x.tooMany(ctx, s, extra); d.Kind == RecordDoubled {
		return d
	}
	return x.changed(s.Envelope.Seq, &extra, &missing)
}

// find returns the envelope, other than one, that has a record about the same; 0: none
// that can be read.
func (x *verification) find(ctx context.Context, id string, not uint64) (at uint64) {
	_, next, err := follow.Seek(ctx, x.logs.Decisions, x.partition, follow.Beginning, func(a *chain.Accepted) bool {
		return a.Envelope.Seq != not && slices.ContainsFunc(a.Records, func(r chain.Record) bool { return r.FromInput() && identity(r) == id })
	})
	if err != nil || next == nil {
		return 0
	}
	return next.Envelope.Seq
}
