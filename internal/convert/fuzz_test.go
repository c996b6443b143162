package convert

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/refloat/refloat/internal/authoring/lint"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// FuzzConvert: no manifest makes Convert panic, and whatever it makes is what lint accepts, and a file of jobs that Armada accepts
// and whose members fit their group.
func FuzzConvert(f *testing.F) {
	for _, text := range examples(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := Convert([]File{{Name: "in.yaml", Data: text}}, Options{})
		if r.Failed() {
			if r.Set != nil || len(r.Submits) > 0 {
				t.Fatalf("an Error, and a result: %v", r.Notes)
			}
			return
		}
		var files []policyfile.File
		for _, p := range r.Policies {
			if filepath.Base(p.Name) != p.Name || !policyfile.IsPolicies(p.Name) {
				t.Fatalf("a file of the name %q", p.Name)
			}
			files = append(files, policyfile.File{Name: p.Name, Data: p.Data})
		}
		problems, err := lint.Lint(files, nil)
		if err != nil {
			t.Fatalf("lint refuses what was made: %v", err)
		}
		for _, p := range problems {
			if p.Severity != policyfile.Note {
				t.Fatalf("lint: %s", p)
			}
		}
		for i := range r.Submits {
			checkJobs(t, r, &r.Submits[i])
		}
	})
}

// checkJobs checks that each job names policies that exist, each member once, and that the file is YAML.
func checkJobs(t *testing.T, r *Result, s *Submit) {
	t.Helper()
	if err := refusedByArmada(s); err != nil {
		t.Fatalf("Armada refuses it: %v", err)
	}
	seen := map[[4]string]bool{}
	for i := range s.Jobs {
		a := s.Jobs[i].Annotations
		if !has(r, policyfile.KindGroup, a["refloat.github.io/group-policy"]) || !has(r, policyfile.KindPolicy, a["armadaproject.io/retry-policy"]) {
			t.Fatalf("job %d names policies that were not made: %v", i, a)
		}
		member := [4]string{a["refloat.github.io/group"], a["refloat.github.io/part"], a["refloat.github.io/replica"], a["refloat.github.io/index"]}
		if seen[member] {
			t.Fatalf("two jobs for member %v", member)
		}
		seen[member] = true
	}
	few := *s
	few.Jobs = few.Jobs[:min(len(few.Jobs), 20)]
	var text bytes.Buffer
	if err := few.WriteYAML(&text); err != nil {
		t.Fatal(err)
	}
	mustReadBack(t, &few, text.Bytes())
}

var scenario = regexp.MustCompile(`(?ms)^(?:convert|notes)[^\n]*\n(.*?)^----$`)

// examples are the inputs of the scenarios.
func examples(tb testing.TB) (out [][]byte) {
	tb.Helper()
	paths, err := filepath.Glob("testdata/*/*")
	if err != nil {
		tb.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		tb.Fatal(err)
	}
	paths = append(paths, files...)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // a directory
		}
		for _, m := range scenario.FindAllSubmatch(data, -1) {
			if len(m[1]) < 1<<13 {
				out = append(out, m[1])
			}
		}
	}
	if len(out) < 20 {
		tb.Fatalf("%d examples in testdata, want the scenarios", len(out))
	}
	return out
}

func has(r *Result, kind, name string) bool {
	_, ok := r.Set.Body(policyfile.ID{Kind: kind, Name: name})
	return ok
}
