package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// TestExplainAll: evaluating any decision of the recordings again, from what
// the job database keeps, gives that decision, and the ladder says which rule.
func TestExplainAll(t *testing.T) {
	t.Parallel()
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile(name), "--quiet", "--exit-when-drained").exits(t, exitFine)
			set, _, err := (&deployment{data: data}).generation(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			cmd := newExplain()
			cmd.SetContext(t.Context())
			var all []*jobdb.Decision
			for p := range partitions {
				all = append(all, contents(t, data, p).Decisions...)
			}
			for i, d := range all {
				if i%3 > 0 && (d.RunIndex == 0 || testing.Short()) {
					continue // the first run of a job is the easy one
				}
				c, err := findCase(cmd, explainFlags{job: d.JobID, deployment: deployment{data: data}, run: int(d.RunIndex)})
				if err != nil {
					t.Fatalf("run %d of %s: %v", d.RunIndex, d.JobID, err)
				}
				x, err := audit.Explain(set.Set, c.Case)
				if err != nil {
					t.Errorf("run %d of %s: %v", d.RunIndex, d.JobID, err)
				}
				matched := ""
				for _, r := range x.Rungs {
					if r.Matched {
						matched = r.Policy + "/" + r.Rule
					}
				}
				asked := d.Code != policy.GroupRestart || d.Group != nil // of a run that was told to stop, the rule is that of the restart
				if want := d.Policy + "/" + d.Rule; asked && d.Rule != "" && d.Rule != "default" && matched != want {
					t.Errorf("run %d of %s: the ladder says %q, decided by %q", d.RunIndex, d.JobID, matched, want)
				}
				var out bytes.Buffer
				printCase(&out, &explanation{decided: c, Explanation: x, evaluated: true})
				for _, want := range []string{d.Code.String(), fmt.Sprintf("job:  %d before, %d after", x.Before.Granted, d.GlobalUsed), d.RunID} {
					if !strings.Contains(out.String(), want) {
						t.Errorf("explain of run %d of %s lacks %q:\n%s", d.RunIndex, d.JobID, want, &out)
					}
				}
			}
			t.Logf("%d decisions", len(all))
		})
	}
}
