// Package topiccopy stores an exact copy of a topic in a log directory, and reads the
// copy as if it were the topic: with the topic's positions and publish times, which
// decisions refer to.
//
// In the copy, a message's origin is its position in the topic, and the name of the
// recording is the topic's, tenant/namespace/name, which no file can have. The origin
// that the message had in the topic, if it was fed there, is kept in a property.
//
// Invariant: every field of a message is read as it was written.
package topiccopy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/eventlog"
)

// originProperty holds "position publish recording" of a message that was fed. It is
// the last property. It is empty if the message was not fed but has a property of that name.
const originProperty = "refloat-copied-origin"

// IsTopic reports whether the name of a recording is that of a topic.
func IsTopic(recording string) bool { return strings.Contains(recording, "/") }

// Wrap converts a message of a topic to its form in a copy.
func Wrap(topic string, m *eventlog.Message) eventlog.Message {
	out := *m
	out.Origin = eventlog.Origin{Recording: topic, Position: m.Position, Publish: m.Publish}
	fed, n := m.Origin.Recording != "", len(m.Properties)
	if fed || n > 0 && m.Properties[n-1].Key == originProperty {
		mark := eventlog.Property{Key: originProperty}
		if fed {
			mark.Value = fmt.Sprintf("%v %d %s", m.Origin.Position, m.Origin.Publish, m.Origin.Recording)
		}
		out.Properties = append(slices.Clone(m.Properties), mark)
	}
	return out
}

// Unwrap converts a message of a copy to its form in the topic.
func Unwrap(m *eventlog.Message) (eventlog.Message, error) {
	if !IsTopic(m.Origin.Recording) {
		return eventlog.Message{}, fmt.Errorf("message %v is not a copy of a topic's message: %w", m.Position, eventlog.ErrCorrupt)
	}
	out := *m
	out.Position, out.Publish, out.Origin = m.Origin.Position, m.Origin.Publish, eventlog.Origin{}
	n := len(m.Properties) - 1
	if n < 0 || m.Properties[n].Key != originProperty {
		return out, nil
	}
	if out.Properties = m.Properties[:n:n]; n == 0 {
		out.Properties = nil
	}
	if m.Properties[n].Value == "" {
		return out, nil
	}
	position, rest, _ := strings.Cut(m.Properties[n].Value, " ")
	publish, name, _ := strings.Cut(rest, " ")
	at, err1 := eventlog.ParsePosition(position)
	ns, err2 := strconv.ParseInt(publish, 10, 64)
	if err := errors.Join(err1, err2); err != nil || name == "" {
		return eventlog.Message{}, fmt.Errorf("message %v: property %s: %w", m.Position, originProperty, eventlog.ErrCorrupt)
	}
	out.Origin = eventlog.Origin{Recording: name, Position: at, Publish: ns}
	return out, nil
}

// Topic returns the topic that a log is a copy of, or the log itself if it is not a copy.
func Topic(log eventlog.Topic) (eventlog.Topic, error) {
	for p := range log.Partitions() {
		r, _, err := eventlog.OpenHeld(log, p)
		if err != nil {
			return nil, err
		}
		var m [1]eventlog.Message
		n, err := r.Read(m[:])
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		if n == 0 {
			continue
		}
		if !IsTopic(m[0].Origin.Recording) {
			return log, nil
		}
		return &topic{log}, nil
	}
	return log, nil // empty: a copy cannot be told from an original
}

type topic struct{ eventlog.Topic }

// Open implements eventlog.Topic. It reads the copy up to the position.
func (t *topic) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	end, err := t.End(p)
	if err != nil {
		return nil, err
	}
	if after.Compare(end) > 0 {
		return nil, fmt.Errorf("copy of partition %d: open after %v: the copy ends at %v: %w", p, after, end, eventlog.ErrCorrupt)
	}
	in, _, err := eventlog.OpenHeld(t.Topic, p)
	if err != nil {
		return nil, err
	}
	r := &reader{Reader: in}
	if err := r.skipTo(after); err != nil {
		return nil, errors.Join(fmt.Errorf("copy of partition %d: open after %v: %w", p, after, err), in.Close())
	}
	return r, nil
}

func (t *topic) End(p int) (eventlog.Position, error) {
	end, err := t.Topic.End(p)
	if err != nil || end == eventlog.Start {
		return end, err
	}
	m, err := Last(t.Topic, p)
	if err != nil {
		return eventlog.Position{}, err
	}
	return m.Origin.Position, nil
}

// Beginning implements eventlog.Topic. The copy does not know whether it was begun at
// the topic's beginning, so it treats its content as complete.
func (t *topic) Beginning(p int) (eventlog.Position, error) {
	begin, err := t.Topic.Beginning(p)
	if err != nil || begin == eventlog.Start {
		return begin, err
	}
	return eventlog.Position{}, fmt.Errorf("copy of partition %d: its beginning was deleted: %w", p, eventlog.ErrTrimmed)
}

// Last returns the last message of a partition that is not empty.
func Last(log eventlog.Topic, p int) (*eventlog.Message, error) {
	end, err := log.End(p)
	if err != nil {
		return nil, err
	}
	at := end
	at.Batch-- // before it, in its entry
	r, err := log.Open(p, at)
	if err != nil {
		return nil, err
	}
	var m [1]eventlog.Message
	n, err := r.Read(m[:])
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if n == 0 || m[0].Position != end {
		return nil, fmt.Errorf("partition %d: the last message, %v, cannot be read: %w", p, end, eventlog.ErrCorrupt)
	}
	return &m[0], nil
}

// reader reads a copy as the topic.
type reader struct {
	eventlog.Reader
	held *eventlog.Message // read by skipTo
}

func (r *reader) skipTo(after eventlog.Position) error {
	if after == eventlog.Start {
		return nil
	}
	var m [1]eventlog.Message
	for before := false; ; before = true {
		n, err := r.Reader.Read(m[:])
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		switch c := m[0].Origin.Position.Compare(after); {
		case c == 0:
			return nil
		case c > 0 && !before && !adjacent(after, m[0].Origin.Position):
			return fmt.Errorf("the copy begins with %v: %w", m[0].Origin.Position, eventlog.ErrTrimmed)
		case c > 0:
			r.held = &m[0]
			return nil
		}
	}
}

// adjacent reports whether no message can be between two positions, because the first
// is the position just before the first message of an entry or of a ledger. A topic returns
// such a position as its beginning, and a history is accepted from there.
func adjacent(before, first eventlog.Position) bool {
	return before.Batch == -1 && first.Batch == 0 && before.Ledger == first.Ledger &&
		(before.Entry == first.Entry || before.Entry == -1 && first.Entry == 0)
}

func (r *reader) Read(dst []eventlog.Message) (n int, err error) {
	if r.held != nil && len(dst) > 0 {
		dst[0], n, r.held = *r.held, 1, nil
	}
	if n == 0 {
		if n, err = r.Reader.Read(dst); n == 0 || err != nil {
			return 0, err
		}
	}
	for i := range dst[:n] {
		if dst[i], err = Unwrap(&dst[i]); err != nil {
			return 0, err
		}
	}
	return n, nil
}
