// Package placement tells which process should own a partition, by a Failover
// subscription on it, and keeps the broker from deleting messages that are still needed.
//
// Each process subscribes to each partition with its own priority, a rendezvous hash
// of its name and the partition. The broker activates the consumer with the highest
// priority, so a process that joins or leaves moves only its own partitions. The
// package does not read the messages themselves.
//
// Placement is a signal, not a lock: two processes may be active for a while
// (PROTOCOL 10).
package placement

import (
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

// Config says which seats a process takes. All fields but RetryWait are required.
type Config struct {
	Client       pulsar.Client
	Subscription string // the group: its processes share the partitions
	Instance     string // this process; differs from all others of the group
	Log          *slog.Logger
	RetryWait    time.Duration // before subscribing anew when the broker closed a seat; default 2 s
}

// Seat is this process's claim to one partition, in the order of priorities. Its
// methods may be called from several goroutines, and none of them waits for the
// broker, but for Close, which waits for a short time.
type Seat struct {
	cfg       Config
	topic     string
	partition int

	changed chan struct{}
	acks    chan struct{} // receives when something is to be acknowledged
	back    chan time.Duration
	done    chan struct{}
	lost    chan error
	ended   chan struct{}

	mu       sync.Mutex
	active   bool
	closed   bool
	err      error // why the broker does not give the seat; nil: it does
	consumer pulsar.Consumer
	newest   eventlog.Position // the newest that Acknowledge was called with
	due      eventlog.Position // the entry before it, which may be acknowledged
	acked    eventlog.Position
}

// closeWait is how long Close waits for the broker. What takes longer goes on in
// the background.
const closeWait = time.Second

// Take takes a seat for one partition's topic ("…-partition-3"). It does not wait:
// the broker is asked in the background, again and again where it does not give the
// seat; until then the seat is not active.
func Take(c Config, topic string, partition int) (*Seat, error) {
	if c.Client == nil || c.Subscription == "" || c.Instance == "" || c.Log == nil {
		return nil, errors.New("placement: Config lacks Client, Subscription, Instance or Log")
	}
	if c.RetryWait == 0 {
		c.RetryWait = 2 * time.Second
	}
	s := &Seat{
		cfg: c, topic: topic, partition: partition, newest: eventlog.Start, due: eventlog.Start, acked: eventlog.Start,
		changed: make(chan struct{}, 1), acks: make(chan struct{}, 1), back: make(chan time.Duration, 1),
		done: make(chan struct{}), lost: make(chan error, 1), ended: make(chan struct{}),
	}
	go s.keep()
	go s.acknowledge()
	return s, nil
}

// Priority is an instance's rank for a partition: 0 is the highest.
func Priority(instance string, partition int) int {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(partition)))
	_, _ = h.Write([]byte(instance))
	x := h.Sum64() // FNV's high bits move little with the last byte: mix
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return int(x % (math.MaxInt32 + 1))
}

func (s *Seat) subscribe() error {
	consumer, err := s.cfg.Client.Subscribe(pulsar.ConsumerOptions{
		Topic:            s.topic,
		SubscriptionName: s.cfg.Subscription,
		Name:             s.cfg.Instance,
		Type:             pulsar.Failover,
		PriorityLevel:    Priority(s.cfg.Instance, s.partition),
		EventListener:    listener{s},
		Interceptors:     pulsar.ConsumerInterceptors{listener{s}},
		// Nothing is received here: one message waits in the queue, no more come.
		ReceiverQueueSize:           1,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		AckGroupingOptions:          &pulsar.AckGroupingOptions{MaxSize: 1},
	})
	if err != nil {
		return fmt.Errorf("%w: subscribe %s to %s: %w", eventlog.ErrTransient, s.cfg.Subscription, s.topic, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // Close did not wait for us
		go consumer.Close()
		return nil
	}
	s.consumer, s.acked = consumer, eventlog.Start // what was acknowledged before may be lost
	signal(s.acks)
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keep subscribes, and subscribes anew when the broker closed the seat for good.
func (s *Seat) keep() {
	defer close(s.ended)
	for wait := time.Duration(0); s.take(wait); {
		select {
		case <-s.done:
			return
		case err := <-s.lost:
			s.leave(err)
			s.cfg.Log.Warn("seat lost", slog.String("topic", s.topic), slog.Any("error", err))
			wait = s.cfg.RetryWait
		case wait = <-s.back:
			s.leave(nil)
		}
	}
}

// take subscribes after a while, again and again, and says whether it did before
// the seat was closed.
func (s *Seat) take(after time.Duration) bool {
	for ; ; after = s.cfg.RetryWait {
		select {
		case <-s.done:
			return false
		case <-time.After(after):
		}
		err := s.subscribe()
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		if err == nil {
			return true
		}
		s.cfg.Log.Warn("seat not taken", slog.String("topic", s.topic), slog.Any("error", err))
	}
}

// Err is why the broker does not give the seat now; nil: it does, or was not asked yet.
func (s *Seat) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Seat) set(active bool) {
	s.mu.Lock()
	news := s.active != active
	s.active = active
	s.mu.Unlock()
	if !news { // most of the broker's messages repeat the state
		return
	}
	signal(s.changed)
}

// Active says whether the broker made this seat the active one.
func (s *Seat) Active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

// Changed receives when Active may have changed.
func (s *Seat) Changed() <-chan struct{} { return s.changed }

// Acknowledge says that nothing up to a position is needed any more. Only whole
// entries are acknowledged: the one that the position is in must wait until a
// later one was named. The broker is told in the background: to the caller it makes
// no difference when that succeeds, and one that fails is tried again.
func (s *Seat) Acknowledge(upTo eventlog.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if upTo.Ledger == s.newest.Ledger && upTo.Entry == s.newest.Entry || upTo.Compare(s.newest) <= 0 {
		return
	}
	s.due, s.newest = s.newest, upTo
	signal(s.acks)
}

// acknowledge tells the broker what may be acknowledged. The client may make it
// wait, while it reconnects; so nothing else is done here, and no lock is held.
func (s *Seat) acknowledge() {
	failing := false
	for {
		select {
		case <-s.done:
			return
		case <-s.acks:
		}
		s.mu.Lock()
		due, consumer := s.due, s.consumer
		news := due.Compare(s.acked) > 0
		s.mu.Unlock()
		if !news || consumer == nil { // a new consumer asks again
			continue
		}
		err := consumer.AckIDCumulative(pulsar.NewMessageID(due.Ledger, due.Entry, -1, 0))
		if err == nil {
			failing = false
			s.mu.Lock()
			s.acked = due
			s.mu.Unlock()
			continue
		}
		if !failing {
			failing = true
			s.cfg.Log.Warn("not acknowledged; it is tried again, and until then the broker keeps more than it has to",
				slog.String("topic", s.topic), slog.String("position", due.String()), slog.Any("error", err))
		}
		select {
		case <-s.done:
		case <-time.After(s.cfg.RetryWait):
			signal(s.acks)
		}
	}
}

// Acknowledged is the last position that was acknowledged here.
func (s *Seat) Acknowledged() eventlog.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// Close gives up the seat; the subscription stays. Where the broker does not answer,
// it waits for a second, and the rest happens in the background.
func (s *Seat) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.done)
	left := make(chan struct{})
	go func() {
		defer close(left)
		s.leave(nil)
		<-s.ended
	}()
	select {
	case <-left:
	case <-time.After(closeWait):
	}
	return nil
}

// StepBack leaves the partition to others for a while.
func (s *Seat) StepBack(d time.Duration) {
	select {
	case s.back <- d:
	default:
	}
}

func (s *Seat) leave(why error) {
	s.mu.Lock()
	consumer := s.consumer
	s.consumer, s.err = nil, why
	s.mu.Unlock()
	s.set(false)
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

// listener hears from the client, on its connection's goroutine: it must not wait.
type listener struct{ s *Seat }

func (l listener) BecameActive(pulsar.Consumer, string, int32)   { l.s.set(true) }
func (l listener) BecameInactive(pulsar.Consumer, string, int32) { l.s.set(false) }

func (listener) BeforeConsume(pulsar.ConsumerMessage)                   {}
func (listener) OnAcknowledge(pulsar.Consumer, pulsar.MessageID)        {}
func (listener) OnNegativeAcksSend(pulsar.Consumer, []pulsar.MessageID) {}

// OnConsumerClose is called once per consumer; without an error, we closed it.
func (l listener) OnConsumerClose(_ pulsar.Consumer, err error) {
	if err == nil {
		return
	}
	select {
	case l.s.lost <- err:
	default:
	}
}
