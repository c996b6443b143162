package scheduling_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/refloat/refloat/internal/simulate/scheduling"
	"github.com/refloat/refloat/internal/simulate/schedulingmodel"
)

// cluster is a cluster with jobs of 20 queues: a third of the jobs run if there is room for them, nine in ten
// of these on behalf of two queues; one in ten nodes has GPUs. Every tenth submission is a gang.
func cluster(jobs, nodes int) (scheduling.Config, []scheduling.Queue, []scheduling.Node, map[string]string) {
	r := rand.New(rand.NewPCG(uint64(jobs), uint64(nodes)))
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	config := scheduling.Config{
		Now: now, Resources: []string{"gpu", "cpu", "memory"}, DefaultPriorityClass: "default",
		PriorityClasses: []scheduling.PriorityClass{{"default", 1000, true}, {"resilient", 1000, false}, {"urgent", 2000, true}},
	}
	all := make([]scheduling.Node, nodes)
	free := make([]scheduling.Resources, nodes)
	for i := range all {
		total := scheduling.Resources{0, 64000, 256 << 30}
		if i%10 == 0 {
			total[0] = 8
		}
		all[i] = scheduling.Node{Name: fmt.Sprintf("node-%05d", i), Total: total, Labels: map[string]string{"rack": fmt.Sprint("rack-", i/40)}}
		free[i] = append(scheduling.Resources{}, total...)
	}
	queues := make([]scheduling.Queue, 20)
	for i := range queues {
		queues[i] = scheduling.Queue{Name: fmt.Sprintf("queue-%02d", i), PriorityFactor: 1000 + 500*int64(i%3)}
	}
	running := map[string]string{}
	for n, node := 0, 0; n < jobs; {
		runs := n < jobs/3
		q := r.IntN(len(queues))
		if runs && r.IntN(10) > 0 {
			q = r.IntN(2)
		}
		j := scheduling.Job{
			Priority: r.Int64N(3), Submitted: now.Add(-time.Duration(r.Int64N(int64(24 * time.Hour)))), PriorityClass: []string{"", "", "", "", "resilient", "urgent"}[r.IntN(6)],
			Request: scheduling.Resources{0, 1000 * (1 + r.Int64N(16)), (1 + r.Int64N(64)) << 30},
		}
		if r.IntN(20) == 0 {
			j.Request[0] = 1 + r.Int64N(4)
		}
		size := 1
		if !runs && r.IntN(10) == 0 {
			size = min(2+r.IntN(15), jobs-n)
			j.Gang = scheduling.Gang{ID: fmt.Sprint("gang-", n), Cardinality: size}
			if r.IntN(4) == 0 {
				j.Gang.NodeUniformityLabel = "rack"
			}
		}
		for range size {
			j.ID = fmt.Sprintf("job-%06d", n)
			for try := 0; runs && try < 50; try, node = try+1, (node+1)%nodes {
				if f := free[node]; f[0] >= j.Request[0] && f[1] >= j.Request[1] && f[2] >= j.Request[2] {
					for i, amount := range j.Request {
						f[i] -= amount
					}
					running[j.ID] = all[node].Name
					break
				}
			}
			queues[q].Jobs = append(queues[q].Jobs, j)
			n++
		}
	}
	return config, queues, all, running
}

// BenchmarkSchedule is one cycle.
func BenchmarkSchedule(b *testing.B) {
	for _, size := range []struct{ jobs, nodes int }{{1000, 10000}, {10000, 10000}, {100000, 10000}, {1000, 100}, {10000, 1000}} {
		b.Run(fmt.Sprintf("jobs=%d/nodes=%d", size.jobs, size.nodes), func(b *testing.B) {
			config, queues, nodes, running := cluster(size.jobs, size.nodes)
			b.ReportAllocs()
			var r scheduling.Result
			before := cpuTime()
			for b.Loop() {
				var err error
				if r, err = scheduling.Schedule(config, queues, nodes, running); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(len(r.Scheduled)), "scheduled")
			b.ReportMetric(float64(len(r.Preempted)), "preempted")
		})
	}
}

// TestAllocations: each job that has a node in the end costs less than one allocation, all others included.
func TestAllocations(t *testing.T) {
	for _, jobs := range []int{300, 3000} {
		config, queues, nodes, running := cluster(jobs, jobs/10)
		placed := 0
		each := testing.AllocsPerRun(3, func() {
			r, err := scheduling.Schedule(config, queues, nodes, running)
			if err != nil {
				t.Fatal(err)
			}
			placed = len(r.NodeByJob)
		})
		if each > float64(placed) {
			t.Errorf("%d jobs: %.0f allocations for %d jobs with nodes", jobs, each, placed)
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

// BenchmarkModel is one cycle of the reference model, the naive version to compare with. It checks that both give the
// same result. MODEL_JOBS=10000 takes hours.
func BenchmarkModel(b *testing.B) {
	jobs := 1000
	if n, err := strconv.Atoi(os.Getenv("MODEL_JOBS")); err == nil {
		jobs = n
	}
	b.Run(fmt.Sprintf("jobs=%d/nodes=%d", jobs, jobs/10), func(b *testing.B) {
		config, queues, nodes, running := cluster(jobs, jobs/10)
		got, err := scheduling.Schedule(config, queues, nodes, running)
		if err != nil {
			b.Fatal(err)
		}
		before := cpuTime()
		const runs = 20
		for range runs {
			if _, err := scheduling.Schedule(config, queues, nodes, running); err != nil {
				b.Fatal(err)
			}
		}
		engine := float64(cpuTime()-before) / runs
		before = cpuTime()
		for b.Loop() {
			want, err := schedulingmodel.Schedule(config, queues, nodes, running)
			if err != nil {
				b.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				b.Fatalf("model (-) and Schedule (+) differ:\n%s", diff)
			}
		}
		model := float64(cpuTime()-before) / float64(b.N)
		b.ReportMetric(model, "cpu-ns/op")
		b.ReportMetric(model/engine, "times-slower")
	})
}
