package follow

import (
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// ErrInputGone means that events no longer holds the input that the decision log covers,
// so the state cannot be derived from the beginning.
var ErrInputGone = errors.New("events no longer hold what the decision log answers")

// OpenRest follows partition p from the beginning of its chain, with only the input
// after a position. Envelopes that cover earlier input come without it, and the counts of
// those ranges are not checked, because that input is gone.
func OpenRest(events, decisions eventlog.Topic, p int, after eventlog.Position) (*Follower, error) {
	f, err := Open(events, decisions, p, Beginning)
	if err == nil {
		f.known = after
	}
	return f, err
}

// inputGone distinguishes input that the topic no longer holds from input that should
// be there.
func (f *Follower) inputGone(cause error) error {
	if !errors.Is(cause, chain.ErrMissing) && !errors.Is(cause, eventlog.ErrTrimmed) {
		return cause
	}
	begin, err := f.topic.Beginning(f.partition)
	if err != nil || begin.Compare(f.from()) <= 0 {
		return cause
	}
	return fmt.Errorf("%w: they begin after %v, envelope %d answers what comes after %v: %w", ErrInputGone, begin, f.held.Envelope.Seq, f.positions.Chain.InTo, cause)
}

// from returns the position at which to open the input.
func (f *Follower) from() eventlog.Position {
	if f.known.Compare(f.positions.Chain.InTo) > 0 {
		return f.known
	}
	return f.positions.Chain.InTo
}

// Rebuilt is a StateRebuilt of a chain.
type Rebuilt struct {
	Seq  uint64            // of its envelope
	From eventlog.Position // events up to here are unknown
	By   string
}

// Scan searches a partition's chain for its last StateRebuilt. It never blocks.
type Scan struct {
	topic     eventlog.Topic
	partition int
	reader    eventlog.Reader
	end       chain.End
	read      eventlog.Position
	last      Rebuilt
}

// OpenScan opens a scan at the beginning of the chain.
func OpenScan(decisions eventlog.Topic, p int) (*Scan, error) {
	r, err := decisions.Open(p, eventlog.Start)
	if err != nil {
		return nil, fmt.Errorf("read decisions of partition %d: %w", p, err)
	}
	return &Scan{topic: decisions, partition: p, reader: r, end: chain.Beginning, read: eventlog.Start}, nil
}

// Advance reads what is available. It reports whether it read anything, and whether it
// reached the end of the log.
func (s *Scan) Advance() (progress, done bool, err error) {
	buf := make([]eventlog.Message, readAtOnce)
	n, err := s.reader.Read(buf)
	if err != nil {
		return false, false, wrap("read decisions", err)
	}
	for i := range buf[:n] {
		s.read = buf[i].Position
		acc, _, err := s.end.Offer(buf[i].Payload)
		if err != nil {
			return false, false, fmt.Errorf("decision log at %v: %w", s.read, err)
		}
		if acc == nil {
			continue
		}
		s.end = acc.End
		if r := acc.Rebuilt(); r != nil {
			s.last = Rebuilt{Seq: acc.End.Seq, From: r.From, By: r.By}
		}
	}
	end, err := s.topic.End(s.partition)
	return n > 0, err == nil && s.read.Compare(end) >= 0, wrap("find the end of decisions", err)
}

// Last returns the last StateRebuilt that was read; Seq 0: none.
func (s *Scan) Last() Rebuilt { return s.last }

// Changed returns the channel that announces more to read.
func (s *Scan) Changed() <-chan struct{} { return s.reader.Changed() }

// Close closes the reader.
func (s *Scan) Close() error { return s.reader.Close() }
