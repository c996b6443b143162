package whatif_test

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

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

// BenchmarkAuditCPU reports CPU time of the process (user and system) as ratios to decoding the same events by
// protobuf-go alone, which is measured before and after in each round. Ratios of one decoding to the other show the noise.
// It prints median, minimum and maximum of the rounds.
func BenchmarkAuditCPU(b *testing.B) {
	var failures []int
	for i := range 20_000 {
		failures = append(failures, i%5)
	}
	events := story(b, failures...)
	logs := decided(b, events, limited(b, 5), 2, "")
	decode := func() error {
		for i := range events {
			if err := proto.Unmarshal(events[i].Payload, &pb.EventSequence{}); err != nil {
				return err
			}
		}
		return nil
	}
	work := []struct {
		name string
		do   func() error
	}{
		{"decode", decode},
		{"verify", func() error { _, err := audit.Verify(b.Context(), logs, 0); return err }},
		{"whatif", func() error {
			_, err := whatif.Run(b.Context(), logs, whatif.Options{Candidates: []whatif.Candidate{{Name: "one", Set: limited(b, 1)}}, Limit: 20})
			return err
		}},
	}
	ratios := make([][]float64, len(work))
	for b.Loop() {
		before := cpuOf(b, decode)
		var took []time.Duration
		for _, w := range work[1:] {
			took = append(took, cpuOf(b, w.do))
		}
		after := cpuOf(b, decode)
		ratios[0] = append(ratios[0], float64(after)/float64(before))
		for i, t := range took {
			ratios[i+1] = append(ratios[i+1], 2*float64(t)/float64(before+after))
		}
	}
	for i, w := range work {
		slices.Sort(ratios[i])
		r := ratios[i]
		b.ReportMetric(r[len(r)/2], w.name+"/decode")
		b.Logf("%d messages: %s ÷ decode %.2f (%.2f to %.2f), %d rounds", len(events), w.name, r[len(r)/2], r[0], r[len(r)-1], len(r))
	}
}

// cpuOf returns the CPU time that the process takes for something, which begins with a heap just collected.
func cpuOf(b *testing.B, do func() error) time.Duration {
	b.Helper()
	now := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	runtime.GC()
	start := now()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	return now() - start
}
