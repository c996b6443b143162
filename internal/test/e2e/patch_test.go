package e2e

import (
	"bytes"
	"encoding/binary"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// framed is a command of the broker's protocol: its type and its body, whose
// field number is the type's.
func framed(typ uint64, body, payload []byte) []byte {
	command := protowire.AppendVarint(protowire.AppendTag(nil, commandType, protowire.VarintType), typ)
	command = protowire.AppendBytes(protowire.AppendTag(command, protowire.Number(typ), protowire.BytesType), body)
	out := binary.BigEndian.AppendUint32(nil, uint32(4+len(command)+len(payload)))
	out = binary.BigEndian.AppendUint32(out, uint32(len(command)))
	return append(append(out, command...), payload...)
}

func TestPatch(t *testing.T) {
	t.Parallel()
	const topic, request = 1, 5
	access := func(mode uint64) []byte {
		b := protowire.AppendString(protowire.AppendTag(nil, topic, protowire.BytesType), "t")
		return protowire.AppendVarint(protowire.AppendTag(b, fieldAccessMode, protowire.VarintType), mode)
	}
	found := func(url string) []byte {
		b := protowire.AppendString(protowire.AppendTag(nil, fieldBrokerURL, protowire.BytesType), url)
		return protowire.AppendVarint(protowire.AppendTag(b, request, protowire.VarintType), 7)
	}
	const send = 6
	message := framed(send, []byte{8, 1}, []byte("payload"))
	tests := []struct {
		name          string
		shared, fence bool
		frame, want   []byte
	}{
		{"lookup", false, false, framed(typeLookedUp, found("pulsar://broker:6650"), nil), framed(typeLookedUp, found("pulsar://here:1"), nil)},
		{"exclusive", false, false, framed(typeProducer, access(accessExclusive), nil), framed(typeProducer, access(accessExclusive), nil)},
		{"made shared", true, false, framed(typeProducer, access(accessExclusive), nil), framed(typeProducer, access(accessShared), nil)},
		{"made to fence", false, true, framed(typeProducer, access(accessExclusive), nil), framed(typeProducer, access(accessExclusiveFencing), nil)},
		{"shared stays", false, true, framed(typeProducer, access(accessShared), nil), framed(typeProducer, access(accessShared), nil)},
		{"message", true, false, message, message},
		{"too short", true, false, []byte{0, 0, 0, 1, 9}, []byte{0, 0, 0, 1, 9}},
		{"a size that lies", true, false, []byte{0, 0, 0, 4, 255, 255, 255, 255}, []byte{0, 0, 0, 4, 255, 255, 255, 255}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var p Proxy
			p.Shared.Store(tt.shared)
			p.Fence.Store(tt.fence)
			if got := p.patch(tt.frame, "here:1"); !bytes.Equal(got, tt.want) {
				t.Errorf("patch = %x\nwant    %x", got, tt.want)
			}
		})
	}
}
