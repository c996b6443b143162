package api_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sort"

	"google.golang.org/protobuf/proto"

	eventpb "github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
)

// shelf is a topic of one partition in memory, whose readers lag and fail while
// the storm lasts. What was appended is durable.
type shelf struct {
	s    *storm
	name string
	lags bool
	all  []eventlog.Message
}

func (t *shelf) append(m eventlog.Message) {
	m.Position = eventlog.Position{Ledger: 1, Entry: int64(len(t.all)), Batch: -1}
	t.all = append(t.all, m)
}

func (t *shelf) Partitions() int { return 1 }

func (t *shelf) End(int) (eventlog.Position, error) {
	if err := t.s.readError(t.name); err != nil {
		return eventlog.Start, err
	}
	if len(t.all) == 0 {
		return eventlog.Start, nil
	}
	return t.all[len(t.all)-1].Position, nil
}

func (t *shelf) Beginning(int) (eventlog.Position, error) { return eventlog.Start, nil }

func (t *shelf) Open(_ int, after eventlog.Position) (eventlog.Reader, error) {
	at := sort.Search(len(t.all), func(i int) bool { return t.all[i].Position.Compare(after) > 0 })
	return &shelfReader{t: t, at: at}, t.s.readError(t.name)
}

func (s *storm) readError(name string) error {
	if !s.calm && s.one(500) {
		return fmt.Errorf("%w: %s", eventlog.ErrTransient, name)
	}
	return nil
}

type shelfReader struct {
	t     *shelf
	at    int
	blind int // reads that still see nothing
}

func (r *shelfReader) Read(dst []eventlog.Message) (int, error) {
	s := r.t.s
	if err := s.readError(r.t.name); err != nil {
		return 0, err
	}
	if r.t.lags && !s.calm {
		if r.blind == 0 && s.one(5) {
			r.blind = 1 + s.rng.IntN(6)
		}
		if r.blind > 0 {
			r.blind--
			return 0, nil
		}
	}
	n := copy(dst, r.t.all[r.at:])
	r.at += n
	return n, nil
}

// Changed is always ready: readers poll.
func (r *shelfReader) Changed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (r *shelfReader) Close() error { return nil }

// plainLog is the policies log as protocol.md 4 and policylog's first invariant read,
// in this test's own words.
type plainLog struct {
	read   int      // messages
	counts uint64   // the newest generation that counts
	states []*state // of each generation; nil: it does not count
}

// poll takes in what was appended to the policies log: each generation that counts
// is what its change makes of the one before it.
func (s *storm) poll() {
	for ; s.plain.read < len(s.policies.all); s.plain.read++ {
		number := uint64(s.plain.read) + 1
		next, err := s.generation(s.policies.all[s.plain.read].Payload, number)
		if err != nil {
			s.fail("generation %d: %w", number, err)
		}
		s.plain.states = append(s.plain.states, next)
		if next != nil {
			s.plain.counts = number
		} else {
			s.seen["does not count"]++
		}
	}
}

// at is the state of a generation that counts.
func (s *storm) at(generation uint64) *state {
	if generation == 0 {
		return emptyState()
	}
	if generation > uint64(len(s.plain.states)) {
		return nil
	}
	return s.plain.states[generation-1]
}

func (s *storm) generation(payload []byte, number uint64) (*state, error) {
	var m eventpb.PolicyGeneration
	if proto.Unmarshal(payload, &m) != nil {
		return nil, nil // garbage
	}
	digest := sha256.Sum256(m.Content)
	if m.Zstd || string(digest[:]) != string(m.Digest) {
		return nil, errors.New("its digest is not that of its content")
	}
	if m.MadeOf == nil {
		return nil, errors.New("it does not say what it was made of")
	}
	if *m.MadeOf != s.plain.counts {
		return nil, nil
	}
	var n int
	if _, err := fmt.Sscanf(m.Author, "op-%d (not verified)", &n); err != nil || n >= len(s.ops) {
		return nil, fmt.Errorf("author %q", m.Author)
	}
	op := s.ops[n]
	switch {
	case op.generation != 0:
		return nil, fmt.Errorf("%v is made twice: it was generation %d", op, op.generation)
	case op.dry:
		return nil, fmt.Errorf("%v was a dry run", op)
	case op.refused:
		return nil, fmt.Errorf("%v was refused, or had nothing to do", op)
	}
	before := s.at(s.plain.counts)
	next, why := op.model(before, m.Time)
	if why != 0 {
		return nil, fmt.Errorf("%v was made of generation %d, which refuses it: %v", op, before.number, why)
	}
	next.number = number
	next.note(before)
	op.generation = number
	set, base, err := next.sets()
	if err != nil {
		return nil, err
	}
	next.digest = set.Digest()
	switch {
	case next.digest != digest || string(set.Canonical()) != string(m.Content):
		return nil, fmt.Errorf("%v of generation %d gives\n%s\nthe log holds\n%s", op, before.number, set.Canonical(), m.Content)
	case len(m.Brakes) > 0 && string(base.Canonical()) != string(m.Unbraked):
		return nil, fmt.Errorf("%v: without overrides\n%s\nthe log holds\n%s", op, base.Canonical(), m.Unbraked)
	case len(m.Brakes) != len(next.overrides):
		return nil, fmt.Errorf("%v: %d overrides are active, the log has %d", op, len(next.overrides), len(m.Brakes))
	}
	for i, b := range m.Brakes {
		if got := (override{b.Queue, b.Kill, b.PausedUntil, b.Author, b.Reason}); got != next.overrides[i] {
			return nil, fmt.Errorf("%v: override %d is %+v, the log has %+v", op, i, next.overrides[i], got)
		}
	}
	return next, nil
}
