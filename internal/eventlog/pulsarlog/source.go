package pulsarlog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/backoff"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/refloat/refloat/internal/eventlog"
)

// source is one Reader of the client, up to its first reconnect.
//
// The client's reader is not used after a reconnect: it would continue after the messages
// that its dispatcher held, so that up to a batch is lost, and it creates a deleted topic
// again if the broker permits. The only public sign of a reconnect is that the client
// requests a back-off policy, before it drops anything; a message that was received
// before that request is safe.
type source struct {
	cluster *Cluster
	part    *partition
	name    string // of the subscription
	reader  pulsar.Reader
	from    entryID // where it starts; the client may report this one again

	ctx    context.Context // ends when the source is of no more use
	cancel context.CancelFunc

	policies atomic.Int32 // number of the client's requests for a policy
	asked    atomic.Int32 // of them, those caused by a request of ours
	fault    atomic.Pointer[fault]
}

type entryID struct{ ledger, entry int64 }

// fault is an entry that the client skipped.
type fault struct {
	at  entryID
	err error
}

// before reports whether a message precedes the fault in the same ledger. A message of
// another ledger may precede it, too, but that is unknown.
func (f *fault) before(m pulsar.Message) bool {
	id := m.ID()
	return id.LedgerID() == f.at.ledger && id.EntryID() < f.at.entry
}

// drainFor is how long a source waits for messages in the client's queues.
const drainFor = 500 * time.Millisecond

// errReconnected ends a source; another one continues.
var errReconnected = errors.New("connection of the reader was lost")

// newSource opens a reader at a position, inclusive.
func (k *Cluster) newSource(p *partition, at pulsar.MessageID, queue int) (*source, error) {
	s := &source{cluster: k, part: p, name: "refloat-" + rand.Text(), from: entryID{at.LedgerID(), at.EntryID()}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	k.sources.Store(s.name, s)
	latest := at == pulsar.LatestMessageID()
	r, err := bounded(k.ctx, k, 2*k.cfg.OperationTimeout, func() (pulsar.Reader, error) {
		return k.client.CreateReader(pulsar.ReaderOptions{
			Topic:                   p.name,
			SubscriptionName:        s.name,
			StartMessageID:          at,
			StartMessageIDInclusive: !latest, // inclusive, the latest one is fetched
			ReceiverQueueSize:       queue,
			Decryption:              &pulsar.MessageDecryptionInfo{ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionConsume},
			BackoffPolicyFunc:       s.policy,
		})
	}, pulsar.Reader.Close)
	if err != nil {
		k.sources.Delete(s.name)
		s.cancel()
		return nil, err
	}
	s.reader = r
	return s, nil
}

// policy is called by the client when it reconnects, and when we request the end.
func (s *source) policy() backoff.Policy {
	if s.policies.Add(1) > s.asked.Load() {
		s.cancel()
	}
	return &delays{}
}

func (s *source) reconnected() bool { return s.policies.Load() > s.asked.Load() }

// leftOut is called by the client's log, on its connection's goroutine: earlier
// messages are in the client's queues by then.
func (s *source) leftOut(at entryID, text string) {
	if _, known := s.part.empty.Load(at); known && at == s.from {
		return // an empty message that was read before
	}
	s.fault.CompareAndSwap(nil, &fault{at, &undecodable{at, fmt.Errorf("the client cannot decode entry %d:%d and skips it (%s): %w",
		at.ledger, at.entry, text, eventlog.ErrCorrupt)}})
	s.cancel()
}

// lostChunk is called by the client's log. The entry at which a source starts
// was read before; it may be the last chunk of a message.
func (s *source) lostChunk(at entryID, known bool, text string) {
	if known && at == s.from {
		return
	}
	s.leftOut(at, "a chunked message whose first chunk precedes the start position: "+text)
}

// end returns the last message's position, or [eventlog.Start].
func (s *source) end() (eventlog.Position, error) {
	s.asked.Add(1)
	id, err := bounded(s.cluster.ctx, s.cluster, s.cluster.cfg.OperationTimeout, s.reader.GetLastMessageID, nil)
	if err != nil {
		return eventlog.Position{}, err
	}
	if id.EntryID() < 0 {
		return eventlog.Start, nil
	}
	return position(id), nil
}

// next returns the next message. A limit of 0 means no limit.
func (s *source) next(limit time.Duration) (pulsar.Message, error) {
	ctx := s.ctx
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
		defer context.AfterFunc(s.cluster.ctx, cancel)()
	}
	m, err := s.reader.Next(ctx)
	if f := s.fault.Load(); f != nil && !s.reconnected() {
		return s.upTo(f, m, err)
	}
	// Only now: what was received before the sign is safe.
	switch {
	case s.reconnected():
		return nil, errReconnected
	case err == nil:
		return m, nil
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("the broker did not deliver within %v: %w", limit, eventlog.ErrTransient)
	case s.ctx.Err() != nil:
		return nil, err
	case limit > 0 && s.cluster.ctx.Err() != nil:
		return nil, s.cluster.ctx.Err()
	}
	return nil, errReconnected // the client closed it
}

// upTo returns the messages before a fault, which are in the client's queues, and
// then the fault.
func (s *source) upTo(f *fault, m pulsar.Message, err error) (pulsar.Message, error) {
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drainFor)
		defer cancel()
		m, err = s.reader.Next(ctx)
	}
	if err == nil && f.before(m) && !s.reconnected() {
		return m, nil
	}
	return nil, f.err
}

// close closes the source without waiting, because the client may be reconnecting.
func (s *source) close() {
	s.cancel()
	go func() {
		s.reader.Close()
		s.cluster.sources.Delete(s.name)
	}()
}

// delays grow from 100 ms to the maximum.
type delays struct{ last time.Duration }

func newDelays() backoff.Policy { return &delays{} }

func (d *delays) Next() time.Duration {
	d.last = min(max(2*d.last, 100*time.Millisecond), maxReconnectDelay)
	return d.last
}
func (d *delays) IsMaxBackoffReached() bool { return d.last >= maxReconnectDelay }
func (d *delays) Reset()                    { d.last = 0 }

// position normalises an id: Batch is 0 outside a batch.
func position(id pulsar.MessageID) eventlog.Position {
	return eventlog.Position{Ledger: id.LedgerID(), Entry: id.EntryID(), Batch: max(id.BatchIdx(), 0)}
}

// positionOf returns the position of a received message.
func positionOf(m pulsar.Message) eventlog.Position {
	at := position(m.ID())
	if c := m.GetEncryptionContext(); c != nil {
		at.Batch = int32(max(c.BatchSize-1, 0)) // the whole entry came as one message
	}
	return at
}
