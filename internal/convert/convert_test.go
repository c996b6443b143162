package convert

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/refloat/refloat/internal/authoring/lint"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// TestScenarios converts manifests. The verbs:
//
//	convert [jobs=N] [queue=Q] [job-set=J]   notes, policies, the number of jobs, and the first N of each part in full
//	                                         (default: 0)
//	notes                                    notes alone
func TestScenarios(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "fuzz") {
			return
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var o Options
			full := 0
			d.MaybeScanArgs(t, "queue", &o.Queue)
			d.MaybeScanArgs(t, "job-set", &o.JobSet)
			d.MaybeScanArgs(t, "jobs", &full)
			r := Convert([]File{{Name: "in.yaml", Data: []byte(d.Input)}}, o)
			var b strings.Builder
			for _, n := range r.Notes {
				fmt.Fprintln(&b, n)
			}
			if d.Cmd == "notes" {
				return b.String()
			}
			if d.Cmd != "convert" {
				d.Fatalf(t, "unknown verb %s", d.Cmd)
			}
			for _, p := range r.Policies {
				fmt.Fprintf(&b, "=== policies/%s\n%s", p.Name, p.Data)
			}
			if !r.Failed() {
				for i := range r.Submits {
					printJobs(t, &b, r.Submits, i, full)
					if err := refusedByArmada(&r.Submits[i]); err != nil {
						d.Fatalf(t, "Armada refuses the jobs: %v", err)
					}
				}
				mustBeClean(t, r)
			}
			return b.String()
		})
	})
}

func printJobs(t *testing.T, b *strings.Builder, all []Submit, i, full int) {
	t.Helper()
	s := &all[i]
	shown := Submit{Queue: s.Queue, JobSetID: s.JobSetID}
	seen := map[string]int{}
	for _, j := range s.Jobs {
		part := j.Annotations["refloat.github.io/group"] + j.Annotations["refloat.github.io/part"]
		if seen[part]++; seen[part] <= full {
			shown.Jobs = append(shown.Jobs, j)
		}
	}
	var text bytes.Buffer
	if err := shown.WriteYAML(&text); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "=== %s: %d jobs\n", SubmitFiles(all)[i], len(s.Jobs))
	if full > 0 {
		b.WriteString(text.String())
	}
}

// mustBeClean fails if lint has a finding about the policies, or if they are not those of the Set.
func mustBeClean(t *testing.T, r *Result) {
	t.Helper()
	var files []policyfile.File
	for _, p := range r.Policies {
		files = append(files, policyfile.File{Name: p.Name, Data: p.Data})
	}
	problems, err := lint.Lint(files, nil)
	if err != nil {
		t.Fatalf("lint refuses the policies: %v", err)
	}
	for _, p := range problems {
		if p.Severity != policyfile.Note {
			t.Errorf("lint: %s", p)
		}
	}
	set, err := policyfile.Parse(files)
	if err != nil {
		t.Fatalf("policies: %v", err)
	}
	if !bytes.Equal(set.Canonical(), r.Set.Canonical()) {
		t.Errorf("the files and the set differ")
	}
}
