package filelog

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
)

// recover finds the end of the partition, makes it durable, and sets the mark and the
// tail; doc.go describes the rules.
func (p *partition) recover() error {
	known, whole, err := p.synced.read()
	if err != nil {
		return err
	}
	if whole == 0 {
		known = emptyMark()
	}
	if p.tail.dir, err = p.fs.OpenDir(p.dir); err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	last, err := p.lastSegment(known)
	if err != nil {
		return err
	}
	p.mark = emptyMark()
	p.tail.last = eventlog.Start
	if last >= 0 {
		if err := p.recoverSegment(last, known); err != nil {
			return err
		}
	}
	// A crash may have happened between creating a file and syncing its name.
	if err := p.tail.dir.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", p.dir, err)
	}
	if whole < 2 {
		return p.synced.rebuild(p.mark)
	}
	if p.mark != known {
		return p.synced.write(p.mark)
	}
	return nil
}

// lastSegment returns the first ordinal of the last segment, or -1. It removes a last
// file without a header: a crash interrupted its creation.
func (p *partition) lastSegment(known mark) (int64, error) {
	segments, err := p.segments()
	if err != nil {
		return 0, err
	}
	if known.next > 0 && !slices.Contains(segments, known.segment) {
		return 0, damage{
			path: p.segmentPath(known.segment), ordinal: known.segment,
			what: fmt.Sprintf("the segment is missing, but was durable up to offset %d", known.offset),
		}.err()
	}
	if len(segments) == 0 {
		return -1, nil
	}
	last := segments[len(segments)-1]
	whole, err := p.headerWhole(last, known)
	if err != nil || whole {
		return last, err
	}
	if len(segments) == 1 && last > 0 {
		return 0, damage{path: p.segmentPath(last), ordinal: last, what: "the only segment has no header"}.err()
	}
	before := int64(-1)
	if len(segments) > 1 {
		before = segments[len(segments)-2]
		// It was complete before the last one was created. Only the existence of the
		// last one proves that.
		if err := p.mustReach(before, last); err != nil {
			return 0, err
		}
	}
	if err := p.fs.Remove(p.segmentPath(last)); err != nil {
		return 0, fmt.Errorf("remove unfinished segment: %w", err)
	}
	return before, nil
}

// headerWhole reports whether a segment has its header. A damaged header that was
// durable is an error.
func (p *partition) headerWhole(first int64, known mark) (bool, error) {
	path := p.segmentPath(first)
	f, err := p.fs.Open(path)
	if err != nil {
		return false, fmt.Errorf("open segment: %w", err)
	}
	defer func() { _ = f.Close() }()
	_, _, ok, err := p.readSegmentHeader(f, first)
	if err != nil || ok {
		return ok, err
	}
	info, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("stat %s: %w", path, err)
	}
	// Frames are written only after a durable header.
	if info.Size() > segmentHeaderBytes || known.next > 0 && known.segment == first {
		return false, damage{path: path, ordinal: first, what: "the segment header is damaged"}.err()
	}
	return false, nil
}

// mustReach verifies that a segment holds all frames below the ordinal.
func (p *partition) mustReach(first, ordinal int64) error {
	s, err := p.openSegment(first)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	scan := newScan(s)
	if err := scan.run(); err != nil {
		return err
	}
	if scan.next < ordinal {
		return scan.damage(fmt.Sprintf("the frame is damaged, but was durable: the next segment, %s, was created after it", segmentName(ordinal))).err()
	}
	return nil
}

// recoverSegment finds the end of the last segment and sets the tail there.
func (p *partition) recoverSegment(first int64, known mark) error {
	s, err := p.openSegment(first)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	scan, proven := newScan(s), int64(0)
	if known.next > 0 && known.segment == first {
		if known.offset > s.size {
			return damage{
				path: s.path, offset: s.size, ordinal: known.next - 1,
				what: fmt.Sprintf("the file is truncated: it was durable up to offset %d", known.offset),
			}.err()
		}
		scan.offset, scan.next, scan.last = known.offset, known.next, known.last
		proven = known.offset
	}
	if err := scan.run(); err != nil {
		return err
	}
	if err := scan.checkTorn(); err != nil {
		return err
	}
	t := &p.tail
	if t.file, err = p.fs.OpenReadWrite(s.path, vfs.WriteCategoryUnspecified); err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	if err := settleTail(s, t.file, proven, scan.offset); err != nil {
		return err
	}
	t.segment, t.seed = first, s.seed
	t.offset, t.next, t.durable, t.last = scan.offset, scan.next, scan.next, scan.last
	p.mark = mark{segment: first, offset: t.offset, next: t.next, last: t.last}
	return nil
}

// settleTail makes complete frames durable and overwrites torn ones: it rewrites
// [proven, whole) with its own content, zeroes the rest of the file, and syncs.
func settleTail(s *segmentFile, f vfs.File, proven, whole int64) error {
	written := false
	buf := make([]byte, min(1<<20, max(1, s.size-proven)))
	for off := proven; off < s.size; {
		b := buf[:min(int64(len(buf)), s.size-off)]
		if off < whole {
			b = b[:min(int64(len(b)), whole-off)]
		}
		if _, err := s.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", s.path, err)
		}
		if off < whole || !allZero(b) {
			if off >= whole {
				clear(b)
			}
			if _, err := f.WriteAt(b, off); err != nil {
				return fmt.Errorf("write %s: %w", s.path, err)
			}
			written = true
		}
		off += int64(len(b))
	}
	if !written {
		return nil
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.path, err)
	}
	return nil
}
