package policyfile_test

import (
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Two names that look the same are the same: a name holds nothing that does not show or that reorders text.
func TestInvisibleCharacters(t *testing.T) {
	t.Parallel()
	const doc = "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec: {defaultAction: Fail, rules: [{name: r, action: Retry, FIELDS}]}\n"
	for _, text := range []string{
		"kind: Queue\nname: \"m%l\"\n",
		strings.Replace(doc, "FIELDS", `onFailureCategory: ["m%l"]`, 1),
		strings.Replace(doc, "FIELDS", `onFailureCategory: [a], onFailureSubcategory: ["m%l"]`, 1),
		strings.Replace(doc, "FIELDS", `onExitCodes: {operator: In, values: [1]}, containerName: "m%l"`, 1),
	} {
		for _, r := range []string{"", "\u200b", "\u202e", "\u2066", "\u00ad", "\u2028", "\U000e0041"} {
			_, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(strings.Replace(text, "%", r, 1))}})
			if refused := err != nil && strings.Contains(err.Error(), "an invisible character"); refused != (r != "") {
				t.Errorf("%q in %s: %v", r, text, err)
			}
		}
	}
}
