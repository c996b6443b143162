package query_test

import (
	"testing"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/query"
)

// TestOutcomeOfWait: a retry waits until it is due, and not after.
func TestOutcomeOfWait(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	s := query.Story{
		Job:  query.Job{State: "Queued", RetryAfter: due.Format(time.RFC3339Nano)},
		Runs: []query.StoryOfRun{{Decided: &audit.Decision{Decision: "JobRequeued", RetryAfter: due.Format(time.RFC3339Nano), Reason: "why"}}},
	}
	for after, want := range map[time.Duration]string{
		-time.Nanosecond: "It waits for its next run, not before 2026-11-21T08:00:00Z: why",
		0:                "Its retry has been due since 2026-11-21T08:00:00Z, but no run was leased: why",
	} {
		if got := s.Outcome(due.Add(after)); got != want {
			t.Errorf("%v after the time: %q, want %q", after, got, want)
		}
	}
	s.Runs, s.Job.Group = nil, "g"
	if got, want := s.Outcome(due), "Its retry has been due since 2026-11-21T08:00:00Z, but no run was leased: group g starts it again."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.Job.State = "Succeeded"
	if got := s.Outcome(due); got != "" {
		t.Errorf("of a job that succeeded: %q", got)
	}
}
