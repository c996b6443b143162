package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
)

// recorder writes partitions of a topic to a target, merged by publish time.
type recorder struct {
	topic      eventlog.Topic
	partitions []int
	span       span
	to         target
	note       func(format string, args ...any)
	progress   func(messages int, publish int64)

	written int
	counts  []counted // one for each of partitions
}

// counted says what was written of one partition.
type counted struct {
	messages    int
	first, last eventlog.Position // origin positions
}

// target is the destination of a recording.
type target interface {
	// resume returns the position of the last message written for a partition, if any.
	resume(p int) (eventlog.Position, bool, error)
	write(p int, m *eventlog.Message) error
	// flush makes written messages durable, as far as the target can.
	flush() error
	close(complete bool) error
}

const (
	recordChunk = 256
	followPoll  = 200 * time.Millisecond
)

// source is a partition being read.
type source struct {
	partition int
	reader    eventlog.Reader
	end       eventlog.Position // the last message to read
	at        eventlog.Position // of the last message read
	chunk     []eventlog.Message
	left      []eventlog.Message           // rest of chunk, not written yet
	skipTo    func(*eventlog.Message) bool // reports whether recording starts here; nil: it has started
	noted     bool
	begins    eventlog.Position // the requested range is available only after this position
	lost      bool              // and messages before it were lost
	done      bool
}

func (r *recorder) run(ctx context.Context) (err error) {
	r.counts = make([]counted, len(r.partitions))
	sources := make([]*source, len(r.partitions))
	defer func() {
		for _, s := range sources {
			if s != nil && s.reader != nil {
				err = errors.Join(err, s.reader.Close())
			}
		}
	}()
	for i, p := range r.partitions {
		if sources[i], err = r.open(p); err != nil {
			return fmt.Errorf("record partition %d: %w", p, err)
		}
	}
	if err := r.merge(ctx, sources); err != nil {
		return err
	}
	for r.span.follow {
		if err := r.follow(ctx, sources); err != nil {
			return err
		}
	}
	return r.to.flush()
}

// open determines where to begin and end in a partition.
func (r *recorder) open(p int) (*source, error) {
	s := &source{partition: p, at: eventlog.Start, begins: eventlog.Start, chunk: make([]eventlog.Message, recordChunk)}
	var err error
	if s.end, err = r.topic.End(p); err != nil {
		return nil, err
	}
	if to := r.span.to.position; to != nil {
		if to.Compare(s.end) > 0 {
			return nil, fmt.Errorf("--to %v is after the end of the topic, %v", to, s.end)
		}
		s.end = *to
	}
	last, resumed, err := r.to.resume(p)
	switch {
	case err != nil:
		return nil, err
	case resumed:
		s.at, s.noted = last, true
		s.reader, err = r.topic.Open(p, last)
		return s, err
	case r.span.from.position != nil:
		// The position before the first message: Open reads after it.
		s.at = *r.span.from.position
		s.at.Batch--
		s.reader, err = r.topic.Open(p, s.at)
		return s, err
	}
	if from := r.span.from.time; from != nil {
		s.skipTo = func(m *eventlog.Message) bool { return m.OriginPublish() >= from.UnixNano() }
	}
	return s, r.openFirst(s)
}

// openFirst begins with the oldest message in the topic.
func (r *recorder) openFirst(s *source) (err error) {
	s.reader, err = r.topic.Open(s.partition, eventlog.Start)
	if s.lost = errors.Is(err, eventlog.ErrTrimmed); err != nil && !s.lost {
		return err
	}
	if s.end == eventlog.Start {
		return err
	}
	if s.lost {
		s.reader, s.begins, err = eventlog.OpenHeld(r.topic, s.partition)
		s.at = s.begins
		return err
	}
	s.begins, err = r.topic.Beginning(s.partition)
	return err
}

// fill reads more if nothing is left, and waits for messages before the end.
func (r *recorder) fill(ctx context.Context, s *source) error {
	for len(s.left) == 0 && !s.done {
		if s.at.Compare(s.end) >= 0 {
			s.done = true
			break
		}
		n, err := s.reader.Read(s.chunk)
		if err != nil {
			return fmt.Errorf("record partition %d after %v: %w", s.partition, s.at, err)
		}
		if n == 0 {
			select {
			case <-s.reader.Changed():
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r.take(s, s.chunk[:n])
	}
	return nil
}

// take keeps the messages that are in the range.
func (r *recorder) take(s *source, read []eventlog.Message) {
	if s.skipTo != nil {
		for len(read) > 0 && !s.skipTo(&read[0]) {
			s.at, s.noted = read[0].Position, true // earlier messages do not matter
			read = read[1:]
		}
		if len(read) == 0 {
			return
		}
		s.skipTo = nil
	}
	for i := range read {
		past := !r.span.follow && read[i].Position.Compare(s.end) > 0
		late := r.span.to.time != nil && read[i].OriginPublish() > r.span.to.time.UnixNano()
		if past || late {
			s.done, read = true, read[:i]
			break
		}
		s.at = read[i].Position
	}
	s.left = read
}

// merge writes messages up to the ends.
func (r *recorder) merge(ctx context.Context, sources []*source) error {
	for {
		next := -1
		for i, s := range sources {
			if err := r.fill(ctx, s); err != nil {
				return err
			}
			if len(s.left) > 0 && (next < 0 || s.left[0].OriginPublish() < sources[next].left[0].OriginPublish()) {
				next = i
			}
		}
		if next < 0 {
			return ctx.Err()
		}
		if err := r.write(next, sources[next]); err != nil {
			return err
		}
	}
}

// write writes the next message of a source.
func (r *recorder) write(i int, s *source) error {
	m := &s.left[0]
	if !s.noted {
		s.noted = true
		r.noteBeginning(s)
	}
	if err := r.to.write(s.partition, m); err != nil {
		return err
	}
	c := &r.counts[i]
	if c.messages == 0 {
		c.first = m.OriginPosition()
	}
	c.messages, c.last = c.messages+1, m.OriginPosition()
	r.written++
	if r.written%recordChunk == 0 {
		r.progress(r.written, m.OriginPublish())
	}
	s.left = s.left[1:]
	return nil
}

func (r *recorder) noteBeginning(s *source) {
	switch {
	case s.lost:
		r.note("partition %d begins after %v: earlier messages have expired", s.partition, s.begins)
	case s.begins != eventlog.Start:
		r.note("partition %d begins after %v: it is unknown whether there were earlier messages", s.partition, s.begins)
	}
}

// follow writes new messages as they arrive.
func (r *recorder) follow(ctx context.Context, sources []*source) error {
	for i, s := range sources {
		n, err := s.reader.Read(s.chunk)
		if err != nil {
			return fmt.Errorf("record partition %d after %v: %w", s.partition, s.at, err)
		}
		r.take(s, s.chunk[:n])
		for len(s.left) > 0 {
			if err := r.write(i, s); err != nil {
				return err
			}
		}
	}
	if err := r.to.flush(); err != nil {
		return err
	}
	return eventlog.Sleep(ctx, followPoll)
}
