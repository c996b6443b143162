package evaluator

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// Policies follows the policies log: one partition, whose n-th message is
// generation n. It never waits, and is used by one goroutine.
type Policies struct {
	// OnUnusable, if set, is told of each generation that cannot be used.
	OnUnusable func(generation uint64, err error)

	topic  eventlog.Topic
	reader eventlog.Reader
	at     eventlog.Position // of the last message read
	chunk  []eventlog.Message
	held   []generation // held[i] is generation i+1
}

type generation struct {
	set *policy.Set
	err error // it cannot be used, and why
}

// ErrBadGeneration says that a generation of the policies log cannot be used.
var ErrBadGeneration = errors.New("policy generation cannot be used")

// OpenPolicies begins to follow a policies topic.
func OpenPolicies(topic eventlog.Topic) (*Policies, error) {
	r, err := topic.Open(0, eventlog.Start)
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	return &Policies{topic: topic, reader: r, at: eventlog.Start, chunk: make([]eventlog.Message, 16)}, nil
}

// Refresh reads what has come.
func (p *Policies) Refresh() error {
	for {
		n, err := p.reader.Read(p.chunk)
		if err != nil {
			return fmt.Errorf("read policies: %w", err)
		}
		if n == 0 {
			return nil
		}
		p.at = p.chunk[n-1].Position
		for _, m := range p.chunk[:n] {
			set, err := decodeGeneration(m.Payload)
			if err != nil && p.OnUnusable != nil {
				p.OnUnusable(uint64(len(p.held)+1), err)
			}
			p.held = append(p.held, generation{set: set, err: err})
		}
	}
}

// AtEnd reads what has come, and says whether that is all that the log holds.
func (p *Policies) AtEnd() (bool, error) {
	end, err := p.topic.End(0)
	if err != nil {
		return false, fmt.Errorf("find the end of policies: %w", err)
	}
	if err := p.Refresh(); err != nil {
		return false, err
	}
	return p.at.Compare(end) >= 0, nil
}

// Newest is the newest generation that can be used; generation 0 is the empty
// set. One that cannot be used is passed over, so that it stops nothing.
func (p *Policies) Newest() Rules {
	for i := len(p.held); i > 0; i-- {
		if g := p.held[i-1]; g.err == nil {
			return Rules{Generation: uint64(i), Set: g.set}
		}
	}
	return Rules{Set: policy.Empty()}
}

// Held returns a generation by its number. It is not ok while the log does not
// hold it yet.
func (p *Policies) Held(n uint64) (r Rules, ok bool, err error) {
	switch {
	case n == 0:
		return Rules{Set: policy.Empty()}, true, nil
	case n > uint64(len(p.held)):
		return Rules{}, false, nil
	}
	g := p.held[n-1]
	return Rules{Generation: n, Set: g.set}, g.err == nil, g.err
}

// Changed announces more to read.
func (p *Policies) Changed() <-chan struct{} { return p.reader.Changed() }

// Close closes the reader.
func (p *Policies) Close() error { return p.reader.Close() }

func decodeGeneration(payload []byte) (*policy.Set, error) {
	var m pb.PolicyGeneration
	if err := proto.Unmarshal(payload, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadGeneration, err)
	}
	set, err := policy.ParseCanonical(m.Content)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadGeneration, err)
	}
	if d := set.Digest(); string(d[:]) != string(m.Digest) {
		return nil, fmt.Errorf("%w: its digest is %x, its content's %x", ErrBadGeneration, m.Digest, d)
	}
	return set, nil
}

// EncodeGeneration is the message that publishes a policy set. The time is in
// Unix nanoseconds.
func EncodeGeneration(set *policy.Set, author, reason string, now int64) ([]byte, error) {
	d := set.Digest()
	b, err := proto.Marshal(&pb.PolicyGeneration{Digest: d[:], Content: set.Canonical(), Author: author, Reason: reason, Time: now})
	if err != nil {
		return nil, fmt.Errorf("encode policy generation: %w", err)
	}
	return b, nil
}
