package sim

import (
	"fmt"
	"slices"
	"sort"

	"github.com/refloat/refloat/internal/eventlog"
)

// topic is a topic in memory. Appended messages are durable.
type topic struct {
	w     *world
	name  string
	parts []*partition
	shown int   // how many of them exist for clients
	since int64 // the last outage began
	until int64 // and ends
}

type partition struct {
	all  []eventlog.Message // ever appended, also what is gone
	held []eventlog.Message // of all, what the log still holds
	last eventlog.Position  // ever given out
	// trimmed is the last position that retention took away; Start: none.
	trimmed eventlog.Position
}

func newTopic(w *world, name string, partitions int) *topic {
	t := &topic{w: w, name: name}
	for range partitions {
		t.add()
	}
	t.shown = partitions
	return t
}

// add adds a partition that clients do not see yet.
func (t *topic) add() {
	t.parts = append(t.parts, &partition{last: eventlog.Position{Ledger: t.w.rng.Int64N(3), Entry: -1, Batch: -1}, trimmed: eventlog.Start})
}

// append writes a message and gives it a position.
func (t *topic) append(p int, m eventlog.Message) eventlog.Position {
	part := t.parts[p]
	part.last = t.w.next(part.last)
	m.Position = part.last
	part.all = append(part.all, m)
	part.held = append(part.held, m)
	return m.Position
}

// next is a position after another one: positions are ordered, not dense.
func (w *world) next(at eventlog.Position) eventlog.Position {
	switch {
	case w.one(12):
		at = eventlog.Position{Ledger: at.Ledger + 1 + w.rng.Int64N(3), Batch: -1}
	case at.Batch >= 0 && !w.one(3):
		at.Batch++
		return at
	default:
		at.Entry, at.Batch = at.Entry+1+w.rng.Int64N(2), -1
	}
	if w.one(3) {
		at.Batch = 0
	}
	return at
}

// cut takes the messages [from, to) of what is held away, as a broken log would.
func (t *topic) cut(p, from, to int) {
	part := t.parts[p]
	part.held = slices.Delete(slices.Clone(part.held), from, to)
	part.last = eventlog.Position{Ledger: part.last.Ledger + 1, Entry: -1, Batch: -1}
}

// trim takes the first n messages away, as retention does.
func (t *topic) trim(p, n int) {
	part := t.parts[p]
	part.trimmed = part.held[n-1].Position
	part.held = slices.Clone(part.held[n:])
}

func (t *topic) Partitions() int { return t.shown }

func (t *topic) End(p int) (eventlog.Position, error) {
	if err := t.unreachable(); err != nil {
		return eventlog.Position{}, err
	}
	if held := t.parts[p].held; len(held) > 0 {
		return held[len(held)-1].Position, nil
	}
	return eventlog.Start, nil // as Pulsar says of a log that was emptied
}

func (t *topic) Beginning(p int) (eventlog.Position, error) {
	if t.down() {
		return eventlog.Position{}, t.unreachable()
	}
	return t.parts[p].trimmed, nil
}

func (t *topic) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	if p >= t.shown {
		return nil, fmt.Errorf("%s has no partition %d", t.name, p)
	}
	part := t.parts[p]
	if err := t.unreachable(); err != nil {
		return nil, err
	}
	if err := part.mustReach(t.name, after); err != nil {
		return nil, err
	}
	return &reader{t: t, part: part, after: after}, nil
}

// mustReach returns an error instead of skipping messages that have expired.
func (part *partition) mustReach(name string, after eventlog.Position) error {
	if after.Compare(part.trimmed) < 0 {
		return fmt.Errorf("%w: %s begins after %v", eventlog.ErrTrimmed, name, part.trimmed)
	}
	return nil
}

// unreachable is the error of a read while the log cannot be reached.
func (t *topic) unreachable() error {
	w := t.w
	switch {
	case t.down():
		if w.now-t.since > readBackTimeout {
			w.saw(SawOutage)
		}
	case w.has(Transient) && w.one(600):
		w.saw(SawReadError)
	default:
		return nil
	}
	return fmt.Errorf("%w: %s", eventlog.ErrTransient, t.name)
}

// reader lags behind the log by what chance gives, while faults happen.
type reader struct {
	t     *topic
	part  *partition
	after eventlog.Position
	blind int // reads that still see nothing
}

func (r *reader) Read(dst []eventlog.Message) (int, error) {
	w := r.t.w
	if err := r.t.unreachable(); err != nil {
		return 0, err
	}
	held := r.part.held
	if err := r.part.mustReach(r.t.name, r.after); err != nil {
		return 0, err
	}
	from := len(held)
	if from > 0 && held[from-1].Position.Compare(r.after) > 0 {
		from = sort.Search(len(held), func(i int) bool { return held[i].Position.Compare(r.after) > 0 })
	}
	sees := min(len(held)-from, len(dst))
	if w.has(Lag) && sees > 0 {
		switch {
		case r.blind > 0:
			r.blind--
			return 0, nil
		case w.one(40):
			r.blind = w.rng.IntN(12)
			return 0, nil
		case w.one(3):
			sees = w.rng.IntN(sees + 1)
		}
	}
	n := copy(dst, held[from:from+sees])
	if n > 0 {
		r.after = dst[n-1].Position
	}
	return n, nil
}

// Changed is not used: the world's loop looks again and again.
func (r *reader) Changed() <-chan struct{} { return nil }

func (r *reader) Close() error { return nil }

// archive is a topic as it was before retention and without lag, for checks.
type archive struct{ t *topic }

func (a archive) Partitions() int { return a.t.shown }

func (a archive) End(p int) (eventlog.Position, error) {
	if all := a.t.parts[p].all; len(all) > 0 {
		return all[len(all)-1].Position, nil
	}
	return eventlog.Start, nil
}

func (a archive) Beginning(int) (eventlog.Position, error) { return eventlog.Start, nil }

func (a archive) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	return &archiveReader{part: a.t.parts[p], after: after}, nil
}

type archiveReader struct {
	part  *partition
	after eventlog.Position
}

func (r *archiveReader) Read(dst []eventlog.Message) (int, error) {
	all := r.part.all
	n := copy(dst, all[sort.Search(len(all), func(i int) bool { return all[i].Position.Compare(r.after) > 0 }):])
	if n > 0 {
		r.after = dst[n-1].Position
	}
	return n, nil
}

func (r *archiveReader) Changed() <-chan struct{} { return nil }

func (r *archiveReader) Close() error { return nil }
