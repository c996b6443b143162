package pulsarlog

import (
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/refloat/refloat/internal/eventlog"
)

// Open implements [eventlog.Topic]: the reader begins with the first message
// after the position, also in the middle of a batch.
//
// The broker goes to the next message that it has, without a word. So the reader
// starts at the position itself, and it is proven that nothing between is missing
// when the first entry that comes is the position's own, or is of the same ledger
// (the broker deletes whole ledgers), or when the managed ledger still has the
// position's ledger, which the admin API tells. Else the position is
// [eventlog.ErrTrimmed]. That includes the last message of a ledger that was
// deleted, though nothing may be missing behind it: who wants to go on there must
// leave that message unacknowledged by a durable subscription, which keeps its
// ledger. A topic that was deleted and made again has other ledgers, and is
// ErrTrimmed for all positions of the old one.
//
// After [eventlog.Start] everything that is held is read, unless the broker's
// index of the first message held says that others were before it: ErrTrimmed.
//
// A position behind the end is [eventlog.ErrCorrupt]: the log has lost messages
// that were read from it, or is another one.
//
// A payload that is kept keeps the whole batch alive with which it came.
func (t *Topic) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	part, err := t.partition(p)
	if err != nil {
		return nil, t.fail("open", p, err)
	}
	s, first, err := t.connect(part, after)
	if u := (*undecodable)(nil); errors.As(err, &u) {
		if _, notEmpty := t.proveEmpty(part, u); notEmpty == nil {
			err = nil
			s = nil // the reader opens another
		} else {
			err = notEmpty
		}
	}
	if err != nil {
		return nil, t.fail(fmt.Sprintf("open after %v", after), p, err)
	}
	r := &reader{
		topic: t, part: part, last: after,
		changed: make(chan struct{}, 1), room: make(chan struct{}, 1),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go r.run(s, first)
	return r, nil
}

// connect opens a source behind a position, and sees to it that nothing between
// is missing. It returns the first message that the source gave, if it waited
// for one; that may stand at the position or before it.
func (t *Topic) connect(part *partition, after eventlog.Position) (*source, pulsar.Message, error) {
	at := pulsar.EarliestMessageID()
	if after != eventlog.Start {
		// The whole entry comes, whatever is asked for; the reader drops what it had.
		at = pulsar.NewMessageID(after.Ledger, min(after.Entry, math.MaxInt64-1), 0, int32(part.id))
	}
	s, err := t.cluster.newSource(part, at, t.cluster.cfg.ReceiverQueue)
	if err != nil {
		return nil, nil, err
	}
	first, err := t.prove(s, after)
	if errors.Is(err, errReconnected) {
		err = fmt.Errorf("%w: %w", eventlog.ErrTransient, err)
	}
	if err != nil {
		s.close()
		return nil, nil, err
	}
	return s, first, nil
}

func (t *Topic) prove(s *source, after eventlog.Position) (pulsar.Message, error) {
	end, err := s.end()
	if err != nil {
		return nil, err
	}
	if after == eventlog.Start && end == eventlog.Start {
		return nil, nil
	}
	if _, empty := s.part.empty.Load(s.from); empty && after == end {
		return nil, nil // what the source begins with is left out, and there is no more
	}
	if after.Compare(end) > 0 {
		return nil, t.behind(s.part, after, end)
	}
	first, err := s.next(t.cluster.cfg.OperationTimeout)
	if err != nil {
		return nil, err
	}
	got := positionOf(first)
	if after == eventlog.Start {
		if i := first.Index(); i != nil && *i > 0 {
			return nil, fmt.Errorf("the first message that the log holds, at %v, has number %d: %w", got, *i, eventlog.ErrTrimmed)
		}
		return first, nil
	}
	if got.Ledger == after.Ledger || t.holds(s.part, after) {
		return first, nil
	}
	return nil, fmt.Errorf("the log holds messages from %v on: %w", got, eventlog.ErrTrimmed)
}

// holds reports whether the position's ledger is known to be held.
func (t *Topic) holds(part *partition, at eventlog.Position) bool {
	l, err := t.cluster.ledgers(part)
	if err != nil && !errors.Is(err, ErrNoAdmin) {
		t.cluster.cfg.Log.Warn("cannot ask for the ledgers of a partition", slog.String("partition", part.name), slog.Any("error", err))
	}
	return err == nil && l.has(at.Ledger)
}

// behind says why there is nothing at a position behind the end.
func (t *Topic) behind(part *partition, after, end eventlog.Position) error {
	switch {
	case t.holds(part, after):
		if after.Entry < 0 {
			return nil // a ledger that is still empty
		}
	case end == eventlog.Start:
		return fmt.Errorf("the log holds no message: what it held was deleted, or the topic was: %w", eventlog.ErrTrimmed)
	}
	return fmt.Errorf("the log ends at %v: it has lost messages that were read from it, or is another one: %w", end, eventlog.ErrCorrupt)
}
