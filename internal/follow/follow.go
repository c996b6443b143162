// Package follow reads a partition's decision log and its events side by side:
// each accepted envelope together with the input that it answers.
//
// The evaluator catches up by it, the ingester lives by it, audits replay by it.
//
// Invariant: a stretch is handed out only when the envelope was accepted
// (PROTOCOL 2) and the input holds exactly the messages that it covers;
// otherwise the follower stops with chain.ErrMissing (PROTOCOL 3).
package follow

import (
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// Stretch is one accepted envelope with the input that it answers.
type Stretch struct {
	*chain.Accepted
	Position eventlog.Position  // of the envelope in the decisions log
	Messages []eventlog.Message // the input; valid until the next call of Next
}

// Place is where a follower stands, to be kept by its user.
type Place struct {
	Chain     chain.End
	Decisions eventlog.Position // of the last accepted envelope
}

// Beginning is the place before everything.
var Beginning = Place{Chain: chain.Beginning, Decisions: eventlog.Start}

// Follower follows one partition. It never waits.
type Follower struct {
	// OnIgnored, if set, is told of each message that is not accepted.
	OnIgnored func(why chain.Ignored, at eventlog.Position)

	events, decisions eventlog.Reader
	eventsEnd         func() (eventlog.Position, error)
	place             Place
	judged            eventlog.Position // of the decisions log, accepted or ignored

	read   []eventlog.Message // decisions read and not judged yet
	chunk  []eventlog.Message
	held   *Stretch           // accepted, but its input is not all here
	queue  []eventlog.Message // read from events and not handed out
	handed int                // of queue, handed out by the last Next
}

const readAtOnce = 256

// Open begins to follow partition p after a place.
func Open(events, decisions eventlog.Topic, p int, from Place) (*Follower, error) {
	er, err := events.Open(p, from.Chain.InTo)
	if err != nil {
		return nil, fmt.Errorf("read events of partition %d: %w", p, err)
	}
	dr, err := decisions.Open(p, from.Decisions)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read decisions of partition %d: %w", p, err), er.Close())
	}
	end := func() (eventlog.Position, error) { return events.End(p) }
	return &Follower{events: er, decisions: dr, eventsEnd: end, place: from, judged: from.Decisions, chunk: make([]eventlog.Message, readAtOnce)}, nil
}

// Place is after the last stretch that Next returned.
func (f *Follower) Place() Place { return f.place }

// Judged is how far the decisions log was read: what was accepted or ignored.
func (f *Follower) Judged() eventlog.Position { return f.judged }

// Next returns the next accepted envelope with its input, or nil when there is
// none yet. After an error the follower is of no more use.
func (f *Follower) Next() (*Stretch, error) {
	f.queue = f.queue[f.handed:]
	f.handed = 0
	if f.held == nil {
		if err := f.accept(); f.held == nil || err != nil {
			return nil, err
		}
	}
	s := f.held
	n, err := f.gather(s.End.InTo)
	if err != nil || n < 0 {
		return nil, err
	}
	if uint64(n) != s.Envelope.InCount {
		return nil, fmt.Errorf("%w: envelope %d answers %d messages up to %v, the input has %d", chain.ErrMissing, s.Envelope.Seq, s.Envelope.InCount, s.End.InTo, n)
	}
	s.Messages, f.handed, f.held = f.queue[:n], n, nil
	f.place = Place{Chain: s.End, Decisions: s.Position}
	return s, nil
}

// accept looks for the next envelope that fits.
func (f *Follower) accept() error {
	for {
		if len(f.read) == 0 {
			n, err := f.decisions.Read(f.chunk)
			if err != nil || n == 0 {
				return wrap("read decisions", err)
			}
			f.read = f.chunk[:n]
		}
		m := f.read[0]
		f.read = f.read[1:]
		f.judged = m.Position
		acc, why, err := f.place.Chain.Offer(m.Payload)
		if err != nil {
			return fmt.Errorf("decision log at %v: %w", m.Position, err)
		}
		if acc != nil {
			f.held = &Stretch{Accepted: acc, Position: m.Position}
			return nil
		}
		if f.OnIgnored != nil {
			f.OnIgnored(why, m.Position)
		}
	}
}

// gather reads input up to a position and returns how many messages that are,
// or -1 when they are not all here yet.
func (f *Follower) gather(to eventlog.Position) (int, error) {
	n := 0
	for {
		for ; n < len(f.queue); n++ {
			if f.queue[n].Position.Compare(to) > 0 {
				return n, nil
			}
		}
		if n > 0 && f.queue[n-1].Position == to || to == f.place.Chain.InTo {
			return n, nil
		}
		grown := append(f.queue, make([]eventlog.Message, readAtOnce)...)
		k, err := f.events.Read(grown[len(f.queue):])
		if err != nil {
			return 0, wrap("read events", err)
		}
		f.queue = grown[:len(f.queue)+k]
		if k == 0 {
			return -1, f.mustHold(to)
		}
	}
}

// mustHold: what was decided was durable before, so a log that ends earlier has
// lost it. (A reader may lag behind the end for a moment.)
func (f *Follower) mustHold(to eventlog.Position) error {
	end, err := f.eventsEnd()
	if err != nil {
		return wrap("find the end of events", err)
	}
	if end.Compare(to) < 0 {
		return fmt.Errorf("%w: decisions answer events up to %v, the events end at %v", chain.ErrMissing, to, end)
	}
	return nil
}

func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// Changed are the channels that announce more to read.
func (f *Follower) Changed() (events, decisions <-chan struct{}) {
	return f.events.Changed(), f.decisions.Changed()
}

// Pending are the decisions that were read but not judged, and the input that
// was read but not handed out: whoever takes over the readers goes on with them.
func (f *Follower) Pending() (decisions, input []eventlog.Message) {
	return f.read, f.queue[f.handed:]
}

// Readers hands over the readers; the follower must not be used after it.
func (f *Follower) Readers() (events, decisions eventlog.Reader) { return f.events, f.decisions }

// Close closes the readers.
func (f *Follower) Close() error { return errors.Join(f.events.Close(), f.decisions.Close()) }
