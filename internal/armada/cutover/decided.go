package cutover

import (
	"context"
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

// errAccepted: evaluators passed over events that Armada's ingester did not take in,
// so our ingester would pass over them too.
var errAccepted = errors.New("evaluators accepted as lost what Armada's ingester has not taken in yet")

// decided finds where our ingester would begin in decisions, in each partition of
// events that is to be taken over.
func (s *Site) decided(ctx context.Context, state *State) (err error) {
	for _, p := range state.toTake() {
		p.Decided = follow.Beginning
	}
	if state.Decisions != nil {
		return nil // checkStart says so: there is no envelope yet
	}
	topic, err := s.Cluster.Open(s.Decisions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topic.Close()) }()
	for _, p := range state.toTake() {
		if p.Control || p.Cursor.Missing || p.Taken.Why != nil {
			continue
		}
		p.Decided, p.Undecided = decidedIn(ctx, topic, p)
		if p.Undecided != nil && errors.Is(p.Undecided, eventlog.ErrTransient) {
			return fmt.Errorf("read %s: %w", topic.Name(), p.Undecided)
		}
	}
	return ctx.Err()
}

// decidedIn looks first from where our ingester stood before, if it was here: the
// decisions before that need not be there any more.
func decidedIn(ctx context.Context, topic *pulsarlog.Topic, p *Partition) (follow.Place, error) {
	past := func(a *chain.Accepted) bool { return a.End.InTo.Compare(p.Taken.At) > 0 }
	begin := follow.Beginning
	if p.Taken.At == eventlog.Start {
		return begin, nil
	}
	var before error
	if p.Place != nil && p.Place.Chain.Seq > 0 && p.Place.Chain.InTo.Compare(p.Taken.At) <= 0 {
		from := follow.Place{Chain: p.Place.Chain, Decisions: p.Place.Decisions}
		at, next, err := follow.Seek(ctx, topic, p.Number, from, past)
		if err == nil {
			return at, mayFollow(next)
		}
		before = fmt.Errorf("from envelope %d, where our ingester stood: %w", from.Chain.Seq, err)
	}
	if err := wholeOrNew(topic, p.Number); err != nil {
		return begin, errors.Join(err, before)
	}
	at, next, err := follow.Seek(ctx, topic, p.Number, begin, past)
	if err != nil {
		return at, errors.Join(err, before)
	}
	return at, mayFollow(next)
}

// wholeOrNew refuses a log that has lost its beginning. (An empty one may be new; the
// evaluators find out.)
func wholeOrNew(topic *pulsarlog.Topic, p int) error {
	held, err := topic.Beginning(p)
	if err != nil || held == eventlog.Start {
		return err
	}
	end, err := topic.End(p)
	if err != nil || end == eventlog.Start {
		return err
	}
	return fmt.Errorf("the log begins after %v: %w", held, eventlog.ErrTrimmed)
}

func mayFollow(next *chain.Accepted) error {
	if next != nil && next.Skips {
		return fmt.Errorf("envelope %d: %w, up to %v", next.End.Seq, errAccepted, next.End.InTo)
	}
	return nil
}

// decided refuses what our ingester could not follow.
func (c *checks) decided(p *Partition) {
	switch {
	case p.Undecided == nil:
	case errors.Is(p.Undecided, errAccepted):
		c.refuse(p.name(), p.Undecided.Error(), "start Armada's ingester, let it go on to the end of that, stop it, and run this again")
	default:
		c.refuse(p.name(), "our ingester could not follow the decisions: "+p.Undecided.Error(),
			"begin a new decision log: create topics of other names for decisions (refloatctl topics create --pulsar-decisions), start evaluators without state on them, and name them here")
	}
}
