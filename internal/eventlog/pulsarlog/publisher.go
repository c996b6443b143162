package pulsarlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/backoff"

	"github.com/refloat/refloat/internal/eventlog"
)

// maxPending is the number of sends that the client queues. If the queue is full the
// client blocks, and panics if it is fenced meanwhile: our own limit is well below.
const maxPending = 256

// publisher is an exclusive producer of one partition.
//
// It never uses [pulsar.ProducerAccessModeWaitForExclusive], with which the broker would
// re-admit a former owner.
type publisher struct {
	topic    *Topic
	part     int
	producer pulsar.Producer
	guard    *guard
	limit    int32
	inFlight atomic.Int32
	lost     atomic.Bool // the client had to reconnect: it may have closed the producer for good
	sending  sync.Mutex

	mu     sync.Mutex
	err    error // why no more can be published; permanent
	closed bool
	once   sync.Once
}

// Publisher becomes the exclusive producer of a partition. If there is another one, it
// returns [eventlog.ErrFenced] at once. It stops when the context ends, and then releases
// a producer that it may still get.
//
// At most [Config.InFlight] messages are without a receipt: beyond that, Publish does not
// block but returns [eventlog.ErrFull], and can be retried. Any other failure of a send ends
// the publisher, and so does being fenced after a lost connection; Err returns the reason
// for both. A payload that is too large for the broker, compressed, is
// [eventlog.ErrTooLarge] and does not end the publisher.
func (t *Topic) Publisher(ctx context.Context, p int) (eventlog.Publisher, error) {
	part, err := t.partition(p)
	if err != nil {
		return nil, t.fail("publisher of", p, err)
	}
	w := &publisher{topic: t, part: p, guard: newGuard(), limit: int32(t.cluster.cfg.InFlight)}
	producer, err := bounded(ctx, t.cluster, 2*t.cluster.cfg.OperationTimeout, func() (pulsar.Producer, error) {
		return t.cluster.client.CreateProducer(pulsar.ProducerOptions{
			Topic:                   part.name,
			ProducerAccessMode:      pulsar.ProducerAccessModeExclusive,
			DisableBatching:         true,
			SendTimeout:             -1,
			MaxPendingMessages:      maxPending,
			DisableBlockIfQueueFull: true,
			CompressionType:         pulsar.LZ4,
			BackOffPolicyFunc:       w.policy,
			Properties:              t.cluster.cfg.properties(),
		})
	}, w.release)
	if err != nil {
		return nil, t.fail("publisher of", p, err)
	}
	w.producer = producer
	return w, nil
}

// properties are those of our publishers.
func (c *Config) properties() map[string]string {
	if c.Instance == "" {
		return nil
	}
	return map[string]string{InstanceProperty: c.Instance}
}

// policy is called by the client when it reconnects.
func (w *publisher) policy() backoff.Policy {
	w.lost.Store(true)
	return w.guard.policy(&delays{})
}

// Publish implements [eventlog.Publisher]. It compresses, and does not block.
func (w *publisher) Publish(payload []byte) error {
	if err := w.publish(payload); err != nil {
		return w.topic.fail("publish to", w.part, err)
	}
	return nil
}

func (w *publisher) publish(payload []byte) error {
	if err := w.Err(); err != nil {
		return err
	}
	if n := w.inFlight.Add(1); n > w.limit {
		w.inFlight.Add(-1)
		return fmt.Errorf("%d messages have no receipt yet: %w", n-1, eventlog.ErrFull)
	}
	s := &send{publisher: w}
	if err := s.do(payload); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued = true
	return s.refused
}

// send is one message in flight. Its callback runs on the client's goroutine, or on
// ours before SendAsync returns, or never.
type send struct {
	publisher *publisher
	mu        sync.Mutex
	queued    bool // SendAsync returned
	refused   error
}

func (s *send) do(payload []byte) (err error) {
	defer func() {
		// The client sends on a closed channel if it is fenced at the same time.
		if r := recover(); r != nil {
			err = s.publisher.end(fmt.Errorf("the client gave the producer up (%v): %w", r, eventlog.ErrFenced))
		}
	}()
	m, err := producerMessage(eventlog.Message{Payload: payload})
	if err != nil {
		return err
	}
	// The client's compression is not safe for concurrent use.
	s.publisher.sending.Lock()
	defer s.publisher.sending.Unlock()
	s.publisher.producer.SendAsync(context.Background(), m, s.done)
	return nil
}

func (s *send) done(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
	w := s.publisher
	w.inFlight.Add(-1)
	if err == nil {
		// An id of -1:-1 means that the broker took the message for a duplicate. Only
		// reading tells whether it is in the log, as in any other case.
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !tooLarge(err):
		s.refused = w.end(sendError(err))
	case s.queued:
		// It was accepted, and is now missing among those accepted after it.
		s.refused = w.end(fmt.Errorf("%w: %w", eventlog.ErrTooLarge, err))
	default:
		s.refused = fmt.Errorf("%w: %w", eventlog.ErrTooLarge, err)
	}
}

func sendError(err error) error {
	switch {
	case errors.Is(err, pulsar.ErrProducerFenced), errors.Is(err, pulsar.ErrProducerClosed):
		return fmt.Errorf("%w: %w", eventlog.ErrFenced, err)
	case errors.Is(err, pulsar.ErrTopicNotfound):
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return classed(err)
}

// end records the first reason why no more can be published, and returns it.
func (w *publisher) end(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// Err implements [eventlog.Publisher]. The client does not report that it closed a
// producer while nothing was in flight, so this checks after a reconnect.
func (w *publisher) Err() error {
	w.mu.Lock()
	err, closed := w.err, w.closed
	w.mu.Unlock()
	if err == nil && !closed && w.lost.Load() && givenUp(w.producer) {
		err = w.end(fmt.Errorf("the client gave the producer up after its connection was lost: %w", eventlog.ErrFenced))
	}
	return err
}

// givenUp checks with a flush that is cancelled before it begins.
func givenUp(producer pulsar.Producer) (up bool) {
	defer func() {
		if recover() != nil {
			up = true // it is just being closed
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return errors.Is(producer.FlushWithCtx(ctx), pulsar.ErrProducerClosed)
}

// Close implements [eventlog.Publisher]. It waits until the broker has released the
// exclusive producer, for at most one request timeout, and not for receipts.
func (w *publisher) Close() error {
	_ = w.end(fmt.Errorf("pulsarlog: publisher: %w", fs.ErrClosed))
	done := make(chan struct{})
	w.once.Do(func() {
		w.mu.Lock()
		w.closed = true
		w.mu.Unlock()
		go func() {
			defer close(done)
			w.release(w.producer)
		}()
		if !w.topic.cluster.wait(done, w.topic.cluster.cfg.OperationTimeout) {
			w.topic.cluster.cfg.Log.Warn("the client does not close a producer", slog.String("partition", w.topic.parts[w.part].name))
		}
	})
	return nil
}

// release closes a producer on the broker.
func (w *publisher) release(producer pulsar.Producer) {
	w.guard.close(func() {
		// A producer that closes itself at the same time closes a channel that is sent on.
		defer func() { _ = recover() }()
		producer.Close()
	}, func() bool { return givenUp(producer) })
}
