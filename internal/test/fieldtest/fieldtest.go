// Package fieldtest asks of tests that they try every field of policies.
package fieldtest

import (
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// Matchers reports each of the fields of rules, such as onExitCodes.values, that no retry policy has.
func Matchers[F fmt.Stringer](t testing.TB, fields []F, policies ...string) {
	t.Helper()
	have := paths("RetryPolicy", policies)
	for _, f := range fields {
		if !have["spec.rules."+f.String()] {
			t.Errorf("no rule of %d policies has %s", len(policies), f)
		}
	}
}

// Groups reports each of the paths, such as spec.rules.limit, that no group policy has.
func Groups(t testing.TB, want []string, policies ...string) {
	t.Helper()
	have := paths("GroupPolicy", policies)
	for _, path := range want {
		if !have[path] {
			t.Errorf("none of %d group policies has %s", len(policies), path)
		}
	}
}

// paths collects the paths of the fields of all documents of a kind. What cannot be read has none.
func paths(kind string, policies []string) map[string]bool {
	have := map[string]bool{}
	for _, text := range policies {
		documents := yaml.NewDecoder(strings.NewReader(text))
		for {
			var document map[string]any
			if documents.Decode(&document) != nil { // at the end, too
				break
			}
			if document["kind"] == kind {
				collect(have, "", document)
			}
		}
	}
	return have
}

func collect(have map[string]bool, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v { // in any order: it makes a set
			at := strings.TrimPrefix(path+"."+name, ".")
			have[at] = true
			collect(have, at, field)
		}
	case []any:
		for _, item := range v {
			collect(have, path, item)
		}
	}
}
