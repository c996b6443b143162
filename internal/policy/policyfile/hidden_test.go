package policyfile_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// TestYAMLHidesNothing: what a terminal acts on, or does not show, is written with escapes, and read back as it was.
func TestYAMLHidesNothing(t *testing.T) {
	t.Parallel()
	const text = `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec:
  rules:
  - action: Retry
    onTerminationMessage: {pattern: "it's \\. a\u202eb\u200b\u2028 \U000E0041"}
`
	set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := set.YAML(set.Resources()...)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(string(out), func(r rune) bool {
		return r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
	}) {
		t.Errorf("YAML = %q", out)
	}
	again, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: out}})
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if again.Digest() != set.Digest() {
		t.Errorf("it is read back as another set:\n%s", out)
	}
}
