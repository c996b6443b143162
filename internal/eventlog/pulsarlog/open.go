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
// The broker silently skips to the next message that it has. So the reader starts at the
// position itself. Nothing is missing in between if the first entry that arrives is the
// position's own, or belongs to the same ledger (the broker deletes whole ledgers), or if
// the managed ledger still has the position's ledger, according to the admin API.
// Otherwise the position is [eventlog.ErrTrimmed]. That includes the last message of a
// deleted ledger, although nothing may be missing after it: to continue from there, leave
// that message unacknowledged by a durable subscription, which retains its ledger. A topic
// that was deleted and created again has other ledgers, and returns ErrTrimmed for all
// positions of the old one.
//
// After [eventlog.Start] everything that the topic holds is read, unless the broker's index
// of the first message shows that there were others before it: ErrTrimmed.
//
// A position after the end is [eventlog.ErrCorrupt]: the log has lost messages that were
// read from it, or is a different one.
//
// A payload that is retained keeps its whole batch alive.
func (t *Topic) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	part, err := t.partition(p)
	if err != nil {
		return nil, t.fail("open", p, err)
	}
	s, first, err := t.connect(part, after)
	if u := (*undecodable)(nil); errors.As(err, &u) {
		if _, notEmpty := t.proveEmpty(part, u); notEmpty == nil {
			err = nil
			s = nil // the reader opens another one
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

// connect opens a source after a position, and verifies that nothing is missing in
// between. If it had to wait for the first message of the source, it returns that; the
// message may be at the position or before it.
func (t *Topic) connect(part *partition, after eventlog.Position) (*source, pulsar.Message, error) {
	at := pulsar.EarliestMessageID()
	if after != eventlog.Start {
		// The broker always sends the whole entry; the reader drops what it has read before.
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
		return nil, nil // the message at the position is skipped, and there is no other
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
			return nil, fmt.Errorf("the first message of the log, at %v, has index %d: %w", got, *i, eventlog.ErrTrimmed)
		}
		return first, nil
	}
	if got.Ledger == after.Ledger || t.contains(s.part, after) {
		return first, nil
	}
	return nil, fmt.Errorf("the log begins with the message at %v: %w", got, eventlog.ErrTrimmed)
}

// contains reports whether the position's ledger is known to exist.
func (t *Topic) contains(part *partition, at eventlog.Position) bool {
	l, err := t.cluster.ledgers(part)
	if err != nil && !errors.Is(err, ErrNoAdmin) {
		t.cluster.cfg.Log.Warn("cannot query the ledgers of a partition", slog.String("partition", part.name), slog.Any("error", err))
	}
	return err == nil && l.has(at.Ledger)
}

// behind returns the error for a position after the end.
func (t *Topic) behind(part *partition, after, end eventlog.Position) error {
	switch {
	case t.contains(part, after):
		if after.Entry < 0 {
			return nil // a ledger that is still empty
		}
	case end == eventlog.Start:
		return fmt.Errorf("the log is empty: its messages or the topic were deleted: %w", eventlog.ErrTrimmed)
	}
	return fmt.Errorf("the log ends at %v: it has lost messages that were read from it, or is another log: %w", end, eventlog.ErrCorrupt)
}
