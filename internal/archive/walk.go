package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
)

// missing lists the errors of a log that lacks what it once held.
var missing = []error{chain.ErrMissing, eventlog.ErrTrimmed, follow.ErrInputGone}

func isMissing(err error) bool {
	return slices.ContainsFunc(missing, func(class error) bool { return errors.Is(err, class) })
}

// walk follows a partition's chain from a boundary up to an envelope, by the accept rule,
// and describes what it read. withEvents, it also checks that the events hold exactly the
// messages that each envelope covers.
func walk(ctx context.Context, logs audit.Logs, p int, begin Boundary, to uint64, withEvents bool) (ChainRange, error) {
	c := ChainRange{Partition: p, Begin: begin, End: begin, Semantics: []uint32{}, Generations: []uint64{}}
	at, running, err := begin.positions()
	if err != nil {
		return c, err
	}
	if !withEvents {
		end, next, err := follow.Seek(ctx, logs.Decisions, p, at, func(a *chain.Accepted) bool {
			if a.End.Seq > to {
				return true
			}
			running = c.add(a, running)
			return false
		})
		if err != nil {
			return c, err
		}
		if next == nil && end.Chain.Seq < to {
			return c, fmt.Errorf("%w: the decision log ends with envelope %d, not %d", chain.ErrMissing, end.Chain.Seq, to)
		}
		c.close(end, running)
		return c, nil
	}
	f, err := follow.Open(logs.Events, logs.Decisions, p, at)
	if err != nil {
		return c, err
	}
	f.OnIgnored = func(chain.Ignored, eventlog.Position) { c.Ignored++ }
	for f.Positions().Chain.Seq < to {
		s, err := f.Next()
		if err == nil && s == nil {
			err = fmt.Errorf("%w: the log ends with envelope %d, not %d", chain.ErrMissing, f.Positions().Chain.Seq, to)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return c, errors.Join(err, f.Close())
		}
		running = c.add(s.Accepted, running)
	}
	c.close(f.Positions(), running)
	return c, f.Close()
}

// add counts an envelope, and returns the running hash after it.
func (c *ChainRange) add(a *chain.Accepted, running chain.Hash) chain.Hash {
	c.Envelopes++
	c.Events += a.Envelope.InCount
	for i, r := range a.Records {
		if r.FromInput() {
			running = running.Extend(a.Envelope.Records[i])
		}
		switch r := r.(type) {
		case *chain.Decision:
			c.Decisions++
			c.End.Decided = r.Number
		case *chain.SemanticsActivated:
			c.Semantics, c.End.Semantics = append(c.Semantics, r.Version), r.Version
		case *chain.PolicyActivated:
			c.Generations, c.End.Generation = append(c.Generations, r.Generation), r.Generation
		}
	}
	return running
}

// close sets the boundary at which the range ends.
func (c *ChainRange) close(at follow.Positions, running chain.Hash) {
	end := newBoundary(at, running)
	end.Decided, end.Semantics, end.Generation = c.End.Decided, c.End.Semantics, c.End.Generation
	c.End = end
}
