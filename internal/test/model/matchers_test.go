package model_test

import (
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/fieldtest"
	"github.com/refloat/refloat/internal/test/model"
)

// TestHistoriesHaveEveryMatcher: the policies of generated histories have every field of MatcherFields, and of group policies, so
// that the model is compared with the engine about each.
func TestHistoriesHaveEveryMatcher(t *testing.T) {
	t.Parallel()
	var policies, paths []string
	for _, f := range policyfile.Fields() {
		if f.Kind == policyfile.KindGroup && f.Path != "" {
			paths = append(paths, f.Path)
		}
	}
	for seed := range uint64(300) {
		for _, f := range append(model.Generate(seed, model.Options{Versions: true}).YAML(), model.GenerateGroups(seed, model.GroupOptions{Newest: model.SuccessorsVersion}).YAML()...) {
			policies = append(policies, string(f.Data))
		}
	}
	fieldtest.Matchers(t, policyfile.MatcherFields(), policies...)
	fieldtest.Groups(t, paths, policies...)
}
