package events

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// checkRaw checks that the raw errors of a message are bytes of its payload, and decode
// to what the message says.
func checkRaw(t *testing.T, payload []byte, m *Message) {
	t.Helper()
	for i := range m.Events {
		for e, want := range m.Full(i).GetJobRunErrors().GetErrors() {
			raw := m.RawError(i, e)
			var back pb.Error
			if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, &back); err != nil || !bytes.Contains(payload, raw) {
				t.Fatalf("event %d, error %d: bytes %x (%v) are not the payload's", i, e, raw, err)
			}
			if !proto.Equal(&back, want) {
				t.Fatalf("event %d, error %d: bytes say %v, decoded %v", i, e, &back, want)
			}
		}
	}
}

// TestRawError: unknown fields stay, repeated members of the oneof are merged,
// and another member takes their place.
func TestRawError(t *testing.T) {
	t.Parallel()
	field := func(n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), v)
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	terminal := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	first := join(terminal, field(18, []byte("policy")), field(999, []byte("unknown")))
	second := join(field(17, []byte("sub")), terminal)
	ids := join(field(4, []byte("job")), field(5, []byte("run")))
	for name, ev := range map[string][]byte{
		"one":      field(14, join(ids, field(3, first), field(3, second))),
		"merged":   join(field(14, join(ids, field(3, first))), field(14, field(3, second))),
		"replaced": join(field(14, field(3, []byte{8, 0})), field(13, ids), field(14, join(ids, field(3, first), field(3, second)))),
		"unknown":  join(field(14, join(ids, field(3, first))), field(777, []byte("?")), field(14, field(3, second))),
	} {
		payload := join(field(1, []byte("q")), field(2, []byte("s")), field(5, field(8, nil)), field(5, ev))
		m, err := Read(payload)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m.RawError(1, 0), first) || !bytes.Equal(m.RawError(1, 1), second) {
			t.Errorf("%s: %x and %x", name, m.RawError(1, 0), m.RawError(1, 1))
		}
		checkRaw(t, payload, m)
	}
}
