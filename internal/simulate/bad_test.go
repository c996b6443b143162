package simulate_test

import (
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/simulate"
)

// TestBadInput: each mistake is an error that names its place.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, old, new, want string }{
		{"cluster", "schedulingInterval: 10s", "schedulingInterval: 0s", "schedulingInterval: 0s: want a duration above 0"},
		{"cluster", "schedulingInterval: 10s", "schedulingInterval: -1s", "want a duration above 0"},
		{"cluster", "schedulingInterval: 10s", "schedulingInterval: soon", "soon"},
		{"cluster", "count: 6", "count: 0", "nodes[0] gpu: count: 0"},
		{"cluster", "count: 6", "count: 1000000000", "nodes[0] gpu: count"},
		{"cluster", "cpu: 96", "cpu: -96", "nodes[0] gpu: cpu: -96 is negative"},
		{"cluster", "cpu: 96", "cpu: many", "is no quantity"},
		{"cluster", "cpu: 96", "CPU: 96", "CPU is not one of the cluster's resources"},
		{"cluster", "- {name: cpu, count: 8", "- {name: gpu, count: 1, resources: {cpu: 1}}\n- {name: cpu, count: 8", "gpu-1"},
		{"cluster", "resources: [nvidia.com/gpu, cpu, memory]", "resources: [nvidia.com/gpu, cpu, memory, cpu]", "cpu"},
		{"cluster", "defaultPriorityClass: batch", "defaultPriorityClass: none", "none"},
		{"cluster", "faults:", "queues: [{name: a, priorityFactor: 0.5}]\nfaults:", "queues[0] a: priorityFactor: 0.5"},
		{"cluster", "faults:", "queues: [{name: a, priorityFactor: .nan}]\nfaults:", "queues[0] a: priorityFactor: NaN"},
		{"cluster", "at: 2h", "at: 2500000h", "at and for"},
		{"cluster", "faults:", "queues: [{name: a}, {name: a}]\nfaults:", "a"},
		{"cluster", "nodes: [gpu-3]", "nodes: [gpu-99]", `there is no node "gpu-99"`},
		{"cluster", "zone: b", "zone: c", `no node is in zone "c"`},
		{"cluster", "at: 2h", "at: -2h", "at and for"},
		{"cluster", "for: 30m, down: true", "down: true", "need for: how long"},
		{"cluster", "perRun: 0.9", "perRun: 1.9", "want a chance between 0 and 1"},
		{"cluster", "perRun: 0.9", "perRun: .nan", "want a chance between 0 and 1"},
		{"cluster", "condition: Evicted", "condition: Evictd", `there is no "Evictd"`},
		{"workload", "jobs: 2000", "jobs: 0", "jobs: 0"},
		{"workload", "jobs: 2000", "jbos: 2000", "jbos"},
		{"workload", "jobsPerHour: 80", "jobsPerHour: 0", "jobsPerHour: 0"},
		{"workload", "jobsPerHour: 80", "jobsPerHour: 0.0001", "more than"},
		{"workload", "arrivals: Poisson", "arrivals: Fish", "want Poisson or Even"},
		{"workload", "weight: 60", "weight: -1", "kinds[0] small: weight"},
		{"workload", "cpu: 8,", "cpu: -8,", "kinds[0] small: request: cpu: -8 is negative"},
		{"workload", "cpu: 8,", "cpu: 97,", "kinds[0] small: the job fits no node"},
		{"workload", "jobsAtOnce: 4", "jobsAtOnce: 13", "a gang of 13 jobs finds no room even on the empty cluster"},
		{"workload", "jobsAtOnce: 4", "jobsAtOnce: 1", "a gang has at least two jobs"},
		{"workload", "p95: 90m", "p95: 9m", "less than p50"},
		{"workload", "p50: 15m", "p50: 0s", "runTime.p50"},
		{"workload", "priorityClass: urgent", "priorityClass: none", "none"},
		{"workload", "- name: urgent", "- name: urgent\n  queue: nobodys", `queue: there is no "nobodys"`},
		{"workload", "cause: Crash", "cause: ''", "no cause"},
	} {
		files := map[string]string{"cluster": simulate.DefaultCluster(), "workload": simulate.DefaultWorkload()}
		changed := strings.Replace(files[c.file], c.old, c.new, 1)
		if changed == files[c.file] {
			t.Fatalf("the default %s has no %q", c.file, c.old)
		}
		files[c.file] = changed
		cluster, err := simulate.ReadCluster([]byte(files["cluster"]))
		if err == nil {
			var w *simulate.Workload
			if w, err = simulate.ReadWorkload([]byte(files["workload"])); err == nil {
				err = simulate.Check(cluster.WithQueues(), w)
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), c.file+": ") {
			t.Errorf("%s: %v, want %s: … %q", c.new, err, c.file, c.want)
		}
	}
}

// TestRareSubmissions: a submission that is expected later than time reaches is not before the beginning.
func TestRareSubmissions(t *testing.T) {
	t.Parallel()
	o := one(t, "")
	o.Workload.Jobs, o.Workload.JobsPerHour, o.Workload.Kinds[0].JobsAtOnce = 1, 0.00001, 50_000
	if r := run(t, o); r.Done != 1 || r.Hours < 1000 {
		t.Errorf("done %d after %v hours", r.Done, r.Hours)
	}
}

// TestZeroRequests: a job that requests nothing runs anywhere, and a node without resources takes only such jobs.
func TestZeroRequests(t *testing.T) {
	t.Parallel()
	o := one(t, "")
	o.Workload.Kinds[0].Request = map[string]string{"cpu": "0"}
	o.Cluster.Nodes[0].Resources = nil
	if r := run(t, o); r.Done != r.Jobs {
		t.Errorf("%+v", r.Tally)
	}
}
