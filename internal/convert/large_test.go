package convert_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/refloat/refloat/internal/convert"
)

// BenchmarkCompletions converts a Job of many completions, and writes what it becomes.
func BenchmarkCompletions(b *testing.B) {
	for _, n := range []int{5_000, 20_000} {
		b.Run(fmt.Sprint("completions=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				written(b, n)
			}
		})
	}
}

// TestCompletionsAreLinear: a Job of four times as many completions costs no more than four times as much for each.
func TestCompletionsAreLinear(t *testing.T) { //nolint:paralleltest // it measures the allocations of the process
	cost := func(n int) float64 { return testing.AllocsPerRun(1, func() { written(t, n) }) }
	if few, many := cost(500), cost(2000); many > 4.4*few {
		t.Errorf("500 completions take %.0f allocations, 2000 take %.0f", few, many)
	}
}

func written(tb testing.TB, n int) []byte {
	tb.Helper()
	text := fmt.Sprintf("{apiVersion: batch/v1, kind: Job, metadata: {name: many}, spec: {completions: %d, parallelism: %[1]d, completionMode: Indexed, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, command: [run], resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]}}}}\n", n)
	r := convert.Convert([]convert.File{{Name: "job.yaml", Data: []byte(text)}}, convert.Options{Queue: "q"})
	if r.Failed() {
		tb.Fatal(r.Notes)
	}
	var out bytes.Buffer
	if err := r.Submits[0].WriteYAML(&out); err != nil || len(r.Submits[0].Jobs) != n {
		tb.Fatal(err, len(r.Submits[0].Jobs))
	}
	return out.Bytes()
}
