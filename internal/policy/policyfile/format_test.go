package policyfile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// TestFormat: a crooked file becomes straight, with all of its comments, and what is straight stays as it is.
func TestFormat(t *testing.T) {
	t.Parallel()
	const crooked = `

# at the top
apiVersion:   armadaproject.io/v1
kind: RetryPolicy
metadata: {name: infra}   # beside

spec:
    retryLimit:  3
    # before the rules
    rules:


        # of the first
        - name: oom
          action: Retry
          onConditions: [OOMKilled]

        - name: text
          action: Fail
          onTerminationMessage: {pattern: "a  b"}
    # after all
---
kind: RetrySettings
spec:
   globalMaxRetries: 5
# the end
`
	const straight = `# at the top
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: infra} # beside

spec:
  retryLimit: 3
  # before the rules
  rules:

  # of the first
  - name: oom
    action: Retry
    onConditions: [OOMKilled]

  - name: text
    action: Fail
    onTerminationMessage: {pattern: "a  b"}
    # after all
---
kind: RetrySettings
spec:
  globalMaxRetries: 5
# the end
`
	got, err := policyfile.Format(policyfile.File{Name: "p.yaml", Data: []byte(crooked)})
	if err != nil || string(got) != straight {
		t.Errorf("%v:\n%s\nwant\n%s", err, got, straight)
	}
	if _, err := policyfile.Format(policyfile.File{Name: "p.yaml", Data: []byte("a: [")}); err == nil || !strings.Contains(err.Error(), "p.yaml:2:1: RP001: ") {
		t.Errorf("no YAML: %v", err)
	}
	if _, err := policyfile.Format(policyfile.File{Name: "x.yaml", Data: []byte("a:\n\tb: c\n")}); err == nil || err.Error() != "x.yaml:2:1: RP001: a tab. fix: write spaces: YAML indents by spaces only; the rest of the file was not read" {
		t.Errorf("a tab: %v", err)
	}
}

// TestFormatKeeps: the files of the repository keep their policies, and their second layout is the first.
func TestFormatKeeps(t *testing.T) {
	t.Parallel()
	var names []string
	for _, pattern := range []string{"../../../examples/*/*.yaml", "../../../examples/*/*/*.yaml", "../../../cmd/refloatctl/starter/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	if len(names) < 5 {
		t.Fatalf("only %d files", len(names))
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		once, err := policyfile.Format(policyfile.File{Name: name, Data: data})
		if err != nil {
			t.Error(err)
			continue
		}
		if again, err := policyfile.Format(policyfile.File{Name: name, Data: once}); err != nil || !bytes.Equal(again, once) {
			t.Errorf("%s: a second layout: %v\n%s\nthe first:\n%s", name, err, again, once)
		}
		before, err := policyfile.Parse([]policyfile.File{{Name: name, Data: data}})
		if err != nil {
			continue // a test of policies, or one that needs others
		}
		if after, err := policyfile.Parse([]policyfile.File{{Name: name, Data: once}}); err != nil || after.Digest() != before.Digest() {
			t.Errorf("%s: other policies: %v", name, err)
		}
	}
}
