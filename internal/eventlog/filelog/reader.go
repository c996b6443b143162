package filelog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/refloat/refloat/internal/eventlog"
)

// reader reads one partition. It knows its segment, the end of the durable data in it,
// and the ordinal of the next frame: any other frame, or none, is damage.
type reader struct {
	part    *partition
	changed chan struct{}
	err     error // permanent

	file    *segmentFile // nil: not open yet
	segment int64
	win     window
	offset  int64 // of the next frame
	next    int64 // its ordinal
	until   int64 // the first ordinal that is not in this segment, or not durable
	mark    mark  // as last seen

	body bodyReader
	// Of the file, and of bodies that were decompressed.
	chunks, bodies memory
	skip           eventlog.Position // messages up to it are skipped
}

// Read implements [eventlog.Reader].
func (r *reader) Read(dst []eventlog.Message) (int, error) {
	n, size := 0, 0
	for n < len(dst) && size < eventlog.ReadBytes && r.err == nil {
		if r.body.left == 0 {
			if more, err := r.advance(); err != nil {
				r.err = fmt.Errorf("filelog: read partition %d: %w", r.part.id, err)
				break
			} else if !more {
				break
			}
		}
		if err := r.body.next(&dst[n]); err != nil {
			r.err = fmt.Errorf("filelog: %w", r.damage(err.Error()).err())
			break
		}
		if dst[n].Position.Compare(r.skip) > 0 {
			size += len(dst[n].Payload)
			n++
		}
	}
	if n > 0 {
		return n, nil // the next call returns the error
	}
	return 0, r.err
}

// Changed implements [eventlog.Reader]. The channel receives; it is not closed.
func (r *reader) Changed() <-chan struct{} { return r.changed }

// Close implements [eventlog.Reader].
func (r *reader) Close() error {
	r.part.mu.Lock()
	delete(r.part.readers, r)
	r.part.mu.Unlock()
	if r.err == nil {
		r.err = fmt.Errorf("filelog: reader: %w", fs.ErrClosed)
	}
	return r.closeFile()
}

// Release implements [eventlog.Release].
func (r *reader) Release() {
	r.chunks.release()
	r.bodies.release()
}

// memory is what messages are in.
type memory struct {
	releases    bool // whoever reads does
	taken, free [][]byte
}

// take returns n bytes of any content.
func (m *memory) take(n int) []byte {
	var b []byte
	if i := slices.IndexFunc(m.free, func(b []byte) bool { return cap(b) >= n }); i >= 0 {
		b = m.free[i]
		m.free = slices.Delete(m.free, i, i+1)
	} else {
		b, m.free = make([]byte, n), nil // the others are too small
	}
	if m.releases {
		m.taken = append(m.taken, b)
	}
	return b[:n]
}

// release frees what was taken, except for the last of it, of which the next Read may return more.
func (m *memory) release() {
	m.releases = true
	if last := len(m.taken) - 1; last > 0 {
		m.free = append(m.free, m.taken[:last]...)
		m.taken = slices.Delete(m.taken, 0, last)
	}
}

func (r *reader) closeFile() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file, r.win = nil, window{}
	return f.Close()
}

func (r *reader) damage(what string) damage {
	return damage{path: r.part.segmentPath(r.segment), offset: r.offset, ordinal: r.next, what: what}
}

// advance decodes the next durable frame; it returns false if there is none yet.
func (r *reader) advance() (bool, error) {
	more, err := r.seekFrame()
	if err != nil || !more {
		return false, err
	}
	h, err := r.header()
	if err != nil {
		return false, err
	}
	stored, err := r.win.at(r.offset+frameHeaderBytes, h.stored)
	if err != nil {
		return false, r.short(err)
	}
	body, err := h.open(stored, &r.bodies)
	if err != nil {
		return false, r.damage(err.Error()).err()
	}
	r.body.reset(body, h.count, eventlog.Position{Ledger: r.segment, Entry: r.next})
	r.pass(h)
	return true, nil
}

// pass moves past the frame.
func (r *reader) pass(h frameHeader) {
	r.offset += frameHeaderBytes + int64(h.stored)
	r.next++
}

// header reads the header of the next frame.
func (r *reader) header() (frameHeader, error) {
	b, err := r.win.at(r.offset, frameHeaderBytes)
	if errors.Is(err, io.EOF) && r.offset == r.win.limit {
		return frameHeader{}, r.damage("the segment ends here, but no segment begins with this frame: a segment, or the end of this one, is missing").err()
	}
	if err != nil {
		return frameHeader{}, r.short(err)
	}
	h, ok, err := parseFrameHeader(b, r.file.seed)
	switch {
	case err != nil:
		return h, r.damage(err.Error()).err()
	case !ok:
		return h, r.damage("the frame header does not match its checksum").err()
	case h.ordinal != r.next:
		return h, r.damage(fmt.Sprintf("found frame %d instead", h.ordinal)).err()
	}
	return h, nil
}

func (r *reader) short(err error) error {
	if errors.Is(err, io.EOF) {
		return r.damage("the file ends before the end of a durable frame").err()
	}
	return fmt.Errorf("%s: %w", r.part.segmentPath(r.segment), err)
}

// seekFrame makes sure that the reader's file is open and holds the next frame, moving
// to the next segment at the end of one. It returns false at the durable end.
func (r *reader) seekFrame() (bool, error) {
	if r.next >= r.mark.next {
		m, err := r.part.durable()
		if r.next >= m.next {
			return false, err
		}
		r.mark = m
		if r.file != nil {
			if err := r.bound(); err != nil {
				return false, err
			}
		}
	}
	for r.file == nil || r.next >= r.until {
		if r.file != nil {
			if err := r.closeFile(); err != nil {
				return false, fmt.Errorf("close segment: %w", err)
			}
			r.segment, r.offset = r.next, segmentHeaderBytes
		}
		if err := r.openFile(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// openFile opens the reader's segment and sets its read limit.
func (r *reader) openFile() error {
	f, err := r.part.openSegment(r.segment)
	if errors.Is(err, fs.ErrNotExist) {
		return r.missing()
	}
	if err != nil {
		return err
	}
	r.file = f
	r.win = window{file: f, from: &r.chunks, ahead: windowBytes}
	return r.bound()
}

// missing explains why the reader's segment does not exist.
func (r *reader) missing() error {
	segments, err := r.part.segments()
	if err != nil {
		return err
	}
	if len(segments) > 0 && segments[0] > r.segment {
		return fmt.Errorf("%s was deleted: the log begins with %s: %w",
			r.part.segmentPath(r.segment), segmentName(segments[0]), eventlog.ErrTrimmed)
	}
	return r.damage("the segment is missing").err()
}

// bound sets the read limit in the reader's segment, by its mark.
func (r *reader) bound() error {
	if r.mark.segment == r.segment {
		r.win.limit, r.until = r.mark.offset, r.mark.next
		return nil
	}
	// The segment is complete. Its file may have grown since it was opened.
	segments, err := r.part.segments()
	if err != nil {
		return err
	}
	r.until = r.mark.next
	for _, first := range segments {
		if first > r.segment {
			r.until = first
			break
		}
	}
	info, err := r.file.Stat()
	if err != nil {
		return fmt.Errorf("stat %s: %w", r.file.path, err)
	}
	r.win.limit = info.Size()
	return nil
}
