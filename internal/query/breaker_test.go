package query

import (
	"context"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// holding answers with what a breaker held.
type holding struct {
	Answers
	decisions []audit.Decision
	jobs      []Job
}

func (h *holding) ListDecisions(_ context.Context, _ *List, visit func(*audit.Decision) error) (string, error) {
	for i := range h.decisions {
		if err := visit(&h.decisions[i]); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (h *holding) ListJobs(_ context.Context, _ *List, visit func(*Job) error) (string, error) {
	for i := range h.jobs {
		if err := visit(&h.jobs[i]); err != nil {
			return "", err
		}
	}
	return "", nil
}

// TestBreakerCounts: two wait, one of them again after it failed; of those that wait no more, one was ordered to start, and one runs.
func TestBreakerCounts(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 12, 1, 7, 0, 0, 0, time.UTC)
	b := &policylog.Override{Override: policyfile.Override{Category: "pull", HeldUntil: until.UnixNano()}}
	from := &holding{
		decisions: []audit.Decision{{JobID: "a"}, {JobID: "b"}, {JobID: "b"}, {JobID: "c"}, {JobID: "d"}, {JobID: "e", Superseded: true}, {JobID: "f", Shadow: true}},
		jobs: []Job{
			{JobID: "a", RetryAfter: until.Format(time.RFC3339Nano)},
			{JobID: "b", RetryAfter: until.Add(time.Minute).Format(time.RFC3339Nano)},
			{JobID: "c", RetryAfter: until.Add(-time.Minute).Format(time.RFC3339Nano)},
		},
	}
	if n, err := CountBreaker(t.Context(), from, b); err != nil || n.Text() != "it is half-open: it holds 2 retries; 2 that it held have started and are not held again, 1 failed again" {
		t.Errorf("%v, %v", n, err)
	}
	b.Subcategory = "x"
	if n, err := CountBreaker(t.Context(), from, b); err != nil || n != nil {
		t.Errorf("of a subcategory: %v, %v", n, err)
	}
}
