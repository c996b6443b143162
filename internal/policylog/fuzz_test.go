package policylog

import (
	"crypto/sha256"
	"errors"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// usable reads a message as a generation in every way. Whatever its content, the cost is bounded, and an unusable
// one returns ErrUnusable.
func usable(t *testing.T, payload []byte) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer func() {
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 2<<30 {
			t.Errorf("%d bytes cost %d MiB", len(payload), took>>20)
		}
	}()
	e, _, err := decode(payload, 1, &unpacker{})
	if err != nil {
		if !errors.Is(err, ErrUnusable) {
			t.Errorf("decode: %v", err)
		}
		return
	}
	set, base, err := e.sets(policyfile.Empty())
	if err != nil {
		if !errors.Is(err, ErrUnusable) {
			t.Errorf("sets: %v", err)
		}
		return
	}
	if set.Digest() != e.Digest {
		t.Error("the set has another digest than its generation")
	}
	again, err := Encode(&Proposal{Set: base, Overrides: e.Overrides, Author: e.Author, Reason: e.Reason, Request: e.Request, Time: e.Time})
	if err != nil {
		return // overrides that no request can set
	}
	other, _, err := decode(again, 1, &unpacker{})
	if err != nil {
		t.Fatalf("what was encoded again: %v", err)
	}
	if _, set, err := other.sets(policyfile.Empty()); err != nil || set.Digest() != base.Digest() {
		t.Errorf("encoded again: %v", err)
	}
}

// FuzzGeneration: any bytes as a message of the policies log.
func FuzzGeneration(f *testing.F) {
	set, err := policyfile.Parse([]policyfile.File{{Name: "q", Data: []byte("{kind: Queue, name: a}")}})
	if err != nil {
		f.Fatal(err)
	}
	for _, overrides := range [][]Override{nil, {{Override: policyfile.Override{Kill: true}, Author: "ann"}, {Override: policyfile.Override{Queue: "a", PausedUntil: 7e15}}}} {
		payload, err := Encode(&Proposal{Set: set, Overrides: overrides, MadeOf: new(uint64), Request: "r#1"})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	f.Add([]byte{})
	f.Fuzz(usable)
}

// FuzzContent: any content, repeated and compressed, with the digest that belongs to it.
func FuzzContent(f *testing.F) {
	f.Add([]byte(`{"version":1}`), []byte(""), uint16(0), false)
	f.Add([]byte(`{"policies":[`), []byte(`{"name":"a"},`), uint16(9), true)
	f.Add([]byte(`[`), []byte(`[[[[`), uint16(40000), true)
	f.Add([]byte(`[0`), []byte(`,0,0,0,0,0,0,0`), uint16(60000), true)
	f.Add([]byte(`{"version":1e999999999,"x":"`), []byte(`\u0000`), uint16(3), true)
	f.Fuzz(func(t *testing.T, head, tail []byte, times uint16, packed bool) {
		content := head
		for range times {
			if content = append(content, tail...); len(content) > 1<<20 {
				break
			}
		}
		digest := sha256.Sum256(content)
		m := &pb.PolicyGeneration{Digest: digest[:], Content: content, Zstd: packed, Brakes: []*pb.Brake{{Queue: string(tail), PausedUntil: int64(times)}}, Unbraked: content}
		if packed {
			enc, err := zstd.NewWriter(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer enc.Close()
			m.Content = enc.EncodeAll(content, nil)
			m.Unbraked = m.Content
		}
		payload, err := proto.Marshal(m)
		if err != nil {
			return // a queue that is no string
		}
		usable(t, payload)
	})
}

// TestManyValues: a message that is small, and would be large when it is parsed.
func TestManyValues(t *testing.T) {
	t.Parallel()
	content := make([]byte, 0, 60<<20)
	content = append(content, '[', '0')
	for len(content) < 60<<20 {
		content = append(content, ",0"...)
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(content)
	payload, err := proto.Marshal(&pb.PolicyGeneration{Digest: digest[:], Content: enc.EncodeAll(content, nil), Zstd: true})
	if err = errors.Join(err, enc.Close()); err != nil {
		t.Fatal(err)
	}
	if len(payload) > 1<<20 {
		t.Fatalf("%d bytes", len(payload))
	}
	usable(t, payload)
	e, _, err := decode(payload, 1, &unpacker{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.parse(e.content, policyfile.Empty()); !errors.Is(err, ErrUnusable) {
		t.Errorf("Set: %v", err)
	}
}
