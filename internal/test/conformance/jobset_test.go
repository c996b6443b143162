package conformance_test

import (
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/conformance"
)

type replicatedJob struct {
	Name     string
	Replicas int
}

type jobSetPolicy struct {
	FailurePolicy  map[string]any
	ReplicatedJobs []replicatedJob
}

// childJob is a Job that can fail for a reason.
func childJob(reason string) map[string]any {
	spec := map[string]any{"backoffLimit": 0, "completions": 1, "parallelism": 1}
	switch reason {
	case "PodFailurePolicy":
		spec["podFailurePolicy"] = map[string]any{"rules": []any{map[string]any{
			"action": "FailJob", "onExitCodes": map[string]any{"operator": "In", "values": []int{3}},
		}}}
	case "DeadlineExceeded":
		spec["activeDeadlineSeconds"] = 60
	case "FailedIndexes", "MaxFailedIndexesExceeded":
		delete(spec, "backoffLimit")
		spec["completionMode"], spec["backoffLimitPerIndex"] = "Indexed", 0
		if reason == "MaxFailedIndexesExceeded" {
			spec["completions"], spec["maxFailedIndexes"] = 2, 0
		}
	}
	spec["template"] = map[string]any{"spec": podSpec()}
	return spec
}

// jobSet is a JobSet whose child Jobs can fail for a reason.
func jobSet(p jobSetPolicy, reason string) map[string]any {
	var jobs []any
	for _, r := range p.ReplicatedJobs {
		jobs = append(jobs, map[string]any{"name": r.Name, "replicas": r.Replicas, "template": map[string]any{"spec": childJob(reason)}})
	}
	spec := map[string]any{"replicatedJobs": jobs}
	if p.FailurePolicy != nil {
		spec["failurePolicy"] = p.FailurePolicy
	}
	return map[string]any{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": map[string]any{"name": "set"}, "spec": spec}
}

// failJob fails the first replica of a replicated job for a reason.
func (w *workload) failJob(part, reason, message string) {
	w.Helper()
	f := conformance.Failure{ExitCode: 1, Container: "main-container", Message: message}
	switch reason {
	case "PodFailurePolicy":
		f.ExitCode = 3
	case "DeadlineExceeded":
		f.Condition = policy.DeadlineExceeded
	}
	w.fail(conformance.Name(part, 0, 0), f)
	if u := w.Group(w.group).Units[part+"/0"]; reason != "" && (u == nil || u.Reason.String() != reason) {
		w.Fatalf("the child job failed by %+v, want %s, after\n%s", u, reason, strings.Join(w.AllRecords(), "\n"))
	}
}

// ruled makes the rules of a row complete: an action, and a name.
func ruled(rules ...map[string]any) map[string]any {
	var list []any
	for _, r := range rules {
		if r["action"] == nil {
			r["action"] = "FailJobSet"
		}
		list = append(list, r)
	}
	return map[string]any{"maxRestarts": 10, "rules": list}
}

func jobSetRows(t *testing.T, s *score) {
	integrationRows(t, s)
	actionRows(t, s)
	matchingRows(t, s)
}

// integrationRows: after each failure of a child job, the JobSet's state and its counts.
func integrationRows(t *testing.T, s *score) {
	type row struct {
		Policy jobSetPolicy
		Steps  []struct {
			Observe struct {
				JobFailed struct{ ReplicatedJob, Reason, Message string }
			}
			Expect struct {
				State                                   string
				Restarts, RestartsCountTowardsMax       *int
				JobRestarts, JobRestartsCountTowardsMax []int
			}
		}
	}
	runRows(t, s, "jobset_integration.json", because(map[string]string{
		"jobset-integration#15": "its last steps are old jobs that end one by one; here, a restart has times: testdata/groups/blocking of internal/evaluator",
	}), func(t *testing.T, row row) {
		reason := ""
		for _, step := range row.Steps {
			if r := step.Observe.JobFailed.Reason; r != "" {
				reason = r
			}
		}
		w := start(t, jobSet(row.Policy, reason))
		for i, step := range row.Steps {
			part := step.Observe.JobFailed.ReplicatedJob
			if strings.HasPrefix(part, "any") {
				part = row.Policy.ReplicatedJobs[0].Name
			}
			w.failJob(part, step.Observe.JobFailed.Reason, step.Observe.JobFailed.Message)
			g, want := w.Group(w.group), step.Expect
			if got := strings.Replace(g.State.String(), "Halted", "Failed", 1); got != want.State {
				t.Errorf("step %d: %s, want %s", i, got, want.State)
			}
			single, singleCounted := sum(want.JobRestarts), sum(want.JobRestartsCountTowardsMax)
			if want.Restarts != nil && g.Restarts != *want.Restarts+single {
				t.Errorf("step %d: %d restarts, want %d and %d of single jobs", i, g.Restarts, *want.Restarts, single)
			}
			if want.RestartsCountTowardsMax != nil && g.Counted != *want.RestartsCountTowardsMax+singleCounted {
				t.Errorf("step %d: %d restarts count, want %d and %d of single jobs", i, g.Counted, *want.RestartsCountTowardsMax, singleCounted)
			}
		}
	})
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

// actionRows: an action after restarts that were before it.
func actionRows(t *testing.T, s *score) {
	type status struct {
		Restarts, RestartsCountTowardsMax int
		ReplicatedJobsStatus              []struct{ JobRestarts, JobRestartsCountTowardsMax []int }
		Conditions                        []condition
	}
	type row struct {
		Policy struct {
			jobSetPolicy
			Action string
			Rule   *struct{ Name string }
		}
		Prior    status
		Expected struct{ Status status }
	}
	runRows(t, s, "jobset_actions.json", because(nil), func(t *testing.T, row row) {
		p := row.Policy.jobSetPolicy
		if len(p.ReplicatedJobs) == 0 {
			p.ReplicatedJobs = []replicatedJob{{"rjob", 1}}
		}
		name := "Rule1"
		if row.Policy.Rule != nil {
			name = row.Policy.Rule.Name
		}
		// What was before is by rules that match another message each.
		p.FailurePolicy["rules"] = []any{
			map[string]any{"name": "whole", "action": "RestartJobSet", "onJobFailureMessagePatterns": []string{"whole"}},
			map[string]any{"name": "single", "action": "RestartJob", "onJobFailureMessagePatterns": []string{"single"}},
			map[string]any{"name": name, "action": row.Policy.Action},
		}
		w := start(t, jobSet(p, ""))
		part := p.ReplicatedJobs[0].Name
		for range row.Prior.Restarts {
			w.failJob(part, "", "whole")
		}
		for _, j := range row.Prior.ReplicatedJobsStatus {
			for range sum(j.JobRestarts) {
				w.failJob(part, "", "single")
			}
		}
		w.failJob(part, "", "now")
		want, g := row.Expected.Status, w.Group(w.group)
		restarts, counted := want.Restarts, want.RestartsCountTowardsMax
		for _, j := range want.ReplicatedJobsStatus {
			restarts, counted = restarts+sum(j.JobRestarts), counted+sum(j.JobRestartsCountTowardsMax)
		}
		if g.Restarts != restarts || g.Counted != counted {
			t.Errorf("%d restarts, %d count, want %d and %d", g.Restarts, g.Counted, restarts, counted)
		}
		reason := want.Conditions[0].Reason
		if rule, ok := strings.CutPrefix(reason, "FailurePolicy_"); ok {
			if got := w.Group(w.group).Units[part+"/0"].Rule; !strings.EqualFold(got, rule) {
				t.Errorf("by rule %s, want %s", got, rule)
			}
		} else if g.Reason.String() != reason {
			t.Errorf("reason %s, want %s", g.Reason, reason)
		}
	})
}

// matchingRows: which rule answers the failure of a child job.
func matchingRows(t *testing.T, s *score) {
	type failed struct{ Name, ParentReplicatedJob, Reason, Message string }
	type row struct {
		Policy struct {
			Rule  map[string]any
			Rules []map[string]any
		}
		Observed struct {
			Job             failed
			Reason, Message string
			Jobs            []failed
		}
		Expected struct {
			RuleMatches      *bool
			MatchedRuleIndex *int
		}
	}
	runRows(t, s, "jobset_rule_matching.json", because(map[string]string{
		"TestFindFirstFailedJob#*": "which of several failed jobs is first, without a policy: failures are decided in the order of the log (SEMANTICS 1)",
	}), func(t *testing.T, row row) {
		rules := row.Policy.Rules
		if row.Policy.Rule != nil {
			rules = []map[string]any{row.Policy.Rule}
		}
		first := row.Observed.Job
		first.Reason, first.Message = row.Observed.Reason, row.Observed.Message
		if len(row.Observed.Jobs) > 0 {
			first = row.Observed.Jobs[0]
		}
		part := func(name string) string { return strings.ToLower(name) }
		// Every part that a rule names is declared: JobSet's API server refuses others.
		parts := []replicatedJob{{part(first.ParentReplicatedJob), 1}}
		for _, r := range rules {
			targets, _ := r["targetReplicatedJobs"].([]any)
			for i, name := range targets {
				targets[i] = part(name.(string))
				if targets[i] != parts[0].Name {
					parts = append(parts, replicatedJob{targets[i].(string), 1})
				}
			}
		}
		reason := first.Reason
		w := start(t, jobSet(jobSetPolicy{FailurePolicy: ruled(rules...), ReplicatedJobs: parts}, reason))
		w.failJob(parts[0].Name, reason, first.Message)
		rule := w.Group(w.group).Units[parts[0].Name+"/0"].Rule
		if want := row.Expected.RuleMatches; want != nil && (rule != "") != *want {
			t.Errorf("a rule matches: %t (%s), want %t", rule != "", rule, *want)
		}
		if row.Expected.RuleMatches != nil {
			return
		}
		want := ""
		if i := row.Expected.MatchedRuleIndex; i != nil {
			want = "failurePolicyRule" + string(rune('0'+*i)) // as JobSet names a rule without a name
		}
		if !strings.EqualFold(strings.ReplaceAll(rule, "-", ""), want) {
			t.Errorf("rule %q, want %q", rule, want)
		}
	})
}
