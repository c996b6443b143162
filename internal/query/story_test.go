package query_test

import (
	"testing"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
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

// TestStoppedRuns: runs that their group told to stop, and whose end nobody reported, did not end with the job.
func TestStoppedRuns(t *testing.T) {
	t.Parallel()
	const second = int64(1e9)
	cancelled := func(id string, index uint32, leased, ended int64) *jobdb.Run {
		return &jobdb.Run{RunID: id, Index: index, State: jobdb.RunCancelled, Flags: jobdb.RunFlags{Cancelled: true}, Times: jobdb.RunTimes{Leased: leased * second, Ended: ended * second}}
	}
	failed := &jobdb.Run{RunID: "failed", Index: 1, State: jobdb.RunFailed, Times: jobdb.RunTimes{Leased: 20 * second, Ended: 25 * second}}
	open := &jobdb.Run{RunID: "open", Index: 2, State: jobdb.RunRunning, Times: jobdb.RunTimes{Leased: 30 * second}}
	h := query.History{
		Job:  &jobdb.Job{JobID: "j", State: jobdb.JobCancelled, Final: true, Times: jobdb.JobTimes{Ended: 100 * second}},
		Runs: []*jobdb.Run{cancelled("stopped", 0, 10, 0), failed, open, cancelled("last", 3, 60, 100)},
	}
	s, err := h.Story()
	if err != nil {
		t.Fatal(err)
	}
	const stopped = "told to stop; its end was not reported"
	var runs []jobdb.Run
	for i, want := range []struct{ ended, cause string }{{"", stopped}, {"1970-01-01T00:00:25Z", ""}, {"", stopped}, {"1970-01-01T00:01:40Z", ""}} {
		if got := s.Runs[i]; got.Ended != want.ended || got.Cause != want.cause {
			t.Errorf("run %s ended %q (%s), want %q (%s)", got.RunID, got.Ended, got.Cause, want.ended, want.cause)
		}
		runs = append(runs, *h.Runs[i])
	}
	for i, a := range query.JobOf(h.Job, runs).Attempts {
		if a.Ended != s.Runs[i].Ended {
			t.Errorf("run %s ended %q, in the story %q", a.RunID, a.Ended, s.Runs[i].Ended)
		}
	}
}
