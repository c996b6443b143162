package e2e

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// A frame of Pulsar's protocol: its size, the size of its command, the command,
// and with a message its metadata and payload. Of the commands two are changed.
const (
	commandType = 1 // of the command; its body's field number differs

	typeProducer, bodyProducer = 5, 5
	fieldAccessMode            = 10
	accessShared               = 0
	accessExclusive            = 1
	accessExclusiveFencing     = 3
	typeLookedUp, bodyLookedUp = 24, 24
	fieldBrokerURL             = 1
)

// patch changes what a frame says of addresses and access modes.
func (p *Proxy) patch(frame []byte, here string) []byte {
	if len(frame) < 8 {
		return frame
	}
	n := int(binary.BigEndian.Uint32(frame[4:8]))
	if n > len(frame)-8 {
		return frame
	}
	command, rest := frame[8:8+n], frame[8+n:]
	var changed []byte
	switch varintIn(command, commandType) {
	case typeLookedUp:
		changed = rewrite(command, bodyLookedUp, func(body []byte) []byte {
			return setBytes(body, fieldBrokerURL, []byte("pulsar://"+here))
		})
	case typeProducer:
		to, ok := p.accessMode()
		if !ok {
			return frame
		}
		changed = rewrite(command, bodyProducer, func(body []byte) []byte {
			if varintIn(body, fieldAccessMode) != accessExclusive {
				return body
			}
			return setVarint(body, fieldAccessMode, to)
		})
	default:
		return frame
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(4+len(changed)+len(rest)))
	out = binary.BigEndian.AppendUint32(out, uint32(len(changed)))
	return append(append(out, changed...), rest...)
}

func (p *Proxy) accessMode() (uint64, bool) {
	switch {
	case p.Fence.Load():
		return accessExclusiveFencing, true
	case p.Shared.Load():
		return accessShared, true
	}
	return 0, false
}

// eachField calls fn with each field of a protobuf message: its number, the
// value if it is a varint, its content if it has one, and all its bytes.
func eachField(b []byte, fn func(num protowire.Number, varint uint64, content, whole []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return
		}
		var varint uint64
		var content []byte
		switch typ {
		case protowire.VarintType:
			varint, _ = protowire.ConsumeVarint(b[n:])
		case protowire.BytesType:
			content, _ = protowire.ConsumeBytes(b[n:])
		default:
		}
		fn(num, varint, content, b[:n+m])
		b = b[n+m:]
	}
}

func varintIn(b []byte, want protowire.Number) (v uint64) {
	eachField(b, func(num protowire.Number, varint uint64, _, _ []byte) {
		if num == want {
			v = varint
		}
	})
	return v
}

// rewrite changes the content of one field.
func rewrite(b []byte, want protowire.Number, change func([]byte) []byte) (out []byte) {
	eachField(b, func(num protowire.Number, _ uint64, content, whole []byte) {
		if num == want {
			out = protowire.AppendBytes(protowire.AppendTag(out, num, protowire.BytesType), change(content))
		} else {
			out = append(out, whole...)
		}
	})
	return out
}

func setBytes(b []byte, want protowire.Number, v []byte) []byte {
	return rewrite(b, want, func([]byte) []byte { return v })
}

func setVarint(b []byte, want protowire.Number, v uint64) (out []byte) {
	eachField(b, func(num protowire.Number, _ uint64, _, whole []byte) {
		if num != want {
			out = append(out, whole...)
		}
	})
	return protowire.AppendVarint(protowire.AppendTag(out, want, protowire.VarintType), v)
}
