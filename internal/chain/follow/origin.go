package follow

import (
	"context"
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// SkipInput says that someone else took in the input up to a position, and that a
// subscription holds what comes behind it. Envelopes that answer only that come without
// messages, and the one that answers more comes with those behind the position. It
// is called before Next.
func (f *Follower) SkipInput(origin eventlog.Position) { f.known, f.pinned = origin, true }

// OpenBehind opens events behind an origin: a position up to which someone else took
// everything in, and from which on a subscription keeps what is there. So where the
// position itself was deleted, nothing is missing up to the first message held.
func OpenBehind(events eventlog.Topic, p int, origin eventlog.Position) (eventlog.Reader, error) {
	r, err := events.Open(p, origin)
	if !errors.Is(err, eventlog.ErrTrimmed) || origin == eventlog.Start {
		return r, err
	}
	held, begin, heldErr := eventlog.OpenHeld(events, p)
	if heldErr != nil {
		return nil, errors.Join(err, heldErr)
	}
	if begin.Compare(origin) < 0 {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}

// Seek follows the decisions of a partition without their input, up to the first
// accepted envelope that is past what is wanted. It returns the positions before that
// envelope, and the envelope; nil: there is none yet.
func Seek(ctx context.Context, decisions eventlog.Topic, p int, from Positions, past func(*chain.Accepted) bool) (_ Positions, next *chain.Accepted, err error) {
	f, err := Open(nil, eventlog.ToEnd(ctx, decisions), p, from)
	if err != nil {
		return from, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for {
		if err := ctx.Err(); err != nil {
			return from, nil, err
		}
		if err := f.accept(); err != nil {
			return from, nil, err
		}
		switch s := f.held; {
		case s == nil && f.unproven:
			return from, nil, fmt.Errorf("%w: envelope %d stood at %v, and the log ends before that", chain.ErrMissing, from.Chain.Seq, from.Decisions)
		case s == nil:
			return f.positions, nil, nil
		case past(s.Accepted):
			return f.positions, s.Accepted, nil
		default:
			f.held, f.positions = nil, Positions{Chain: s.End, Decisions: s.Position}
		}
	}
}
