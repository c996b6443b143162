package simulate_test

import (
	"testing"

	"github.com/refloat/refloat/internal/simulate"
)

// BenchmarkRun is the default cluster with 5,000 jobs.
func BenchmarkRun(b *testing.B) {
	o := options(b, examples(b), 5000)
	b.ReportAllocs()
	var r *simulate.Result
	for b.Loop() {
		r = run(b, o)
	}
	b.ReportMetric(float64(r.Events), "events/op")
}
