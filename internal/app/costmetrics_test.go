package app

import (
	"maps"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// TestCostMetrics: what runs held is counted by queue, category and how they ended, and those of which it is unknown apart. Queues
// and categories, which users may invent, have a bound.
func TestCostMetrics(t *testing.T) {
	t.Parallel()
	m := NewMetrics(time.Now, 4)
	committed := m.ingester(time.Now).Committed
	cost := func(kind jobdb.CostKind, queue, category string, s jobdb.Spent) *jobdb.Cost {
		return &jobdb.Cost{Kind: kind, Queue: queue, Cause: jobdb.Cause{Category: category}, Spent: s}
	}
	committed(sink.Batch{})
	committed(sink.Batch{Costs: []*jobdb.Cost{
		cost(jobdb.FailedRun, "ml", "oom", jobdb.Spent{Runs: 1, CPU: 3_600_000, Memory: 1024 * 7200, GPU: 8 * 3_600_000}),
		cost(jobdb.FailedRun, "ml", "oom", jobdb.Spent{Runs: 1, Unknown: 1}), cost(jobdb.RetryLost, "ml", "", jobdb.Spent{Runs: 1, CPU: 1_800_000}),
	}})
	committed(sink.Batch{Costs: []*jobdb.Cost{
		cost(jobdb.FailedRun, "ml", "oom", jobdb.Spent{Runs: 1, CPU: 3_600_000}), cost(jobdb.FailedRun, "a", "", jobdb.Spent{CPU: 3_600_000}),
		cost(jobdb.FailedRun, "b", "x", jobdb.Spent{CPU: 3_600_000}), cost(jobdb.FailedRun, "c", "x", jobdb.Spent{CPU: 3_600_000}), cost(jobdb.FailedRun, "d", "y", jobdb.Spent{CPU: 3_600_000}),
	}})
	want := map[string]float64{}
	for series, hours := range map[string][3]float64{
		"category=oom kind=failed queue=ml": {2, 2, 8}, "category= kind=retry_lost queue=ml": {.5}, "category= kind=failed queue=a": {1},
		"category=x kind=failed queue=other": {2}, "category=other kind=failed queue=other": {1},
	} {
		for i, resource := range []string{"cpu", "memory_gib", "gpu"} {
			want[series+" resource="+resource] = hours[i]
		}
	}
	if got := seriesOf(t, m, "refloat_run_hours_total"); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := seriesOf(t, m, "refloat_run_hours_unknown_runs_total")["category=oom kind=failed queue=ml"]; got != 1 {
		t.Errorf("%v runs are unknown, want 1", got)
	}
}
