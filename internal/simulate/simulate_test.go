package simulate_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/simulate"
)

// policies reads policy files of examples/policies.
func policies(t testing.TB, names ...string) *policyfile.Set {
	t.Helper()
	var files []policyfile.File
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", "..", "examples", "policies", name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, policyfile.File{Name: name, Data: text})
	}
	return parse(t, files...)
}

func parse(t testing.TB, files ...policyfile.File) *policyfile.Set {
	t.Helper()
	set, err := policyfile.Parse(files)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func examples(t testing.TB) *policyfile.Set {
	return policies(t, "batch.yaml", "extra.yaml", "groups.yaml", "infra.yaml", "queues.yaml", "settings.yaml", "training-job.yaml", "training.yaml")
}

// options are the defaults, with jobs jobs.
func options(t testing.TB, set *policyfile.Set, jobs int) simulate.Options {
	t.Helper()
	c, err := simulate.ReadCluster([]byte(simulate.DefaultCluster()))
	if err != nil {
		t.Fatal(err)
	}
	w, err := simulate.ReadWorkload([]byte(simulate.DefaultWorkload()))
	if err != nil {
		t.Fatal(err)
	}
	w.Jobs = jobs
	o := simulate.Options{Candidate: simulate.Candidate{Name: "examples", Set: set}, Workload: w, Seed: 1}
	o.Cluster = c.WithQueues(o.Candidate)
	return o
}

func run(t testing.TB, o simulate.Options) *simulate.Result {
	t.Helper()
	if err := simulate.Check(o.Cluster, o.Workload); err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func text(t *testing.T, r any) string {
	t.Helper()
	out, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestDeterminism: a result is a function of its options, however many processors there are.
func TestDeterminism(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	first := text(t, run(t, options(t, examples(t), 250)))
	for _, n := range []int{1, 2, 4} {
		runtime.GOMAXPROCS(n)
		if again := text(t, run(t, options(t, examples(t), 250))); again != first {
			t.Fatalf("GOMAXPROCS=%d: another result:\n%s\n%s", n, first, again)
		}
	}
	other := options(t, examples(t), 250)
	other.Seed = 2
	r := run(t, other)
	r.Seed = 1
	if text(t, r) == first {
		t.Error("another seed gives the same result")
	}
}
