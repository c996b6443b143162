package policy_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/test/oracle"
)

// Rows of the same schema that the files do not have: they pass, are left out for
// the reason that holds for their kind, or are reported, and no test was changed
// for them. What passes is mutated like the rows of the files.
func TestOracleRowsOfTheSchema(t *testing.T) {
	t.Parallel()
	const passes, differs = "", "!"
	match := func(rule, pod, expected string) string {
		return `{"policy": {"podFailurePolicy": {"rules": [` + rule + `]}}, "observed": {"pod": {"phase": "Failed", ` + pod + `}}, "expected": ` + expected + `}`
	}
	const fail5 = `{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [5]}}`
	const byInit = `{"action": "FailJob", "countsTowardsBackoffLimit": true, "matchedRuleIndex_fromMessage": 0, "jobFailureMessage": "Container setup for pod default/mypod failed with exit code 5 matching FailJob rule at index 0"}`
	scenario := func(policy, prior, expected string) string {
		return `{"policy": {"enabled": true, "policies": [{"name": "test-policy", "retryLimit": 2, "defaultAction": "Fail", "rules": [{"action": "Retry", "onCategory": "app-error"}]}] ` + policy +
			`}, "prior": {` + prior + `}, "observed": {"error": {"failureCategory": "app-error", "exitCode": 42}}, "expected": {` + expected + `}}`
	}
	classified := func(rules, pod, category string) string {
		return `{"policy": {"errorCategories": {"categories": [{"name": "a", "rules": [` + rules + `]}]}}, "observed": {"pod": {"phase": "Failed", ` + pod + `}, "podEvents": null, "podErrorMessage": null}, "expected": {"category": "` + category + `", "subcategory": "", "action": null}}`
	}
	const setup = `"containers": [{"name": "main", "state": "waiting"}], "initContainers": [{"name": "setup", "state": "terminated", "exitCode": 5}]`
	const two = `"containers": [{"name": "side", "state": "terminated", "exitCode": 3}, {"name": "main", "state": "terminated", "exitCode": 5}]`
	tests := []struct {
		name  string
		suite *oracle.Suite
		row   string
		want  string // passes, differs, or a part of the reason to leave it out
	}{
		{"an init container", oracleK8sMatchPodFailurePolicy(), match(fail5, setup, byInit), passes},
		{"an init container that is not read", oracleK8sMatchPodFailurePolicy(), match(fail5, setup, `{"action": null, "countsTowardsBackoffLimit": true, "jobFailureMessage": null}`), differs},
		{"another container than the first", oracleK8sMatchPodFailurePolicy(), match(fail5, two, byInit), "several containers failed"},
		{"the first of two containers", oracleK8sMatchPodFailurePolicy(), match(strings.Replace(fail5, "[5]", "[3]", 1), two, `{"action": "FailJob", "countsTowardsBackoffLimit": true, "matchedRuleIndex_fromMessage": 0, "jobFailureMessage": "Container side for pod default/mypod failed with exit code 3 matching FailJob rule at index 0"}`), passes},
		{"exit code 0 in a list", oracleK8sMatchPodFailurePolicy(), match(strings.Replace(fail5, "[5]", "[0, 5]", 1), setup, byInit), passes},
		{"a condition that is not True", oracleK8sMatchPodFailurePolicy(), match(`{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}`, `"conditions": [{"type": "DisruptionTarget", "status": "False"}]`, `{"action": null, "countsTowardsBackoffLimit": true}`), passes},
		{"a condition of another name", oracleK8sMatchPodFailurePolicy(), match(`{"action": "Ignore", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]}`, `"conditions": [{"type": "ConfigIssue", "status": "True"}]`, `{"action": "Ignore", "countsTowardsBackoffLimit": false}`), passes},
		{"a pod that did not fail", oracleK8sMatchPodFailurePolicy(), `{"policy": {}, "observed": {"pod": {"phase": "Running"}}, "expected": {"action": "Ignore"}}`, "no pod that failed"},

		{"fail fast", oracleArmadaScheduler(), scenario(`, "failFast": true`, `"failedRuns": 1`, `"requeued": false, "decided": false`), passes},
		{"fail fast before", oracleArmadaScheduler(), scenario(``, `"failedRuns": 1, "failFast": true`, `"requeued": true`), differs},
		{"failed runs at the limit", oracleArmadaScheduler(), scenario(``, `"failedRuns": 3`, `"requeued": false, "terminal": true, "decided": true`), passes},
		{"failed runs below the limit", oracleArmadaScheduler(), scenario(``, `"failedRuns": 2`, `"requeued": true`), passes},
		{"failed runs that are not counted", oracleArmadaScheduler(), scenario(``, `"failedRuns": 3`, `"requeued": true`), differs},
		{"no failed run", oracleArmadaScheduler(), scenario(``, `"failedRuns": 0`, `"requeued": true`), "no run that failed"},
		{"failed runs missing", oracleArmadaScheduler(), scenario(``, ``, `"requeued": true`), "no run that failed"},
		{"the queue's policy is not there", oracleArmadaScheduler(), scenario(`, "queuePolicies": ["other"]`, `"failedRuns": 1`, `"decided": false`), passes},

		{"an init container", oracleArmadaClassify(), classified(`{"onExitCodes": {"operator": "In", "values": [5]}}`, setup, "a"), passes},
		{"an init container by its name", oracleArmadaClassify(), classified(`{"onExitCodes": {"operator": "In", "values": [5]}, "containerName": "setup"}`, setup, "a"), passes},
		{"an init container that is not read", oracleArmadaClassify(), classified(`{"onExitCodes": {"operator": "In", "values": [5]}}`, setup, ""), differs},
		{"a rule by the kubelet's error", oracleArmadaClassify(), classified(`{"onPodError": {"pattern": "x"}}`, setup, "a"), "no fact of ours"},

		{"no failures", oracleArmadaEngine(), `{"policy": {"globalMaxRetries": 1, "retryPolicy": {"name": "test", "defaultAction": "Retry"}}, "observed": {"error": {"kubernetesReason": "AppError"}}, "prior": {"failuresIncludingThisOne": 0}, "expected": {"decision": "retry", "shouldRetry": true}}`, "no failure"},
		{"at Armada's cap a rule that fails", oracleArmadaEngine(), `{"policy": {"globalMaxRetries": 1, "retryPolicy": {"name": "test", "defaultAction": "Fail", "retryLimit": 5}}, "observed": {"error": {"kubernetesReason": "AppError"}}, "prior": {"failuresIncludingThisOne": 2}, "expected": {"decision": "fail_global_limit", "reason": "global max retries exceeded (1/1)", "shouldRetry": false}}`, passes},
		{"below Armada's cap", oracleArmadaEngine(), `{"policy": {"globalMaxRetries": 3, "retryPolicy": {"name": "test", "defaultAction": "Fail", "retryLimit": 5}}, "observed": {"error": {"kubernetesReason": "AppError"}}, "prior": {"failuresIncludingThisOne": 2}, "expected": {"decision": "fail_global_limit", "shouldRetry": false}}`, differs},
		{"a pattern", oracleArmadaMatchers(), `{"policy": {"matcher": {"pattern": "a+b"}}, "observed": {"value": "xaab"}, "expected": {"match": true}}`, passes},
		{"a pattern and no text", oracleArmadaMatchers(), `{"policy": {"pattern": ".*"}, "observed": {"value": ""}, "expected": {"match": false}}`, passes},
		{"no exit code", oracleArmadaMatchers(), `{"policy": {"matcher": {"operator": "NotIn", "values": []}}, "observed": {"exitCode": 3}, "expected": {"match": true}}`, passes},
		{"a name by an expression", oracleArmadaPolicyValidation(), `{"policy": {"name": {"$chain": [{"fn": "strings.Repeat", "args": ["a", 64]}]}, "defaultAction": 1}, "expected": {"error": "is invalid"}}`, passes},
		{"the longest name", oracleArmadaPolicyValidation(), `{"policy": {"name": {"$chain": [{"fn": "strings.Repeat", "args": ["a", 63]}]}, "defaultAction": 1}, "expected": {"error": null}}`, passes},
		{"an expression that is not known", oracleArmadaPolicyValidation(), `{"policy": {"name": {"$chain": [{"fn": "longName", "args": []}]}, "defaultAction": 1}, "expected": {"error": null}}`, "expression"},

		{"256 exit codes", oracleK8sValidateJob(), `{"policy": {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [` + manyCodes(256) + `]}}]}}, "prior": {"restartPolicyOfPod": "Never"}, "expected": {"valid": false, "error": "spec.podFailurePolicy.rules[0].onExitCodes.values: Too many: 256: must have at most 255 items"}}`, passes},
		{"255 exit codes", oracleK8sValidateJob(), `{"policy": {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [` + manyCodes(255) + `]}}]}}, "prior": {"restartPolicyOfPod": "Never"}, "expected": {"valid": true, "error": null}}`, passes},
	}
	for _, tt := range tests {
		t.Run(tt.suite.File+"/"+tt.name, func(t *testing.T) {
			t.Parallel()
			row, err := oracle.ParseRow(tt.row)
			if err != nil {
				t.Fatal(err)
			}
			result := tt.suite.Try(&row)
			switch {
			case tt.want == differs:
				if !result.Failed() {
					t.Errorf("%+v, want a difference", result)
				}
			case result.Failed(), tt.want == passes && result.LeftOut != "", !strings.Contains(result.LeftOut, tt.want):
				t.Errorf("%+v, want %q", result, tt.want)
			}
			if tt.want != passes || result.Despite != "" { // the latter has been changed in turn already
				return
			}
			for _, m := range tt.suite.Mutations(&row, nil) {
				if result := tt.suite.Try(&m.Row); !result.Failed() {
					t.Errorf("%s changed from %v to %v, and nobody noticed", m.Path, m.From, m.To)
				}
			}
		})
	}
}

// manyCodes are the exit codes from 1 to n.
func manyCodes(n int) string {
	codes := make([]string, n)
	for i := range codes {
		codes[i] = strconv.Itoa(i + 1)
	}
	return strings.Join(codes, ", ")
}
