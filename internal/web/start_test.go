package web_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/web"
)

// slowCounts is a job database without rows, of which each Summary takes two seconds.
type slowCounts struct {
	jobdb.Queries
	now, counted *atomic.Int64 // seconds, times
}

func (q slowCounts) Summary() (*jobdb.Summary, error) {
	q.now.Add(2)
	q.counted.Add(1)
	return &jobdb.Summary{}, nil
}

func (slowCounts) DecisionList(*jobdb.Criteria, jobdb.Page, func(*jobdb.Decision) error) ([]any, error) {
	return nil, nil
}

// TestSummaryAge: what takes long to count is kept for longer.
func TestSummaryAge(t *testing.T) {
	t.Parallel()
	var now, counted atomic.Int64
	s := newSmall(t, func(c *web.Config) {
		begin := time.Now()
		c.Now = func() time.Time { return begin.Add(time.Duration(now.Load()) * time.Second) }
		c.Query.Jobs = func(_ context.Context, read func(jobdb.Queries) error) error {
			return read(slowCounts{now: &now, counted: &counted})
		}
	})
	for _, step := range []struct{ after, want int64 }{{0, 1}, {39, 1}, {1, 2}} {
		now.Add(step.after)
		if resp, _ := ask(t, "GET", s.URL+"/", ""); resp.StatusCode != 200 || counted.Load() != step.want {
			t.Errorf("%d seconds later: %d, counted %d times, want %d", step.after, resp.StatusCode, counted.Load(), step.want)
		}
	}
}
