package bench_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var turn = flag.Duration("turn", 100*time.Millisecond, "CPU time that one turn of a measured pair takes at least")

const (
	minPairs = 9
	maxAA    = 0.05 // half-width of the interval of one side against itself, beyond which a result is void
)

// measured is what one side took in one turn, per run.
type measured struct{ cpu, wall float64 } // ns

// ratios are the sides' ratios y/x over all pairs, and what x and y took.
type ratios struct {
	cpu, wall []float64
	x, y      []float64 // CPU ns per run
}

// oneCore makes the rest of the benchmark run on one core, with a fixed GOGC.
func oneCore(b *testing.B) {
	procs, gc := runtime.GOMAXPROCS(1), debug.SetGCPercent(100)
	b.Cleanup(func() { runtime.GOMAXPROCS(procs); debug.SetGCPercent(gc) })
}

// compare measures x and y in turns until b has enough of it. It reports how
// many times faster x is than y, by CPU time.
func compare(b *testing.B, x, y func()) ratios {
	b.Helper()
	oneCore(b)
	aa := pairs(nil, x, x)
	r := pairs(b, x, y)
	low, high := interval(r.cpu)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(r.cpu), "x-faster")
	b.ReportMetric(low, "x-faster-low")
	b.ReportMetric(high, "x-faster-high")
	b.ReportMetric(median(r.wall), "x-faster-wall")
	aaLow, aaHigh := interval(aa.cpu)
	if 1-aaLow > maxAA || aaHigh-1 > maxAA {
		b.ReportMetric(1, "void")
		b.Logf("void: one side against itself gives %.3f to %.3f", aaLow, aaHigh)
	}
	b.Logf("%d pairs: %.2f times faster (95 %%: %.2f to %.2f, least %.2f); by the wall clock %.2f; against itself %.3f to %.3f",
		len(r.cpu), median(r.cpu), low, high, slices.Min(r.cpu), median(r.wall), aaLow, aaHigh)
	return r
}

// pairs runs x and y in turns: at least minPairs of them, and as many as b asks for.
func pairs(b *testing.B, x, y func()) ratios {
	var r ratios
	one := func() {
		var mx, my measured
		if len(r.cpu)%2 == 0 {
			mx, my = measure(x), measure(y)
		} else {
			my, mx = measure(y), measure(x)
		}
		r.cpu, r.wall = append(r.cpu, my.cpu/mx.cpu), append(r.wall, my.wall/mx.wall)
		r.x, r.y = append(r.x, mx.cpu), append(r.y, my.cpu)
	}
	for b != nil && b.Loop() {
		one()
	}
	for len(r.cpu) < minPairs {
		one()
	}
	return r
}

func measure(side func()) measured {
	runtime.GC() // the other side's garbage is not this one's
	runs, cpu, wall := 0, cpuTime(), time.Now()
	for {
		side()
		runs++
		if spent := cpuTime() - cpu; spent >= *turn {
			return measured{cpu: float64(spent) / float64(runs), wall: float64(time.Since(wall)) / float64(runs)}
		}
	}
}

// cpuTime is what this process has used of the processor, with its garbage collector.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// busyTime is what all processes of this machine have used of its processors.
func busyTime(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		b.Skipf("SKIP: the machine's busy time is read from /proc: %v", err)
	}
	const perSecond = 100 // ticks of Linux
	line, _, _ := strings.Cut(string(text), "\n")
	var ticks int64
	for i, f := range strings.Fields(line)[1:8] { // user nice system idle iowait irq softirq
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		if i != 3 && i != 4 {
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / perSecond
}

// allocations counts what side allocates in one run.
func allocations(side func()) (objects, bytes float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	side()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// interval is the bootstrap 95 % interval of the median.
func interval(v []float64) (low, high float64) {
	const resamples = 2000
	rng := rand.New(rand.NewPCG(1, 2))
	medians, sample := make([]float64, resamples), make([]float64, len(v))
	for i := range medians {
		for k := range sample {
			sample[k] = v[rng.IntN(len(v))]
		}
		medians[i] = median(sample)
	}
	slices.Sort(medians)
	return medians[resamples/40], medians[resamples-1-resamples/40]
}
