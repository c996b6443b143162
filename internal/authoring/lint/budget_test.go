package lint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// TestBudgets: what is reported of retry budgets that cannot work, and that nothing is of one that can.
func TestBudgets(t *testing.T) {
	t.Parallel()
	const (
		retries  = "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec: {defaultAction: Retry}\n---\n"
		calm     = "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec: {defaultAction: Fail, rules: [{name: r, action: Ignore, onConditions: [Evicted]}]}\n---\n"
		none     = "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec: {defaultAction: Retry, retryLimit: 0}\n---\n"
		queue    = "{kind: Queue, name: training, retryPolicies: [p]}\n---\n"
		settings = "{kind: RetrySettings, spec: {defaultPolicyName: p}}\n---\n"
	)
	for _, c := range []struct {
		name, files, budget string
		codes               []string
		says                string
	}{
		{"usual", retries + queue, "{queue: training, ratio: 0.2}", nil, ""},
		{"no ratio, with a floor", retries + queue, "{queue: training, ratio: 0, floor: 5}", nil, ""},
		{"no floor, with a ratio", retries + queue, "{ratio: 0.1, floor: 0, whenExhausted: Refuse}", nil, ""},
		{"nothing", retries + queue, "{ratio: 0, floor: 0, whenExhausted: Refuse}", []string{"RP124"}, "every retry is refused"},
		{"a minute", retries + queue, "{ratio: 0.1, window: 1m}", nil, ""},
		{"seconds", retries + queue, "{ratio: 0.1, window: 59s}", []string{"RP125"}, "59s is shorter than most runs"},
		{"queue by the default policy", retries + queue + settings, "{queue: other, ratio: 0.1}", nil, ""},
		{"no such queue", retries + queue, "{queue: trainign, ratio: 0.1}", []string{"RP126"}, "did you mean training?"},
		{"no such queue, and none like it", retries, "{queue: x, ratio: 0.1}", []string{"RP126"}, "add the queue"},
		{"retries nothing", calm + queue, "{queue: training, ratio: 0.1}", []string{"RP126"}, "no policy of the queue grants a retry that counts"},
		{"retries nothing, its limit is 0", none + queue, "{queue: training, ratio: 0.1}", []string{"RP126"}, "unless jobs name policies themselves"},
		{"all retry nothing", calm, "{ratio: 0.1}", []string{"RP126"}, "no policy grants a retry that counts"},
		{"all that is wrong", calm, "{ratio: 0, floor: 0, whenExhausted: Refuse, window: 10s}", []string{"RP124", "RP125", "RP126"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var codes []string
			text := ""
			for _, p := range lintText(t, c.files+"apiVersion: refloat.github.io/v1\nkind: RetryBudget\nmetadata: {name: b}\nspec: "+c.budget+"\n") {
				if p.Severity != policyfile.Warning || p.Code < "RP124" {
					continue
				}
				codes, text = append(codes, p.Code), text+p.Message+"; "+p.Fix+"\n"
			}
			slices.Sort(codes)
			if !slices.Equal(codes, c.codes) || !strings.Contains(text, c.says) {
				t.Errorf("%v, want %v with %q:\n%s", codes, c.codes, c.says, text)
			}
		})
	}
}
