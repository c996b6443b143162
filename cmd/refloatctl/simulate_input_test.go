package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimulateInputs: a history and a trace run in place of a generated workload; what is assumed is said; a fit can be given back.
func TestSimulateInputs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	past := filepath.Join("..", "..", "testdata", "recordings", "plain.jsonl.gz")
	simulated := func(args ...string) result {
		return inProcess(t, append([]string{"simulate", "--policies", examplesDir}, args...)...)
	}
	recorded := simulated("--workload-from", past).exits(t, exitFine).prints(t, "of 300 jobs", "cancelled: ", "run n of a job ends as run n of the history", "the nodes on which its runs were").out
	if again := simulated("--workload-from", past, "--cluster-from", past, "--parallel", "1").exits(t, exitFine).out; again != recorded {
		t.Errorf("a second run prints something else:\n%s\n%s", recorded, again)
	}
	log := filepath.Join(dir, "log")
	inProcess(t, "import", past, "--log", log).exits(t, exitFine)
	if head, _, _ := strings.Cut(simulated("--workload-from", log).exits(t, exitFine).out, "\n"); !strings.HasPrefix(recorded, head) {
		t.Errorf("the same history as a log: %s", head)
	}

	fitted := inProcess(t, "simulate", "--fit", past).exits(t, exitFine).out
	simulated("--workload", file("fitted.yaml", fitted), "--cluster-from", past, "--jobs", "50").exits(t, exitFine).prints(t, "seed 1: of ")

	pods := file("pods.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,creation_time,deletion_time,scheduled_time\na,1000,1,1,500,LS,0,60,0\nb,1000,1,0,0,BE,7200,7260,7200\n")
	nodes := file("nodes.csv", "sn,cpu_milli,memory_mib,gpu\nn,4000,16,1\n")
	simulated("--trace", pods, "--cluster-from", nodes, "--load", "2").exits(t, exitFine).prints(t, "of 2 jobs", "after 1.0 hours", "arrivals 2 times as fast")
	simulated("--trace", pods, "--cluster-from", nodes, "--jobs", "1").exits(t, exitFine).prints(t, "of 1 job,")

	for _, c := range []struct{ args, want string }{
		{"--workload-from x --trace y --cluster z", "omit --workload and --trace"},
		{"--cluster x --cluster-from y", "either --cluster or --cluster-from"},
		{"--trace x", "--trace needs a cluster"},
		{"--load 2", "--load is for --trace"},
		{"--workload-from x --jobs 3", "a history is simulated as a whole"},
		{"--workload-from " + nodes, "is not a recording"},
		{"--trace " + pods + " --cluster-from " + file("small.csv", "sn,cpu_milli,memory_mib,gpu\nn,400,16,1\n"), `pods.csv:2: job "a": it fits no node`},
		{"--fit " + filepath.Join("..", "..", "testdata", "recordings", "preempted.jsonl.gz"), "runs succeeded, and a fit of run times needs 20"},
	} {
		simulated(strings.Fields(c.args)...).prints(t, c.want)
	}
	simulated("--trace", nodes, "--cluster-from", nodes).prints(t, "nodes.csv:1: columns are missing: creation_time")
	simulated("--workload-from", filepath.Join(dir, "none")).exits(t, exitEnvironment)
}
