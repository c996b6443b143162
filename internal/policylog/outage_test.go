package policylog_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policylog"
)

// broken is a topic that can be away. A reader that met that is of no more use,
// also when the topic is back.
type broken struct {
	eventlog.Topic
	mu     sync.Mutex
	why    error // nil: it is there
	reader error // nil: what is read is there
}

// is sets why nothing can be asked; reading, why nothing can be read.
func (b *broken) is(why error)      { b.set(why, why) }
func (b *broken) reading(why error) { b.set(nil, why) }

func (b *broken) set(why, reader error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.why, b.reader = why, reader
}

func (b *broken) state() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why
}

func (b *broken) read() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reader
}

func (b *broken) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	if err := b.state(); err != nil {
		return nil, err
	}
	r, err := b.Topic.Open(p, after)
	return &brokenReader{Reader: r, topic: b}, err
}

func (b *broken) End(p int) (eventlog.Position, error) {
	if err := b.state(); err != nil {
		return eventlog.Start, err
	}
	return b.Topic.End(p)
}

type brokenReader struct {
	eventlog.Reader
	topic *broken
	err   error
}

func (r *brokenReader) Read(dst []eventlog.Message) (int, error) {
	if r.err == nil {
		r.err = r.topic.read()
	}
	if r.err != nil {
		return 0, r.err
	}
	return r.Reader.Read(dst)
}

// TestStoreAfterOutage: whatever the outage, and whatever it looked like, once the
// log is back policies can be read and changed.
func TestStoreAfterOutage(t *testing.T) {
	t.Parallel()
	for _, why := range []error{fmt.Errorf("no connection: %w", eventlog.ErrTransient), errors.New("denied by the broker")} {
		w := newWorld(t)
		topic := &broken{Topic: w.log}
		s, err := policylog.OpenStore(topic, w.append, func() time.Time { return time.Unix(7, 0) })
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Do(t.Context(), policylog.Edit{Make: putting("a", "")}); err != nil {
			t.Fatal(err)
		}
		topic.reading(why) // the end is still known: so the reader meets it
		if _, err := s.Newest(t.Context()); !errors.Is(err, why) {
			t.Fatalf("in an outage: %v", err)
		}
		topic.is(why)
		if _, err := s.Do(t.Context(), policylog.Edit{Make: putting("b", "")}); !errors.Is(err, why) {
			t.Fatalf("in an outage: %v", err)
		}
		topic.is(nil)
		if got, err := s.Do(t.Context(), policylog.Edit{Make: putting("b", "")}); err != nil || got.Number != 2 {
			t.Errorf("after an outage (%v): generation %v, %v", why, got.Version, err)
		}
		if got, err := s.History(t.Context()); err != nil || len(got) != 2 {
			t.Errorf("after an outage (%v): history %v, %v", why, got, err)
		}
	}
}
