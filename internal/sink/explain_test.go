package sink_test

import (
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/model"
)

// TestRowsExplain: the rows of random histories are enough to explain each decision as it was made, by whichever version
// of the semantics.
func TestRowsExplain(t *testing.T) {
	t.Parallel()
	histories := 2000
	if testing.Short() {
		histories = 300
	}
	for seed := range histories {
		version := uint32(seed%evaluator.SemanticsVersion + 1)
		h := model.Generate(uint64(seed), model.Options{})
		var files []policyfile.File
		for _, f := range h.YAML() {
			files = append(files, policyfile.File{Name: f.Name, Data: f.Data})
		}
		set, err := policyfile.Parse(files)
		if err != nil {
			t.Fatal(err)
		}
		events, decisions := decideBy(t, h, version)
		c, err := sink.Fold(events, decisions, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		jobs, runs := map[string]*jobdb.Job{}, map[jobdb.RunKey]*jobdb.Run{}
		for _, j := range c.Jobs {
			jobs[j.JobID] = j
		}
		for _, r := range c.Runs {
			runs[jobdb.RunKey{JobID: r.JobID, RunID: r.RunID}] = r
		}
		earlier := map[string][]audit.Earlier{}
		for _, d := range c.Decisions {
			r := runs[jobdb.RunKey{JobID: d.JobID, RunID: d.RunID}]
			_, err := audit.Explain(set.Set, audit.Case{Job: jobs[d.JobID], Run: r, Decision: &d.Decision, Earlier: earlier[d.JobID]})
			if err != nil {
				t.Errorf("seed %d, version %d: decision %d on %s/%s, %v by %s/%s: %v", seed, version, d.Number, d.JobID, d.RunID, d.Code, d.Policy, d.Rule, err)
			}
			earlier[d.JobID] = append(earlier[d.JobID], audit.Earlier{Decision: &d.Decision, Run: r})
		}
	}
}
