package oracle

import (
	"cmp"
	"encoding/json"
	"maps"

	"k8s.io/apimachinery/pkg/api/resource"
)

// WithoutMutate returns a policy of Armada, as encoding/json decodes it, without the mutate fields of its rules,
// and whether there were any.
func WithoutMutate(policy map[string]any) (plain map[string]any, mutates bool) {
	plain = maps.Clone(policy)
	rules, ok := policy["rules"].([]any)
	if !ok {
		return plain, false
	}
	kept := make([]any, len(rules))
	for i, r := range rules {
		kept[i] = r
		rule, ok := r.(map[string]any)
		if !ok {
			continue
		}
		rule = maps.Clone(rule)
		for _, name := range []string{"mutate", "mutation"} {
			if _, ok := rule[name]; ok {
				mutates = true
				delete(rule, name)
			}
		}
		kept[i] = rule
	}
	plain["rules"] = kept
	return plain, mutates
}

// Refusal is Armada's error about a policy, nil where it is valid. Rows call it error or expectError.
func Refusal(c *Check, words, expected *string) *string {
	if words != nil && expected != nil {
		c.Errorf("the row has both error and expectError")
	}
	return cmp.Or(words, expected)
}

// BadMutate reports whether Armada rejects a policy's mutate: a memory bump must be exactly one of a positive
// static amount and a factor above 1.
func BadMutate(policy map[string]any) bool {
	rules, _ := policy["rules"].([]any)
	for _, r := range rules {
		rule, _ := r.(map[string]any)
		mutate, _ := rule["mutate"].(map[string]any)
		resources, _ := mutate["resources"].(map[string]any)
		memory, ok := resources["memory"].(map[string]any)
		if !ok {
			continue
		}
		static, isStatic := memory["static"].(string)
		factor, isFactor := memory["factor"].(json.Number)
		if isStatic == isFactor {
			return true
		}
		if f, err := factor.Float64(); isFactor && (err != nil || f <= 1) {
			return true
		}
		if q, err := resource.ParseQuantity(static); isStatic && (err != nil || q.Sign() <= 0) {
			return true
		}
	}
	return false
}

// LongestLabel is the longest category or subcategory of a rule, in bytes.
func LongestLabel(policy map[string]any) int {
	longest := 0
	rules, _ := policy["rules"].([]any)
	for _, r := range rules {
		rule, _ := r.(map[string]any)
		for _, name := range []string{"onCategory", "onSubcategory"} {
			s, _ := rule[name].(string)
			longest = max(longest, len(s))
		}
	}
	return longest
}
