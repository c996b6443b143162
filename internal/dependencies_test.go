package internal_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
)

// TestDependenciesHaveTheirSentence holds go.mod against docs/internals/dependencies.md:
// each direct requirement has a row that says what it saves and what it weighs,
// and no row outlives its requirement.
func TestDependenciesHaveTheirSentence(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var module struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/internals/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]{15,} \\| [^|]+ \\|$").FindAllSubmatch(page, -1) {
		rows[string(row[1])] = true
	}
	for _, r := range module.Require {
		if !r.Indirect && !rows[r.Path] {
			t.Errorf("go.mod requires %s, and docs/internals/dependencies.md has no row for it: add what it saves and what it weighs", r.Path)
		}
		if !r.Indirect {
			delete(rows, r.Path)
		}
	}
	if len(rows) > 0 {
		t.Errorf("docs/internals/dependencies.md has rows for %v, and go.mod does not require them: remove the rows", slices.Sorted(maps.Keys(rows)))
	}
}
