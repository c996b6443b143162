package policyfile

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/test/fieldtest"
)

// TestPropertiesDrawEveryMatcher: the policies that properties are checked with have every field of MatcherFields, and of
// group policies.
func TestPropertiesDrawEveryMatcher(t *testing.T) {
	t.Parallel()
	var drawn []string
	for seed := range 200 {
		for _, f := range rapid.Custom(drawSet).Example(seed) {
			drawn = append(drawn, string(f.Data))
		}
	}
	fieldtest.Matchers(t, MatcherFields(), drawn...)
	fieldtest.Groups(t, groupPaths(), drawn...)
}

func groupPaths() (paths []string) {
	for _, f := range Fields() {
		if f.Kind == KindGroup && f.Path != "" {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// TestScenariosHaveEveryMatcher asks the same of the scenarios of semantics.md.
func TestScenariosHaveEveryMatcher(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scenarios/04_*")
	if err != nil {
		t.Fatal(err)
	}
	var policies []string
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?ms)^parse.*?\n(.*?)^----$`).FindAllSubmatch(data, -1) {
			policies = append(policies, string(found[1]))
		}
	}
	fieldtest.Matchers(t, MatcherFields(), policies...)
}
