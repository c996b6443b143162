// Package placement tells which process should own a partition, by a Failover
// subscription on it, and keeps the broker from deleting messages that are still needed.
//
// Each process subscribes to each partition with its own priority, a rendezvous hash
// of its name and the partition. The broker activates the consumer with the highest
// priority, so a process that joins or leaves moves only its own partitions. The
// package does not read the messages themselves.
//
// Placement is a signal, not a lock: two processes may be active for a while
// (protocol.md 10).
package placement

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/refloat/refloat/internal/eventlog"
)

// Config configures the leases of one process. All fields but RetryWait are required.
type Config struct {
	Client       pulsar.Client
	Subscription string // the group: its processes share the partitions
	Instance     string // this process; differs from all others of the group
	Log          *slog.Logger
	RetryWait    time.Duration // before subscribing again after the broker closed a consumer; default 2 s
}

// Lease is this process's membership in the Failover subscription of one partition.
// While it is active, the process should own the partition. Its methods are safe for
// concurrent use, and do not wait for the broker, except for Close, which waits for a
// short time.
type Lease struct {
	cfg       Config
	topic     string
	partition int

	changed chan struct{}
	acks    chan struct{} // receives when there is something to acknowledge
	back    chan time.Duration
	done    chan struct{}
	lost    chan error
	ended   chan struct{}

	mu       sync.Mutex
	active   bool
	closed   bool
	err      error // why the subscription failed; nil: it did not
	consumer pulsar.Consumer
	newest   eventlog.Position // the newest position passed to Acknowledge
	due      eventlog.Position // the entry before it, which may be acknowledged
	acked    eventlog.Position
}

// closeWait is how long Close waits for the broker. The rest happens in the background.
const closeWait = time.Second

// Acquire subscribes to one partition's topic ("…-partition-3"). It does not wait: it
// subscribes in the background and retries until it succeeds; until then the lease is
// not active.
func Acquire(c Config, topic string, partition int) (*Lease, error) {
	if c.Client == nil || c.Subscription == "" || c.Instance == "" || c.Log == nil {
		return nil, errors.New("placement: Client, Subscription, Instance and Log are required")
	}
	c.RetryWait = cmp.Or(c.RetryWait, 2*time.Second)
	l := &Lease{
		cfg: c, topic: topic, partition: partition, newest: eventlog.Start, due: eventlog.Start, acked: eventlog.Start,
		changed: make(chan struct{}, 1), acks: make(chan struct{}, 1), back: make(chan time.Duration, 1),
		done: make(chan struct{}), lost: make(chan error, 1), ended: make(chan struct{}),
	}
	go l.keep()
	go l.acknowledge()
	return l, nil
}

// Priority returns an instance's rank for a partition: 0 is the highest.
func Priority(instance string, partition int) int {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(partition)))
	_, _ = h.Write([]byte(instance))
	x := h.Sum64() // the last byte hardly changes FNV's high bits: mix
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return int(x % (math.MaxInt32 + 1))
}

func (l *Lease) subscribe() error {
	consumer, err := l.cfg.Client.Subscribe(pulsar.ConsumerOptions{
		Topic:            l.topic,
		SubscriptionName: l.cfg.Subscription,
		Name:             l.cfg.Instance,
		Type:             pulsar.Failover,
		PriorityLevel:    Priority(l.cfg.Instance, l.partition),
		EventListener:    listener{l},
		Interceptors:     pulsar.ConsumerInterceptors{listener{l}},
		// No messages are received here: one waits in the queue, so no more are sent.
		ReceiverQueueSize:           1,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		AckGroupingOptions:          &pulsar.AckGroupingOptions{MaxSize: 1},
	})
	if err != nil {
		return fmt.Errorf("%w: subscribe %s to %s: %w", eventlog.ErrTransient, l.cfg.Subscription, l.topic, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed { // Close did not wait for this
		go consumer.Close()
		return nil
	}
	l.consumer, l.acked = consumer, eventlog.Start // earlier acknowledgements may be lost
	signal(l.acks)
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keep subscribes, and subscribes again after the broker closed the consumer.
func (l *Lease) keep() {
	defer close(l.ended)
	for wait := time.Duration(0); l.take(wait); {
		select {
		case <-l.done:
			return
		case err := <-l.lost:
			l.leave(err)
			l.cfg.Log.Warn("partition lease lost", slog.String("topic", l.topic), slog.Any("error", err))
			wait = l.cfg.RetryWait
		case wait = <-l.back:
			l.leave(nil)
		}
	}
}

// take subscribes after a delay and retries; it reports whether it succeeded before
// Close.
func (l *Lease) take(after time.Duration) bool {
	for ; ; after = l.cfg.RetryWait {
		select {
		case <-l.done:
			return false
		case <-time.After(after):
		}
		err := l.subscribe()
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
		if err == nil {
			return true
		}
		l.cfg.Log.Warn("partition lease not acquired", slog.String("topic", l.topic), slog.Any("error", err))
	}
}

// Err returns why the last attempt to subscribe failed; nil: it succeeded, or there was
// none yet.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *Lease) set(active bool) {
	l.mu.Lock()
	news := l.active != active
	l.active = active
	l.mu.Unlock()
	if !news { // most notifications of the broker repeat the state
		return
	}
	signal(l.changed)
}

// Active reports whether the broker made this consumer the active one.
func (l *Lease) Active() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active
}

// Changed receives after Active may have changed.
func (l *Lease) Changed() <-chan struct{} { return l.changed }

// Acknowledge acknowledges everything up to a position. Only whole entries are
// acknowledged: the entry of the position itself waits for a call with a later one. It
// runs in the background and retries; callers need not know when it succeeds.
func (l *Lease) Acknowledge(upTo eventlog.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if upTo.Ledger == l.newest.Ledger && upTo.Entry == l.newest.Entry || upTo.Compare(l.newest) <= 0 {
		return
	}
	l.due, l.newest = l.newest, upTo
	signal(l.acks)
}

// acknowledge sends acknowledgements to the broker. The client may block it during a
// reconnect; so it does nothing else, and holds no lock.
func (l *Lease) acknowledge() {
	failing := false
	for {
		select {
		case <-l.done:
			return
		case <-l.acks:
		}
		l.mu.Lock()
		due, consumer := l.due, l.consumer
		news := due.Compare(l.acked) > 0
		l.mu.Unlock()
		if !news || consumer == nil { // a new consumer signals again
			continue
		}
		err := consumer.AckIDCumulative(pulsar.NewMessageID(due.Ledger, due.Entry, -1, 0))
		if err == nil {
			failing = false
			l.mu.Lock()
			l.acked = due
			l.mu.Unlock()
			continue
		}
		if !failing {
			failing = true
			l.cfg.Log.Warn("acknowledgement failed; will retry; until then the broker keeps more messages than necessary",
				slog.String("topic", l.topic), slog.String("position", due.String()), slog.Any("error", err))
		}
		select {
		case <-l.done:
		case <-time.After(l.cfg.RetryWait):
			signal(l.acks)
		}
	}
}

// Acknowledged returns the last position that was acknowledged here.
func (l *Lease) Acknowledged() eventlog.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// Close gives up the lease; the subscription stays. If the broker does not respond
// within a second, the rest happens in the background.
func (l *Lease) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	close(l.done)
	left := make(chan struct{})
	go func() {
		defer close(left)
		l.leave(nil)
		<-l.ended
	}()
	select {
	case <-left:
	case <-time.After(closeWait):
	}
	return nil
}

// StepBack leaves the partition to other processes for a while.
func (l *Lease) StepBack(d time.Duration) {
	select {
	case l.back <- d:
	default:
	}
}

func (l *Lease) leave(why error) {
	l.mu.Lock()
	consumer := l.consumer
	l.consumer, l.err = nil, why
	l.mu.Unlock()
	l.set(false)
	if consumer == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		consumer.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeWait):
	}
}

// listener is called by the client on its connection's goroutine: it must not block.
type listener struct{ lease *Lease }

func (l listener) BecameActive(pulsar.Consumer, string, int32)   { l.lease.set(true) }
func (l listener) BecameInactive(pulsar.Consumer, string, int32) { l.lease.set(false) }

func (listener) BeforeConsume(pulsar.ConsumerMessage)                   {}
func (listener) OnAcknowledge(pulsar.Consumer, pulsar.MessageID)        {}
func (listener) OnNegativeAcksSend(pulsar.Consumer, []pulsar.MessageID) {}

// OnConsumerClose is called once per consumer; without an error, we closed it.
func (l listener) OnConsumerClose(_ pulsar.Consumer, err error) {
	if err == nil {
		return
	}
	select {
	case l.lease.lost <- err:
	default:
	}
}
