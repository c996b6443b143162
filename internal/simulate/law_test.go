package simulate_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/simulate"
)

// watcher reads what a simulation tells Step, as a stranger would, and checks that the decisions are obeyed.
type watcher struct {
	t       *testing.T
	decoder events.Decoder
	jobs    map[string]*watched
	gangs   map[string][]string
	runs    uint64
	failed  map[string]int // failed runs by code
}

type watched struct {
	submitted, notBefore int64
	avoid                []string
	node                 string // while it runs
	gang                 string
	over                 bool
}

func (w *watcher) observe(m *eventlog.Message, out *evaluator.Output) {
	seq, err := w.decoder.Decode(slices.Clone(m.Payload))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range seq.Events {
		e := &seq.Events[i]
		at := e.Created.Time(m.Publish)
		j := w.jobs[e.JobID]
		if j == nil {
			j = &watched{submitted: at}
			w.jobs[e.JobID] = j
		}
		switch e.Kind { //nolint:exhaustive // the others change nothing here
		case events.SubmitJob:
			if j.gang = e.Submit.GangID; j.gang != "" {
				w.gangs[j.gang] = append(w.gangs[j.gang], e.JobID)
			}
		case events.RunLeased:
			if j.over || j.node != "" || at < j.notBefore || slices.Contains(j.avoid, e.Node) {
				w.t.Errorf("%s starts on %s at %d: %+v", e.JobID, e.Node, at, j)
			}
			j.node = e.Node
			w.runs++
		case events.RunSucceeded, events.RunErrors, events.RunPreempted:
			j.node = ""
			j.over = e.Kind == events.RunSucceeded
		}
	}
	for _, r := range out.Records {
		switch r := r.(type) {
		case *chain.Decision:
			w.failed[r.Code.String()]++
			j := w.jobs[r.JobID]
			j.notBefore, j.avoid, j.over = r.RetryAfter, slices.Clone(r.AvoidNodes), !r.Requeue
		case *chain.MemberChange:
			j := w.jobs[r.JobID]
			switch r.Change {
			case chain.MemberRestart:
				j.node, j.over, j.notBefore = "", false, r.RetryAfter
			case chain.MemberStopped:
				j.node, j.over = "", true
			case chain.MemberHeld, chain.MemberReleased, chain.MemberJoined:
				w.t.Errorf("a gang has no %s", r.Change)
			}
		}
	}
	for gang, members := range w.gangs { // together: none of a gang waits while another one has not run yet
		starting := 0
		for _, id := range members {
			if w.jobs[id].node != "" || w.jobs[id].over {
				starting++
			}
		}
		if starting != 0 && starting != len(members) {
			w.t.Errorf("of gang %s, %d of %d run or are over", gang, starting, len(members))
		}
		if starting == len(members) && !slices.ContainsFunc(members, func(id string) bool { return !w.jobs[id].over }) {
			delete(w.gangs, gang)
		}
	}
}

// TestDecisionsAreObeyed: no run starts before its time, on an avoided node, after the end of its job, or without its gang;
// the numbers of the result are those of the history.
func TestDecisionsAreObeyed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		w := &watcher{t: t, jobs: map[string]*watched{}, gangs: map[string][]string{}, failed: map[string]int{}}
		o := options(t, examples(t), 500)
		o.Seed, o.Observe = seed, w.observe
		r := run(t, o)
		if r.Runs != w.runs || r.Jobs != len(w.jobs) || r.Done+r.Lost+r.NotOver != r.Jobs {
			t.Errorf("seed %d: %d runs of %d jobs, the history has %d of %d: %+v", seed, r.Runs, r.Jobs, w.runs, len(w.jobs), r.Tally)
		}
		over, codes := 0, map[string]int{}
		for _, j := range w.jobs {
			if j.over {
				over++
			}
		}
		if over != r.Done+r.Lost {
			t.Errorf("seed %d: %d jobs are over, the history has %d", seed, r.Done+r.Lost, over)
		}
		wasted := map[string]float64{}
		for _, row := range r.Failures {
			for name, hours := range row.WastedHours {
				wasted[name] += hours
			}
			if row.Code != "" && row.Code != "Absorbed" {
				codes[row.Code] += int(row.Runs)
			}
		}
		if !maps.Equal(codes, w.failed) {
			t.Errorf("seed %d: decisions %v, the history has %v", seed, codes, w.failed)
		}
		for name, hours := range r.WastedHours {
			if math.Abs(wasted[name]-hours) > 1e-6*hours {
				t.Errorf("seed %d: %v hours of %s are wasted, the rows have %v", seed, hours, name, wasted[name])
			}
		}
		var retried bool
		for _, q := range r.Queues {
			retried = retried || q.Retries > 0
		}
		if !retried || len(r.AvoidedNodes) == 0 || r.Preemptions == 0 {
			t.Errorf("seed %d tests nothing: %+v", seed, r.Tally)
		}
	}
}

// TestObservedTexts: what a decision says stays when the next message is made.
func TestObservedTexts(t *testing.T) {
	t.Parallel()
	var kept []string
	o := options(t, examples(t), 500)
	o.Observe = func(_ *eventlog.Message, out *evaluator.Output) {
		for _, r := range out.Records {
			if d, ok := r.(*chain.Decision); ok {
				kept = append(kept, d.Container)
			}
		}
	}
	run(t, o)
	slices.Sort(kept)
	if names := slices.Compact(kept); !slices.Equal(names, []string{"", "main"}) { // "": decided by something else
		t.Errorf("decisions by the ends of containers %q, and there is only main", names)
	}
}

// one is a cluster of one node and jobs of one kind, one after another, without chance.
func one(t *testing.T, failures string) simulate.Options {
	t.Helper()
	c, err := simulate.ReadCluster([]byte(`
schedulingInterval: 1s
resources: [cpu]
priorityClasses: [{name: p, priority: 1, preemptible: true}]
defaultPriorityClass: p
queues: [{name: genomics}]
nodes: [{name: n, count: 2, zones: [a, b], resources: {cpu: 2}}]
faults: []
`))
	if err != nil {
		t.Fatal(err)
	}
	w, err := simulate.ReadWorkload([]byte(`
jobs: 4
jobsPerHour: 1
arrivals: Even
giveUp: 10h
kinds: [{name: k, request: {cpu: 2}, runTime: {p50: 30m}, failures: [` + failures + `]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	return simulate.Options{Candidate: simulate.Candidate{Name: "examples", Set: examples(t)}, Cluster: c, Workload: w}
}

// TestSmall: results that can be computed by hand.
func TestSmall(t *testing.T) {
	t.Parallel()
	check := func(name string, o simulate.Options, want string) {
		t.Helper()
		r := run(t, o)
		got := fmt.Sprintf("done %d lost %d not over %d runs %d; completion %v max %v; wasted %.3f useful %.3f", r.Done, r.Lost, r.NotOver, r.Runs,
			time.Duration(r.Completion.P50*1e9), time.Duration(r.Completion.Max*1e9), r.WastedHours["cpu"], r.UsefulHours["cpu"])
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	check("nothing fails", one(t, ""), "done 4 lost 0 not over 0 runs 4; completion 30m0s max 30m0s; wasted 0.000 useful 4.000")
	check("every run fails at 6m, and no policy retries", one(t, "{cause: c, perRun: 1, after: 6m, exitCode: 1}"),
		"done 0 lost 4 not over 0 runs 4; completion 0s max 0s; wasted 0.800 useful 0.000")
	check("evictions: six runs each, on two nodes", one(t, "{cause: c, perJob: 1, after: 6m, condition: Evicted}"),
		"done 0 lost 4 not over 0 runs 24; completion 0s max 0s; wasted 4.800 useful 0.000")

	shadow := one(t, "{cause: c, perJob: 1, after: 6m, condition: Evicted}")
	shadow.Candidate.Set = shadow.Candidate.Set.InShadow()
	check("shadow: nothing retries", shadow, "done 0 lost 4 not over 0 runs 4; completion 0s max 0s; wasted 0.800 useful 0.000")

	// Both nodes are gone when the first job has run for 10 minutes. It waits for them, and begins anew.
	o := one(t, "")
	o.Cluster.Faults = []simulate.Fault{{Failure: simulate.Failure{Cause: "out", Condition: "LeaseExpired"}, At: 70 * time.Minute, For: 5 * time.Minute, Down: true}}
	check("outage", o, "done 4 lost 0 not over 0 runs 5; completion 30m0s max 45m0s; wasted 0.333 useful 4.000")
	// A zone is gone for good: everything runs in the other one. The retry waits 11s: termination grace (1s) and slack (10s).
	o.Cluster.Faults[0].Zone, o.Cluster.Faults[0].For = "a", 100*time.Hour
	check("zone", o, "done 4 lost 0 not over 0 runs 5; completion 30m0s max 40m11s; wasted 0.333 useful 4.000")
	// A poison node, which the retry avoids after 10s and up to 1s of jitter.
	o.Cluster.Faults = []simulate.Fault{{Failure: simulate.Failure{Cause: "bad", Condition: "Evicted", PerRun: 1, After: time.Minute}, Nodes: []string{"n-1"}}}
	check("poison", o, "done 4 lost 0 not over 0 runs 8; completion 31m11s max 31m11s; wasted 0.133 useful 4.000")
}
