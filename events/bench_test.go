package events

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// BenchmarkDecode reads a whole recording per iteration: by Decoder, by
// Read, and by protobuf-go alone, into fresh messages.
func BenchmarkDecode(b *testing.B) {
	for _, name := range recordings {
		payloads := recording(b, name)
		readable, events, size := payloads[:0], 0, 0
		for _, payload := range payloads {
			if s, _, err := reference(payload); err == nil {
				readable, events, size = append(readable, payload), events+len(s.Events), size+len(payload)
			}
		}
		run := func(decoder string, decode func(payload []byte) error) {
			b.Run(decoder+"/recording="+name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					for _, payload := range readable {
						if err := decode(payload); err != nil {
							b.Fatal(err)
						}
					}
				}
				ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
				b.ReportMetric(ns/float64(len(readable)), "ns/message")
				b.ReportMetric(ns/float64(events), "ns/event")
			})
		}
		var d Decoder
		run("fast", func(payload []byte) error { _, err := d.Decode(payload); return err })
		run("read", func(payload []byte) error { _, err := Read(payload); return err })
		run("unmarshal", func(payload []byte) error { return proto.Unmarshal(payload, new(pb.EventSequence)) })
	}
}
