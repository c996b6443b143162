package filelog

import (
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/s2"
)

const frameHeaderBytes = 40

// frameHeader precedes the body of a frame; doc.go has the table.
type frameHeader struct {
	bodyCRC uint32
	stored  int // length of the body in the file
	raw     int // length of the body when decompressed
	codec   Codec
	count   int
	ordinal int64
	synced  int64
}

func (h *frameHeader) put(b []byte, seed uint32) {
	b = b[:frameHeaderBytes]
	clear(b)
	le.PutUint32(b[4:], h.bodyCRC)
	le.PutUint32(b[8:], uint32(h.stored))
	le.PutUint32(b[12:], uint32(h.raw))
	b[16] = byte(h.codec)
	le.PutUint32(b[20:], uint32(h.count))
	le.PutUint64(b[24:], uint64(h.ordinal))
	le.PutUint64(b[32:], uint64(h.synced))
	le.PutUint32(b, crc32.Update(seed, castagnoli, b[4:]))
}

// parseFrameHeader parses a header. It returns false if the checksum does not match,
// and an error if it does but this version cannot understand the header; such a frame
// must not be treated as torn.
func parseFrameHeader(b []byte, seed uint32) (frameHeader, bool, error) {
	b = b[:frameHeaderBytes]
	if le.Uint32(b) != crc32.Update(seed, castagnoli, b[4:]) {
		return frameHeader{}, false, nil
	}
	h := frameHeader{
		bodyCRC: le.Uint32(b[4:]),
		stored:  int(le.Uint32(b[8:])),
		raw:     int(le.Uint32(b[12:])),
		codec:   Codec(b[16]),
		count:   int(le.Uint32(b[20:])),
		ordinal: int64(le.Uint64(b[24:])),
		synced:  int64(le.Uint64(b[32:])),
	}
	switch {
	case h.codec > CodecS2 || !allZero(b[17:20]):
		return h, true, fmt.Errorf("the frame has %v, which this version does not support", h.codec)
	case h.stored > maxFrameBytes || h.raw > maxFrameBytes,
		h.codec == CodecNone && h.stored != h.raw:
		return h, true, fmt.Errorf("the frame's lengths %d and %d are impossible", h.stored, h.raw)
	case h.count < 1 || h.count > h.raw/minMessageBytes:
		return h, true, fmt.Errorf("the frame's count of %d messages is impossible", h.count)
	case h.ordinal < 0 || h.synced < 0 || h.synced > h.ordinal:
		return h, true, fmt.Errorf("the frame's ordinals %d and %d are impossible", h.ordinal, h.synced)
	}
	return h, true, nil
}

// open verifies the stored body and returns it decompressed. An uncompressed result
// aliases the stored body.
func (h *frameHeader) open(stored []byte, to *memory) ([]byte, error) {
	if checksum(stored) != h.bodyCRC {
		return nil, fmt.Errorf("the frame body does not match its checksum")
	}
	if h.codec == CodecNone {
		return stored, nil
	}
	if n, err := s2.DecodedLen(stored); err != nil || n != h.raw {
		return nil, fmt.Errorf("the frame body does not decompress to %d bytes", h.raw)
	}
	body, err := s2.Decode(to.take(h.raw), stored)
	if err != nil {
		return nil, fmt.Errorf("decompress the frame body: %w", err)
	}
	return body, nil
}

// compress returns the compressed body with room for a header before it, or false if
// that would save less than an eighth.
func compress(scratch, body []byte) ([]byte, bool) {
	if len(body) < 64 {
		return scratch, false
	}
	need := frameHeaderBytes + s2.MaxEncodedLen(len(body))
	if cap(scratch) < need {
		scratch = make([]byte, need)
	}
	scratch = scratch[:need]
	enc := s2.Encode(scratch[frameHeaderBytes:], body)
	if len(enc) > len(body)-len(body)/8 {
		return scratch, false
	}
	return scratch[:frameHeaderBytes+len(enc)], true
}
