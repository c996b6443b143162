package conformance_test

import (
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/convert"
	"github.com/refloat/refloat/internal/convert/conformance"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/oracle"
)

// volcanoPolicy is a policy of a Volcano Job or task.
type volcanoPolicy struct {
	Action, Event string
	Events        []string
	ExitCode      *int32
	Timeout       string
}

// all are the events of the policy.
func (p *volcanoPolicy) all() (events []string) {
	for _, e := range append([]string{p.Event}, p.Events...) {
		if e != "" {
			events = append(events, e)
		}
	}
	return events
}

// manifest is the policy as a Job may have it, nil where it may not: Volcano's webhook refuses its own events, exit code 0,
// and an exit code together with an event. None of them is ever a failure.
func (p *volcanoPolicy) manifest(c *oracle.Check) map[string]any {
	out := map[string]any{"action": p.Action}
	events := slices.DeleteFunc(p.all(), func(e string) bool { return slices.Contains(volcanoOwnEvents, e) })
	if len(events) > 0 {
		out["events"] = events
	}
	if p.ExitCode != nil && *p.ExitCode != 0 {
		out["exitCode"] = *p.ExitCode
	}
	if p.Timeout != "" {
		out["timeout"] = p.Timeout
	}
	if len(events) == 0 && out["exitCode"] == nil {
		c.Adapt("a policy of Volcano's own events, or of exit code 0, is left away: its webhook refuses it, and no failure is one")
		return nil
	}
	return out
}

// The events of Volcano that its webhook refuses in a Job, and the actions that are not for Jobs.
var (
	volcanoOwnEvents  = []string{"CommandIssued", "OutOfSync", "PodRunning", "Unknown"}
	volcanoOwnActions = []string{"SyncJob", "EnqueueJob", "SyncQueue", "OpenQueue", "CloseQueue", "ResumeJob"}
)

// volcanoTask is the task of whose pods no policy of a task says anything.
const volcanoOther = "other"

// volcanoSuite: which policy of a task or a job answers an event, after conversion. The row's Job has two pods of each of
// its tasks and of another task, so that what an action does can be told apart.
func volcanoSuite() *oracle.Suite {
	return &oracle.Suite{
		File: "volcano_apply_policies.json",
		Same: func(_ string, a, b any) bool { // conversion says so of each
			means := map[any]string{"AbortJob": "TerminateJob", "RestartPartition": "RestartTask"}
			for _, v := range []*any{&a, &b} {
				if same, ok := means[*v]; ok {
					*v = same
				}
			}
			return a == b
		},
		Run: func(c *oracle.Check) {
			var p struct {
				JobPolicies []volcanoPolicy
				Tasks       []struct {
					Name     string
					Policies []volcanoPolicy
				}
				JobVersion int
				JobUID     string
			}
			var observed struct {
				Request struct {
					Action, Event, TaskName, JobUID string
					ExitCode                        int32
					JobVersion                      int
				}
			}
			if !c.Inputs(map[string]any{"policy": &p, "observed": &observed}) {
				return
			}
			r := observed.Request
			var expected struct{ Action string }
			if !c.Expected(&expected) {
				return
			}
			tasks, asked, task := []any{}, slices.Clone(p.JobPolicies), volcanoOther
			list := func(policies []volcanoPolicy) (out []any) {
				for i := range policies {
					if m := policies[i].manifest(c); m != nil {
						out = append(out, m)
					}
				}
				return out
			}
			add := func(name string, policies []volcanoPolicy) {
				template := withPods(map[string]any{}, nil, childContainer)["template"]
				tasks = append(tasks, map[string]any{"name": name, "replicas": 2, "template": template, "policies": list(policies)})
			}
			for _, t := range p.Tasks {
				add(t.Name, t.Policies)
				if t.Name == r.TaskName {
					asked, task = append(slices.Clone(t.Policies), asked...), t.Name
				}
			}
			add(volcanoOther, nil)
			own := slices.ContainsFunc(asked, func(v volcanoPolicy) bool {
				return slices.Contains(volcanoOwnActions, v.Action) && (len(v.all()) == 0 || v.manifest(&oracle.Check{}) != nil)
			})
			if c.CannotRun(
				oracle.Reason{Holds: r.Action != "", Why: "a command of an operator, and no event: no policy is asked"},
			) || c.LeaveOut(
				oracle.Reason{Holds: own, Why: "an action that Volcano's webhook refuses in a policy: no Job has it"},
				oracle.Reason{
					Holds: r.Event == "" && r.ExitCode != 0 && slices.ContainsFunc(asked, func(v volcanoPolicy) bool { return len(v.all()) > 0 }),
					Why:   "an exit code without an event: a failure here always is PodFailed as well",
				},
				oracle.Reason{Holds: slices.Contains([]string{"PodPending", "TaskFailed", "JobUnknown"}, r.Event), Why: "an event that is no end of a pod: for Armada, a pod that waits too long is a returned lease"},
			) {
				return
			}
			spec := map[string]any{"minAvailable": 1, "maxRetry": 10, "tasks": tasks}
			if policies := list(p.JobPolicies); len(policies) > 0 {
				spec["policies"] = policies
			}
			w := start(c, manifest("batch.volcano.sh/v1alpha1", "Job", spec), childContainer)
			if c.LeaveOut(oracle.Reason{
				Holds: r.Event != "" && slices.ContainsFunc(w.notes, func(n convert.Note) bool {
					return n.Kind == convert.Lost && strings.Contains(n.Path, "policies[") && strings.Contains(n.Was, r.Event)
				}),
				Why: "the conversion says that the event of a policy is lost",
			}) {
				return
			}
			foreign := r.JobUID != "" && r.JobUID != p.JobUID
			stale := r.JobVersion < p.JobVersion
			w.happen(task, r.Event, r.ExitCode, asked, foreign, stale)
			got := w.action(task)
			if got != expected.Action && volcanoSuite().Same("", got, expected.Action) {
				got = expected.Action
			}
			oracle.Equal(c, "action", got, expected.Action)
		},
	}
}

// happen lets an event of Volcano happen to a task's pods.
func (w *workload) happen(task, event string, code int32, asked []volcanoPolicy, foreign, stale bool) {
	for code == 0 || event == "PodFailed" && code == 0 {
		code = 1 // a failure has one, and no policy may ask for it
		for slices.ContainsFunc(asked, func(p volcanoPolicy) bool { return p.ExitCode != nil && *p.ExitCode == code }) {
			code++
		}
	}
	first := oracle.Member{Part: task}
	f := conformance.Failure{ExitCode: code, Container: childContainer}
	switch event {
	case "TaskCompleted":
		for _, m := range w.Jobs() {
			if m.Part == task && w.State(m) == oracle.Waiting {
				w.Succeed(m)
			}
		}
		return
	case "PodEvicted":
		f = conformance.Failure{Condition: policy.Evicted}
	case "", "PodFailed", "*":
		if event == "" && !slices.ContainsFunc(asked, func(p volcanoPolicy) bool { return p.ExitCode != nil && *p.ExitCode == code }) {
			return // neither an event nor the exit code of a policy
		}
	default:
		w.Start(first)
		return // no end of a pod
	}
	id := w.job(first).ID
	if foreign {
		id = "stranger"
		w.must(w.Submit(conformance.Job{ID: id}))
		w.must(w.Driver.Start(id))
	} else {
		w.Start(first)
	}
	w.Advance(time.Minute)
	if stale {
		w.must(w.FailStale(f, id))
		return
	}
	w.must(w.Driver.Fail(f, id))
}

// action is what was done, in Volcano's words.
func (w *workload) action(task string) string {
	switch w.Group(w.group).State {
	case policy.GroupFailed, policy.GroupHalted:
		return "TerminateJob"
	case policy.GroupSucceeded:
		return "CompleteJob"
	case policy.GroupActive:
	}
	for _, m := range w.Jobs() {
		for _, d := range w.job(m).Decided {
			switch {
			case d.Group != nil && d.Group.Action == policy.RestartGroup:
				return "RestartJob"
			case d.Group != nil && d.Group.Action.Restarts():
				return "RestartTask"
			case m.Part == task && d.Requeue && (d.Code == policy.RuleRetry || d.Code == policy.DefaultRetry):
				return "RestartPod"
			}
		}
	}
	return "SyncJob" // nothing, or only what was there is made anew
}
