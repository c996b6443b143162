package filelog

import (
	"errors"
	"fmt"
	"io"

	"github.com/refloat/refloat/internal/eventlog"
)

// scan reads the complete frames of a segment and stops at the first offset without
// one.
type scan struct {
	file   *segmentFile
	win    window
	offset int64
	next   int64
	last   eventlog.Position
}

func newScan(s *segmentFile) *scan {
	return &scan{
		file: s, win: window{file: s, limit: s.size, ahead: windowBytes},
		offset: segmentHeaderBytes, next: s.head.first, last: s.head.previous,
	}
}

func (s *scan) damage(what string) damage {
	return damage{path: s.file.path, offset: s.offset, ordinal: s.next, what: what}
}

func (s *scan) run() error {
	for {
		h, whole, err := s.frame()
		if err != nil || !whole {
			return err
		}
		s.last = eventlog.Position{Ledger: s.file.head.first, Entry: s.next, Batch: int32(h.count - 1)}
		s.offset += frameHeaderBytes + int64(h.stored)
		s.next++
	}
}

// frame reads the frame at the current offset. A complete frame that this version
// cannot understand, or that is not the next one, is an error: it must not be
// overwritten.
func (s *scan) frame() (frameHeader, bool, error) {
	b, err := s.win.at(s.offset, frameHeaderBytes)
	if errors.Is(err, io.EOF) {
		return frameHeader{}, false, nil
	}
	if err != nil {
		return frameHeader{}, false, fmt.Errorf("%s: %w", s.file.path, err)
	}
	h, ok, err := parseFrameHeader(b, s.file.seed)
	if err != nil {
		return h, false, s.damage(err.Error()).err()
	}
	if !ok {
		return h, false, nil
	}
	if h.ordinal != s.next {
		return h, false, s.damage(fmt.Sprintf("found frame %d instead", h.ordinal)).err()
	}
	body, err := s.win.at(s.offset+frameHeaderBytes, h.stored)
	if errors.Is(err, io.EOF) {
		return h, false, nil
	}
	if err != nil {
		return h, false, fmt.Errorf("%s: %w", s.file.path, err)
	}
	return h, checksum(body) == h.bodyCRC, nil
}

// checkTorn searches after the current offset for a frame that proves that this offset
// was durable.
func (s *scan) checkTorn() error {
	const step = 1 << 20
	for off := s.offset; off+frameHeaderBytes <= s.file.size; off += step {
		b, err := s.win.at(off, int(min(step+frameHeaderBytes-1, s.file.size-off)))
		if err != nil {
			return fmt.Errorf("%s: %w", s.file.path, err)
		}
		for i := 0; i+frameHeaderBytes <= len(b); i++ {
			if h, ok := s.proof(b[i:]); ok {
				return s.damage(fmt.Sprintf("the frame is damaged, but was durable: frame %d at offset %d was written after the frames below %d were synced",
					h.ordinal, off+int64(i), h.synced)).err()
			}
		}
	}
	return nil
}

// proof reports whether the bytes are the header of a later frame that was written when
// the frame at the current offset was durable. It does cheap checks first.
func (s *scan) proof(b []byte) (frameHeader, bool) {
	if b[17]|b[18]|b[19] != 0 || int64(le.Uint64(b[24:])) <= s.next || int64(le.Uint64(b[32:])) <= s.next {
		return frameHeader{}, false
	}
	h, ok, err := parseFrameHeader(b, s.file.seed)
	return h, ok && err == nil
}
