package web_test

import (
	"context"
	"runtime"
	"strings"
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

func (slowCounts) Names(string, string, int) ([]string, bool, error) { return nil, false, nil }

// TestSlowCounts: counting may take longer than making a page. The page is there without counts, and with them when they have
// been made, once for all; when the page ends, counting does.
func TestSlowCounts(t *testing.T) {
	t.Parallel()
	var begun, ended atomic.Int64
	release := make(chan struct{})
	s := newSmall(t, func(c *web.Config) {
		c.Query.Jobs = func(ctx context.Context, read func(jobdb.Queries) error) error {
			return read(endlessCounts{ctx: ctx, begun: &begun, ended: &ended, release: release})
		}
	})
	for range 2 {
		if resp, body := ask(t, "GET", s.URL+"/", ""); resp.StatusCode != 200 || !strings.Contains(body, "Still counting") || !strings.Contains(body, "No decision yet") {
			t.Errorf("while it is counted: %d %s", resp.StatusCode, text(body))
		}
	}
	if n := begun.Load(); n != 1 {
		t.Errorf("counted %d times at once", n)
	}
	release <- struct{}{}
	for ended.Load() == 0 {
		runtime.Gosched()
	}
	resp, body := ask(t, "GET", s.URL+"/", "")
	if resp.StatusCode != 200 || strings.Contains(body, "Still counting") || !strings.Contains(body, "retried") {
		t.Errorf("after it was counted: %d %s", resp.StatusCode, text(body))
	}
	if n := begun.Load(); n != 1 {
		t.Errorf("counted %d times, want once", n)
	}
	s.pass.Add(int64(time.Hour))
	if resp, body := ask(t, "GET", s.URL+"/", ""); resp.StatusCode != 200 || !strings.Contains(body, "Counted at") || !strings.Contains(body, "retried") {
		t.Errorf("while it is counted again: %d %s", resp.StatusCode, text(body))
	}
	if err := s.site.Close(); err != nil || ended.Load() != 2 {
		t.Errorf("Close: %v; %d counts have ended, want 2", err, ended.Load())
	}
}

// endlessCounts is a job database without rows, of which Summary waits to be released.
type endlessCounts struct {
	slowCounts
	ctx          context.Context
	begun, ended *atomic.Int64
	release      chan struct{}
}

func (q endlessCounts) Summary() (*jobdb.Summary, error) {
	q.begun.Add(1)
	defer q.ended.Add(1)
	select {
	case <-q.release:
		return &jobdb.Summary{}, nil
	case <-q.ctx.Done():
		return nil, q.ctx.Err()
	}
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
