package pulsarlog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/refloat/refloat/internal/eventlog"
)

const (
	// What a reader buffers for Read, in addition to the client's own queue.
	maxBufferedBytes = 16 << 20
	maxBuffered      = 16 << 10
	// How long to wait for operations that also end by themselves in the background.
	closeWait = 5 * time.Second
)

// reader reads one partition. One goroutine receives and fills pending; Read
// empties it, a slice at a time.
type reader struct {
	topic   *Topic
	part    *partition
	changed chan struct{}
	room    chan struct{} // receives when Read has made room
	stop    chan struct{}
	stopped chan struct{}
	close   sync.Once

	ready []eventlog.Message // used only by Read
	given int                // number of messages in ready that Read has returned

	mu      sync.Mutex
	pending []eventlog.Message
	bytes   int   // of pending
	err     error // returned after pending; permanent, unless away
	away    bool  // err is a lost connection that the reader keeps trying to restore

	last    eventlog.Position // of the last message put into pending; used only by the goroutine
	rest    int               // messages of its batch after it; unused if index proves more
	index   *uint64           // the broker's index of it, if known
	dropped atomic.Int64
}

// Read implements [eventlog.Reader].
func (r *reader) Read(dst []eventlog.Message) (int, error) {
	n, size := 0, 0
	for n < len(dst) && size < eventlog.ReadBytes {
		if r.given == len(r.ready) {
			if err := r.swap(); err != nil && n == 0 {
				return 0, err
			}
			if len(r.ready) == 0 {
				break
			}
		}
		dst[n] = r.ready[r.given]
		r.ready[r.given] = eventlog.Message{} // the payload belongs to dst now
		size += len(dst[n].Payload)
		r.given++
		n++
	}
	if n > 0 {
		r.part.reached(dst[n-1].Position)
	}
	return n, nil
}

// swap takes the pending messages, or else the error.
func (r *reader) swap() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.given = 0
	if len(r.pending) == 0 {
		r.ready = r.ready[:0]
		return r.err
	}
	r.ready, r.pending, r.bytes = r.pending, r.ready[:0], 0
	signal(r.room)
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Changed implements [eventlog.Reader]. The channel receives.
func (r *reader) Changed() <-chan struct{} { return r.changed }

// Dropped returns the number of messages that arrived again and were dropped.
func (r *reader) Dropped() int64 { return r.dropped.Load() }

// Close implements [eventlog.Reader]. It waits for the connection only for a short
// time.
func (r *reader) Close() error {
	r.close.Do(func() { close(r.stop) })
	r.topic.cluster.wait(r.stopped, closeWait)
	r.fail(fmt.Errorf("pulsarlog: reader: %w", fs.ErrClosed))
	return nil
}

func (r *reader) fail(err error) {
	r.mu.Lock()
	if r.err == nil || r.away {
		r.err, r.away = err, false
	}
	r.mu.Unlock()
	signal(r.changed)
}

// disconnected sets the error that Read returns until there is a connection again
// (nil).
func (r *reader) disconnected(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil && !r.away {
		return
	}
	r.err, r.away = why, why != nil
	signal(r.changed)
}

// run receives from one source after another.
func (r *reader) run(s *source, first pulsar.Message) {
	defer close(r.stopped)
	for {
		err, fresh := errReconnected, true
		if s != nil {
			fresh, err = r.receive(s, first)
			s.close()
		}
		if r.closed() {
			return
		}
		s = nil
		if errors.Is(err, errReconnected) {
			s, first, err = r.reconnect()
			fresh = true
		}
		if u := (*undecodable)(nil); errors.As(err, &u) {
			err = r.passEmpty(u, fresh)
		}
		if err != nil {
			r.fail(r.topic.fail("read", r.part.id, err))
			return
		}
	}
}

// passEmpty continues after an entry that a source skipped, if that is an empty message.
func (r *reader) passEmpty(u *undecodable, fresh bool) error {
	var delay delays
	for {
		m, err := r.topic.proveEmpty(r.part, u)
		if err == nil {
			r.takeEmpty(m, fresh)
			return nil
		}
		if !errors.Is(err, eventlog.ErrTransient) {
			return err
		}
		if err := r.pause(delay.Next()); err != nil {
			return err
		}
	}
}

// pause waits, at most until the reader is closed.
func (r *reader) pause(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-r.stop:
		return fs.ErrClosed
	case <-r.topic.cluster.closed:
		return fmt.Errorf("cluster: %w", fs.ErrClosed)
	}
}

func (r *reader) closed() bool {
	select {
	case <-r.stop:
		return true
	case <-r.topic.cluster.closed:
		r.fail(r.topic.fail("read", r.part.id, fmt.Errorf("cluster: %w", fs.ErrClosed)))
		return true
	default:
		return false
	}
}

// receive reads from a source until it ends. The source is still fresh if it returned
// only messages that were read before.
func (r *reader) receive(s *source, first pulsar.Message) (fresh bool, _ error) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-r.stop:
			s.cancel()
		case <-done:
		}
	}()
	fresh = true // the source's first message follows the last one read
	if first != nil {
		if err := r.take(first, &fresh); err != nil {
			return fresh, err
		}
	}
	for {
		m, err := s.next(0)
		if err == nil {
			err = r.take(m, &fresh)
		}
		if err != nil {
			return fresh, err
		}
	}
}

// errHole: messages may be missing before this one. Only what a new source skips, too,
// does not exist.
var errHole = fmt.Errorf("%w: a message does not follow on the one before", errReconnected)

// take puts a message into pending, if it is the next one.
func (r *reader) take(m pulsar.Message, fresh *bool) error {
	at := positionOf(m)
	if at.Compare(r.last) <= 0 {
		if !*fresh {
			return fmt.Errorf("message %v follows %v: %w", at, r.last, eventlog.ErrCorrupt)
		}
		// A source begins with the entry that was read last.
		if at == r.last {
			r.follow(m)
		}
		r.dropped.Add(1)
		return nil
	}
	if !*fresh && !r.follows(m, at) {
		return errHole
	}
	*fresh = false
	r.last = at
	r.follow(m)
	return r.put(message(m, at))
}

// put puts a message into pending, and blocks until there is room.
func (r *reader) put(msg eventlog.Message) error {
	size := len(msg.Payload) + len(msg.Key)
	for {
		r.mu.Lock()
		if n := len(r.pending); n == 0 || n < maxBuffered && r.bytes+size <= maxBufferedBytes {
			r.pending = append(r.pending, msg)
			r.bytes += size
			r.mu.Unlock()
			if n == 0 {
				signal(r.changed)
			}
			return nil
		}
		r.mu.Unlock()
		select {
		case <-r.room:
		case <-r.stop:
			return fs.ErrClosed
		}
	}
}

// follow records what comes next.
func (r *reader) follow(m pulsar.Message) {
	id := m.ID()
	r.rest, r.index = 0, m.Index()
	if m.GetEncryptionContext() == nil && id.BatchSize() > 0 {
		r.rest = int(id.BatchSize()) - 1 - int(id.BatchIdx())
	}
}

// follows reports whether a message is known to be the next one.
func (r *reader) follows(m pulsar.Message, at eventlog.Position) bool {
	if i := m.Index(); i != nil && r.index != nil {
		return *i == *r.index+1
	}
	if r.rest > 0 {
		return at.Ledger == r.last.Ledger && at.Entry == r.last.Entry && at.Batch == r.last.Batch+1
	}
	first := at.Batch == 0 || m.GetEncryptionContext() != nil
	return at.Ledger == r.last.Ledger && at.Entry == r.last.Entry+1 && first
}

// reconnect opens a source after the last message. If that fails for a while, Read
// returns [eventlog.ErrTransient], and reconnect keeps trying.
func (r *reader) reconnect() (*source, pulsar.Message, error) {
	r.topic.cluster.cfg.Log.Info("reconnecting the reader", slog.String("partition", r.part.name), slog.String("after", r.last.String()))
	limit := time.NewTimer(r.topic.cluster.cfg.ReconnectFor)
	defer limit.Stop()
	defer r.disconnected(nil)
	var delay delays
	overdue := false
	for {
		_, err := r.topic.partition(r.part.id)
		if err == nil {
			var s *source
			var first pulsar.Message
			if s, first, err = r.topic.connect(r.part, r.last); err == nil {
				return s, first, nil
			}
		}
		if !errors.Is(err, eventlog.ErrTransient) {
			return nil, nil, err
		}
		if overdue {
			r.disconnected(r.topic.fail("read", r.part.id, fmt.Errorf("no connection for more than %v: %w", r.topic.cluster.cfg.ReconnectFor, err)))
		}
		again := time.NewTimer(delay.Next())
		select {
		case <-again.C:
		case <-r.stop:
			again.Stop()
			return nil, nil, fs.ErrClosed
		case <-r.topic.cluster.closed:
			again.Stop()
			return nil, nil, fmt.Errorf("cluster: %w", fs.ErrClosed)
		case <-limit.C:
			again.Stop()
			overdue = true
		}
	}
}
