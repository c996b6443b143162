package filelog

import (
	"context"
	"fmt"
	"io/fs"
	"sync"

	"github.com/refloat/refloat/internal/eventlog"
)

// maxSpare bounds how many buffers are kept for use again.
const maxSpare = 64

// pending is a frame that waits for a commit: room for a header, then the body.
type pending struct {
	buf   []byte
	count int
}

// queue holds what was appended and is not yet taken by a commit.
type queue struct {
	cfg Config

	mu       sync.Mutex
	frames   [][]pending // by partition, oldest first
	spare    [][]byte    // buffers to use again
	bytes    int64
	appended uint64 // number of appends so far
	durable  uint64 // how many of them are durable
	err      error  // by which the log failed, for good
	closed   bool
	turn     chan struct{} // closed and replaced whenever one of the above moves on
	work     chan struct{} // holds a token when there is something to commit
}

func (q *queue) init(c Config) {
	q.cfg = c
	q.turn = make(chan struct{})
	q.work = make(chan struct{}, 1)
}

// Append queues messages for a partition, in order, behind what was queued
// before. It copies them; their Position and Publish are not looked at. It does
// not wait until they are durable, but while the queue is full it waits for a
// commit (or, when the log is Manual, returns an error).
//
// Messages of one call are not one unit: after a crash a first part of them may
// be in the log.
func (l *Log) Append(p int, msgs []eventlog.Message) error {
	if _, err := l.partition(p); err != nil {
		return err
	}
	if l.cfg.ReadOnly {
		return fmt.Errorf("filelog: log %s is open for reading only", l.cfg.Dir)
	}
	for i := range msgs {
		if n := messageBytes(&msgs[i]); n > maxFrameBytes {
			return fmt.Errorf("filelog: message of %d bytes; %d are possible: %w", n, maxFrameBytes, eventlog.ErrTooLarge)
		}
	}
	return l.queue.add(p, msgs)
}

func (q *queue) add(p int, msgs []eventlog.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.bytes >= q.cfg.QueueBytes && q.usable() == nil {
		if q.cfg.Manual {
			return fmt.Errorf("filelog: %d bytes are queued; commit them", q.bytes)
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

// frameFor returns the frame of the partition that takes n more bytes.
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

// usable says why nothing can be appended. q.mu is held.
func (q *queue) usable() error {
	if q.err != nil {
		return q.err
	}
	if q.closed {
		return fmt.Errorf("filelog: log %s: %w", q.cfg.Dir, fs.ErrClosed)
	}
	return nil
}

// wait lets go of q.mu until something moves on or the context ends.
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

// take hands over what is queued, and the number of appends that it and
// everything before it make up.
func (q *queue) take() ([][]pending, uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil, 0, q.err
	}
	frames := q.frames
	q.frames, q.bytes = nil, 0
	q.moveOn() // there is room again
	return frames, q.appended, nil
}

// settle records the result of a commit and takes its buffers back.
func (q *queue) settle(frames [][]pending, upTo uint64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.err = fmt.Errorf("filelog: log %s failed and takes nothing more until it is opened again: %w", q.cfg.Dir, err)
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

// shut is the end of a closed queue: there will be no commit any more.
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

// close lets nothing more in. It reports false when it was closed already.
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
