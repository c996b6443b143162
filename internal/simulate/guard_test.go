package simulate_test

import (
	"os"
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/simulate"
)

const blackHole = "../../examples/protection/black-hole/"

// protected runs the example of a black hole, or its quiet cluster, with one of its candidates.
func protected(t *testing.T, candidate string, seed uint64, quiet bool) *simulate.Result {
	t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile(blackHole + name)
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
		without, with := protected(t, "without", seed, false), protected(t, "with", seed, false)
		if without.Protection != nil || without.Lost < 50 || 5*with.Lost > without.Lost {
			t.Errorf("seed %d: %d jobs are lost without, %d with protection", seed, without.Lost, with.Lost)
		}
		p := with.Protection
		if p.Suspicions < 8 || p.Certain == 0 || p.Healthy > 0 || slices.Max(p.FailuresBefore) == 0 {
			t.Errorf("seed %d: %+v", seed, p)
		}
	}
	if p := protected(t, "with", 4, true).Protection; p.Suspicions > 0 || p.NodeDays < 30 {
		t.Errorf("without faults: %+v", p)
	}
}
