package simulate_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/simulate"
)

const (
	blackHole      = "../../examples/protection/black-hole/"
	registryOutage = "../../examples/protection/registry-outage/"
)

// protected runs an example, changed, with one of its candidates.
func protected(t *testing.T, example, candidate string, seed uint64, change func(*simulate.Cluster, *simulate.Workload)) *simulate.Result {
	t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile(example + name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	c, err := simulate.ReadCluster(read("cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := simulate.ReadWorkload(read("workload.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := policyfile.Parse([]policyfile.File{{Name: candidate, Data: read(candidate + "/policies.yaml")}})
	if err != nil {
		t.Fatal(err)
	}
	change(c, w)
	return run(t, simulate.Options{Candidate: simulate.Candidate{Name: candidate, Set: set}, Cluster: c, Workload: w, Seed: seed})
}

func unchanged(*simulate.Cluster, *simulate.Workload) {}

func quiet(c *simulate.Cluster, _ *simulate.Workload) { c.Faults = nil }

// TestBlackHole: the example loses four fifths of its jobs less with protection, and no healthy node is a suspect, nor
// one of a cluster without faults.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2, 3} {
		without, with := protected(t, blackHole, "without", seed, unchanged), protected(t, blackHole, "with", seed, unchanged)
		if without.Protection != nil || without.Lost < 50 || 5*with.Lost > without.Lost {
			t.Errorf("seed %d: %d jobs are lost without, %d with protection", seed, without.Lost, with.Lost)
		}
		p := with.Protection
		if p.Suspicions < 8 || p.Certain == 0 || p.Healthy > 0 || slices.Max(p.FailuresBefore) == 0 {
			t.Errorf("seed %d: %+v", seed, p)
		}
	}
	if p := protected(t, blackHole, "with", 4, quiet).Protection; p.Suspicions > 0 || p.NodeDays < 30 {
		t.Errorf("without faults: %+v", p)
	}
}

// TestRegistryOutage: with breakers, the example wastes nine of ten retries less, loses no job to a limit, and what is held has started
// soon and not at once; a quiet cluster opens none. The same seed gives the same result.
func TestRegistryOutage(t *testing.T) {
	t.Parallel()
	spent := func(r *simulate.Result) (wasted, refused int) {
		for i := range r.Failures {
			if f := &r.Failures[i]; f.Cause == "Registry" {
				wasted += int(f.Retries)
				if f.Code == "PolicyLimit" {
					refused += int(f.Runs)
				}
			}
		}
		return wasted, refused
	}
	without, with := protected(t, registryOutage, "without", 1, unchanged), protected(t, registryOutage, "with", 1, unchanged)
	wasted, refused := spent(without)
	wastedWith, refusedWith := spent(with)
	if wasted < 3000 || 10*wastedWith > wasted || refused < 20 || 20*refusedWith > refused {
		t.Errorf("without breakers %d retries are wasted and %d refused, with them %d and %d", wasted, refused, wastedWith, refusedWith)
	}
	if without.Recovery["Registry"] < 300 || with.Recovery["Registry"] > 120 {
		t.Errorf("the recovery takes %v s without and %v s with breakers", without.Recovery, with.Recovery)
	}
	b := with.Breakers
	if without.Breakers != nil || b.Openings < 4 || b.False > 0 || b.Herd < 1 || b.Herd > 2 || b.Held != b.Canaries+b.Released {
		t.Errorf("%+v", b)
	}
	if again := protected(t, registryOutage, "with", 1, unchanged); text(t, again) != text(t, with) {
		t.Error("the same seed gives another result")
	}
	if q := protected(t, registryOutage, "with", 2, quiet).Breakers; *q != (simulate.Breakers{}) {
		t.Errorf("without a fault: %+v", q)
	}
}

// TestBreakerAttack: on a cluster that has just begun, a queue that always fails opens no breaker of others, of which few runs fail of
// the same category.
func TestBreakerAttack(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0.02, 0.1} {
		for _, seed := range []uint64{1, 2, 3, 4} {
			r := protected(t, registryOutage, "with", seed, func(c *simulate.Cluster, w *simulate.Workload) {
				kind := w.Kinds[0]
				w.Jobs, w.GiveUp, w.Kinds, c.Faults = 3000, time.Hour, nil, nil
				kind.Failures = []simulate.Failure{{Cause: "Registry", PerRun: share, After: 8 * time.Second, Pending: true, Category: "image-pull"}}
				for _, q := range c.Queues {
					kind.Name, kind.Queue = q.Name, q.Name
					w.Kinds = append(w.Kinds, kind)
				}
				kind.Name, kind.Queue, kind.Failures = "mallory", "mallory", slices.Clone(kind.Failures)
				kind.Failures[0].PerRun = 1
				w.Kinds, c.Queues = append(w.Kinds, kind), append(c.Queues, simulate.Queue{Name: "mallory"})
			})
			if *r.Breakers != (simulate.Breakers{}) {
				t.Errorf("with %v failures, seed %d: %+v", share, seed, r.Breakers)
			}
			if r.Lost < 500 {
				t.Errorf("with %v failures, seed %d: %d jobs are lost, want all of the one queue", share, seed, r.Lost)
			}
		}
	}
}
