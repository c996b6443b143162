package policyfile

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy"
)

// Kubernetes' conditions have no counterpart in name, only in kind: these are
// conditions of the pod that a rule can ask for.
func peerCondition(name string) string {
	switch name {
	case "DisruptionTarget":
		return "Evicted"
	case "ResourceLimitExceeded":
		return "DeadlineExceeded"
	}
	return name
}

type k8sPod struct {
	Phase      string
	Containers []struct {
		Name, State string
		ExitCode    int32
	}
	Conditions        []struct{ Type, Status string }
	IndexFailureCount uint32
	Index             int
	DeletionTimestamp any
}

func (p *k8sPod) failure() *policy.Failure {
	f := &policy.Failure{}
	for _, c := range p.Containers {
		if c.State == "terminated" {
			f.Containers = append(f.Containers, policy.Container{Name: c.Name, ExitCode: c.ExitCode})
		}
	}
	for _, c := range p.Conditions {
		cond, _ := policy.ParseCondition(peerCondition(c.Type))
		f.Conditions = f.Conditions.With(cond)
	}
	return f
}

// k8sPolicy is what a Kubernetes Job says about failures.
type k8sPolicy struct {
	BackoffLimit, BackoffLimitPerIndex *int
	PodFailurePolicy                   struct {
		Rules json.RawMessage
	}
	PodReplacementPolicy string
}

// spec is the same in our words: Count retries and counts, FailJob and FailIndex
// fail, Ignore ignores; what no rule knows is retried up to the limit.
func (p *k8sPolicy) spec(t *testing.T) obj {
	t.Helper()
	spec := obj{"defaultAction": "Retry"}
	if p.BackoffLimitPerIndex != nil {
		spec["retryLimit"] = *p.BackoffLimitPerIndex
	} else if p.BackoffLimit != nil {
		spec["retryLimit"] = *p.BackoffLimit
	}
	if p.PodReplacementPolicy != "" {
		spec["replacement"] = map[string]string{"Failed": "WhenTerminated", "TerminatingOrFailed": "WhenFailed"}[p.PodReplacementPolicy]
	}
	var rules []any
	for _, r := range into[[]struct {
		Action      string
		OnExitCodes *struct {
			ContainerName, Operator string
			Values                  []int32
		}
		OnPodConditions []struct{ Type, Status string }
	}](t, p.PodFailurePolicy.Rules) {
		ours, known := map[string]string{"Count": "Retry", "FailJob": "Fail", "FailIndex": "Fail", "Ignore": "Ignore"}[r.Action]
		if !known {
			ours = r.Action
		}
		rule := obj{"action": ours}
		if e := r.OnExitCodes; e != nil {
			rule["onExitCodes"] = obj{"operator": e.Operator, "values": e.Values}
			if e.ContainerName != "" {
				rule["containerName"] = e.ContainerName
			}
		}
		var conditions []string
		for _, c := range r.OnPodConditions {
			conditions = append(conditions, peerCondition(c.Type))
		}
		if conditions != nil {
			rule["onConditions"] = conditions
		}
		rules = append(rules, rule)
	}
	if rules != nil {
		spec["rules"] = rules
	}
	return spec
}

// parsed returns what Parse says of the policy.
func (p *k8sPolicy) parsed(t *testing.T) error {
	t.Helper()
	_, err := parseDocs(t, obj{"apiVersion": apiVersion, "kind": "RetryPolicy", "metadata": obj{"name": "p"}, "spec": p.spec(t)})
	return err
}

// after is the counts after n retries, all granted by the default action.
func after(n uint32) *policy.Counts {
	return &policy.Counts{Granted: n, Rules: []policy.RuleCount{{Key: policy.RuleKey{Policy: "p", Rule: "default"}, Granted: n}}}
}

func wantActionCode(t *testing.T, v policy.Verdict, action string) {
	t.Helper()
	want, known := map[string]policy.Code{"": policy.DefaultRetry, "Ignore": policy.RuleIgnore, "FailJob": policy.RuleFail, "FailIndex": policy.RuleFail, "Count": policy.RuleRetry}[action]
	if !known {
		t.Fatalf("unknown action %q", action)
	}
	wantCode(t, v, want)
}

func TestOracleK8sMatchPodFailurePolicy(t *testing.T) {
	status := "our conditions have no status: they hold or they do not"
	leftOut := map[string]string{
		"TestMatchPodFailurePolicy#09": "a feature gate of Kubernetes",
		"TestMatchPodFailurePolicy#16": status,
		"TestMatchPodFailurePolicy#17": status,
		"TestMatchPodFailurePolicy#18": status,
		"TestMatchPodFailurePolicy#20": status,
	}
	// Kubernetes skips a rule with an unknown action or operator; we refuse the file.
	differs := map[string]string{"TestMatchPodFailurePolicy#01": codeUnknownValue, "TestMatchPodFailurePolicy#02": codeUnknownValue}
	oracle(t, "k8s_match_pod_failure_policy.json", leftOut, func(t *testing.T, r *row) {
		p := into[k8sPolicy](t, r.Policy)
		if code := differs[r.ID]; code != "" {
			wantProblem(t, p.parsed(t), code)
			return
		}
		observed := into[struct{ Pod k8sPod }](t, r.Observed)
		expected := into[struct {
			Action                    string
			CountsTowardsBackoffLimit bool
			Index                     *int `json:"matchedRuleIndex_fromMessage"`
		}](t, r.Expected)
		v := decide(t, p.spec(t), nil, observed.Pod.failure(), nil)
		wantActionCode(t, v, expected.Action)
		if expected.Index != nil && v.Rule != fmt.Sprintf("#%d", *expected.Index) {
			t.Errorf("rule %s, want #%d", v.Rule, *expected.Index)
		}
		if counted := v.GlobalUsed == 1; v.Requeue && counted != expected.CountsTowardsBackoffLimit {
			t.Errorf("counted %v, want %v", counted, expected.CountsTowardsBackoffLimit)
		}
	})
}

func TestOracleK8sSyncPodFailurePolicy(t *testing.T) {
	leftOut := map[string]string{
		"TestSyncJobWithJobPodFailurePolicy#18": "when the replacement is made, of a pod that still terminates: SEMANTICS 8, not a verdict",
		"TestSyncJobWithJobPodFailurePolicy#20": "the pod still terminates: for us no failure yet",
	}
	oracle(t, "k8s_sync_pod_failure_policy.json", leftOut, func(t *testing.T, r *row) {
		p := into[k8sPolicy](t, r.Policy)
		observed := into[struct{ Pods []k8sPod }](t, r.Observed)
		expected := into[struct {
			WantConditions   []struct{ Reason string }
			WantStatusFailed int
		}](t, r.Expected)
		failures := 0
		for _, pod := range observed.Pods {
			if pod.Phase != "Failed" {
				continue
			}
			failures++
			v := decide(t, p.spec(t), nil, pod.failure(), nil)
			switch {
			case len(expected.WantConditions) > 0:
				wantCode(t, v, policy.RuleFail) // all of them say PodFailurePolicy
			case expected.WantStatusFailed == 0:
				wantCode(t, v, policy.RuleIgnore)
			case !v.Requeue || v.GlobalUsed != 1:
				t.Errorf("%+v, want a counted retry", v)
			}
		}
		if failures != 1 {
			t.Fatalf("%d failed pods, want 1", failures)
		}
	})
}

func TestOracleK8sBackoffRemaining(t *testing.T) {
	leftOut := map[string]string{
		"TestGetRemainingBackoffTimePerIndex#00": "no failure, so nothing to decide",
	}
	oracle(t, "k8s_backoff_remaining.json", leftOut, func(t *testing.T, r *row) {
		p := into[struct {
			Backoff struct{ InitialDelaySeconds, Multiplier, MaxDelaySeconds int }
		}](t, r.Policy)
		prior := into[struct {
			ConsecutiveFailures uint32
			LastFailureTime     time.Time
		}](t, r.Prior)
		now, err := time.Parse(time.RFC3339, r.Now)
		if err != nil {
			t.Fatal(err)
		}
		spec := obj{"defaultAction": "Retry", "backoff": obj{
			"initialDelay": fmt.Sprintf("%ds", p.Backoff.InitialDelaySeconds), "maxDelay": fmt.Sprintf("%ds", p.Backoff.MaxDelaySeconds), "multiplier": p.Backoff.Multiplier,
		}}
		v := decide(t, spec, nil, &policy.Failure{Time: prior.LastFailureTime.UnixNano()}, after(prior.ConsecutiveFailures-1))
		remaining := max(0, time.Unix(0, v.RetryAfter).Sub(now))
		want := time.Duration(into[struct{ RemainingDelaySeconds int }](t, r.Expected).RemainingDelaySeconds) * time.Second
		if remaining != want {
			t.Errorf("%s remain, want %s", remaining, want)
		}
	})
}

func TestOracleK8sBackoffLimit(t *testing.T) {
	inPlace := "restarts of a container in its pod are no runs"
	leftOut := map[string]string{
		"TestJobBackoffForOnFailure#01": inPlace,
		"TestJobBackoffForOnFailure#02": inPlace,
		"TestJobBackoffForOnFailure#14": inPlace,
	}
	oracle(t, "k8s_backoff_limit.json", leftOut, func(t *testing.T, r *row) {
		p := into[k8sPolicy](t, r.Policy)
		observed := into[struct{ FailedPods uint32 }](t, r.Observed)
		exceeded := into[struct{ ExpectedConditions []any }](t, r.Expected).ExpectedConditions != nil
		v := decide(t, p.spec(t), nil, &policy.Failure{}, after(observed.FailedPods-1))
		if v.Requeue == exceeded || exceeded && v.Code != policy.PolicyLimit {
			t.Errorf("%+v, want the limit exceeded: %v", v, exceeded)
		}
	})
}

func TestOracleK8sFailedIndexes(t *testing.T) {
	leftOut := map[string]string{
		"TestCalculateFailedIndexes#02": "indexes outside of a job's completions",
	}
	oracle(t, "k8s_failed_indexes.json", leftOut, func(t *testing.T, r *row) {
		p := into[k8sPolicy](t, r.Policy)
		observed := into[struct {
			Pods             []k8sPod
			Pod              *k8sPod
			PodBeingReplaced *k8sPod
		}](t, r.Observed)
		expected := into[struct {
			Intervals            [][2]int
			IndexFailed          bool
			NewIndexFailureCount *uint32
		}](t, r.Expected)
		if observed.PodBeingReplaced != nil {
			v := decide(t, p.spec(t), nil, observed.PodBeingReplaced.failure(), after(observed.PodBeingReplaced.IndexFailureCount))
			if v.RuleUsed != *expected.NewIndexFailureCount {
				t.Errorf("count %d, want %d", v.RuleUsed, *expected.NewIndexFailureCount)
			}
			return
		}
		pods, failed := observed.Pods, func(index int) bool {
			for _, i := range expected.Intervals {
				if i[0] <= index && index <= i[1] {
					return true
				}
			}
			return false
		}
		if observed.Pod != nil {
			pods, failed = []k8sPod{*observed.Pod}, func(int) bool { return expected.IndexFailed }
		}
		for _, pod := range pods {
			v := decide(t, p.spec(t), nil, pod.failure(), after(pod.IndexFailureCount))
			if v.Requeue == failed(pod.Index) {
				t.Errorf("index %d: %+v, want failed: %v", pod.Index, v, failed(pod.Index))
			}
		}
		if len(pods) == 0 {
			t.Fatal("no pod in the row")
		}
	})
}

func TestOracleK8sBackoffLimitPerIndex(t *testing.T) {
	oracle(t, "k8s_sync_backoff_limit_per_index.json", nil, func(t *testing.T, r *row) {
		p := into[k8sPolicy](t, r.Policy)
		observed := into[struct{ Pods []k8sPod }](t, r.Observed)
		expected := into[struct {
			FailedIndexes string
			Conditions    []struct{ Reason string }
		}](t, r.Expected)
		failedIndexes := map[string][]int{"": nil, "0": {0}, "0,2": {0, 2}}[expected.FailedIndexes]
		evaluated := 0
		for _, pod := range observed.Pods {
			if pod.Phase != "Failed" {
				continue
			}
			evaluated++
			failed := len(expected.Conditions) > 0 && expected.Conditions[0].Reason == "PodFailurePolicy"
			for _, i := range failedIndexes {
				failed = failed || i == pod.Index
			}
			v := decide(t, p.spec(t), nil, pod.failure(), after(pod.IndexFailureCount))
			if v.Requeue == failed {
				t.Errorf("index %d: %+v, want failed: %v", pod.Index, v, failed)
			}
		}
		if evaluated == 0 {
			t.Fatal("no failed pod in the row")
		}
	})
}

func TestOracleK8sValidateJob(t *testing.T) {
	indexed, status := "about the indexes of a job", "our conditions have no status"
	leftOut := map[string]string{
		"TestValidateJob.err#14": "a Go expression; our policies have no limit on rules but the file's size",
		"TestValidateJob.err#27": status,
		"TestValidateJob.err#32": "restarts of a container in its pod are no runs",
		"TestValidateJob.err#36": indexed,
		"TestValidateJob.err#39": indexed,
		"TestValidateJob.err#40": indexed,
		"TestValidateJob.err#41": indexed,
		"TestValidateJob.ok#11":  indexed,
	}
	want := map[string]string{
		"TestValidateJob.err#19": codeUnknownValue,
		"TestValidateJob.err#20": codeUnknownValue,
		"TestValidateJob.err#21": "", // differs: all matchers of a rule must hold (SEMANTICS 4)
		"TestValidateJob.err#24": codeUnknownValue,
		"TestValidateJob.err#28": codeUnknownValue,
		"TestValidateJob.err#30": "", // differs: replacement and rules are independent (SEMANTICS 8)
		"TestValidateJob.err#34": codeOutOfRange,
		"TestValidateJob.ok#03":  "",
		"TestValidateJob.ok#06":  "",
		"TestValidateJob.ok#07":  "",
	}
	oracle(t, "k8s_validate_job.json", leftOut, func(t *testing.T, r *row) {
		p := into[k8sPolicy](t, r.Policy)
		code, known := want[r.ID]
		if !known {
			t.Fatal("the row is neither in the table nor left out")
		}
		wantProblem(t, p.parsed(t), code)
	})
}

// jobsetRule is a rule of a JobSet. Reasons become categories and the parent of
// the failed job the failed container; no list is any.
type jobsetRule struct {
	Action                      string
	OnJobFailureReasons         []string
	OnJobFailureMessagePatterns []string
	TargetReplicatedJobs        []string
}

type jobsetFailure struct{ Reason, Message, ParentReplicatedJob, ReplicatedJob string }

func (f *jobsetFailure) failure() *policy.Failure {
	return &policy.Failure{Category: f.Reason, Containers: []policy.Container{{Name: f.ParentReplicatedJob + f.ReplicatedJob, ExitCode: 1, Message: f.Message}}}
}

func jobsetSpec(t *testing.T, maxRestarts *int, rules []jobsetRule) obj {
	t.Helper()
	spec := obj{"defaultAction": "Retry"}
	if maxRestarts != nil {
		spec["retryLimit"] = *maxRestarts
	}
	var ours []any
	for _, r := range rules {
		rule := obj{"action": "Retry", "onExitCodes": obj{"operator": "NotIn", "values": []int{0}}}
		switch r.Action {
		case "FailJobSet":
			rule["action"] = "Fail"
		case "RestartJobSetAndIgnoreMaxRestarts", "RestartJobAndIgnoreMaxRestarts":
			rule["action"] = "Ignore"
		}
		if len(r.OnJobFailureReasons) > 0 {
			rule["onFailureCategory"] = r.OnJobFailureReasons
		}
		if len(r.OnJobFailureMessagePatterns) > 0 {
			rule["onTerminationMessage"] = obj{"pattern": r.OnJobFailureMessagePatterns[0]}
		}
		if len(r.TargetReplicatedJobs) > 0 {
			rule["containerName"] = r.TargetReplicatedJobs[0]
		}
		if len(r.OnJobFailureMessagePatterns) > 1 || len(r.TargetReplicatedJobs) > 1 {
			t.Fatal("no way to put this rule into ours")
		}
		ours = append(ours, rule)
	}
	if ours != nil {
		spec["rules"] = ours
	}
	return spec
}

func TestOracleJobsetRuleMatching(t *testing.T) {
	several := "which of several failed jobs comes first: we decide on every failed run"
	leftOut := map[string]string{
		"TestFindFirstFailedJob#01": several,
		"TestFindFirstFailedJob#02": several,
		"TestFindFirstFailedJob#03": several,
	}
	oracle(t, "jobset_rule_matching.json", leftOut, func(t *testing.T, r *row) {
		p := into[struct {
			Rule  *jobsetRule
			Rules []jobsetRule
		}](t, r.Policy)
		observed := into[struct {
			Job     struct{ ParentReplicatedJob string }
			Reason  string
			Message string
			Jobs    []jobsetFailure
		}](t, r.Observed)
		expected := into[struct {
			RuleMatches      bool
			MatchedRuleIndex *int
		}](t, r.Expected)
		if p.Rule != nil {
			f := jobsetFailure{Reason: observed.Reason, Message: observed.Message, ParentReplicatedJob: observed.Job.ParentReplicatedJob}
			v := decide(t, jobsetSpec(t, nil, []jobsetRule{*p.Rule}), nil, f.failure(), nil)
			if got := v.Rule == "#0"; got != expected.RuleMatches {
				t.Errorf("matches %v, want %v", got, expected.RuleMatches)
			}
			return
		}
		for _, job := range observed.Jobs {
			v := decide(t, jobsetSpec(t, nil, p.Rules), nil, job.failure(), nil)
			want := "default"
			if expected.MatchedRuleIndex != nil {
				want = fmt.Sprintf("#%d", *expected.MatchedRuleIndex)
			}
			if v.Rule != want {
				t.Errorf("rule %s, want %s", v.Rule, want)
			}
		}
		if len(observed.Jobs) == 0 {
			t.Fatal("no job in the row")
		}
	})
}

func TestOracleJobsetActions(t *testing.T) {
	oracle(t, "jobset_actions.json", nil, func(t *testing.T, r *row) {
		p := into[struct {
			FailurePolicy struct{ MaxRestarts int }
		}](t, r.Policy)
		prior := into[struct {
			RestartsCountTowardsMax uint32
			ReplicatedJobsStatus    []struct{ JobRestartsCountTowardsMax []uint32 }
		}](t, r.Prior)
		expected := into[struct {
			Status struct {
				TerminalState           string
				RestartsCountTowardsMax uint32
			}
		}](t, r.Expected).Status
		c := after(prior.RestartsCountTowardsMax)
		for _, job := range prior.ReplicatedJobsStatus {
			for i, n := range job.JobRestartsCountTowardsMax {
				c.Rules = append(c.Rules, policy.RuleCount{Key: policy.RuleKey{Policy: "other", Rule: fmt.Sprint(i)}, Granted: n})
				c.Granted += n
			}
		}
		// maxRestarts is over all restarts of all kinds, as our global cap is.
		v := decide(t, jobsetSpec(t, nil, nil), obj{"globalMaxRetries": p.FailurePolicy.MaxRestarts}, &policy.Failure{}, c)
		if expected.TerminalState == "Failed" {
			wantCode(t, v, policy.GlobalLimit)
			return
		}
		wantCode(t, v, policy.DefaultRetry)
		if v.RuleUsed != expected.RestartsCountTowardsMax {
			t.Errorf("count %d, want %d", v.RuleUsed, expected.RestartsCountTowardsMax)
		}
	})
}

func TestOracleJobsetIntegration(t *testing.T) {
	leftOut := map[string]string{
		"jobset-integration#15": "all members wait for the last one to be gone: gangs, SEMANTICS 12",
	}
	oracle(t, "jobset_integration.json", leftOut, func(t *testing.T, r *row) {
		p := into[struct {
			FailurePolicy *struct {
				MaxRestarts int
				Rules       []jobsetRule
			}
		}](t, r.Policy)
		steps := into[[]struct {
			Observe struct{ JobFailed jobsetFailure }
			Expect  struct {
				State                      string
				RestartsCountTowardsMax    *uint32
				JobRestartsCountTowardsMax []uint32
			}
		}](t, r.Steps)
		var c policy.Counts
		for i, step := range steps {
			f := step.Observe.JobFailed.failure()
			v := Empty().Evaluate(f, &c)
			if p.FailurePolicy != nil {
				v = decide(t, jobsetSpec(t, &p.FailurePolicy.MaxRestarts, p.FailurePolicy.Rules), nil, f, &c)
			}
			c = granted(c, f, &v)
			if v.Requeue != (step.Expect.State == "Active") {
				t.Errorf("step %d: %+v, want %s", i, v, step.Expect.State)
			}
			want := step.Expect.RestartsCountTowardsMax
			if n := step.Expect.JobRestartsCountTowardsMax; len(n) == 1 {
				want = &n[0]
			}
			if want != nil && c.Granted != *want {
				t.Errorf("step %d: %d counted, want %d", i, c.Granted, *want)
			}
		}
		if len(steps) == 0 {
			t.Fatal("no step in the row")
		}
	})
}

func TestOracleVolcanoApplyPolicies(t *testing.T) {
	leftOut := map[string]string{
		"TestApplyPolicies#00": "an explicit request, not a failure",
		"TestApplyPolicies#03": "which version of a job a request means",
		"TestApplyPolicies#05": "a request without any event",
		"TestApplyPolicies#09": "a pod that waits too long: no failure of a run",
	}
	oracle(t, "volcano_apply_policies.json", leftOut, func(t *testing.T, r *row) {
		t.Fatal("the row is not left out")
	})
}
