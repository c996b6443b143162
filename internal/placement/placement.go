// Package placement says which process is to own a partition, by a Failover
// subscription on it, and keeps the broker from deleting what is still needed.
//
// Each process subscribes to each partition with a priority of its own, a
// rendezvous hash of its name and the partition: the broker makes the consumer of
// the highest priority active, so that only a joiner's or leaver's partitions move.
// The messages themselves are not read here.
//
// It is a signal, no lock: two processes may be active for a while (PROTOCOL 10).
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

// Seat is a place in the queue for one partition. Its methods may be called from
// several goroutines.
type Seat struct {
	cfg       Config
	topic     string
	partition int

	changed chan struct{}
	back    chan time.Duration
	done    chan struct{}
	lost    chan error
	ended   chan struct{}

	mu       sync.Mutex
	active   bool
	consumer pulsar.Consumer
	newest   eventlog.Position // acknowledged up to the entry before it
	acked    eventlog.Position
}

// Take takes a seat for one partition's topic ("…-partition-3"). Where the broker
// does not give it, it is asked again and again; until then the seat is not active.
func Take(c Config, topic string, partition int) (*Seat, error) {
	if c.Client == nil || c.Subscription == "" || c.Instance == "" || c.Log == nil {
		return nil, errors.New("placement: Config lacks Client, Subscription, Instance or Log")
	}
	if c.RetryWait == 0 {
		c.RetryWait = 2 * time.Second
	}
	s := &Seat{
		cfg: c, topic: topic, partition: partition, newest: eventlog.Start, acked: eventlog.Start,
		changed: make(chan struct{}, 1), back: make(chan time.Duration, 1), done: make(chan struct{}), lost: make(chan error, 1), ended: make(chan struct{}),
	}
	if err := s.subscribe(); err != nil {
		s.lost <- err // tried again, as a seat that is lost later
	}
	go s.keep()
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
	s.consumer = consumer
	return nil
}

// keep subscribes anew when the broker closed the seat for good.
func (s *Seat) keep() {
	defer close(s.ended)
	for {
		wait := s.cfg.RetryWait
		select {
		case <-s.done:
			return
		case err := <-s.lost:
			s.set(false)
			s.cfg.Log.Warn("seat lost", slog.String("topic", s.topic), slog.Any("error", err))
		case wait = <-s.back:
			s.leave()
		}
		for ; ; wait = s.cfg.RetryWait {
			select {
			case <-s.done:
				return
			case <-time.After(wait):
			}
			err := s.subscribe()
			if err == nil {
				break
			}
			s.cfg.Log.Warn("seat not taken", slog.String("topic", s.topic), slog.Any("error", err))
		}
	}
}

func (s *Seat) set(active bool) {
	s.mu.Lock()
	news := s.active != active
	s.active = active
	s.mu.Unlock()
	if !news { // most of the broker's messages repeat the state
		return
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
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
// later one was named. It never waits; an acknowledgement that is lost is made
// good by the next.
func (s *Seat) Acknowledge(upTo eventlog.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if upTo.Ledger == s.newest.Ledger && upTo.Entry == s.newest.Entry || upTo.Compare(s.newest) <= 0 {
		return nil
	}
	whole := s.newest
	s.newest = upTo
	if whole == eventlog.Start || s.consumer == nil {
		return nil
	}
	if err := s.consumer.AckIDCumulative(pulsar.NewMessageID(whole.Ledger, whole.Entry, -1, 0)); err != nil {
		return fmt.Errorf("%w: acknowledge %v of %s: %w", eventlog.ErrTransient, whole, s.topic, err)
	}
	s.acked = whole
	return nil
}

// Acknowledged is the last position that was acknowledged here.
func (s *Seat) Acknowledged() eventlog.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// Close gives up the seat at once; the subscription stays.
func (s *Seat) Close() error {
	close(s.done)
	<-s.ended
	s.leave()
	return nil
}

// StepBack leaves the partition to others for a while.
func (s *Seat) StepBack(d time.Duration) {
	select {
	case s.back <- d:
	default:
	}
}

func (s *Seat) leave() {
	s.mu.Lock()
	consumer := s.consumer
	s.consumer = nil
	s.mu.Unlock()
	if consumer != nil {
		consumer.Close()
	}
	s.set(false)
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
