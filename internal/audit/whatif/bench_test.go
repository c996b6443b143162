package whatif_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
)

// BenchmarkAudit compares a verification, and a candidate, with decoding the same events by
// protobuf-go alone: the ratio of their MB/s is what they cost.
func BenchmarkAudit(b *testing.B) {
	var failures []int
	for i := range 20_000 {
		failures = append(failures, i%5)
	}
	events := story(b, failures...)
	logs := decided(b, events, limited(b, 5), 2, "")
	size := int64(0)
	for i := range events {
		size += int64(len(events[i].Payload))
	}
	b.Run(fmt.Sprintf("decode/messages=%d", len(events)), func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			for i := range events {
				if err := proto.Unmarshal(events[i].Payload, &pb.EventSequence{}); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run(fmt.Sprintf("verify/messages=%d", len(events)), func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if _, err := audit.Verify(b.Context(), logs, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	for n := 1; n <= 2; n++ {
		var candidates []whatif.Candidate
		for i := range n {
			candidates = append(candidates, whatif.Candidate{Name: fmt.Sprint(i), Set: limited(b, i+1)})
		}
		b.Run(fmt.Sprintf("whatif/candidates=%d/messages=%d", n, len(events)), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if _, err := whatif.Run(b.Context(), logs, whatif.Options{Candidates: candidates, Limit: 20}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
