package chain_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// TestRecordRoundTrip: what was encoded is decoded, also behind other bytes.
func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := record.Draw(t, "record")
		b := chain.AppendRecord(nil, r)
		got, err := chain.DecodeRecord(b)
		if err != nil {
			t.Fatalf("DecodeRecord(%x): %v", b, err)
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Fatalf("(-encoded +decoded):\n%s", diff)
		}
		if after := chain.AppendRecord([]byte("before"), r); string(after) != "before"+string(b) {
			t.Fatalf("behind other bytes it is %x, alone %x", after, b)
		}
	})
}

// TestEnvelopeRoundTrip: decoding an encoded envelope returns it.
func TestEnvelopeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := envelope.Draw(t, "envelope")
		b := e.Append(nil)
		got, err := chain.DecodeEnvelope(b)
		if err != nil {
			t.Fatalf("DecodeEnvelope(%x): %v", b, err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Fatalf("(-encoded +decoded):\n%s", diff)
		}
	})
}

// TestAsProtobuf: protobuf-go reads our bytes as the messages of refloat.proto,
// with the same fields, and those fields give our bytes again.
func TestAsProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := record.Draw(t, "record")
		b := chain.AppendRecord(nil, r)
		var m pb.Record
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatalf("protobuf-go: %v", err)
		}
		if n := unknownFields(t, &m); n != 0 {
			t.Fatalf("protobuf-go does not know %d bytes of %x", n, b)
		}
		again := recordOf(&m)
		if diff := cmp.Diff(r, again); diff != "" {
			t.Fatalf("(-ours +through protobuf-go):\n%s", diff)
		}
		if got := chain.AppendRecord(nil, again); !bytes.Equal(got, b) {
			t.Fatalf("through protobuf-go the bytes are %x, want %x", got, b)
		}

		e := envelope.Draw(t, "envelope")
		b = e.Append(nil)
		var me pb.Envelope
		if err := proto.Unmarshal(b, &me); err != nil {
			t.Fatalf("protobuf-go: %v", err)
		}
		if n := unknownFields(t, &me); n != 0 {
			t.Fatalf("protobuf-go does not know %d bytes of %x", n, b)
		}
		envAgain := &chain.Envelope{
			Seq: me.Seq, Link: chain.Hash(me.Link), Epoch: me.Epoch, Owner: chain.OwnerID(me.Owner),
			InFrom: positionOf(me.InFrom), InTo: positionOf(me.InTo), InCount: me.InCount, Records: me.Records,
		}
		if diff := cmp.Diff(e, envAgain); diff != "" {
			t.Fatalf("(-ours +through protobuf-go):\n%s", diff)
		}
	})
}

// unknownFields counts the bytes that protobuf-go kept without knowing them, at any depth.
func unknownFields(t *rapid.T, m proto.Message) (n int) {
	err := protorange.Range(m.ProtoReflect(), func(at protopath.Values) error {
		if m, ok := at.Index(-1).Value.Interface().(protoreflect.Message); ok {
			n += len(m.GetUnknown())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func positionOf(p *pb.Position) eventlog.Position {
	if p == nil {
		return eventlog.Start
	}
	return eventlog.Position{Ledger: p.Ledger, Entry: p.Entry, Batch: p.Batch}
}

// TestNamesAreBytes: names that are no UTF-8 stay as they are in our records. Node, container
// and policy names may be such (semantics.md 1 asks for UTF-8 in ids only).
func TestNamesAreBytes(t *testing.T) {
	t.Parallel()
	d := &chain.Decision{Container: "a\xff", AvoidNodes: []string{"\xc3("}, Skipped: []string{"\x80"}, Position: eventlog.Start}
	got, err := chain.DecodeRecord(chain.AppendRecord(nil, d))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(chain.Record(d), got); diff != "" {
		t.Fatalf("(-encoded +decoded):\n%s", diff)
	}
}

// part is one field as it stands in a message.
type part struct {
	num  protowire.Number
	typ  protowire.Type
	head []byte // tag
	body []byte // with its length, if it has one
}

func parts(t *rapid.T, b []byte) []part {
	var ps []part
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if n < 0 || m < 0 {
			t.Fatalf("not a message: %x", b)
		}
		ps = append(ps, part{num, typ, b[:n], b[n : n+m]})
		b = b[n+m:]
	}
	return ps
}

func join(ps []part) []byte {
	var b []byte
	for _, p := range ps {
		b = append(append(b, p.head...), p.body...)
	}
	return b
}

// longer writes a varint one byte longer than it need be.
func longer(v []byte) []byte {
	out := append([]byte(nil), v...)
	out[len(out)-1] |= 0x80
	return append(out, 0)
}

// disguises are other encodings that a protobuf reader takes for the same
// message, or for one of a later version. Each returns nil where it cannot be.
var disguises = []struct {
	name string
	do   func(t *rapid.T, md protoreflect.MessageDescriptor, ps []part) []part
}{
	{"two fields swapped", func(t *rapid.T, _ protoreflect.MessageDescriptor, ps []part) []part {
		i := rapid.IntRange(0, max(0, len(ps)-2)).Draw(t, "place")
		if len(ps) < 2 || ps[i].num == ps[i+1].num {
			return nil
		}
		ps[i], ps[i+1] = ps[i+1], ps[i]
		return ps
	}},
	{"a field twice", func(t *rapid.T, md protoreflect.MessageDescriptor, ps []part) []part {
		i := rapid.IntRange(0, max(0, len(ps)-1)).Draw(t, "place")
		// Twice the same is another message where a field is a list.
		if len(ps) == 0 || md.Fields().ByNumber(ps[i].num).IsList() {
			return nil
		}
		return append(ps[:i:i], append([]part{ps[i]}, ps[i:]...)...)
	}},
	{"a default written out", func(t *rapid.T, _ protoreflect.MessageDescriptor, ps []part) []part {
		for _, p := range ps {
			if p.num == 1 {
				return nil
			}
		}
		typ, body := protowire.VarintType, []byte{0}
		return append([]part{{1, typ, protowire.AppendTag(nil, 1, typ), body}}, ps...)
	}},
	{"a long tag", func(t *rapid.T, _ protoreflect.MessageDescriptor, ps []part) []part {
		if len(ps) == 0 {
			return nil
		}
		i := rapid.IntRange(0, len(ps)-1).Draw(t, "place")
		ps[i].head = longer(ps[i].head)
		return ps
	}},
	{"a long varint", func(t *rapid.T, _ protoreflect.MessageDescriptor, ps []part) []part {
		i := rapid.IntRange(0, max(0, len(ps)-1)).Draw(t, "place")
		if len(ps) == 0 || ps[i].typ != protowire.VarintType || len(ps[i].body) > 8 {
			return nil
		}
		ps[i].body = longer(ps[i].body)
		return ps
	}},
	{"a long length", func(t *rapid.T, _ protoreflect.MessageDescriptor, ps []part) []part {
		i := rapid.IntRange(0, max(0, len(ps)-1)).Draw(t, "place")
		if len(ps) == 0 || ps[i].typ != protowire.BytesType {
			return nil
		}
		v, _ := protowire.ConsumeBytes(ps[i].body)
		ps[i].body = append(longer(protowire.AppendVarint(nil, uint64(len(v)))), v...)
		return ps
	}},
	{"an unknown field", func(t *rapid.T, md protoreflect.MessageDescriptor, ps []part) []part {
		num := protowire.Number(rapid.IntRange(29, 1000).Draw(t, "number"))
		if md.Fields().ByNumber(num) != nil {
			return nil
		}
		typ := rapid.SampledFrom([]protowire.Type{protowire.VarintType, protowire.BytesType, protowire.Fixed32Type, protowire.Fixed64Type}).Draw(t, "type")
		body := []byte{3, 0, 0, 0, 1, 2, 3, 4}
		body = body[:protowire.ConsumeFieldValue(num, typ, body)]
		return append(ps, part{num, typ, protowire.AppendTag(nil, num, typ), body})
	}},
	{"another wire type", func(t *rapid.T, _ protoreflect.MessageDescriptor, ps []part) []part {
		if len(ps) == 0 {
			return nil
		}
		i := rapid.IntRange(0, len(ps)-1).Draw(t, "place")
		ps[i].head, ps[i].body = protowire.AppendTag(nil, ps[i].num, protowire.Fixed32Type), []byte{0, 0, 0, 0}
		return ps
	}},
}

// TestOneEncoding: a record or envelope in any other encoding is malformed.
func TestOneEncoding(t *testing.T) {
	recordFields := (*pb.Record)(nil).ProtoReflect().Descriptor()
	envelopeFields := (*pb.Envelope)(nil).ProtoReflect().Descriptor()
	for _, d := range disguises {
		t.Run(d.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				b := chain.AppendRecord(nil, record.Draw(t, "record"))
				outer := parts(t, b)
				inner := recordFields.Fields().ByNumber(outer[0].num).Message()
				if ps := d.do(t, inner, parts(t, mustBytes(outer[0].body))); ps != nil {
					outer[0].body = protowire.AppendBytes(nil, join(ps))
					malformed(t, "record", join(outer), decodeRecord)
				}
				if ps := d.do(t, recordFields, parts(t, b)); ps != nil {
					malformed(t, "record", join(ps), decodeRecord)
				}
				if ps := d.do(t, envelopeFields, parts(t, envelope.Draw(t, "envelope").Append(nil))); ps != nil {
					malformed(t, "envelope", join(ps), decodeEnvelope)
				}
			})
		})
	}
}

// TestPositionHasOneEncoding: the same within an envelope's positions, where
// the start is what is left out.
func TestPositionHasOneEncoding(t *testing.T) {
	t.Parallel()
	e := &chain.Envelope{Seq: 1, Epoch: 1, InFrom: eventlog.Start, InTo: eventlog.Position{Ledger: 1, Entry: 2, Batch: 3}, InCount: 1}
	b := e.Append(nil)
	at := bytes.Index(b, []byte{6<<3 | 2, 6, 1 << 3, 1, 2 << 3, 2, 3 << 3, 3})
	if at < 0 {
		t.Fatalf("no position in %x", b)
	}
	tests := []struct {
		name string
		to   []byte
	}{
		{"a batch beyond 32 bits", []byte{6<<3 | 2, 10, 1 << 3, 1, 2 << 3, 2, 3 << 3, 0x83, 0x80, 0x80, 0x80, 0x10}},
		{"fields swapped", []byte{6<<3 | 2, 6, 2 << 3, 2, 1 << 3, 1, 3 << 3, 3}},
		{"a field twice", []byte{6<<3 | 2, 8, 1 << 3, 1, 1 << 3, 1, 2 << 3, 2, 3 << 3, 3}},
		{"unknown field", []byte{6<<3 | 2, 8, 1 << 3, 1, 2 << 3, 2, 3 << 3, 3, 4 << 3, 1}},
		{"a string", []byte{6<<3 | 2, 8, 1 << 3, 1, 2 << 3, 2, 3<<3 | 2, 2, 3, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			changed := append(append(append([]byte(nil), b[:at]...), tt.to...), b[at+8:]...)
			malformed(t, "envelope", changed, decodeEnvelope)
		})
	}
	start := protowire.AppendVarint(nil, 1<<64-1) // -1
	body := append(append(append(append(append([]byte{1 << 3}, start...), 2<<3), start...), 3<<3), start...)
	written := append(append(append([]byte(nil), b[:at]...), protowire.AppendBytes([]byte{5<<3 | 2}, body)...), b[at:]...)
	malformed(t, "envelope with the start written out", written, decodeEnvelope)
}

// TestDamaged: no proper prefix of a record or an envelope is one, and an envelope
// with one bit turned is none.
func TestDamaged(t *testing.T) {
	decodeEnvelope := func(b []byte) error { _, err := chain.DecodeEnvelope(b); return err }
	rapid.Check(t, func(t *rapid.T) {
		b := chain.AppendRecord(nil, record.Draw(t, "record"))
		for n := range b {
			malformed(t, "record", b[:n], decodeRecord)
		}
		malformed(t, "two records", append(b, b...), decodeRecord)
		b = envelope.Draw(t, "envelope").Append(nil)
		for n := range b {
			malformed(t, "envelope", b[:n], decodeEnvelope)
		}
		bit := rapid.IntRange(0, 8*len(b)-1).Draw(t, "bit")
		b[bit/8] ^= 1 << (bit % 8)
		malformed(t, "turned bit", b, decodeEnvelope)
	})
}

// TestEnvelopeRules: what an envelope says of itself must hold.
func TestEnvelopeRules(t *testing.T) {
	t.Parallel()
	at := func(n int64) eventlog.Position { return eventlog.Position{Ledger: 1, Entry: n} }
	tests := []struct {
		name string
		e    chain.Envelope
		ok   bool
	}{
		{"no input", chain.Envelope{Seq: 1, Epoch: 1, InFrom: at(1), InTo: at(1)}, true},
		{"one message", chain.Envelope{Seq: 1, Epoch: 1, InFrom: at(1), InTo: at(2), InCount: 1}, true},
		{"from the start", chain.Envelope{Seq: 1, Epoch: 1, InFrom: eventlog.Start, InTo: at(2), InCount: 1}, true},
		{"seq 0", chain.Envelope{Epoch: 1, InFrom: at(1), InTo: at(1)}, false},
		{"epoch 0", chain.Envelope{Seq: 1, InFrom: at(1), InTo: at(1)}, false},
		{"back", chain.Envelope{Seq: 1, Epoch: 1, InFrom: at(2), InTo: at(1), InCount: 1}, false},
		{"back to the start", chain.Envelope{Seq: 1, Epoch: 1, InFrom: at(2), InTo: eventlog.Start, InCount: 1}, false},
		{"a count without a range", chain.Envelope{Seq: 1, Epoch: 1, InFrom: at(1), InTo: at(1), InCount: 1}, false},
		{"a range without a count", chain.Envelope{Seq: 1, Epoch: 1, InFrom: at(1), InTo: at(2)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := chain.DecodeEnvelope(tt.e.Append(nil))
			if tt.ok != (err == nil) || err != nil && !errors.Is(err, chain.ErrMalformed) {
				t.Errorf("DecodeEnvelope = %v, want ok: %v", err, tt.ok)
			}
		})
	}
}

// TestExtend: the running hash depends on each record and on their order.
func TestExtend(t *testing.T) {
	t.Parallel()
	var zero chain.Hash
	a, b := []byte("a"), []byte("b")
	hashes := map[chain.Hash]string{zero: "none"}
	for _, h := range []struct {
		name string
		hash chain.Hash
	}{
		{"a", zero.Extend(a)},
		{"b", zero.Extend(b)},
		{"a b", zero.Extend(a).Extend(b)},
		{"b a", zero.Extend(b).Extend(a)},
		{"ab", zero.Extend([]byte("ab"))},
		{"nothing", zero.Extend(nil)},
	} {
		if other, ok := hashes[h.hash]; ok {
			t.Errorf("%s and %s have one hash", h.name, other)
		}
		hashes[h.hash] = h.name
	}
	// The format fixes the value: SHA-256 over 32 zero bytes and "a".
	if got, want := zero.Extend(a), chain.Hash(sha256.Sum256(append(make([]byte, 32), 'a'))); got != want {
		t.Errorf("Extend = %v, want %v", got, want)
	}
}

func mustBytes(b []byte) []byte {
	v, n := protowire.ConsumeBytes(b)
	if n != len(b) {
		panic(fmt.Sprintf("not one value: %x", b))
	}
	return v
}

func decodeRecord(b []byte) error {
	_, err := chain.DecodeRecord(b)
	return err
}

func decodeEnvelope(b []byte) error {
	_, err := chain.DecodeEnvelope(b)
	return err
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func malformed(t fataler, what string, b []byte, decode func([]byte) error) {
	t.Helper()
	if err := decode(b); !errors.Is(err, chain.ErrMalformed) {
		t.Fatalf("%s %x: %v, want ErrMalformed", what, b, err)
	}
}
