package app

import (
	"maps"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// TestCostMetrics: what runs held is counted by how they ended, and those of which it is unknown apart.
func TestCostMetrics(t *testing.T) {
	t.Parallel()
	m := NewMetrics(time.Now, 0)
	committed := m.ingester(time.Now).Committed
	cost := func(kind jobdb.CostKind, s jobdb.Spent) *jobdb.Cost { return &jobdb.Cost{Kind: kind, Spent: s} }
	committed(sink.Batch{})
	committed(sink.Batch{Costs: []*jobdb.Cost{
		cost(jobdb.FailedRun, jobdb.Spent{Runs: 1, CPU: 3_600_000, Memory: 1024 * 7200, GPU: 8 * 3_600_000}),
		cost(jobdb.FailedRun, jobdb.Spent{Runs: 1, Unknown: 1}), cost(jobdb.RetryLost, jobdb.Spent{Runs: 1, CPU: 1_800_000}),
	}})
	committed(sink.Batch{Costs: []*jobdb.Cost{cost(jobdb.FailedRun, jobdb.Spent{Runs: 1, CPU: 3_600_000})}})
	want := map[string]float64{
		"kind=failed resource=cpu": 2, "kind=failed resource=memory_gib": 2, "kind=failed resource=gpu": 8,
		"kind=retry_lost resource=cpu": .5, "kind=retry_lost resource=memory_gib": 0, "kind=retry_lost resource=gpu": 0,
	}
	if got := seriesOf(t, m, "refloat_run_hours_total"); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := seriesOf(t, m, "refloat_run_hours_unknown_runs_total"), map[string]float64{"kind=failed": 1, "kind=retry_lost": 0}; !maps.Equal(got, want) {
		t.Errorf("%v runs are unknown, want %v", got, want)
	}
}
