package whatif_test

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/report"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/eventlog"
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

// partitions is a log of so many partitions, each of which is the only one of another log.
type partitions struct {
	eventlog.Topic
	n int
}

func (p partitions) Partitions() int                          { return p.n }
func (p partitions) Beginning(int) (eventlog.Position, error) { return p.Topic.Beginning(0) }
func (p partitions) End(int) (eventlog.Position, error)       { return p.Topic.End(0) }
func (p partitions) Open(_ int, after eventlog.Position) (eventlog.Reader, error) {
	return p.Topic.Open(0, after)
}

// BenchmarkParallel reports how many times faster eight partitions are verified, and decided by a candidate, two at once than
// one after the other, by the wall clock. The results must be the same.
func BenchmarkParallel(b *testing.B) {
	var failures []int
	for i := range 4_000 {
		failures = append(failures, i%5)
	}
	logs := decided(b, story(b, failures...), limited(b, 5), 2, "")
	logs.Events, logs.Decisions = partitions{logs.Events, 8}, partitions{logs.Decisions, 8}
	for _, w := range []struct {
		name string
		do   func(parallel int) (any, error)
	}{
		{"verify", func(n int) (any, error) { return report.Make(b.Context(), logs, report.Options{Parallel: n}) }},
		{"whatif", func(n int) (any, error) {
			return whatif.Run(b.Context(), logs, whatif.Options{Candidates: []whatif.Candidate{{Name: "one", Set: limited(b, 1)}}, Limit: 20, Parallel: n})
		}},
	} {
		b.Run(w.name, func(b *testing.B) {
			var ratios []float64
			for b.Loop() {
				var took [2]time.Duration
				var results [2]any
				for i := range took {
					var err error
					runtime.GC()
					procs, start := runtime.GOMAXPROCS(i+1), time.Now()
					results[i], err = w.do(i + 1)
					took[i] = time.Since(start)
					if runtime.GOMAXPROCS(procs); err != nil {
						b.Fatal(err)
					}
				}
				if d := cmp.Diff(results[0], results[1], cmp.Exporter(func(reflect.Type) bool { return true })); d != "" {
					b.Fatalf("one and two at once (-, +):\n%s", d)
				}
				ratios = append(ratios, float64(took[0])/float64(took[1]))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "x-faster")
			b.Logf("two at once are %.2f times faster (%.2f to %.2f), %d rounds", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1], len(ratios))
		})
	}
}
