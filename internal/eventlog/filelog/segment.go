package filelog

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
)

const (
	segmentHeaderBytes = 64
	segmentSuffix      = ".seg"
	segmentMagic       = "\x01rfltseg"
)

// segmentHeader is at the beginning of a segment file; doc.go has the table.
type segmentHeader struct {
	partition int
	first     int64 // ordinal of the first frame; the segment's name
	created   int64
	previous  eventlog.Position // of the last message before the segment
}

// encode returns the header's bytes, and the seed of the frames' checksums.
func (h *segmentHeader) encode() ([]byte, uint32) {
	b := make([]byte, segmentHeaderBytes)
	copy(b, segmentMagic)
	le.PutUint32(b[12:], uint32(h.partition))
	le.PutUint64(b[16:], uint64(h.first))
	le.PutUint64(b[24:], uint64(h.created))
	putPosition(b[32:], h.previous)
	seed := checksum(b[12:], b[:8])
	le.PutUint32(b[8:], seed)
	return b, seed
}

// parseSegmentHeader reports false if the bytes are not a segment header.
func parseSegmentHeader(b []byte) (segmentHeader, uint32, bool) {
	if len(b) < segmentHeaderBytes {
		return segmentHeader{}, 0, false
	}
	b = b[:segmentHeaderBytes]
	seed := le.Uint32(b[8:])
	if string(b[:8]) != segmentMagic || seed != checksum(b[12:], b[:8]) {
		return segmentHeader{}, 0, false
	}
	return segmentHeader{
		partition: int(le.Uint32(b[12:])),
		first:     int64(le.Uint64(b[16:])),
		created:   int64(le.Uint64(b[24:])),
		previous:  positionAt(b[32:]),
	}, seed, true
}

func segmentName(first int64) string { return fmt.Sprintf("%020d%s", first, segmentSuffix) }

func (p *partition) segmentPath(first int64) string {
	return p.fs.PathJoin(p.dir, segmentName(first))
}

// segments lists the partition's segments by their first ordinal, ascending.
func (p *partition) segments() ([]int64, error) {
	names, err := p.fs.List(p.dir)
	if err != nil {
		return nil, fmt.Errorf("list segments: %w", err)
	}
	var firsts []int64
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, segmentSuffix)
		if !ok || len(digits) != 20 {
			continue
		}
		if first, err := strconv.ParseInt(digits, 10, 64); err == nil && first >= 0 {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

// segmentFile is a segment open for reading.
type segmentFile struct {
	vfs.File
	path string
	head segmentHeader
	seed uint32
	size int64 // when opened
}

// readSegmentHeader reads the header of an open file. It reports false if the file does
// not begin with the header of this segment.
func (p *partition) readSegmentHeader(f vfs.File, first int64) (segmentHeader, uint32, bool, error) {
	var b [segmentHeaderBytes]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return segmentHeader{}, 0, false, fmt.Errorf("read segment header: %w", err)
	}
	h, seed, ok := parseSegmentHeader(b[:n])
	return h, seed, ok && h.first == first && h.partition == p.id, nil
}

// openSegment opens a segment that is known to be durable.
func (p *partition) openSegment(first int64) (*segmentFile, error) {
	path := p.segmentPath(first)
	f, err := p.fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	s := &segmentFile{File: f, path: path}
	var ok bool
	s.head, s.seed, ok, err = p.readSegmentHeader(f, first)
	if err == nil && !ok {
		err = damage{path: path, ordinal: first, what: "the segment header is damaged"}.err()
	}
	if err == nil {
		var info vfs.FileInfo
		if info, err = f.Stat(); err == nil {
			s.size = info.Size()
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return s, nil
}
