package events

import (
	"errors"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

var (
	errWire = errors.New("invalid wire format")
	errUTF8 = errors.New("invalid UTF-8 in an id, queue or job set")
)

// A tag is number<<3 | wire type, and a number has 29 bits and is not 0.
const (
	minTag     = 1 << 3
	maxTag     = 1<<32 - 1
	wireType   = 7
	wireVarint = uint32(protowire.VarintType)
	wireBytes  = uint32(protowire.BytesType)
)

// malformed is the tag of what is no field.
const malformed = 0

// field is a field by its tag and its value: a varint in v, bytes in data,
// other wire types nowhere.
type field struct {
	tag  uint32
	v    uint64
	data string
}

// next cuts the first field off b, which is not empty. It accepts what
// protobuf-go accepts, so a field whose tag nobody asks for, be it for its wire
// type, is an unknown one, checked and skipped.
func next(b string) (f field, rest string) {
	if len(b) >= 2 && b[0] >= minTag && b[0]&(0x80|wireType) == byte(wireBytes) && b[1] < 0x80 {
		// Most fields: bytes, with a tag and a length of one byte each.
		end := 2 + int(b[1])
		if end > len(b) {
			return field{}, ""
		}
		return field{tag: uint32(b[0]), data: b[2:end]}, b[end:]
	}
	t, n := uvarint(b)
	if n < 0 || t < minTag || t > maxTag {
		return field{}, ""
	}
	f.tag, b = uint32(t), b[n:]
	switch f.tag & wireType {
	case wireBytes:
		v, n := uvarint(b)
		if n < 0 || v > uint64(len(b)-n) {
			return field{}, ""
		}
		end := n + int(v)
		f.data, b = b[n:end], b[end:]
		return f, b
	case wireVarint:
		f.v, n = uvarint(b)
	default: // fixed, groups, and what is no type at all
		n = protowire.ConsumeFieldValue(protowire.Number(f.tag>>3), protowire.Type(f.tag&wireType), octets(b))
	}
	if n < 0 {
		return field{}, ""
	}
	return f, b[n:]
}

// uvarint reads the varint at the start of b, as protowire.ConsumeVarint does; n < 0 if there is none.
func uvarint(b string) (v uint64, n int) {
	for n < len(b) && n < 10 {
		c := b[n]
		v |= uint64(c&0x7f) << (7 * n)
		n++
		if c < 0x80 {
			if n == 10 && c > 1 {
				return 0, -1
			}
			return v, n
		}
	}
	return 0, -1
}

// verified takes a string whose field the contract marks VERIFY.
func verified(dst *string, data string) error {
	if !utf8.ValidString(data) {
		return errUTF8
	}
	*dst = data
	return nil
}

// view is bytes as a string and octets a string as bytes, both in place. We walk
// a string because it is what we keep, and one word less to pass on than bytes.
func view(b []byte) string   { return unsafe.String(unsafe.SliceData(b), len(b)) }
func octets(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
