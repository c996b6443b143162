package whynot

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// TestEveryMatcher: of each matcher, a failure that it does not match is proposed another fact by which it does, and a failure
// that it would match but for its list is proposed another list.
func TestEveryMatcher(t *testing.T) {
	t.Parallel()
	failure := policy.Failure{
		Queue: "q", Containers: []policy.Container{{Name: "main", ExitCode: 7, Reason: "Error", Message: "other"}},
		Conditions: policy.Conditions(0).With(policy.Preempted), Category: "c", Subcategory: "s", Ran: true, RunDuration: time.Hour,
	}
	for m := policy.OnConditions; m <= policy.LastMatcher; m++ {
		c, ok := map[policy.Matcher]struct {
			rule, fact string
			list       string // "": it has none
		}{
			policy.OnConditions:         {"onConditions: [Evicted]", "condition Evicted", `onConditions=["Evicted","Preempted"]`},
			policy.OnExitCodes:          {"onExitCodes: {operator: In, values: [3]}", "exit code 3 of container main", "onExitCodes.values=[3,7]"},
			policy.OnTerminationMessage: {"onTerminationMessage: {pattern: a+b}", `termination message "ab" of container main`, ""},
			policy.OnFailureCategory:    {"onFailureCategory: [d]", "category d", `onFailureCategory=["d","c"]`},
			policy.OnFailureSubcategory: {"onFailureCategory: [c], onFailureSubcategory: [r]", "subcategory r", `onFailureSubcategory=["r","s"]`},
			policy.OnRunDuration:        {"onRunDuration: {lessThan: 30s}", "running for 29.999s", ""},
		}[m]
		if !ok {
			t.Errorf("no case for %s", m)
			continue
		}
		set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte("apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec:\n  defaultAction: Fail\n  rules: [{name: r, action: Retry, " + c.rule + "}]\n---\n{kind: Queue, name: q, retryPolicies: [p]}\n")}})
		if err != nil {
			t.Fatal(err)
		}
		changes, _, err := Find(&Input{Base: set, Failure: failure}, Retry)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for i := range changes {
			for _, e := range changes[i].Edits {
				texts = append(texts, e.Text)
			}
		}
		if !slices.Contains(texts, c.fact) {
			t.Errorf("%s: no change %q among %q", m, c.fact, texts)
		}
		if !slices.ContainsFunc(texts, func(s string) bool { return strings.HasSuffix(s, c.list) }) {
			t.Errorf("%s: no change of the list %s among %q", m, c.list, texts)
		}
	}
}
