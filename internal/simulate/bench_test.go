package simulate_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/simulate"
)

// BenchmarkRun is the default cluster with 5,000 jobs.
func BenchmarkRun(b *testing.B) {
	o := options(b, examples(b), 5000)
	b.ReportAllocs()
	var r *simulate.Result
	before := cpuTime()
	for b.Loop() {
		r = run(b, o)
	}
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(r.Events), "events/op")
}

// BenchmarkReplay decides the history of BenchmarkRun again, as `refloatctl replay` would.
func BenchmarkReplay(b *testing.B) {
	var history []eventlog.Message
	o := options(b, examples(b), 5000)
	o.Observe = func(m *eventlog.Message, _ *evaluator.Output) {
		own := *m
		own.Payload = slices.Clone(m.Payload)
		history = append(history, own)
	}
	run(b, o)
	b.ReportAllocs()
	before := cpuTime()
	defer func() { b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op") }()
	for b.Loop() {
		state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, o.Candidate.Set.Horizon().Nanoseconds())
		if err != nil {
			b.Fatal(err)
		}
		p := evaluator.Processor{State: state, Rules: evaluator.Rules{Generation: 1, Set: o.Candidate.Set.Set}}
		p.Activate([]chain.Record{
			&chain.SemanticsActivated{Version: simulate.Semantics},
			&chain.PolicyActivated{Generation: 1, Digest: o.Candidate.Set.Digest(), HorizonMS: o.Candidate.Set.Horizon().Milliseconds()},
		})
		for i := range history {
			if _, err := p.Step(&history[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// cpuTime is what this process has used of the processor.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
