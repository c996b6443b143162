package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// TestTimeline: merged intervals keep the integral, and their number is bounded, whatever the times.
func TestTimeline(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	line, now, sum := newTimeline(1, time.Second), time.Duration(0), 0.0
	for n := range 2000 {
		line.now[0] = float64(r.IntN(10))
		step := time.Duration(r.ExpFloat64() * float64(n*n) * float64(10*time.Millisecond))
		now += step
		line.advance(now)
		sum += line.now[0] * step.Seconds()
	}
	total := 0.0
	for _, s := range line.sums[0] {
		total += s
	}
	if n := len(line.sums[0]); n <= maxIntervals/2 || n > maxIntervals || math.Abs(total-sum) > 1e-6*sum || line.until != now {
		t.Errorf("%d intervals, integral %v, want %v, until %v, want %v", n, total, sum, line.until, now)
	}

	line = newTimeline(1, time.Second)
	line.now[0] = 4
	line.advance(2 * time.Second)
	line.now[0] = 1
	line.advance(3500 * time.Millisecond)
	if got := line.averages(0); !slices.Equal(got, []float64{4, 4, 1, 1}) {
		t.Errorf("averages %v", got)
	}
	line.merge()
	if got := line.averages(0); !slices.Equal(got, []float64{4, 1}) {
		t.Errorf("merged averages %v", got)
	}
	line.now[0] = 5 // the second interval gets 1.5 s of 1 and 0.5 s of 5
	line.advance(4 * time.Second)
	if got := line.averages(0); !slices.Equal(got, []float64{4, 2}) {
		t.Errorf("averages %v", got)
	}
	line.advance(1000 * time.Hour)
	if got := line.averages(0); len(got) > maxIntervals || got[len(got)-1] != 5 {
		t.Errorf("%d averages, the last one is %v", len(got), got[len(got)-1])
	}
}

// TestFairShareError: of two queues with weights 1 and 1/3 on 8 CPUs, by hand.
func TestFairShareError(t *testing.T) {
	t.Parallel()
	c := &Cluster{SchedulingInterval: time.Second, Resources: []string{"cpu"}, Queues: []Queue{{Name: "a"}, {Name: "b", PriorityFactor: 3}}}
	s := newCounter(c, &Workload{Given: []Given{{}}}, 0).samples
	s.nodes([]scheduling.Node{{Total: scheduling.Resources{6}}, {Total: scheduling.Resources{2}}})
	size := &kind{request: scheduling.Resources{4}}
	a, b := &job{kind: size}, &job{kind: size, queue: 1}

	s.waits(a)
	s.waits(a)
	s.waitsNot(a)
	s.runs(a, 1)
	s.sample(0) // a alone: it has 1/2 of its share 1
	s.waits(b)
	s.sample(2 * time.Second) // the shares are 3/4 and 1/4, of which b has nothing
	s.waitsNot(b)
	s.runs(b, 1)
	s.sample(3 * time.Second) // and each has 1/2
	s.runs(a, -1)
	s.sample(5 * time.Second) // b alone
	s.advance(6 * time.Second)

	got := fmt.Sprintf("%+v", s.series(c))
	want := "{IntervalHours:0.0002777777777777778 Queues:[" +
		"{Queue:a Waiting:[0 0 0 0 0 0] Share:[0.5 0.5 0.5 0.5 0.5 0] FairShare:[1 1 0.75 0.75 0.75 0] Error:[0.5 0.5 0.25 0.25 0.25 0]} " +
		"{Queue:b Waiting:[0 0 1 0 0 0] Share:[0 0 0 0.5 0.5 0.5] FairShare:[0 0 0.25 0.25 0.25 1] Error:[0 0 0.25 0.25 0.25 0.5]}] " +
		"Resources:[{Resource:cpu Use:[0.5 0.5 0.5 1 1 0.5]}]}"
	if got != want {
		t.Errorf("series:\n got %s\nwant %s", got, want)
	}
	for q, want := range [][2]float64{{(2*0.5 + 3*0.25) / 5, 0.5}, {(3*0.25 + 0.5) / 4, 0.5}} {
		if mean, furthest := s.fairShareError(q); math.Abs(mean-want[0]) > 1e-12 || furthest != want[1] {
			t.Errorf("queue %d: %v, at most %v, want %v", q, mean, furthest, want)
		}
	}
}
