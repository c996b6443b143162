package query

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
)

// costly is a job database with sums of costs.
type costly struct {
	jobdb.Queries
	asked *jobdb.CostFilter
}

func (c costly) Costs(f jobdb.CostFilter) ([]jobdb.CostSum, error) {
	*c.asked = f
	return []jobdb.CostSum{
		{Key: "", Kind: jobdb.FailedRun, Spent: jobdb.Spent{Runs: 2, Unknown: 2}},
		{Key: "a", Kind: jobdb.FailedRun, Spent: jobdb.Spent{Runs: 3, Unknown: 1, CPU: 7_200_000, Memory: 1024 * 1800}},
		{Key: "a", Kind: jobdb.RetryLost, Spent: jobdb.Spent{Runs: 1, CPU: 3600}},
		{Key: "b", Kind: jobdb.FailedRun, Spent: jobdb.Spent{Runs: 1, GPU: 3_600_000}},
		{Key: "b", Kind: jobdb.RetrySucceeded, Spent: jobdb.Spent{Runs: 4, CPU: 360_000}},
		{Key: "c", Kind: jobdb.RetrySucceeded, Spent: jobdb.Spent{Runs: 1}},
	}, nil
}

// TestTopCost: rows come with the dearest first, in hours, of whole days; what is unknown is said.
func TestTopCost(t *testing.T) {
	t.Parallel()
	asked := jobdb.CostFilter{}
	s := &Source{Jobs: func(_ context.Context, read func(jobdb.Queries) error) error { return read(costly{asked: &asked}) }}
	const day = 24 * 3600e9
	rows, err := s.TopCost(t.Context(), CostQuestion{By: "rule", Since: 10*day + 1, Until: 12 * day, Limit: 3})
	if err != nil || asked.From != 10 || asked.To != 12 || asked.By != "rule" || asked.Key != nil {
		t.Errorf("asked for %+v: %v", asked, err)
	}
	want := []Cost{
		{By: "rule", Key: "b", Failed: audit.Spent{Runs: 1, GPUHours: 1}, RetriesSucceeded: audit.Spent{Runs: 4, CPUHours: .1}},
		{By: "rule", Key: "a", Failed: audit.Spent{Runs: 3, Unknown: 1, CPUHours: 2, MemoryHours: .5}, RetriesLost: audit.Spent{Runs: 1, CPUHours: .001}},
		{By: "rule", Failed: audit.Spent{Runs: 2, Unknown: 2}},
	}
	if !slices.Equal(rows, want) {
		t.Errorf("%+v, want %+v", rows, want)
	}
	if note := UnknownNote(rows); !strings.HasPrefix(note, "the hours of 3 of 11 runs are unknown") {
		t.Errorf("the note says %q", note)
	}
	if note := UnknownNote(rows[:1]); note != "" {
		t.Errorf("all is known, but the note says %q", note)
	}
	if _, err = s.TopCost(t.Context(), CostQuestion{By: "rule", Until: 12*day + 1}); err != nil || asked.From != 0 || asked.To != 13 {
		t.Errorf("asked for %+v: %v", asked, err)
	}
	for _, c := range []struct {
		of               audit.Spent
		gpu, cpu, memory string
	}{
		{audit.Spent{}, "0.0", "0.0", "0.0"},
		{audit.Spent{Runs: 1, Unknown: 1}, "unknown", "unknown", "unknown"},
		{audit.Spent{Runs: 2, Unknown: 1, GPUHours: 1234.56, CPUHours: .0123, MemoryHours: .00001}, "1234.6", "0.012", "<0.001"},
	} {
		if gpu, cpu, memory := c.of.Hours(); gpu != c.gpu || cpu != c.cpu || memory != c.memory {
			t.Errorf("%+v reads %s, %s, %s, want %s, %s, %s", c.of, gpu, cpu, memory, c.gpu, c.cpu, c.memory)
		}
	}
	_, err = s.TopCost(t.Context(), CostQuestion{By: "nod"})
	if bad, ok := errors.AsType[*Invalid](err); !ok || bad.Param != "by" || !strings.Contains(err.Error(), "node") {
		t.Errorf("by nod: %v", err)
	}
}
