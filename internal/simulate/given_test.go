package simulate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/simulate"
)

const day = 24 * time.Hour

// chart writes down when runs begin and end, rounded to a second: a scheduling cycle takes place each millisecond.
type chart struct {
	t       *testing.T
	decoder events.Decoder
	begin   int64
	lines   map[string][]string
	started map[string]int64
	groups  []string
}

func (c *chart) observe(m *eventlog.Message, out *evaluator.Output) {
	seq, err := c.decoder.Decode(slices.Clone(m.Payload))
	if err != nil {
		c.t.Fatal(err)
	}
	since := func(at int64) time.Duration { return time.Duration(at - c.begin).Round(time.Second) }
	end := func(job, how string) {
		if at, ok := c.started[job]; ok {
			delete(c.started, job)
			c.lines[job] = append(c.lines[job], fmt.Sprintf("%v-%v %s", since(at), since(m.Publish), how))
		}
	}
	for i := range seq.Events {
		e := &seq.Events[i]
		id := strings.Clone(e.JobID)
		switch e.Kind { //nolint:exhaustive // the others change nothing here
		case events.SubmitJob:
			if c.begin == 0 {
				c.begin = m.Publish
			}
			c.lines[id] = nil
		case events.RunLeased:
			c.started[id] = m.Publish
		case events.RunSucceeded:
			end(id, "succeeded")
		case events.RunErrors:
			end(id, "failed")
		case events.CancelledJob:
			end(id, "cancelled")
		}
	}
	for _, r := range out.Records {
		switch r := r.(type) {
		case *chain.MemberChange:
			switch r.Change { //nolint:exhaustive // the others end no run
			case chain.MemberRestart:
				end(r.JobID, "restarted")
			case chain.MemberStopped:
				end(r.JobID, "stopped")
			}
		case *chain.GroupEnded:
			c.groups = append(c.groups, fmt.Sprintf("%s %s at %v", r.Group, r.State, since(m.Publish)))
		}
	}
}

func (c *chart) String() string {
	var b strings.Builder
	var ids []string
	for id := range c.lines {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		fmt.Fprintf(&b, "%s: %s\n", id, strings.Join(c.lines[id], ", "))
	}
	for _, g := range c.groups {
		b.WriteString(g + "\n")
	}
	return b.String()
}

// fails is a run that fails by an exit code, succeeds one that succeeds.
func fails(after time.Duration, code int32) simulate.GivenRun {
	return simulate.GivenRun{After: after, Cause: "exit", Error: &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{
		ContainerErrors: []*pb.ContainerError{{ObjectMeta: &pb.ObjectMeta{Name: "main"}, ExitCode: code}},
	}}}}
}

func succeeds(after time.Duration) simulate.GivenRun {
	return simulate.GivenRun{After: after, Succeeded: true}
}

func member(part, replica, index string, runs ...simulate.GivenRun) simulate.Given {
	return simulate.Given{
		ID: part + replica + index, Queue: "q", Request: map[string]string{"cpu": "1"}, Group: "flow", Runs: runs, RunTime: simulate.RunTime{P50: time.Hour},
		Annotations: map[string]string{
			events.AnnotationGroup: "flow", events.AnnotationGroupPolicy: "g", events.AnnotationPart: part,
			events.AnnotationReplica: replica, events.AnnotationIndex: index,
		},
	}
}

func given(t *testing.T, policies string, jobs ...simulate.Given) simulate.Options {
	t.Helper()
	c, err := simulate.ReadCluster([]byte(`
schedulingInterval: 1ms
resources: [cpu]
priorityClasses: [{name: p, priority: 1}]
defaultPriorityClass: p
nodes: [{names: [one, two], resources: {cpu: 8}}]
faults: []
`))
	if err != nil {
		t.Fatal(err)
	}
	w := &simulate.Workload{Given: jobs, GiveUp: 100 * day}
	return simulate.Options{Candidate: simulate.Candidate{Set: parse(t, policyfile.File{Name: "p.yaml", Data: []byte(policies)})}, Cluster: c.For(w), Workload: w}
}

func groupPolicy(spec string) string {
	return "apiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: g}\nspec:\n" + spec
}

// TestTimelines: the timelines of JobFlow's retry policies (its design of August 2025), and restarts of groups (docs/reference/semantics.md,
// section 12), in virtual time.
func TestTimelines(t *testing.T) {
	t.Parallel()
	const flow = `
  rules: [{name: exhausted, action: Halt}]
  parts:
  - {name: a}
  - {name: b, after: [a], restarts: {limit: 2, backoff: {type: Constant, initialDelay: 24h, maxDelay: 24h}}}
  - {name: c, after: [b], restarts: {limit: 1, backoff: {type: Constant, initialDelay: 48h, maxDelay: 48h}}}
  - {name: d, after: [b]}
  - {name: e, after: [c, d]}
`
	step := func(part string, runs ...simulate.GivenRun) simulate.Given { return member(part, "0", "0", runs...) }
	workers := func(spec string) string {
		return groupPolicy("  maxRestarts: 1\n  backoff: {initialDelay: 30s}\n" + spec)
	}
	for _, c := range []struct {
		name, policies string
		jobs           []simulate.Given
		want           string
	}{
		{
			"c fails once, backoff, then retry", groupPolicy(flow),
			[]simulate.Given{
				step("a", succeeds(5*day)), step("b", succeeds(4*day)), step("c", fails(3*day, 1), succeeds(3*day)), step("d", succeeds(2*day)), step("e", succeeds(5*day)),
			},
			`
a00: 0s-120h0m0s succeeded
b00: 120h0m0s-216h0m0s succeeded
c00: 216h0m0s-288h0m0s failed, 336h0m0s-408h0m0s succeeded
d00: 216h0m0s-264h0m0s succeeded
e00: 408h0m0s-528h0m0s succeeded
flow Succeeded at 528h0m0s
done 5 lost 0 not over 0
`,
		},
		{
			"b exhausts its retries, and the flow halts", groupPolicy(flow),
			[]simulate.Given{
				step("a", succeeds(5*day)), step("b", fails(4*day, 1), fails(4*day, 1), fails(4*day, 1)), step("c"), step("d"), step("e"),
			},
			`
a00: 0s-120h0m0s succeeded
b00: 120h0m0s-216h0m0s failed, 240h0m0s-336h0m0s failed, 360h0m0s-456h0m0s failed
c00: 
d00: 
e00: 
flow Halted at 456h0m0s
done 1 lost 4 not over 0
`,
		},
		{
			"the group restarts, also who has succeeded; then it fails", workers("  parts: [{name: w, members: 3}]\n"),
			[]simulate.Given{
				member("w", "0", "0", succeeds(10*time.Minute), succeeds(10*time.Minute)), member("w", "0", "1", fails(20*time.Minute, 1), fails(20*time.Minute, 1)),
				member("w", "0", "2", succeeds(time.Hour), succeeds(time.Hour)),
			},
			`
w00: 0s-10m0s succeeded, 20m30s-30m30s succeeded
w01: 0s-20m0s failed, 20m30s-40m30s failed
w02: 0s-20m0s restarted, 20m31s-40m30s stopped
flow Failed at 40m30s
done 1 lost 2 not over 0
`,
		},
		{
			"members that succeeded are kept", workers("  completed: Keep\n  parts: [{name: w, members: 2, minMembers: 2}]\n"),
			[]simulate.Given{
				member("w", "0", "0", succeeds(10*time.Minute)), member("w", "0", "1", fails(20*time.Minute, 1), succeeds(20*time.Minute)),
			},
			`
w00: 0s-10m0s succeeded
w01: 0s-20m0s failed, 20m30s-40m30s succeeded
flow Succeeded at 40m30s
done 2 lost 0 not over 0
`,
		},
		{
			"one unit restarts, the other runs on", workers("  rules: [{name: unit, action: RestartUnit}]\n  parts: [{name: w, replicas: 2, members: 1}]\n"),
			[]simulate.Given{
				member("w", "0", "0", succeeds(time.Hour)), member("w", "1", "0", fails(20*time.Minute, 1), succeeds(20*time.Minute)),
			},
			`
w00: 0s-1h0m0s succeeded
w10: 0s-20m0s failed, 20m30s-40m30s succeeded
flow Succeeded at 1h0m0s
done 2 lost 0 not over 0
`,
		},
		{
			"two at a time", workers("  parts: [{name: w, members: 3, parallelism: 2}]\n"),
			[]simulate.Given{
				member("w", "0", "0", succeeds(10*time.Minute)), member("w", "0", "1", succeeds(20*time.Minute)), member("w", "0", "2", succeeds(10*time.Minute)),
			},
			`
w00: 0s-10m0s succeeded
w01: 0s-20m0s succeeded
w02: 10m0s-20m0s succeeded
flow Succeeded at 20m0s
done 3 lost 0 not over 0
`,
		},
		{
			"a policy that the candidate lacks: no group", groupPolicy("  rules: []\n") + "\n---\n" + strings.ReplaceAll(groupPolicy("  rules: []\n"), "name: g", "name: h"),
			func() []simulate.Given {
				g := member("w", "0", "0", succeeds(10*time.Minute))
				g.Annotations[events.AnnotationGroupPolicy] = "none"
				return []simulate.Given{g}
			}(), `
w00: 0s-10m0s succeeded
done 1 lost 0 not over 0
`,
		},
	} {
		o := given(t, c.policies, c.jobs...)
		ch := &chart{t: t, lines: map[string][]string{}, started: map[string]int64{}}
		o.Observe = ch.observe
		r := run(t, o)
		got := fmt.Sprintf("\n%sdone %d lost %d not over %d\n", ch, r.Done, r.Lost, r.NotOver)
		if got != c.want {
			t.Errorf("%s:\ngot %swant %s", c.name, got, c.want)
		}
	}
}

// single is a job of its own.
func single(id string, at time.Duration, runs ...simulate.GivenRun) simulate.Given {
	return simulate.Given{ID: id, Where: "f:" + id, Queue: "q", Request: map[string]string{"cpu": "8"}, Submitted: at, Runs: runs, RunTime: simulate.RunTime{P50: time.Hour}}
}

const infra = `
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: infra}
spec:
  defaultAction: Fail
  rules:
  - {name: lost, action: Retry, onConditions: [Preempted], retryLimit: 3, backoff: {initialDelay: 1m}}
  - {name: code, action: Retry, onExitCodes: {operator: In, values: [7]}, retryLimit: 1}
---
kind: RetrySettings
spec: {defaultPolicyName: infra}
`

// TestGiven: runs end as given, then by the model; jobs are cancelled at their time, once.
func TestGiven(t *testing.T) {
	t.Parallel()
	preempted := simulate.GivenRun{After: time.Minute, Cause: simulate.Preempted, Error: &pb.Error{Terminal: true, Reason: &pb.Error_JobRunPreemptedError{JobRunPreemptedError: &pb.JobRunPreemptedError{}}}}
	running, queued, over := single("c", 0), single("d", 0), single("e", 0, succeeds(time.Minute))
	running.Cancelled, queued.Cancelled, over.Cancelled = 90*time.Minute, time.Second, 100*time.Hour
	model := single("f", 5*time.Hour, fails(time.Minute, 7))
	model.Failures = []simulate.Failure{{Cause: "again", PerRun: 1, After: 10 * time.Minute, ExitCode: 7}}
	o := given(t, infra, single("a", 0, preempted, succeeds(5*time.Minute)), single("b", 0, fails(2*time.Minute, 9)), running, queued, over, model)
	ch := &chart{t: t, lines: map[string][]string{}, started: map[string]int64{}}
	o.Observe = ch.observe
	if err := simulate.Check(o.Cluster, o.Workload); err != nil {
		t.Fatal(err)
	}
	r := run(t, o)
	got := fmt.Sprintf("\n%sdone %d lost %d cancelled %d not over %d, %d preempted", ch, r.Done, r.Lost, r.Cancelled, r.NotOver, r.Preemptions)
	const want = `
a: 0s-1m0s failed, 2m0s-7m0s succeeded
b: 0s-2m0s failed
c: 1m0s-1h1m0s succeeded
d: 
e: 7m0s-8m0s succeeded
f: 5h0m0s-5h1m0s failed, 5h1m0s-5h11m0s failed
done 3 lost 2 cancelled 1 not over 0, 1 preempted`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestInterrupted: a run that loses its node begins anew, and ends as given; one of which no end is given lasts longer than it is known to.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	o := given(t, strings.Replace(infra, "[Preempted]", "[LeaseExpired]", 1),
		single("a", 0, fails(5*time.Minute, 7), succeeds(2*time.Minute)), single("b", 0, simulate.GivenRun{After: 20 * time.Minute}))
	o.Cluster.Faults = []simulate.Fault{{Failure: simulate.Failure{Cause: "out", Condition: "LeaseExpired"}, Nodes: []string{"one"}, At: 3 * time.Minute, For: time.Minute, Down: true}}
	ch := &chart{t: t, lines: map[string][]string{}, started: map[string]int64{}}
	o.Observe = ch.observe
	run(t, o)
	const want = `a: 0s-3m0s failed, 4m0s-9m0s failed, 9m0s-11m0s succeeded
b: 0s-1h20m0s succeeded
`
	if got := ch.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestCancelRunning: a run ends when its job is cancelled, and its time is wasted.
func TestCancelRunning(t *testing.T) {
	t.Parallel()
	g := single("a", 0)
	g.Cancelled = 30 * time.Minute
	r := run(t, given(t, infra, g))
	if r.Cancelled != 1 || r.Done+r.Lost+r.NotOver != 0 || r.WastedHours["cpu"] != 4 || len(r.Failures) != 1 || r.Failures[0].Cause != simulate.Cancelled {
		t.Errorf("%+v %v %+v", r.Tally, r.WastedHours, r.Failures)
	}
}

// TestBadGiven: each mistake is an error that names where the job was read.
func TestBadGiven(t *testing.T) {
	t.Parallel()
	gang := func(of int, change func(*simulate.Given)) []simulate.Given {
		var all []simulate.Given
		for i := range of {
			g := single(fmt.Sprint("g", i), 0)
			g.Gang, g.Cardinality = "gang", of
			all = append(all, g)
		}
		change(&all[of-1])
		return all
	}
	one := func(change func(*simulate.Given)) []simulate.Given {
		g := single("a", 0)
		change(&g)
		return []simulate.Given{g}
	}
	for _, c := range []struct {
		want string
		jobs []simulate.Given
	}{
		{`f:a: job "a": it fits no node`, one(func(g *simulate.Given) { g.Request = map[string]string{"cpu": "9"} })},
		{`f:a: job "a": request: cpu: -1 is negative`, one(func(g *simulate.Given) { g.Request = map[string]string{"cpu": "-1"} })},
		{`not one of the cluster's resources`, one(func(g *simulate.Given) { g.Request = map[string]string{"gpu": "1"} })},
		{`times must not go backwards`, []simulate.Given{single("a", 2), single("b", 1)}},
		{`two jobs of this name`, []simulate.Given{single("a", 1), single("a", 1)}},
		{`no priority class "x"`, one(func(g *simulate.Given) { g.PriorityClass = "x" })},
		{`run time`, one(func(g *simulate.Given) { g.RunTime.P50 = 0 })},
		{`run 1 ends after -1ns`, one(func(g *simulate.Given) { g.Runs = []simulate.GivenRun{{After: -1}} })},
		{`outside of the 100000 hours`, one(func(g *simulate.Given) { g.Submitted = -1 })},
		{`its gang of 3 jobs finds no room`, gang(3, func(*simulate.Given) {})},
		{`a gang of 1 jobs`, gang(1, func(*simulate.Given) {})},
		{`differ in its cardinality`, gang(2, func(g *simulate.Given) { g.Cardinality = 3 })},
		{`more than 2 jobs`, append(gang(2, func(*simulate.Given) {}), gang(2, func(g *simulate.Given) { g.ID = "more" })[1])},
	} {
		o := given(t, infra, c.jobs...)
		if err := simulate.Check(o.Cluster, o.Workload); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	o := given(t, infra, append(gang(3, func(*simulate.Given) {}), single("fits", 0), single("zero", 0))...)
	o.Workload.Given[4].Request = nil
	w, left, err := o.Workload.Fitting(o.Cluster)
	if err != nil || len(w.Given) != 2 || len(left) != 3 {
		t.Errorf("%d fit, %v do not: %v", len(w.Given), left, err)
	}
	if err := simulate.Check(o.Cluster, w); err != nil {
		t.Error(err)
	}
}
