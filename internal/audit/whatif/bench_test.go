package whatif_test

import (
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/audit/report"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/eventlog"
)

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
