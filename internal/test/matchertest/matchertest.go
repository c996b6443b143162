// Package matchertest asks of tests that they try every matcher.
package matchertest

import (
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// Require reports each of the fields, such as onExitCodes.values, that no rule of the policies has. Policies are YAML; what
// cannot be read has no rule.
func Require[F fmt.Stringer](t testing.TB, fields []F, policies ...string) {
	t.Helper()
	have := map[string]bool{}
	for _, text := range policies {
		documents := yaml.NewDecoder(strings.NewReader(text))
		for {
			var d struct {
				Spec struct {
					Rules []map[string]any `yaml:"rules"`
				} `yaml:"spec"`
			}
			if documents.Decode(&d) != nil { // at the end, too
				break
			}
			for _, r := range d.Spec.Rules {
				collect(have, "", r)
			}
		}
	}
	for _, f := range fields {
		if !have[f.String()] {
			t.Errorf("no rule of %d policies has %s", len(policies), f)
		}
	}
}

// collect adds the paths of the fields of a mapping.
func collect(have map[string]bool, path string, fields map[string]any) {
	for name, v := range fields { // in any order: it makes a set
		have[path+name] = true
		if in, ok := v.(map[string]any); ok {
			collect(have, path+name+".", in)
		}
	}
}
