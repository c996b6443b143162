package simulate_test

import (
	"fmt"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/simulate"
)

// byHand is one node of 2 CPUs and two jobs of some CPUs, submitted after 5 and 10 minutes. Each run fails after 10 minutes and
// each job has one retry.
func byHand(t *testing.T, cpus, retry string) simulate.Options {
	t.Helper()
	c, err := simulate.ReadCluster([]byte(`
schedulingInterval: 1s
resources: [cpu]
priorityClasses: [{name: p, priority: 1, preemptible: false}]
defaultPriorityClass: p
queues: [{name: q}]
nodes: [{name: n, count: 1, resources: {cpu: 2}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	w, err := simulate.ReadWorkload([]byte(`
jobs: 2
jobsPerHour: 12
arrivals: Even
giveUp: 10h
kinds: [{name: k, request: {cpu: ` + cpus + `}, runTime: {p50: 30m}, failures: [{cause: c, perRun: 1, after: 10m, exitCode: 7}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	set := parse(t, policyfile.File{Name: "p.yaml", Data: []byte(`
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec:
  retryLimit: 1
  rules:
  - {name: r, action: Retry, onExitCodes: {operator: In, values: [7]}, ` + retry + `}
---
kind: Queue
name: q
retryPolicies: [p]
`)})
	return simulate.Options{Candidate: simulate.Candidate{Name: "hand", Set: set}, Cluster: c, Workload: w}
}

// TestByHand: first runs passed by retries, load on avoided nodes, wasted hours and fair-share error, as computed by hand.
func TestByHand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, cpus, retry, want string }{
		{
			// A runs from 5m to 15m and from 15m to 25m, ahead of B, which runs from 25m to 35m and from 35m to 45m: four runs of 10 minutes on 2 CPUs.
			"the retry starts before the first run of the other job", "2", "backoff: {initialDelay: 0s}",
			"lost 2 not over 0; runs 4, 2 retried; passed 1; wait p50 0s max 900s; retry wait max 0s; wasted 1.333; use 0.556; error 0.000; avoided -",
		},
		{
			// B runs from 15m to 25m, while A waits for 15m after its first run: until 30m. A runs until 40m. B waits until 40m too and runs until 50m.
			"the retry comes too late to pass the other job", "2", "backoff: {initialDelay: 15m, maxDelay: 15m, jitter: 0}",
			"lost 2 not over 0; runs 4, 2 retried; passed 0; wait p50 0s max 300s; retry wait max 900s; wasted 1.333; use 0.556; error 0.000; avoided -",
		},
		{
			// A runs from 5m to 15m, B from 10m to 20m, on half of the node each. Both avoid the only node, and wait for ever;
			// the last cycle finds that a second later.
			"no node is left", "1", "backoff: {initialDelay: 0s}, antiAffinity: {mode: node}",
			"lost 0 not over 2; runs 2, 2 retried; passed 0; wait p50 0s max 0s; retry wait max 0s; wasted 0.333; use 0.278; error 0.500; avoided n-1 by 2, 2 runs, 2 failed, use 0.278",
		},
	} {
		r := run(t, byHand(t, c.cpus, c.retry))
		row := r.Failures[0]
		if len(r.Failures) > 1 { // retried, and at the limit
			row.Retried += r.Failures[1].Retried
		}
		avoided := "-"
		for _, n := range r.AvoidedNodes {
			avoided = fmt.Sprintf("%s by %d, %d runs, %d failed, use %.3f", n.Node, n.Avoided, n.Runs, n.Failed, n.Use)
		}
		got := fmt.Sprintf("lost %d not over %d; runs %d, %d retried; passed %d; wait p50 %.0fs max %.0fs; retry wait max %.0fs; wasted %.3f; use %.3f; error %.3f; avoided %s",
			r.Lost, r.NotOver, r.Runs, row.Retried, r.Passed, r.Waiting.P50, r.Waiting.Max, r.RetryWaiting.Max, r.WastedHours["cpu"], r.MeanUse, r.Queues[0].FairShareError, avoided)
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestAgain: a run that follows one that failed has the chances for it: of the same node, of another one, and of the second retry.
func TestAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		same      []float64
		other     []float64
		elsewhere bool // retries avoid the node
		want      uint64
	}{
		{"independent", nil, nil, false, 1 + 5},
		{"the same node", []float64{0}, []float64{1}, false, 2},
		{"the second retry on the same node", []float64{1, 0}, []float64{1}, false, 3},
		{"the last chance holds for all further ones", []float64{1, 1}, []float64{0}, false, 1 + 5},
		{"another node", []float64{1}, []float64{0}, true, 2},
	} {
		retry := "retryLimit: 5"
		if c.elsewhere {
			retry += ", antiAffinity: {mode: node}"
		}
		o := byHand(t, "1", retry)
		o.Workload.Jobs = 1
		o.Cluster.Nodes[0].Count = 2
		o.Workload.Kinds[0].Failures[0].Again = simulate.Again{SameNode: c.same, OtherNode: c.other}
		if r := run(t, o); r.Runs != c.want {
			t.Errorf("%s: %d runs, want %d", c.name, r.Runs, c.want)
		}
	}
}
