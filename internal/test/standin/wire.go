package standin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// msg is a protobuf message under construction, field by field. It is written by
// hand because no message of ours has all of Armada's fields.
type msg []byte

// str leaves out the empty text, as proto3 does.
func (m msg) str(field protowire.Number, v string) msg {
	if v == "" {
		return m
	}
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), v)
}

// num leaves out 0.
func (m msg) num(field protowire.Number, v uint64) msg {
	if v == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), v)
}

func (m msg) flag(field protowire.Number, v bool) msg { return m.num(field, protowire.EncodeBool(v)) }

// sub is there also when it is empty.
func (m msg) sub(field protowire.Number, v msg) msg {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), v)
}

func (m msg) pairs(field protowire.Number, v map[string]string) msg {
	for _, key := range slices.Sorted(maps.Keys(v)) {
		m = m.sub(field, msg(nil).str(1, key).str(2, v[key]))
	}
	return m
}

func timestamp(t time.Time) msg {
	return msg(nil).num(1, uint64(t.Unix())).num(2, uint64(t.Nanosecond()))
}

// field is one field of a message that is read: a number, or bytes.
type field struct {
	number int
	value  uint64
	bytes  []byte
}

func (f field) text() string { return string(f.bytes) }

// scan calls visit with each field.
func scan(b []byte, visit func(field) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		f := field{number: int(number)}
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// walk returns the first field at the end of a path of numbers; none is a zero field.
func walk(b []byte, path ...int) (field, error) {
	var found field
	err := scan(b, func(f field) error {
		if found.number == 0 && f.number == path[0] {
			found = f
		}
		return nil
	})
	if err != nil || found.number == 0 || len(path) == 1 {
		return found, err
	}
	return walk(found.bytes, path[1:]...)
}

// pair reads an entry of a map of texts.
func pair(b []byte, into map[string]string) error {
	var key, value string
	err := scan(b, func(f field) error {
		switch f.number {
		case 1:
			key = f.text()
		case 2:
			value = f.text()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("entry of a map: %w", err)
	}
	into[key] = value
	return nil
}
