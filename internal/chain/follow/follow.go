// Package follow reads a partition's decision log and its events side by side:
// each accepted envelope together with the input that it covers.
//
// The evaluator uses it to catch up, the ingester all the time, and audits to replay.
//
// Invariant: a batch is returned only if its envelope was accepted (protocol.md 2) and
// the input holds exactly the messages that it covers; otherwise the follower stops
// with chain.ErrMissing (protocol.md 3).
package follow

import (
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// Batch is one accepted envelope with the input that it covers.
type Batch struct {
	*chain.Accepted
	Position eventlog.Position  // of the envelope in the decisions log
	Messages []eventlog.Message // the input; valid until the next call of Next
	// Origin: the input begins behind this position ([Follower.SkipInput], [OpenRest]).
	// It is eventlog.Start for an envelope whose whole input is here.
	Origin eventlog.Position
}

// Positions are those of a follower in both logs, for its caller to store.
type Positions struct {
	Chain     chain.End
	Decisions eventlog.Position // of the last accepted envelope
}

// Beginning is the position before all input.
var Beginning = Positions{Chain: chain.Beginning, Decisions: eventlog.Start}

// Follower follows one partition. It never blocks.
type Follower struct {
	// OnIgnored, if set, is called for each message that is not accepted.
	OnIgnored func(why chain.Ignored, at eventlog.Position)
	// FrontOnly is set by a caller that compares bytes: batches have only the records that OfferFront decodes.
	FrontOnly bool
	// Passing is set by a caller that needs nothing of a batch after the next call of Next: its memory is used again.
	Passing bool

	topic     eventlog.Topic // events
	partition int
	events    eventlog.Reader // nil until input is needed, which may be trimmed
	decisions eventlog.Reader
	positions Positions
	known     eventlog.Position // input up to here is not read (OpenRest, SkipInput); Start: all of it is
	pinned    bool              // a subscription holds what follows known
	unproven  bool              // the envelope at the positions has not been read again yet
	processed eventlog.Position // position in the decisions log up to which it is processed (accepted or ignored)
	past      chain.Past

	read   []eventlog.Message // decisions read and not processed yet
	chunk  []eventlog.Message
	held   *Batch             // accepted, but its input is incomplete
	queue  []eventlog.Message // read from events and not returned
	room   []eventlog.Message // of the queue
	handed int                // number of messages in queue that the last Next returned
}

// Messages that are read at once. An envelope has the records of up to thousands of
// messages, and those that wait stay in memory.
const (
	readAtOnce      = 256
	decisionsAtOnce = 16
)

// Open follows partition p from a position. The events are opened when input is
// needed, because an accepted loss may precede it.
//
// The envelope at the position is read again: if it is not the one that was accepted
// before, the log was truncated there and then continued differently.
func Open(events, decisions eventlog.Topic, p int, from Positions) (*Follower, error) {
	after := from.Decisions
	if from.Chain.Seq > 0 {
		after.Batch--
	}
	dr, err := decisions.Open(p, after)
	if err != nil {
		return nil, fmt.Errorf("read decisions of partition %d: %w", p, err)
	}
	f := &Follower{topic: events, partition: p, decisions: dr, positions: from, known: eventlog.Start, processed: after, unproven: from.Chain.Seq > 0, chunk: make([]eventlog.Message, decisionsAtOnce)}
	f.past.Add(from.Chain)
	return f, nil
}

// Positions returns the positions after the last batch that Next returned.
func (f *Follower) Positions() Positions { return f.positions }

// Processed returns the position up to which the decisions log was processed.
func (f *Follower) Processed() eventlog.Position { return f.processed }

// Next returns the next accepted envelope with its input, or nil if there is none
// yet. After an error the follower must not be used any more.
func (f *Follower) Next() (*Batch, error) {
	clear(f.queue[:f.handed]) // what was read ahead must not keep their payloads
	f.queue, f.handed = f.queue[f.handed:], 0
	if f.held == nil {
		if err := f.accept(); f.held == nil || err != nil {
			return nil, err
		}
	}
	s := f.held
	if s.Skips {
		f.held, f.positions = nil, Positions{Chain: s.End, Decisions: s.Position}
		return s, f.skip()
	}
	n, err := f.gather(s.End.InTo)
	if err != nil {
		return nil, f.inputGone(err)
	}
	if n < 0 {
		return nil, nil
	}
	partly := s.Envelope.InFrom.Compare(f.known) < 0
	if uint64(n) != s.Envelope.InCount && (!partly || uint64(n) > s.Envelope.InCount) {
		return nil, f.inputGone(&CountError{Envelope: s.Envelope.Seq, Covers: s.Envelope.InCount, Held: uint64(n), To: s.End.InTo})
	}
	s.Origin = eventlog.Start
	if partly {
		s.Origin = f.known
	}
	s.Messages, f.handed, f.held = f.queue[:n], n, nil
	f.positions = Positions{Chain: s.End, Decisions: s.Position}
	return s, nil
}

// skip continues after input that was accepted as lost.
func (f *Follower) skip() error {
	f.queue = nil
	if f.events == nil {
		return nil
	}
	err := f.events.Close()
	f.events = nil
	return err
}

// openEvents opens the input after the last batch.
func (f *Follower) openEvents() (err error) {
	if f.events != nil {
		return nil
	}
	open := f.topic.Open
	if from := f.from(); f.pinned && from == f.known {
		open = func(p int, at eventlog.Position) (eventlog.Reader, error) { return OpenBehind(f.topic, p, at) }
	}
	if f.events, err = open(f.partition, f.from()); err != nil {
		f.events = nil
		return fmt.Errorf("read events of partition %d: %w", f.partition, err)
	}
	return nil
}

// accept reads up to the next envelope that is accepted.
func (f *Follower) accept() error {
	for {
		if len(f.read) == 0 {
			if f.Passing {
				eventlog.Release(f.decisions)
			}
			n, err := f.decisions.Read(f.chunk)
			if err != nil || n == 0 {
				return wrap("read decisions", err)
			}
			f.read = f.chunk[:n]
		}
		m := f.read[0]
		f.read[0] = eventlog.Message{} // its payload is not kept until the next read
		f.read = f.read[1:]
		f.processed = m.Position
		if f.unproven {
			if m.Position != f.positions.Decisions || chain.Link(m.Payload) != f.positions.Chain.Link {
				return fmt.Errorf("%w: envelope %d stood at %v, what is there now is another one (at %v)", chain.ErrMissing, f.positions.Chain.Seq, f.positions.Decisions, m.Position)
			}
			f.unproven = false
			if env, err := chain.DecodeEnvelope(m.Payload); err == nil {
				f.past.Add(chain.End{Seq: env.Seq - 1, Link: env.Link})
			}
			continue
		}
		acc, why, err := f.offer(m.Payload)
		if why == chain.LostClaim {
			err = f.past.Contradicts(m.Payload)
		}
		if err != nil {
			return fmt.Errorf("decision log at %v: %w", m.Position, err)
		}
		if acc != nil {
			f.held = &Batch{Accepted: acc, Position: m.Position}
			f.past.Add(acc.End)
			return nil
		}
		if f.OnIgnored != nil {
			f.OnIgnored(why, m.Position)
		}
	}
}

func (f *Follower) offer(raw []byte) (*chain.Accepted, chain.Ignored, error) {
	if f.FrontOnly {
		return f.positions.Chain.OfferFront(raw)
	}
	return f.positions.Chain.Offer(raw)
}

// gather reads input up to a position and returns the number of messages, or -1 if
// some have not arrived yet.
func (f *Follower) gather(to eventlog.Position) (int, error) {
	n := 0
	for {
		for ; n < len(f.queue); n++ {
			if f.queue[n].Position.Compare(to) > 0 {
				return n, nil
			}
		}
		if n > 0 && f.queue[n-1].Position == to || to == f.positions.Chain.InTo || to.Compare(f.known) <= 0 {
			return n, nil
		}
		if err := f.openEvents(); err != nil {
			return 0, err
		}
		f.makeRoom()
		next := f.queue[len(f.queue) : len(f.queue)+readAtOnce]
		if f.Passing { // nothing is read ahead, so all that was read is of earlier batches
			next = next[:max(1, min(readAtOnce, int(f.held.Envelope.InCount)-n))]
			if n == 0 {
				eventlog.Release(f.events)
			}
		}
		k, err := f.events.Read(next)
		if err != nil {
			return 0, wrap("read events", err)
		}
		f.queue = f.queue[:len(f.queue)+k]
		if k == 0 {
			return -1, f.mustReach(to)
		}
	}
}

// makeRoom makes room for readAtOnce messages in the queue, where it can in place of those that were returned.
func (f *Follower) makeRoom() {
	need := len(f.queue) + readAtOnce
	if cap(f.queue) >= need {
		return
	}
	if cap(f.room) < 2*need {
		f.room = make([]eventlog.Message, 0, 4*need)
	}
	n := copy(f.room[:cap(f.room)], f.queue)
	clear(f.room[n:cap(f.room)])
	f.queue = f.room[:n]
}

// CountError reports that the input of an envelope has more or fewer messages than the
// envelope covers. It is a chain.ErrMissing.
type CountError struct {
	Envelope     uint64
	Covers, Held uint64
	To           eventlog.Position
}

func (e *CountError) Error() string {
	return fmt.Sprintf("%v: envelope %d answers %d messages up to %v, the input has %d", chain.ErrMissing, e.Envelope, e.Covers, e.To, e.Held)
}

// Unwrap returns chain.ErrMissing.
func (*CountError) Unwrap() error { return chain.ErrMissing }

// mustReach returns an error if the log ends before a position: decided input was
// durable, so it has been lost. (A reader may briefly lag behind the end.)
func (f *Follower) mustReach(to eventlog.Position) error {
	end, err := f.topic.End(f.partition)
	if err != nil {
		return wrap("find the end of events", err)
	}
	if end.Compare(to) < 0 {
		return fmt.Errorf("%w: decisions answer events up to %v, the events end at %v; a state or a checkpoint that reaches further is needed, or new topics", chain.ErrMissing, to, end)
	}
	return nil
}

func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// Changed returns the channels that announce more to read; that of events is nil
// while the follower needs no input.
func (f *Follower) Changed() (events, decisions <-chan struct{}) {
	if f.events != nil {
		events = f.events.Changed()
	}
	return events, f.decisions.Changed()
}

// Pending returns the decisions that were read and not processed, and the input that
// was read and not returned: the new user of the readers must process them.
func (f *Follower) Pending() (decisions, input []eventlog.Message) {
	return f.read, f.queue[f.handed:]
}

// OpenInput opens the events after the last batch, which shows whether the topic
// still holds them.
func (f *Follower) OpenInput() error { return f.openEvents() }

// Readers hands over the readers. Afterwards only Changed and Close of the follower
// may be used.
func (f *Follower) Readers() (events, decisions eventlog.Reader, err error) {
	err = f.openEvents()
	return f.events, f.decisions, err
}

// Close closes the readers.
func (f *Follower) Close() error {
	if f.events == nil {
		return f.decisions.Close()
	}
	return errors.Join(f.events.Close(), f.decisions.Close())
}

// Past returns what was accepted last, for the new user of the readers.
func (f *Follower) Past() chain.Past { return f.past }

// Waits reports whether an accepted envelope is held because its input is incomplete.
// In that case the reader of events lags, and the chain does not.
func (f *Follower) Waits() bool { return f.held != nil }
