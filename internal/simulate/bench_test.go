package simulate_test

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
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

// BenchmarkReplay decides the history of BenchmarkRun again.
func BenchmarkReplay(b *testing.B) {
	o := options(b, examples(b), 5000)
	history := historyOf(b, o)
	b.ReportAllocs()
	for b.Loop() {
		replay(b, o, history)
	}
}

// BenchmarkCost is what a simulation costs against replaying its history, in user CPU time of this process. The two take turns.
// `-benchtime 7x` makes seven pairs.
func BenchmarkCost(b *testing.B) {
	for _, size := range []struct {
		jobs        int
		jobsPerHour float64
	}{{5000, 80}, {100_000, 40}} {
		b.Run(fmt.Sprintf("jobs=%d/hour=%v", size.jobs, size.jobsPerHour), func(b *testing.B) {
			o := options(b, examples(b), size.jobs)
			o.Workload.JobsPerHour = size.jobsPerHour
			history := historyOf(b, o)
			var simulated, replayed, ratios []float64
			for b.Loop() {
				s, r := cpuTime(func() { run(b, o) }), cpuTime(func() { replay(b, o, history) })
				simulated, replayed, ratios = append(simulated, s), append(replayed, r), append(ratios, s/r)
			}
			for name, values := range map[string][]float64{"simulated-ms": simulated, "replayed-ms": replayed, "ratio": ratios} {
				slices.Sort(values)
				b.ReportMetric(values[len(values)/2], name)
				b.ReportMetric(values[0], name+"-min")
				b.ReportMetric(values[len(values)-1], name+"-max")
			}
		})
	}
}

// historyOf is what a simulation has Step process.
func historyOf(b *testing.B, o simulate.Options) (history []eventlog.Message) {
	o.Observe = func(m *eventlog.Message, _ *evaluator.Output) {
		own := *m
		own.Payload = slices.Clone(m.Payload)
		history = append(history, own)
	}
	run(b, o)
	return history
}

// replay decides a history again, as `refloatctl replay` and `refloatctl verify` do, but for reading files and writing results.
func replay(b *testing.B, o simulate.Options, history []eventlog.Message) {
	p, err := audit.NewReplayer()
	if err != nil {
		b.Fatal(err)
	}
	p.Rules = evaluator.Rules{Generation: 1, Set: o.Candidate.Set.Set}
	p.Activate([]chain.Record{
		&chain.SemanticsActivated{Version: simulate.Semantics},
		&chain.PolicyActivated{Generation: 1, Digest: o.Candidate.Set.Digest(), HorizonMS: o.Candidate.Set.Horizon().Milliseconds()},
	})
	for i := range history {
		if _, err := p.Step(&history[i]); err != nil {
			b.Fatal(err)
		}
		if err := p.Settle(); err != nil {
			b.Fatal(err)
		}
	}
}

// cpuTime is the user CPU time, in milliseconds, that this process takes for something, its garbage included.
func cpuTime(do func()) float64 {
	runtime.GC()
	before := user()
	do()
	return float64(user()-before) / 1e6
}

func user() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano())
}
