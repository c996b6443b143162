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

// appendPosition appends a position, also 0:0:0, and nothing for eventlog.Start.
func appendPosition(b []byte, n fieldNumber, p eventlog.Position) []byte {
	if p == eventlog.Start {
		return b
	}
	b = append(appendTag(b, n, protowire.BytesType), 0) // the size: three fields take less than 128 bytes
	start := len(b)
	b = appendUint(b, 1, uint64(p.Ledger))
	b = appendUint(b, 2, uint64(p.Entry))
	b = appendUint(b, 3, uint64(int64(p.Batch)))
	b[start-1] = byte(len(b) - start)
	return b
}

// wire goes through the fields of a message in the order of their numbers: it encodes them, or decodes them. So a message names
// its fields once.
type wire struct {
	b       []byte // what is encoded so far; decoding, what follows the field
	decodes bool

	// Decoding: the next field, until somebody takes it. Number 0: there is none, or an error.
	number fieldNumber
	typ    protowire.Type
	varint uint64
	bytes  []byte

	last fieldNumber // that was asked for
	err  error
}

// read begins to decode a message.
func (w *wire) read(b []byte) {
	w.b, w.decodes, w.last, w.err = b, true, 0, nil
	w.next()
}

// next reads the next field.
func (w *wire) next() {
	w.number = 0
	if len(w.b) == 0 {
		return
	}
	num, typ, n := protowire.Number(w.b[0]>>3), protowire.Type(w.b[0]&7), 1 // nearly every tag is one byte
	if num == 0 || w.b[0] >= 0x80 {
		num, typ, n = protowire.ConsumeTag(w.b)
	}
	size := n
	if n >= 0 {
		b := w.b[n:]
		switch typ {
		case protowire.VarintType:
			w.varint, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			w.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
	}
	if n < 0 {
		w.err = fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
		return
	}
	w.number, w.typ, w.b = fieldNumber(num), typ, w.b[size+n:]
}

// done ends decoding: every field must have been taken. A record is processed completely or not at all.
func (w *wire) done() error {
	switch {
	case w.err != nil || w.number == 0:
	case w.number > w.last:
		w.err = fmt.Errorf("%w: %w field %d", ErrMalformed, errUnknown, w.number)
	default:
		w.err = fmt.Errorf("%w: field %d is not in its place", ErrMalformed, w.number)
	}
	return w.err
}

// wrong rejects the field.
func (w *wire) wrong() {
	w.err = fmt.Errorf("%w: field %d has the wrong type, size or range", ErrMalformed, w.last)
	w.number = 0
}

// has says whether a field comes: encoding, if the message has it; decoding, if it is the next.
func (w *wire) has(n fieldNumber, has bool) bool {
	if !w.decodes {
		return has
	}
	w.last = n
	return w.number == n
}

// take says whether the next field is this one, decoding.
func (w *wire) take(n fieldNumber, typ protowire.Type) bool {
	w.last = n
	if w.number != n {
		return false
	}
	if w.typ != typ {
		w.wrong()
		return false
	}
	return true
}

func (w *wire) uint(n fieldNumber, v *uint64) {
	if !w.decodes {
		w.b = appendUint(w.b, n, *v)
	} else if w.take(n, protowire.VarintType) {
		*v = w.varint
		w.next()
	}
}

func (w *wire) int(n fieldNumber, v *int64) {
	if !w.decodes {
		w.b = appendUint(w.b, n, uint64(*v))
	} else if w.take(n, protowire.VarintType) {
		*v = int64(w.varint)
		w.next()
	}
}

func (w *wire) uint32(n fieldNumber, v *uint32) {
	if !w.decodes {
		w.b = appendUint(w.b, n, uint64(*v))
	} else if w.limited(n, 1<<32-1) {
		*v = uint32(w.varint)
		w.next()
	}
}

func enum[E ~uint8](w *wire, n fieldNumber, v *E) {
	if !w.decodes {
		w.b = appendUint(w.b, n, uint64(*v))
	} else if w.limited(n, 255) {
		*v = E(w.varint)
		w.next()
	}
}

func (w *wire) bool(n fieldNumber, v *bool) {
	if !w.decodes {
		if *v {
			w.b = appendUint(w.b, n, 1)
		}
	} else if w.limited(n, 1) {
		*v = w.varint == 1
		w.next()
	}
}

// limited says whether the next field is this one, an integer of that size.
func (w *wire) limited(n fieldNumber, most uint64) bool {
	if !w.take(n, protowire.VarintType) {
		return false
	}
	if w.varint > most {
		w.wrong()
		return false
	}
	return true
}

func (w *wire) string(n fieldNumber, v *string) {
	if !w.decodes {
		w.b = appendString(w.b, n, *v)
	} else if w.take(n, protowire.BytesType) {
		*v = string(w.bytes)
		w.next()
	}
}

func (w *wire) strings(n fieldNumber, vs *[]string) {
	if !w.decodes {
		for _, v := range *vs {
			w.b = protowire.AppendString(appendTag(w.b, n, protowire.BytesType), v)
		}
		return
	}
	for w.take(n, protowire.BytesType) {
		*vs = append(*vs, string(w.bytes))
		w.next()
	}
}

// raw is a field of bytes, which are copied.
func (w *wire) raw(n fieldNumber, v *[]byte) {
	if !w.decodes {
		w.b = appendBytes(w.b, n, *v)
	} else if w.take(n, protowire.BytesType) {
		*v = append([]byte(nil), w.bytes...)
		w.next()
	}
}

// fixed is a field of exactly that many bytes, also if they are 0.
func (w *wire) fixed(n fieldNumber, v []byte) {
	switch {
	case !w.decodes:
		w.b = appendBytes(w.b, n, v)
	case !w.take(n, protowire.BytesType):
	case len(w.bytes) != len(v):
		w.wrong()
	default:
		copy(v, w.bytes)
		w.next()
	}
}

// indexes is a list of numbers, 0 too.
func (w *wire) indexes(n fieldNumber, vs *[]uint32) {
	if !w.decodes {
		for _, v := range *vs {
			w.b = protowire.AppendVarint(appendTag(w.b, n, protowire.VarintType), uint64(v))
		}
		return
	}
	for w.limited(n, 1<<32-1) {
		*vs = append(*vs, uint32(w.varint))
		w.next()
	}
}

// position is a position, also 0:0:0; eventlog.Start is no field.
func (w *wire) position(n fieldNumber, v *eventlog.Position) {
	if !w.decodes {
		w.b = appendPosition(w.b, n, *v)
		return
	}
	if !w.take(n, protowire.BytesType) {
		return
	}
	var ledger, entry, batch int64
	part := wire{}
	part.read(w.bytes)
	part.int(1, &ledger)
	part.int(2, &entry)
	part.int(3, &batch)
	if err := part.done(); err != nil {
		w.err, w.number = err, 0
		return
	}
	*v = eventlog.Position{Ledger: ledger, Entry: entry, Batch: int32(batch)}
	w.next()
}

// readyAfter is a time that is no later than another one, as the difference.
func (w *wire) readyAfter(n fieldNumber, v *int64, retryAfter int64) {
	early := int64(0)
	if !w.decodes {
		early = retryAfter - *v
	}
	if w.int(n, &early); w.decodes {
		*v = retryAfter - early
	}
}

// message is an embedded message, also an empty one. Encoding, it reserves room bytes for the length, and shifts the message
// if the length needs more or fewer.
func (w *wire) message(n fieldNumber, room int, fields func()) {
	if w.decodes {
		if !w.take(n, protowire.BytesType) {
			return
		}
		outer := *w
		w.read(outer.bytes)
		fields()
		outer.err = w.done()
		if *w = outer; w.err != nil {
			w.number = 0
			return
		}
		w.next()
		return
	}
	b := appendTag(w.b, n, protowire.BytesType)
	start := len(b)
	w.b = append(b, make([]byte, room)...)
	fields()
	b = w.b
	size := len(b) - start - room
	if need := protowire.SizeVarint(uint64(size)); need != room {
		if need > room {
			b = append(b, make([]byte, need-room)...)
		}
		copy(b[start+need:], b[start+room:start+room+size])
		b = b[:start+need+size]
	}
	protowire.AppendVarint(b[start:start], uint64(size))
	w.b = b
}

// list is embedded messages.
func list[T any](w *wire, n fieldNumber, vs *[]T, fields func(v *T)) {
	for i := 0; w.has(n, i < len(*vs)); i++ {
		if w.decodes {
			*vs = append(*vs, *new(T))
		}
		w.message(n, 1, func() { fields(&(*vs)[i]) })
	}
}

// optional is an embedded message that need not be there.
func optional[T any](w *wire, n fieldNumber, v **T, fields func(v *T)) {
	if w.has(n, *v != nil) {
		if w.decodes {
			*v = new(T)
		}
		w.message(n, 1, func() { fields(*v) })
	}
}
