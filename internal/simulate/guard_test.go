package simulate_test

import (
	"os"
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/simulate"
)

const (
	blackHole      = "../../examples/protection/black-hole/"
	registryOutage = "../../examples/protection/registry-outage/"
)

// protected runs an example, or its quiet cluster, with one of its candidates.
func protected(t *testing.T, example, candidate string, seed uint64, quiet bool) *simulate.Result {
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
	if quiet {
		c.Faults = nil
	}
	return run(t, simulate.Options{Candidate: simulate.Candidate{Name: candidate, Set: set}, Cluster: c, Workload: w, Seed: seed})
}

// TestBlackHole: the example loses four fifths of its jobs less with protection, and no healthy node is a suspect, nor
// one of a cluster without faults.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2, 3} {
		without, with := protected(t, blackHole, "without", seed, false), protected(t, blackHole, "with", seed, false)
		if without.Protection != nil || without.Lost < 50 || 5*with.Lost > without.Lost {
			t.Errorf("seed %d: %d jobs are lost without, %d with protection", seed, without.Lost, with.Lost)
		}
		p := with.Protection
		if p.Suspicions < 8 || p.Certain == 0 || p.Healthy > 0 || slices.Max(p.FailuresBefore) == 0 {
			t.Errorf("seed %d: %+v", seed, p)
		}
	}
	if p := protected(t, blackHole, "with", 4, true).Protection; p.Suspicions > 0 || p.NodeDays < 30 {
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
	without, with := protected(t, registryOutage, "without", 1, false), protected(t, registryOutage, "with", 1, false)
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
	if again := protected(t, registryOutage, "with", 1, false); text(t, again) != text(t, with) {
		t.Error("the same seed gives another result")
	}
	if q := protected(t, registryOutage, "with", 2, true).Breakers; *q != (simulate.Breakers{}) {
		t.Errorf("without a fault: %+v", q)
	}
}
