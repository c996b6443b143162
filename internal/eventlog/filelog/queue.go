package filelog

import (
	"context"
	"fmt"
	"io/fs"
	"sync"

	"github.com/refloat/refloat/internal/eventlog"
)

// maxSpare is the maximum number of buffers kept for reuse.
const maxSpare = 64

// pending is a frame that is not committed yet: room for a header, then the body.
type pending struct {
	buf   []byte
	count int
}

// queue holds appended messages that no commit has taken yet.
type queue struct {
	cfg Config

	mu       sync.Mutex
	frames   [][]pending // by partition, oldest first
	spare    [][]byte    // buffers for reuse
	bytes    int64
	appended uint64 // number of appends so far
	durable  uint64 // how many of them are durable
	err      error  // with which the log failed, permanently
	closed   bool
	turn     chan struct{} // closed and replaced when one of the above changes
	work     chan struct{} // holds a token when there is something to commit
}

func (q *queue) init(c Config) {
	q.cfg = c
	q.turn = make(chan struct{})
	q.work = make(chan struct{}, 1)
}

// Append queues messages for a partition, in order. It copies them and ignores their
// Position and Publish. It does not wait until they are durable, but while the queue is
// full it waits for a commit (a Manual log returns an error instead).
//
// The messages of one call are not atomic: after a crash, the log may hold only the
// first of them.
func (l *Log) Append(p int, msgs []eventlog.Message) error {
	if _, err := l.partition(p); err != nil {
		return err
	}
	if l.cfg.ReadOnly {
		return fmt.Errorf("filelog: log %s is open read-only", l.cfg.Dir)
	}
	for i := range msgs {
		if n := messageBytes(&msgs[i]); n > maxFrameBytes {
			return fmt.Errorf("filelog: message of %d bytes; the maximum is %d: %w", n, maxFrameBytes, eventlog.ErrTooLarge)
		}
	}
	return l.queue.add(p, msgs)
}

func (q *queue) add(p int, msgs []eventlog.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.bytes >= q.cfg.QueueBytes && q.usable() == nil {
		if q.cfg.Manual {
			return fmt.Errorf("filelog: the queue is full with %d bytes: call Commit", q.bytes)
		}
		q.wait(context.Background())
	}
	if err := q.usable(); err != nil {
		return err
	}
	if q.frames == nil {
		q.frames = make([][]pending, q.cfg.Partitions)
	}
	publish := q.cfg.Now().UnixNano()
	for i := range msgs {
		f := q.frameFor(p, messageBytes(&msgs[i]))
		before := len(f.buf)
		f.buf = appendMessage(f.buf, &msgs[i], publish)
		f.count++
		q.bytes += int64(len(f.buf) - before)
	}
	q.appended++
	select {
	case q.work <- struct{}{}:
	default:
	}
	return nil
}

// frameFor returns the partition's frame for n more bytes.
func (q *queue) frameFor(p int, n int64) *pending {
	waiting := q.frames[p]
	if k := len(waiting); k > 0 && int64(len(waiting[k-1].buf))+n <= q.cfg.FrameBytes {
		return &waiting[k-1]
	}
	var buf []byte
	if k := len(q.spare); k > 0 {
		buf, q.spare = q.spare[k-1], q.spare[:k-1]
	}
	if buf == nil {
		buf = make([]byte, 0, 4096)
	}
	q.frames[p] = append(waiting, pending{buf: append(buf[:0], make([]byte, frameHeaderBytes)...)})
	return &q.frames[p][len(q.frames[p])-1]
}

// usable returns why nothing can be appended. The caller holds q.mu.
func (q *queue) usable() error {
	if q.err != nil {
		return q.err
	}
	if q.closed {
		return fmt.Errorf("filelog: log %s: %w", q.cfg.Dir, fs.ErrClosed)
	}
	return nil
}

// wait releases q.mu until something changes or the context ends.
func (q *queue) wait(ctx context.Context) {
	turn := q.turn
	q.mu.Unlock()
	select {
	case <-turn:
	case <-ctx.Done():
	}
	q.mu.Lock()
}

func (q *queue) moveOn() {
	close(q.turn)
	q.turn = make(chan struct{})
}

// take removes and returns the queued frames, and the number of appends up to and
// including them.
func (q *queue) take() ([][]pending, uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil, 0, q.err
	}
	frames := q.frames
	q.frames, q.bytes = nil, 0
	q.moveOn() // the queue has room again
	return frames, q.appended, nil
}

// settle records the result of a commit and reclaims its buffers.
func (q *queue) settle(frames [][]pending, upTo uint64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.err = fmt.Errorf("filelog: log %s has failed and must be reopened: %w", q.cfg.Dir, err)
	} else {
		q.durable = upTo
	}
	for _, written := range frames {
		for _, f := range written {
			if len(q.spare) < maxSpare && int64(cap(f.buf)) <= 2*q.cfg.FrameBytes {
				q.spare = append(q.spare, f.buf)
			}
		}
	}
	q.moveOn()
}

// shut ends a closed queue: there will be no more commits.
func (q *queue) shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = fmt.Errorf("filelog: log %s: %w", q.cfg.Dir, fs.ErrClosed)
	}
	q.moveOn()
}

func (q *queue) failed() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// close rejects further appends. It reports false if the queue was closed already.
func (q *queue) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.closed = true
	q.moveOn()
	return true
}

// awaitDurable waits until everything appended so far is durable.
func (q *queue) awaitDurable(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	upTo := q.appended
	for q.durable < upTo {
		if q.err != nil {
			return q.err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("filelog: flush: %w", err)
		}
		q.wait(ctx)
	}
	return nil
}
