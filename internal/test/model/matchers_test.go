package model_test

import (
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/matchertest"
	"github.com/refloat/refloat/internal/test/model"
)

// TestHistoriesHaveEveryMatcher: the policies of generated histories have every field of MatcherFields, so that the model is
// compared with the engine about each.
func TestHistoriesHaveEveryMatcher(t *testing.T) {
	t.Parallel()
	var policies []string
	for seed := range uint64(300) {
		for _, f := range model.Generate(seed, model.Options{Versions: true}).YAML() {
			policies = append(policies, string(f.Data))
		}
	}
	matchertest.Require(t, policyfile.MatcherFields(), policies...)
}
