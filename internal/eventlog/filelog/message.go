package filelog

import (
	"encoding/binary"
	"errors"

	"github.com/refloat/refloat/internal/eventlog"
)

const (
	hasProperties = 1 << iota
	hasOrigin

	knownFlags = hasProperties | hasOrigin
	// minMessageBytes is the shortest message: flags, publish time, empty key,
	// empty payload.
	minMessageBytes = 1 + 8 + 1 + 1
)

// messageBytes returns an upper bound for what appendMessage appends.
func messageBytes(m *eventlog.Message) int64 {
	n := 1 + 8 + 3*binary.MaxVarintLen64 + int64(len(m.Key)) + int64(len(m.Payload))
	for _, p := range m.Properties {
		n += 2*binary.MaxVarintLen64 + int64(len(p.Key)) + int64(len(p.Value))
	}
	return n + 4*binary.MaxVarintLen64 + 8 + int64(len(m.Origin.Recording))
}

// appendMessage encodes m as described in doc.go, with the given publish time.
func appendMessage(b []byte, m *eventlog.Message, publish int64) []byte {
	var flags byte
	if len(m.Properties) > 0 {
		flags |= hasProperties
	}
	if m.Origin.Recording != "" {
		flags |= hasOrigin
	}
	b = append(b, flags)
	b = le.AppendUint64(b, uint64(publish))
	b = appendBytes(b, m.Key)
	if flags&hasProperties != 0 {
		b = binary.AppendUvarint(b, uint64(len(m.Properties)))
		for _, p := range m.Properties {
			b = appendBytes(b, p.Key)
			b = appendBytes(b, p.Value)
		}
	}
	if flags&hasOrigin != 0 {
		o := &m.Origin
		b = appendBytes(b, o.Recording)
		b = binary.AppendVarint(b, o.Position.Ledger)
		b = binary.AppendVarint(b, o.Position.Entry)
		b = binary.AppendVarint(b, int64(o.Position.Batch))
		b = le.AppendUint64(b, uint64(o.Publish))
	}
	return appendBytes(b, m.Payload)
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

var errBody = errors.New("the frame body is not a list of messages")

// bodyReader decodes the messages of frames. The results alias the body, except for
// strings, which are interned.
type bodyReader struct {
	rest    []byte
	left    int // messages not yet decoded
	at      eventlog.Position
	strings interned
}

func (r *bodyReader) reset(body []byte, count int, first eventlog.Position) {
	r.rest, r.left, r.at = body, count, first
}

// next decodes the next message; there must be one left.
func (r *bodyReader) next(m *eventlog.Message) error {
	c := cursor{b: r.rest}
	flags := c.byte()
	if flags&^knownFlags != 0 {
		return errBody
	}
	*m = eventlog.Message{Position: r.at, Publish: c.int64()}
	m.Key = r.strings.get(c.bytes())
	if flags&hasProperties != 0 {
		m.Properties = r.properties(&c)
	}
	if flags&hasOrigin != 0 {
		m.Origin.Recording = r.strings.get(c.bytes())
		m.Origin.Position = eventlog.Position{Ledger: c.varint(), Entry: c.varint(), Batch: int32(c.varint())}
		m.Origin.Publish = c.int64()
	}
	m.Payload = c.bytes()
	r.left--
	if c.bad || r.left == 0 && len(c.b) > 0 {
		return errBody
	}
	r.rest = c.b
	r.at.Batch++
	return nil
}

func (r *bodyReader) properties(c *cursor) []eventlog.Property {
	n := c.uvarint()
	if n > uint64(len(c.b))/2 { // each takes at least two bytes
		c.bad = true
		return nil
	}
	ps := make([]eventlog.Property, n)
	for i := range ps {
		ps[i].Key = r.strings.get(c.bytes())
		ps[i].Value = string(c.bytes())
	}
	return ps
}

// cursor reads values from the front of b. After the first value that is missing it is
// bad and returns zeroes.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n uint64) []byte {
	if c.bad || n > uint64(len(c.b)) {
		c.bad = true
		return nil
	}
	s := c.b[:n:n]
	c.b = c.b[n:]
	return s
}

func (c *cursor) byte() byte {
	if s := c.take(1); s != nil {
		return s[0]
	}
	return 0
}

func (c *cursor) int64() int64 {
	if s := c.take(8); s != nil {
		return int64(le.Uint64(s))
	}
	return 0
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.bad = true
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.bad = true
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) bytes() []byte { return c.take(c.uvarint()) }

// interned holds recent strings, so that a repeated key is not allocated again and does
// not keep a whole frame's buffer alive.
type interned map[string]string

const (
	maxInterned      = 4096
	maxInternedBytes = 256
)

func (n *interned) get(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > maxInternedBytes {
		return string(b)
	}
	if s, ok := (*n)[string(b)]; ok {
		return s
	}
	if *n == nil || len(*n) >= maxInterned {
		*n = make(interned)
	}
	s := string(b)
	(*n)[s] = s
	return s
}
