package sim_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/refloat/refloat/internal/test/sim"
)

// number reads an environment variable; absent: what is said.
func number(t *testing.T, name string, absent uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return absent
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func sets(t testing.TB) *sim.Sets {
	t.Helper()
	s, err := sim.NewSets(60)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSim runs the worlds of seeds 1 to SIM_SEEDS (10,000; fewer in the quick
// tests), or that of SIM_SEED alone with its trace.
func TestSim(t *testing.T) {
	t.Parallel()
	cfg := sim.Config{Sets: sets(t)}
	if seed := number(t, "SIM_SEED", 0); seed != 0 {
		cfg.Trace = os.Stdout
		r := sim.Run(seed, cfg)
		t.Logf("seed %d: %d steps, faults %v", seed, r.Steps, r.Faults)
		if r.Err != nil {
			t.Error(r.Err)
		}
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	seeds := uint64(10_000)
	if testing.Short() {
		seeds = 500
	}
	seeds = number(t, "SIM_SEEDS", seeds)
	first := number(t, "SIM_FIRST", 1)

	var mu sync.Mutex
	var counts sim.Sights
	var failed []uint64
	steps, next := 0, first
	take := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		seed, next = next, next+1
		return seed, seed < first+seeds && len(failed) == 0
	}
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				r := sim.Run(seed, cfg)
				mu.Lock()
				counts.Add(&r)
				steps += r.Steps
				if r.Err != nil {
					failed = append(failed, seed)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(failed) > 0 {
		report(t, cfg, slices.Min(failed))
		return
	}
	t.Logf("%d seeds, %d steps; in how many runs this was seen:\n%v", seeds, steps, &counts)
	for s, n := range counts {
		if s := sim.Sight(s); n == 0 && s.Within() > 0 && seeds >= s.Within() {
			t.Errorf("never in %d seeds: %v", seeds, s)
		}
	}
}

// report shows a violation: its seed, how to run it again, the faults that it
// needs and the end of its trace.
func report(t *testing.T, cfg sim.Config, seed uint64) {
	t.Helper()
	needed := sim.Run(seed, cfg).Faults
	needed.Each(func(one sim.Faults) {
		less := cfg
		less.Without |= one
		if r := sim.Run(seed, less); r.Err != nil {
			cfg = less
		}
	})
	var trace bytes.Buffer
	cfg.Trace = &trace
	r := sim.Run(seed, cfg)
	lines := bytes.SplitAfter(trace.Bytes(), []byte("\n"))
	t.Errorf("seed %d: %v\nafter %d steps, with faults %v\nrun again: SIM_SEED=%d go test ./internal/test/sim -run TestSim\n%s",
		seed, r.Err, r.Steps, r.Faults, seed, bytes.Join(lines[max(0, len(lines)-60):], nil))
}

// TestSameSeed: a seed gives the same run each time.
func TestSameSeed(t *testing.T) {
	t.Parallel()
	shared := sets(t)
	for seed := range uint64(30) {
		var traces [2]bytes.Buffer
		var results [2]string
		for i := range traces {
			r := sim.Run(seed, sim.Config{Sets: shared, Trace: &traces[i]})
			results[i] = fmt.Sprint(r)
		}
		if results[0] != results[1] || !bytes.Equal(traces[0].Bytes(), traces[1].Bytes()) {
			t.Errorf("seed %d gives two different runs", seed)
		}
	}
}
