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

// errAccepted reports that evaluators accepted messages as lost that Armada's ingester
// has not applied yet. Our ingester would skip them too.
var errAccepted = errors.New("evaluators accepted messages as lost that Armada's ingester has not applied yet")

// decided finds, for each partition of events to be taken over, the position in
// decisions from which our ingester would start.
func (s *Site) decided(ctx context.Context, state *State) (err error) {
	for _, p := range state.toTakeOver() {
		p.Decided = follow.Beginning
	}
	if state.Decisions != nil {
		return nil // there is no envelope yet; checkStart reports it
	}
	topic, err := s.Cluster.Open(s.Decisions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topic.Close()) }()
	for _, p := range state.toTakeOver() {
		if p.Control || p.Cursor.Missing || p.Applied.Why != nil {
			continue
		}
		p.Decided, p.Undecided = decidedIn(ctx, topic, p)
		if p.Undecided != nil && errors.Is(p.Undecided, eventlog.ErrTransient) {
			return fmt.Errorf("read %s: %w", topic.Name(), p.Undecided)
		}
	}
	return ctx.Err()
}

// decidedIn searches first from the position of an earlier cut-over, if there is one:
// the decisions before it may have expired.
func decidedIn(ctx context.Context, topic *pulsarlog.Topic, p *Partition) (follow.Positions, error) {
	past := func(a *chain.Accepted) bool { return a.End.InTo.Compare(p.Applied.At) > 0 }
	begin := follow.Beginning
	if p.Applied.At == eventlog.Start {
		return begin, nil
	}
	var before error
	if p.Positions != nil && p.Positions.Chain.Seq > 0 && p.Positions.Chain.InTo.Compare(p.Applied.At) <= 0 {
		from := follow.Positions{Chain: p.Positions.Chain, Decisions: p.Positions.Decisions}
		at, next, err := follow.Seek(ctx, topic, p.Number, from, past)
		if err == nil {
			return at, mayFollow(next)
		}
		before = fmt.Errorf("from envelope %d, the last position of our ingester: %w", from.Chain.Seq, err)
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

// wholeOrNew returns an error if the log has lost its beginning. (An empty log may be
// new; the evaluators check that.)
func wholeOrNew(topic *pulsarlog.Topic, p int) error {
	held, err := topic.Beginning(p)
	if err != nil || held == eventlog.Start {
		return err
	}
	end, err := topic.End(p)
	if err != nil || end == eventlog.Start {
		return err
	}
	return fmt.Errorf("the log holds nothing before %v: %w", held, eventlog.ErrTrimmed)
}

func mayFollow(next *chain.Accepted) error {
	if next != nil && next.Skips {
		return fmt.Errorf("envelope %d: %w, up to %v", next.End.Seq, errAccepted, next.End.InTo)
	}
	return nil
}

// decided refuses a partition whose decisions our ingester could not follow.
func (c *checks) decided(p *Partition) {
	switch {
	case p.Undecided == nil:
	case errors.Is(p.Undecided, errAccepted):
		c.refuse(p.name(), p.Undecided.Error(), "start Armada's ingester, let it apply them, stop it, and run this command again")
	default:
		c.refuse(p.name(), "our ingester cannot follow the decisions: "+p.Undecided.Error(),
			"begin a new decision log: create a decisions topic with another name (refloatctl topics create --pulsar-decisions), start evaluators without state on it, and pass its name to this command")
	}
}
