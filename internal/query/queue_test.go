package query_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

// TestQueueOfMany: the story of a queue counts all of its decisions, and the causes of the newest 500, and says so.
func TestQueueOfMany(t *testing.T) {
	t.Parallel()
	const many = 2_020
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	changes := &jobdb.Changes{}
	for i := range many {
		id := fmt.Sprintf("job%05d", i)
		d := &jobdb.Decision{
			Where: jobdb.Where{Seq: 1, Record: uint32(i)}, Acted: true,
			Decision: chain.Decision{Number: uint64(i + 1), Queue: "q", JobSet: "s", JobID: id, RunID: "r" + id, Time: int64(i + 1), Code: policy.RuleFail, Policy: "p", Rule: "r"},
		}
		d.Superseded, d.Acted = i%100 == 0, i%100 != 0
		changes.Decisions = append(changes.Decisions, d)
		changes.Jobs = append(changes.Jobs, &jobdb.Job{JobID: id, Queue: "q", JobSet: "s", Known: true, State: jobdb.JobFailed, Final: true, Times: jobdb.JobTimes{Ended: int64(i + 1)}})
		changes.Runs = append(changes.Runs, &jobdb.Run{JobID: id, RunID: d.RunID, State: jobdb.RunFailed, Decision: d.Number})
	}
	tx, err := db.Begin(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	from := tx.Positions()
	to := from
	to.Chain.Seq, to.Chain.InTo = 1, eventlog.Position{Ledger: 1, Entry: 1}
	if err := tx.Write(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context(), from, to); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := sqlite.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	s, err := (&query.Source{Jobs: reader.View}).QueueStory(t.Context(), query.QueueQuestion{Queue: "q", Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	newest, err := (&query.Source{Jobs: reader.View}).QueueStory(t.Context(), query.QueueQuestion{Queue: "q", Since: 2001, Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintln(newest.Decisions, newest.CausesOf, newest.Failed.Count, len(newest.Failed.Jobs), newest.Since), "20 20 20 3 1970-01-01T00:00:00.000002001Z\n"; got != want {
		t.Errorf("since the last 20: %s, want %s", got, want)
	}
	got := fmt.Sprintf("%d %d %d %d %v %v %v%s, %d %d %s", s.Decisions, s.Retries, s.Failures, s.WithoutEffect, s.Codes, s.Rules, s.Causes, s.NewestCauses(), s.Failed.Count, len(s.Failed.Jobs), s.Failed.Jobs[0].JobID)
	if want := "2020 0 1999 21 [{RuleFail 2020}] [{p/r 2020}] [{unknown 500}] of the newest 500, 2020 3 job02019"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
