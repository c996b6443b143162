package chain

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/eventlog"
)

// ErrMalformed means that bytes are not a valid envelope or record.
var ErrMalformed = errors.New("malformed")

// errUnknown accompanies ErrMalformed if a newer program may have written the bytes.
var errUnknown = errors.New("unknown")

// fieldNumber is a protobuf field number.
type fieldNumber = int32

// appendTag is protowire.AppendTag for the field numbers that we use.
func appendTag(b []byte, n fieldNumber, typ protowire.Type) []byte {
	tag := uint64(n)<<3 | uint64(typ)
	if tag < 0x80 {
		return append(b, byte(tag))
	}
	return append(b, byte(tag)|0x80, byte(tag>>7))
}

// The append functions write one field, or nothing for its default.

func appendUint(b []byte, n fieldNumber, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(appendTag(b, n, protowire.VarintType), v)
}

func appendInt(b []byte, n fieldNumber, v int64) []byte { return appendUint(b, n, uint64(v)) }

func appendBool(b []byte, n fieldNumber, v bool) []byte {
	if !v {
		return b
	}
	return appendUint(b, n, 1)
}

func appendString(b []byte, n fieldNumber, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(appendTag(b, n, protowire.BytesType), v)
}

func appendBytes(b []byte, n fieldNumber, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(appendTag(b, n, protowire.BytesType), v)
}

func appendStrings(b []byte, n fieldNumber, vs []string) []byte {
	for _, v := range vs {
		b = protowire.AppendString(appendTag(b, n, protowire.BytesType), v)
	}
	return b
}

// appendPosition appends a position, also 0:0:0, and nothing for eventlog.Start.
func appendPosition(b []byte, n fieldNumber, p eventlog.Position) []byte {
	if p == eventlog.Start {
		return b
	}
	b = append(appendTag(b, n, protowire.BytesType), 0) // the size: three fields take less than 128 bytes
	start := len(b)
	b = appendInt(b, 1, p.Ledger)
	b = appendInt(b, 2, p.Entry)
	b = appendInt(b, 3, int64(p.Batch))
	b[start-1] = byte(len(b) - start)
	return b
}

// appendMessage encodes an embedded message in place: it reserves room bytes for the
// length, and shifts the message if the length needs more or fewer.
func appendMessage(b []byte, n fieldNumber, room int, body func([]byte) []byte) []byte {
	b = appendTag(b, n, protowire.BytesType)
	start := len(b)
	b = append(b, make([]byte, room)...)
	b = body(b)
	size := len(b) - start - room
	if need := protowire.SizeVarint(uint64(size)); need != room {
		if need > room {
			b = append(b, make([]byte, need-room)...)
		}
		copy(b[start+need:], b[start+room:start+room+size])
		b = b[:start+need+size]
	}
	protowire.AppendVarint(b[start:start], uint64(size))
	return b
}

// wireField is one field in wire format.
type wireField struct {
	number fieldNumber
	typ    protowire.Type
	varint uint64
	bytes  []byte

	rest      []byte // of the message, after the field
	malformed error  // why next could not read it
}

// eachField calls visit for every field of a message, in order.
func eachField(b []byte, visit func(*wireField) error) error {
	f := wireField{rest: b}
	for f.next() {
		if err := visit(&f); err != nil {
			return err
		}
	}
	return f.malformed
}

// next reads the next field of rest. It returns false at the end, and if the field is malformed.
func (f *wireField) next() bool {
	if len(f.rest) == 0 {
		return false
	}
	num, typ, n := protowire.Number(f.rest[0]>>3), protowire.Type(f.rest[0]&7), 1 // nearly every tag is one byte
	if num == 0 || f.rest[0] >= 0x80 {
		num, typ, n = protowire.ConsumeTag(f.rest)
	}
	size := n
	if n >= 0 {
		b := f.rest[n:]
		f.number, f.typ, f.varint, f.bytes = fieldNumber(num), typ, 0, nil
		switch typ {
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
	}
	if n < 0 {
		f.malformed = fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
		return false
	}
	f.rest = f.rest[size+n:]
	return true
}

func (f *wireField) uint64To(dst *uint64) error {
	if f.typ != protowire.VarintType {
		return f.wrongType()
	}
	*dst = f.varint
	return nil
}

func (f *wireField) uint32To(dst *uint32) error {
	if f.typ != protowire.VarintType || f.varint > 1<<32-1 {
		return f.wrongType()
	}
	*dst = uint32(f.varint)
	return nil
}

func (f *wireField) int64To(dst *int64) error {
	if f.typ != protowire.VarintType {
		return f.wrongType()
	}
	*dst = int64(f.varint)
	return nil
}

func (f *wireField) boolTo(dst *bool) error {
	if f.typ != protowire.VarintType || f.varint > 1 {
		return f.wrongType()
	}
	*dst = f.varint == 1
	return nil
}

func (f *wireField) stringTo(dst *string) error {
	if f.typ != protowire.BytesType {
		return f.wrongType()
	}
	*dst = string(f.bytes)
	return nil
}

func (f *wireField) stringsTo(dst *[]string) error {
	if f.typ != protowire.BytesType {
		return f.wrongType()
	}
	*dst = append(*dst, string(f.bytes))
	return nil
}

// fixedTo fills an array of exactly that size.
func (f *wireField) fixedTo(dst []byte) error {
	if f.typ != protowire.BytesType || len(f.bytes) != len(dst) {
		return f.wrongType()
	}
	copy(dst, f.bytes)
	return nil
}

func (f *wireField) positionTo(dst *eventlog.Position) error {
	if f.typ != protowire.BytesType {
		return f.wrongType()
	}
	*dst = eventlog.Position{}
	part := wireField{rest: f.bytes} // a loop: eachField would allocate it, and most records have a position
	for part.next() {
		var err error
		var batch int64
		switch part.number {
		case 1:
			err = part.int64To(&dst.Ledger)
		case 2:
			err = part.int64To(&dst.Entry)
		case 3:
			err = part.int64To(&batch)
			dst.Batch = int32(batch)
		default:
			err = part.unknown()
		}
		if err != nil {
			return err
		}
	}
	return part.malformed
}

func (f *wireField) wrongType() error {
	return fmt.Errorf("%w: field %d has the wrong type, size or range", ErrMalformed, f.number)
}

// unknown rejects a field that this version does not know: a record is processed
// completely or not at all.
func (f *wireField) unknown() error {
	return fmt.Errorf("%w: %w field %d", ErrMalformed, errUnknown, f.number)
}
