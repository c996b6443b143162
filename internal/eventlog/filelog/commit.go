package filelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
)

// tail is the write position of a partition. Log.committing guards it.
type tail struct {
	dir     vfs.File // the partition's directory, for syncing it
	file    vfs.File // the last segment; nil if there is none
	segment int64
	seed    uint32
	offset  int64
	next    int64             // ordinal of the next frame
	durable int64             // frames below this ordinal are durable
	last    eventlog.Position // of the last message written
	dirty   bool              // written, not synced yet
	scratch []byte
}

// runner is the goroutine that commits.
type runner struct {
	quit, done chan struct{}
}

func (r *runner) start(l *Log) {
	r.quit, r.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(r.done)
		for {
			select {
			case <-l.queue.work:
			case <-r.quit:
				return
			}
			if l.commit() != nil {
				return // the queue keeps the error
			}
		}
	}()
}

func (r *runner) stop() {
	if r.quit != nil {
		close(r.quit)
		<-r.done
	}
}

// Commit makes queued messages durable, in the caller's goroutine. Only a Manual log
// needs it.
func (l *Log) Commit() error { return l.commit() }

// Flush waits until everything appended before the call is durable.
func (l *Log) Flush(ctx context.Context) error {
	if l.cfg.Manual {
		return l.commit()
	}
	return l.queue.awaitDurable(ctx)
}

// AppendSync appends messages and waits until they are durable.
func (l *Log) AppendSync(ctx context.Context, p int, msgs []eventlog.Message) error {
	if err := l.Append(p, msgs); err != nil {
		return err
	}
	return l.Flush(ctx)
}

// commit writes queued messages, syncs each file once, and only then notifies readers.
// If a write or a sync fails, it announces nothing of this commit, and the log has
// failed.
func (l *Log) commit() error {
	l.committing.Lock()
	defer l.committing.Unlock()
	frames, upTo, err := l.queue.take()
	if err != nil {
		return err
	}
	err = l.write(frames)
	l.queue.settle(frames, upTo, err)
	if err != nil {
		err = l.queue.failed()
		for _, p := range l.parts {
			p.end(err)
		}
	}
	return err
}

func (l *Log) write(frames [][]pending) error {
	for id, fs := range frames {
		for _, f := range fs {
			if err := l.parts[id].write(f, l.cfg); err != nil {
				return err
			}
		}
	}
	var touched []*partition
	for id, fs := range frames {
		if len(fs) > 0 {
			touched = append(touched, l.parts[id])
		}
	}
	if err := l.sync(touched); err != nil {
		return err
	}
	for _, p := range touched {
		if err := p.announce(); err != nil {
			return err
		}
	}
	return nil
}

// maxSyncs is the maximum number of concurrent syncs.
const maxSyncs = 32

// sync syncs the partitions concurrently: file systems combine waiting syncs into one
// journal commit, which is worth a goroutine each (BenchmarkAppendSyncPartitions). A
// Manual log uses no goroutines.
func (l *Log) sync(parts []*partition) error {
	if l.cfg.Manual || len(parts) == 1 {
		for _, p := range parts {
			if err := p.sync(); err != nil {
				return err
			}
		}
		return nil
	}
	for some := range slices.Chunk(parts, maxSyncs) {
		errs := make([]error, len(some))
		var all sync.WaitGroup
		for i, p := range some {
			all.Go(func() { errs[i] = p.sync() })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// write writes a frame after the last one.
func (p *partition) write(f pending, c Config) error {
	t := &p.tail
	buf, h := f.buf, frameHeader{codec: CodecNone, count: f.count, raw: len(f.buf) - frameHeaderBytes}
	if c.Codec == CodecS2 {
		var small bool
		if t.scratch, small = compress(t.scratch, f.buf[frameHeaderBytes:]); small {
			buf, h.codec = t.scratch, CodecS2
		}
	}
	full := t.file != nil && t.offset > segmentHeaderBytes && t.offset+int64(len(buf)) > c.SegmentBytes
	if t.file == nil || full {
		if err := p.roll(c.Now().UnixNano()); err != nil {
			return err
		}
	}
	h.stored = len(buf) - frameHeaderBytes
	h.bodyCRC = checksum(buf[frameHeaderBytes:])
	h.ordinal, h.synced = t.next, t.durable
	h.put(buf, t.seed)
	t.dirty = true
	if _, err := t.file.WriteAt(buf, t.offset); err != nil {
		return fmt.Errorf("write %s: %w", p.segmentPath(t.segment), err)
	}
	t.offset += int64(len(buf))
	t.last = eventlog.Position{Ledger: t.segment, Entry: t.next, Batch: int32(f.count - 1)}
	t.next++
	return nil
}

// roll starts a new segment. Everything written earlier is durable before the new file
// exists, and its header and name are durable before its first frame: recovery relies
// on both.
func (p *partition) roll(now int64) error {
	t := &p.tail
	if t.file != nil {
		if err := p.sync(); err != nil {
			return err
		}
		f := t.file
		t.file = nil
		if err := f.Close(); err != nil {
			return fmt.Errorf("close %s: %w", p.segmentPath(t.segment), err)
		}
	}
	path := p.segmentPath(t.next)
	f, err := p.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create segment: %w", err)
	}
	t.file = f
	h := segmentHeader{partition: p.id, first: t.next, created: now, previous: t.last}
	b, seed := h.encode()
	if _, err := f.WriteAt(b, 0); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	if err := t.dir.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", p.dir, err)
	}
	t.segment, t.seed, t.offset = t.next, seed, segmentHeaderBytes
	return nil
}

func (p *partition) sync() error {
	t := &p.tail
	if !t.dirty {
		return nil
	}
	if err := t.file.SyncData(); err != nil {
		return fmt.Errorf("sync %s: %w", p.segmentPath(t.segment), err)
	}
	t.dirty, t.durable = false, t.next
	return nil
}

// announce publishes the durable end to other processes, then to this process's
// readers.
func (p *partition) announce() error {
	t := &p.tail
	m := mark{segment: t.segment, offset: t.offset, next: t.next, last: t.last}
	if err := p.synced.write(m); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark = m
	p.wake()
	return nil
}

// end tells readers that no more messages will come, and why.
func (p *partition) end(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = why
	p.wake()
}

// wake signals each reader. The caller holds p.mu.
func (p *partition) wake() {
	for r := range p.readers {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
}
