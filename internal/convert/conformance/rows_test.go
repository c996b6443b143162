package conformance_test

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/convert"
	"github.com/refloat/refloat/internal/convert/conformance"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/oracle"
)

// TestConformance runs the rows of other systems' own tests (testdata/oracles): a manifest is made of each, it is converted,
// and the engine decides by the result.
func TestConformance(t *testing.T) {
	t.Parallel()
	jobs, sets := oracle.Jobs(startJob), oracle.JobSets(startJobSet)
	for name, suite := range map[string]*oracle.Suite{
		"k8s_sync_backoff_limit_per_index.json": jobs.PerIndex(),
		"k8s_sync_pod_failure_policy.json":      jobs.PodFailurePolicy(),
		"k8s_backoff_limit.json":                jobs.BackoffLimit(),
		"k8s_failed_indexes.json":               jobs.FailedIndexes(),
		"k8s_completed_indexes.json":            jobs.CompletedIndexes(),
		"k8s_success_policy.json":               successSuite(),
		"jobset_integration.json":               sets.Integration(),
		"jobset_actions.json":                   sets.Actions(),
		"jobset_rule_matching.json":             sets.RuleMatching(),
		"volcano_apply_policies.json":           volcanoSuite(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite.Test(t)
		})
	}
}

// workload is a converted manifest that runs.
type workload struct {
	*oracle.Check
	*conformance.Driver
	group     string
	container string // of a failure that names none
	notes     []convert.Note
}

// start converts a manifest and submits its jobs, whose pods have these containers.
func start(c *oracle.Check, manifest map[string]any, containers ...string) *workload {
	text, err := json.Marshal(manifest)
	if err != nil {
		c.Fatalf("%v", err)
	}
	d, r, err := conformance.FromManifests(convert.File{Name: "manifest.json", Data: text})
	if err != nil {
		c.Fatalf("%s\n%v", text, err)
	}
	return &workload{Check: c, Driver: d, group: r.Submits[0].Jobs[0].Annotations[events.AnnotationGroup], container: containers[0], notes: r.Notes}
}

func (w *workload) must(err error) {
	if err != nil {
		w.Fatalf("%v, after\n%s", err, strings.Join(w.AllRecords(), "\n"))
	}
}

func (w *workload) job(m oracle.Member) *conformance.JobView {
	return w.Job(conformance.Name(m.Part, m.Replica, m.Index))
}

// Jobs implements oracle.Group.
func (w *workload) Jobs() (all []oracle.Member) {
	for _, j := range w.Driver.Jobs() {
		if j.Part == "" {
			continue // of no group
		}
		all = append(all, oracle.Member{Part: j.Part, Replica: j.Replica, Index: j.Index})
	}
	return all
}

// State implements oracle.Group.
func (w *workload) State(m oracle.Member) oracle.State {
	j := w.job(m)
	if j == nil {
		return ""
	}
	return map[conformance.State]oracle.State{
		conformance.Queued: oracle.Waiting, conformance.Held: oracle.Waiting, conformance.Running: oracle.Running,
		conformance.Succeeded: oracle.Succeeded, conformance.Failed: oracle.Failed, conformance.Stopped: oracle.Stopped,
	}[j.State]
}

// Runs implements oracle.Group.
func (w *workload) Runs(m oracle.Member) int { return w.job(m).Runs }

// Start implements oracle.Group. A job starts as soon as it may, and a gang as a whole.
func (w *workload) Start(m oracle.Member) {
	j := w.job(m)
	if j == nil {
		w.Fatalf("no job %v", m)
	}
	if j.State != conformance.Queued {
		return
	}
	ids, at := []string{j.ID}, j.RetryAfter
	for _, other := range w.Driver.Jobs() {
		if other != j && j.Gang != "" && other.Gang == j.Gang && other.State == conformance.Queued {
			ids = append(ids, other.ID)
			if other.RetryAfter.After(at) {
				at = other.RetryAfter
			}
		}
	}
	w.Advance(max(0, at.Sub(w.Now)))
	w.must(w.Driver.Start(ids...))
}

// Fail implements oracle.Group.
func (w *workload) Fail(m oracle.Member, f oracle.Failure) {
	w.Start(m)
	w.Advance(time.Minute)
	failure := conformance.Failure{}
	if f.Condition != "" {
		failure.Condition, _ = policy.ParseCondition(f.Condition)
	}
	for i, exit := range f.Containers {
		name := cmp.Or(exit.Container, w.container)
		if i == 0 {
			failure.Container, failure.ExitCode, failure.Message = name, exit.Code, exit.Message
		} else {
			failure.Others = append(failure.Others, conformance.Exit{Container: name, Code: exit.Code})
		}
	}
	w.must(w.Driver.Fail(failure, w.job(m).ID))
}

// Succeed implements oracle.Group.
func (w *workload) Succeed(m oracle.Member) {
	w.Start(m)
	w.must(w.Driver.Succeed(w.job(m).ID))
}

// ruleOf is the number of the pod failure policy's rule that a rule of ours was made from.
var ruleOf = regexp.MustCompile(`^rule-(\d+)(-|$)`)

// Decisions implements oracle.Group.
func (w *workload) Decisions(m oracle.Member) (all []oracle.Decision) {
	for _, d := range w.job(m).Decided {
		out := oracle.Decision{Code: d.Code.String(), Rule: -1, Used: int(d.GlobalUsed)}
		if m := ruleOf.FindStringSubmatch(d.Rule); m != nil {
			out.Rule, _ = strconv.Atoi(m[1])
		}
		if d.Matcher == policy.OnExitCodes {
			out.Container = d.Container
		}
		if g := d.Group; g != nil {
			out.UnitReason, out.GroupRule = g.Reason.String(), g.Rule
		}
		all = append(all, out)
	}
	return all
}

// UnitReason implements oracle.Group.
func (w *workload) UnitReason(part string) string {
	if u := w.Group(w.group).Units[part+"/0"]; u != nil && u.Reason != policy.NoUnitReason {
		return u.Reason.String()
	}
	return ""
}

// Status implements oracle.Group.
func (w *workload) Status() oracle.Status {
	g := w.Group(w.group)
	s := oracle.Status{Counted: g.Counted}
	switch g.State {
	case policy.GroupFailed, policy.GroupHalted:
		s.State, s.Reason = "Failed", g.Reason.String()
	case policy.GroupSucceeded:
		s.State = string(oracle.Succeeded)
	case policy.GroupActive:
	}
	for _, j := range w.Driver.Jobs() {
		for _, d := range j.Decided {
			switch {
			case d.Group == nil || !d.Group.Action.Restarts():
			case d.Group.Action == policy.RestartGroup:
				s.Restarts++
			default:
				s.UnitRestarts++
			}
		}
	}
	return s
}
