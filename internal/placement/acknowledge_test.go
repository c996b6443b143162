package placement_test

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/placement"
)

// client is a client whose consumers acknowledge as the test says.
type client struct {
	pulsar.Client
	subscribed chan *consumer
	ack        func(id pulsar.MessageID) error
}

func (c *client) Subscribe(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	made := &consumer{client: c, listener: o.EventListener}
	c.subscribed <- made
	return made, nil
}

type consumer struct {
	pulsar.Consumer
	client   *client
	listener pulsar.ConsumerEventListener
}

func (c *consumer) AckIDCumulative(id pulsar.MessageID) error { return c.client.ack(id) }
func (c *consumer) Close()                                    {}

func take(t *testing.T, ack func(pulsar.MessageID) error) (*placement.Lease, *consumer) {
	t.Helper()
	c := &client{subscribed: make(chan *consumer, 1), ack: ack}
	s, err := placement.Acquire(placement.Config{Client: c, Subscription: "group", Instance: "a", Log: slog.New(slog.DiscardHandler), RetryWait: time.Millisecond}, "topic", 0)
	if err != nil {
		t.Fatal(err)
	}
	return s, <-c.subscribed
}

func entry(n int64) eventlog.Position { return eventlog.Position{Ledger: 1, Entry: n} }

// TestAcknowledgementFails: a failed acknowledgement affects no caller, and is retried
// in the background.
func TestAcknowledgementFails(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	failures := 3
	acked := make(chan int64, 10)
	s, _ := take(t, func(id pulsar.MessageID) error {
		mu.Lock()
		defer mu.Unlock()
		if failures--; failures >= 0 {
			return errors.New("consumer state is closed")
		}
		acked <- id.EntryID()
		return nil
	})
	defer s.Close()
	s.Acknowledge(entry(1))
	s.Acknowledge(entry(2))
	select {
	case got := <-acked:
		if got != 1 {
			t.Errorf("entry %d was acknowledged, want 1: the entry of the newest position may be in use", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("the acknowledgement that failed is not tried again")
	}
}

// TestAcknowledgementHangs: while it reconnects, the client queues a few
// acknowledgements and then blocks. No caller may block with it: the client itself
// calls the lease from the goroutine that would unblock it.
func TestAcknowledgementHangs(t *testing.T) {
	t.Parallel()
	hangs, over := make(chan struct{}, 1), make(chan struct{})
	s, c := take(t, func(pulsar.MessageID) error {
		hangs <- struct{}{}
		<-over
		return nil
	})
	defer close(over)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Acknowledge(entry(1))
		s.Acknowledge(entry(2))
		<-hangs
		s.Acknowledge(entry(3))
		c.listener.BecameActive(c, "topic", 0)
		if !s.Active() {
			t.Error("the lease is not active")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the lease waits with the acknowledgement")
	}
}
