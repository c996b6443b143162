package pulsarlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/refloat/refloat/internal/eventlog"
)

const (
	// A batch is sent when it reaches this size, or when the call that filled it ends.
	batchMessages = 5000
	batchBytes    = 1 << 20
	// The limits of an Appender's messages in flight; at a limit Append blocks.
	maxAppending      = 10_000
	maxAppendingBytes = 64 << 20
)

// Appender writes messages to given partitions as Armada does: by shared
// producers, in batches compressed with zlib. Use it to feed a log; decisions need
// a [Topic.Publisher]. It is safe for concurrent use.
type Appender struct {
	topic *Topic
	parts []appending

	mu     sync.Mutex
	count  int // in flight
	bytes  int
	err    error         // the first; permanent
	waits  int           // number of goroutines that wait for moved
	moved  chan struct{} // closed when fewer messages are in flight
	closed bool
}

// appending is a partition of an Appender.
type appending struct {
	mu       sync.Mutex // held during a call, so that its messages are contiguous
	producer pulsar.Producer
	flushes  chan struct{} // requests a flush; created with the producer
}

// Appender returns an appender, which creates its producers when they are needed.
func (t *Topic) Appender() *Appender {
	return &Appender{topic: t, parts: make([]appending, len(t.parts)), moved: make(chan struct{})}
}

// Append queues messages for a partition, in order, ignoring their position and
// publish time. A call becomes one batch if the client permits. Append blocks while too
// much is in flight. It may return the error of an earlier message; the Appender then
// accepts no more messages, because some in between may be missing.
func (a *Appender) Append(p int, batch []eventlog.Message) error {
	return a.append(a.topic.cluster.ctx, p, batch)
}

// AppendSync appends messages and returns when everything appended so far is durable.
func (a *Appender) AppendSync(ctx context.Context, p int, batch []eventlog.Message) error {
	if err := a.append(ctx, p, batch); err != nil {
		return err
	}
	return a.Flush(ctx)
}

func (a *Appender) append(ctx context.Context, p int, batch []eventlog.Message) error {
	if p < 0 || p >= len(a.parts) {
		return a.topic.fail("append to", p, fmt.Errorf("no such partition: the topic has %d", len(a.parts)))
	}
	out := make([]*pulsar.ProducerMessage, len(batch))
	for i, m := range batch {
		var err error
		if out[i], err = producerMessage(m); err != nil {
			return a.topic.fail("append to", p, fmt.Errorf("message %d: %w", i, err))
		}
	}
	part := &a.parts[p]
	part.mu.Lock()
	defer part.mu.Unlock()
	if err := a.open(ctx, part, p); err != nil {
		return a.topic.fail("append to", p, err)
	}
	defer part.flush()
	for i, m := range out {
		if err := a.send(ctx, part, m); err != nil {
			return a.topic.fail("append to", p, fmt.Errorf("message %d of %d: %w", i, len(out), err))
		}
	}
	return nil
}

// open creates the producer of a partition, and the goroutine that flushes it.
func (a *Appender) open(ctx context.Context, part *appending, p int) error {
	a.mu.Lock()
	closed := a.closed
	a.mu.Unlock()
	switch {
	case closed:
		return fs.ErrClosed
	case part.producer != nil:
		return nil
	}
	if _, err := a.topic.partition(p); err != nil {
		return err
	}
	k := a.topic.cluster
	producer, err := bounded(ctx, k, 2*k.cfg.OperationTimeout, func() (pulsar.Producer, error) {
		return k.client.CreateProducer(pulsar.ProducerOptions{
			Topic:                   a.topic.parts[p].name,
			CompressionType:         pulsar.ZLib,
			BatchingMaxPublishDelay: time.Hour, // flush decides when
			BatchingMaxMessages:     batchMessages,
			BatchingMaxSize:         batchBytes,
			MaxPendingMessages:      2 * maxAppending, // never reached
			BackOffPolicyFunc:       newDelays,
		})
	}, pulsar.Producer.Close)
	if err != nil {
		return err
	}
	part.producer, part.flushes = producer, make(chan struct{}, 1)
	go flush(producer, part.flushes)
	return nil
}

// flush sends the queued messages, once for all requests that came meanwhile.
func flush(producer pulsar.Producer, asked <-chan struct{}) {
	for range asked {
		// Failures are reported to the callbacks, which record them.
		_ = producer.FlushWithCtx(context.Background())
	}
}

func (p *appending) flush() { signal(p.flushes) }

// send queues one message, and blocks until there is room.
func (a *Appender) send(ctx context.Context, part *appending, m *pulsar.ProducerMessage) (err error) {
	size := len(m.Payload)
	room := func() bool {
		return a.count == 0 || a.count < maxAppending && a.bytes+size <= maxAppendingBytes
	}
	if err := a.wait(ctx, part, room); err != nil {
		return err
	}
	a.mu.Lock()
	a.count++
	a.bytes += size
	a.mu.Unlock()
	defer func() {
		// The client sends on a closed channel if it closes the producer at the same time.
		if r := recover(); r != nil {
			err = a.done(size, fmt.Errorf("the client gave the producer up (%v): %w", r, eventlog.ErrTransient))
		}
	}()
	var mu sync.Mutex
	queued := false
	var refused error
	part.producer.SendAsync(context.Background(), m, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil && tooLarge(err) && !queued {
			refused = fmt.Errorf("%w: %w", eventlog.ErrTooLarge, err)
			err = nil
		} else if err != nil {
			err = sendError(err)
		}
		_ = a.done(size, err)
	})
	mu.Lock()
	defer mu.Unlock()
	queued = true
	return refused
}

// done removes a message from those in flight.
func (a *Appender) done(size int, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count--
	a.bytes -= size
	if a.err == nil {
		a.err = err
	}
	if a.waits > 0 {
		close(a.moved)
		a.moved, a.waits = make(chan struct{}), 0
	}
	return a.err
}

// wait waits until ok returns true; ok is called under the lock.
func (a *Appender) wait(ctx context.Context, part *appending, ok func() bool) error {
	for {
		a.mu.Lock()
		err, done, moved := a.err, ok(), a.moved
		if err == nil && !done {
			a.waits++
		}
		a.mu.Unlock()
		if err != nil || done {
			return err
		}
		if part != nil {
			part.flush() // what we wait for may be in an incomplete batch
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Flush returns when everything appended is durable, or with the first error.
func (a *Appender) Flush(ctx context.Context) error {
	if err := a.wait(ctx, nil, func() bool { return a.count == 0 }); err != nil {
		return fmt.Errorf("pulsarlog: flush %s: %w", a.topic.name, err)
	}
	return nil
}

// Close closes the producers. Messages that were not flushed may be lost.
func (a *Appender) Close() error {
	a.mu.Lock()
	again := a.closed
	a.closed = true
	a.mu.Unlock()
	if again {
		return nil
	}
	var errs []error
	for p := range a.parts {
		part := &a.parts[p]
		part.mu.Lock()
		if part.producer != nil {
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }() // as in publisher.Close
				part.producer.Close()
			}()
			if !a.topic.cluster.wait(done, a.topic.cluster.cfg.OperationTimeout) {
				errs = append(errs, a.topic.fail("close appender of", p, eventlog.ErrTransient))
			}
			close(part.flushes)
		}
		part.mu.Unlock()
	}
	return errors.Join(errs...)
}
