package main

import (
	"context"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/query"
)

// holding answers with what a breaker held.
type holding struct {
	query.Answers
	decisions []audit.Decision
	jobs      []query.Job
}

func (h *holding) ListDecisions(_ context.Context, _ *query.List, visit func(*audit.Decision) error) (string, error) {
	for i := range h.decisions {
		if err := visit(&h.decisions[i]); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (h *holding) ListJobs(_ context.Context, _ *query.List, visit func(*query.Job) error) (string, error) {
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
	b := breakerLine{Category: "pull", override: &policylog.Override{Override: policyfile.Override{Category: "pull", HeldUntil: until.UnixNano()}}}
	from := &holding{
		decisions: []audit.Decision{{JobID: "a"}, {JobID: "b"}, {JobID: "b"}, {JobID: "c"}, {JobID: "d"}, {JobID: "e", Superseded: true}, {JobID: "f", Shadow: true}},
		jobs: []query.Job{
			{JobID: "a", RetryAfter: until.Format(time.RFC3339Nano)},
			{JobID: "b", RetryAfter: until.Add(time.Minute).Format(time.RFC3339Nano)},
			{JobID: "c", RetryAfter: until.Add(-time.Minute).Format(time.RFC3339Nano)},
		},
	}
	if err := b.count(t.Context(), from); err != nil || *b.breakerCounts != (breakerCounts{"half-open", 2, 2, 1}) {
		t.Errorf("%+v, %v", b.breakerCounts, err)
	}
	b = breakerLine{Category: "pull", Subcategory: "x"}
	if err := b.count(t.Context(), from); err != nil || b.breakerCounts != nil {
		t.Errorf("of a subcategory: %+v, %v", b.breakerCounts, err)
	}
}
