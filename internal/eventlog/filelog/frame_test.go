package filelog

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/eventlog"
)

const seed = 0x1234

// frameOf encodes a frame.
func frameOf(msgs []eventlog.Message, codec Codec, publish int64) []byte {
	buf := make([]byte, frameHeaderBytes)
	for i := range msgs {
		buf = appendMessage(buf, &msgs[i], publish)
	}
	h := frameHeader{count: len(msgs), raw: len(buf) - frameHeaderBytes, ordinal: 7, synced: 3}
	if small, ok := compress(nil, buf[frameHeaderBytes:]); ok && codec == CodecS2 {
		buf, h.codec = small, CodecS2
	}
	h.stored = len(buf) - frameHeaderBytes
	h.bodyCRC = checksum(buf[frameHeaderBytes:])
	h.put(buf, seed)
	return buf
}

// decode reads one frame from b as a reader does.
func decode(b []byte) (msgs []eventlog.Message, whole bool, err error) {
	if len(b) < frameHeaderBytes {
		return nil, false, nil
	}
	h, ok, err := parseFrameHeader(b, seed)
	if err != nil || !ok || len(b)-frameHeaderBytes < h.stored {
		return nil, ok, err
	}
	body, err := h.open(b[frameHeaderBytes:frameHeaderBytes+h.stored], &memory{})
	if err != nil {
		return nil, true, err
	}
	var r bodyReader
	r.reset(body, h.count, eventlog.Position{Entry: h.ordinal})
	for r.left > 0 {
		var m eventlog.Message
		if err := r.next(&m); err != nil {
			return nil, true, err
		}
		msgs = append(msgs, m)
	}
	return msgs, true, nil
}

var anyMessage = rapid.Custom(func(t *rapid.T) eventlog.Message {
	m := eventlog.Message{
		Key:     rapid.String().Draw(t, "key"),
		Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "properties") {
		m.Properties = append(m.Properties, eventlog.Property{Key: rapid.String().Draw(t, "name"), Value: rapid.String().Draw(t, "value")})
	}
	if m.Origin.Recording = rapid.String().Draw(t, "recording"); m.Origin.Recording != "" {
		m.Origin.Publish = rapid.Int64().Draw(t, "origin publish")
		m.Origin.Position = eventlog.Position{
			Ledger: rapid.Int64().Draw(t, "ledger"), Entry: rapid.Int64().Draw(t, "entry"), Batch: rapid.Int32().Draw(t, "batch"),
		}
	}
	return m
})

// Decoding reverses encoding.
func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msgs := rapid.SliceOfN(anyMessage, 1, 20).Draw(t, "messages")
		publish := rapid.Int64().Draw(t, "publish")
		got, _, err := decode(frameOf(msgs, rapid.SampledFrom([]Codec{CodecNone, CodecS2}).Draw(t, "codec"), publish))
		if err != nil {
			t.Fatal(err)
		}
		for i := range msgs {
			msgs[i].Publish, msgs[i].Position = publish, eventlog.Position{Entry: 7, Batch: int32(i)}
			if n := messageBytes(&msgs[i]); n < int64(len(appendMessage(nil, &msgs[i], 0))) {
				t.Fatalf("messageBytes = %d is less than it takes", n)
			}
		}
		if diff := cmp.Diff(msgs, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// A frame with a valid checksum that a later version may write is an error, and is not
// treated as torn.
func TestFrameOfLaterVersion(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(h *frameHeader){
		"codec":   func(h *frameHeader) { h.codec = 9 },
		"length":  func(h *frameHeader) { h.stored = 1 << 31 },
		"count":   func(h *frameHeader) { h.count = 0 },
		"many":    func(h *frameHeader) { h.count = 1 << 30 },
		"ordinal": func(h *frameHeader) { h.ordinal = -1 },
		"synced":  func(h *frameHeader) { h.synced = h.ordinal + 1 },
	} {
		b := frameOf([]eventlog.Message{{Key: "k"}}, CodecNone, 1)
		h, ok, err := parseFrameHeader(b, seed)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		change(&h)
		h.put(b, seed)
		if _, ok, err := parseFrameHeader(b, seed); !ok || err == nil {
			t.Errorf("%s: parseFrameHeader = %v, %v", name, ok, err)
		}
	}
	b := frameOf([]eventlog.Message{{Key: "k"}}, CodecNone, 1)
	if _, ok, _ := parseFrameHeader(b, seed+1); ok {
		t.Error("a frame of another segment was taken")
	}
}

// For any bytes, decoding neither panics nor uses more memory than they allow, and
// re-encoding what it accepts gives the same bytes. The checksums are fixed up, so that
// the code after them is reached.
func FuzzFrame(f *testing.F) {
	msgs := []eventlog.Message{
		{Key: "key", Payload: bytes.Repeat([]byte("payload"), 30)},
		{Properties: []eventlog.Property{{Key: "a", Value: "b"}}, Origin: eventlog.Origin{Recording: "r", Publish: 1}},
		{},
	}
	for _, codec := range []Codec{CodecNone, CodecS2} {
		f.Add(frameOf(msgs, codec, 5), true)
		f.Add(frameOf(msgs, codec, 5), false)
	}
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		if mend && len(b) >= frameHeaderBytes {
			b = bytes.Clone(b)
			le.PutUint32(b[4:], checksum(b[frameHeaderBytes:]))
			le.PutUint32(b[8:], uint32(len(b)-frameHeaderBytes))
			var h frameHeader
			h.bodyCRC, h.stored, h.raw = le.Uint32(b[4:]), int(le.Uint32(b[8:])), int(le.Uint32(b[12:]))&0xfffff
			h.codec, h.count = Codec(b[16]), int(le.Uint32(b[20:]))
			h.put(b, seed)
		}
		got, _, err := decode(b)
		if err != nil || got == nil {
			return
		}
		publish := got[0].Publish
		for i := range got {
			got[i].Publish = publish
		}
		again, _, err := decode(frameOf(got, CodecNone, publish))
		if err != nil {
			t.Fatal(err)
		}
		for i := range again {
			again[i].Position = got[i].Position
			if got[i].Origin.Recording == "" { // not encoded
				got[i].Origin = eventlog.Origin{}
			}
		}
		if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	})
}
