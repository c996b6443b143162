package jobdbtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
)

// within runs a transaction that is rolled back.
func within(t *testing.T, db jobdb.Store, partition int, do func(context.Context, jobdb.Tx)) {
	t.Helper()
	tx, err := db.Begin(t.Context(), partition)
	if err != nil {
		t.Fatal(err)
	}
	do(t.Context(), tx)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

// testCandidates: jobs that have ended come in the order of their ends, page by page, and
// the clock is that of the partition.
func testCandidates(t *testing.T, db Database) {
	ended := func(p int, id string, at int64) *jobdb.Job {
		j := job(p, id)
		j.State, j.Final, j.Times.Ended = jobdb.JobSucceeded, true, at
		return j
	}
	unknown := job(2, "u1")
	unknown.Known, unknown.State = false, jobdb.UnknownJob
	long := strings.Repeat("ü", 1500)
	acts := func(seq uint64, record uint32, ms int64, semantics uint32) *jobdb.Activation {
		return &jobdb.Activation{Partition: 2, Seq: seq, Record: record, HorizonMS: ms, Semantics: semantics}
	}
	within(t, db.Writer, 2, func(ctx context.Context, tx jobdb.Tx) {
		if c, err := tx.Clock(ctx); err != nil || c != (jobdb.Clock{}) {
			t.Errorf("clock of nothing: %+v, %v", c, err)
		}
	})
	commit(t, db.Writer, 2, at(0), at(1), &jobdb.Changes{
		Jobs: []*jobdb.Job{
			ended(2, "d", 10), ended(2, "a", 30), ended(2, "b", 20), ended(2, "c", 20), ended(2, "e", 31), ended(2, long, 20),
			job(2, "runs"), unknown,
		},
		Activations: []*jobdb.Activation{acts(1, 0, 500, 0), acts(1, 1, 700, 0), acts(2, 0, 0, 3)},
	})
	commit(t, db.Writer, 3, at(0), at(1), &jobdb.Changes{Jobs: []*jobdb.Job{ended(3, "f", 15), ended(3, "g", 99)}})
	within(t, db.Writer, 2, func(ctx context.Context, tx jobdb.Tx) {
		if c, err := tx.Clock(ctx); err != nil || c != (jobdb.Clock{LastEnd: 31, HorizonMS: 700}) {
			t.Errorf("clock %+v, %v", c, err)
		}
		which := jobdb.Candidates{EndedBy: 30, Limit: 2}
		var got []string
		for {
			jobs, err := tx.Candidates(ctx, which)
			if err != nil {
				t.Fatal(err)
			}
			if len(jobs) == 0 {
				break
			}
			for _, j := range jobs {
				got = append(got, j.JobID)
				which.AfterEnd, which.AfterJob = j.Times.Ended, j.JobID
			}
		}
		equal(t, "candidates", []string{"d", "b", "c", long, "a"}, got)
		jobs, err := tx.Candidates(ctx, jobdb.Candidates{Unsubmitted: true, Limit: 9})
		if err != nil || len(jobs) != 1 || jobs[0].JobID != "u1" {
			t.Errorf("unsubmitted: %+v, %v", jobs, err)
		}
		jobs, err = tx.Candidates(ctx, jobdb.Candidates{Unsubmitted: true, AfterJob: "u1", Limit: 9})
		if err != nil || len(jobs) != 0 {
			t.Errorf("unsubmitted after the last: %+v, %v", jobs, err)
		}
	})
}

// testGroups: the members of a group are candidates together, and what is stored about it
// goes with the last one.
func testGroups(t *testing.T, db Database) {
	member := func(id, group string, ended int64) *jobdb.Job {
		j := job(0, id)
		j.Times.Ended, j.Member.GroupID = ended, group
		return j
	}
	commit(t, db.Writer, 0, at(0), at(1), &jobdb.Changes{
		Jobs: []*jobdb.Job{
			member("alone", "", 10), member("over1", "over", 10), member("over2", "over", 20), member("runs1", "runs", 10),
			member("runs2", "runs", 0), member("late1", "late", 10), member("late2", "late", 30),
		},
		Groups:       []*jobdb.Group{{ID: "over"}, {ID: "late"}},
		Units:        []*jobdb.Unit{{ID: "over/0/main", GroupID: "over"}, {ID: "late/0/main", GroupID: "late"}},
		GroupRecords: []*jobdb.GroupRecord{{Where: jobdb.Where{Seq: 1}, GroupID: "over", JobID: "over1"}, {Where: jobdb.Where{Seq: 2}, GroupID: "over"}, {Where: jobdb.Where{Seq: 3}, GroupID: "late"}},
	})
	within(t, db.Writer, 0, func(ctx context.Context, tx jobdb.Tx) {
		jobs, err := tx.Candidates(ctx, jobdb.Candidates{EndedBy: 20, Limit: 9})
		var got []string
		for i := range jobs {
			got = append(got, jobs[i].JobID)
		}
		equal(t, "candidates", []string{"alone", "over1", "over2"}, got)
		if err != nil {
			t.Error(err)
		}
	})
	tx, err := db.Writer.Begin(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := tx.Delete(t.Context(), []string{"alone", "over1", "over2", "late1"}, []string{"late", "over"})
	if err == nil {
		err = tx.Commit(t.Context(), at(1), at(2))
	}
	if err != nil || n != 4+1+3 {
		t.Errorf("deleted %d rows, %v", n, err)
	}
	left := contents(t, db.Reader, 0)
	if len(left.Groups) != 1 || left.Groups[0].ID != "late" || len(left.Units) != 1 || len(left.GroupRecords) != 1 || left.GroupRecords[0].GroupID != "late" {
		t.Errorf("left: %+v", left.Changes)
	}
}

// testDelete: everything about the jobs of one partition goes, and nothing else.
func testDelete(t *testing.T, db Database) {
	contentsOf := func(p int) (c jobdb.Changes) {
		for i := range 200 {
			id := fmt.Sprintf("j%03d", i)
			c.Jobs = append(c.Jobs, job(p, id))
			c.Runs = append(c.Runs, run(p, id, "r1", 0), run(p, id, "r2", 1))
			where := jobdb.Where{Partition: p, Seq: uint64(i), Record: 1}
			c.Decisions = append(c.Decisions, &jobdb.Decision{Where: where, Decision: chain.Decision{Number: uint64(i + 1), JobID: id, RunID: "r1"}})
			c.NotDecided = append(c.NotDecided, &jobdb.NotDecided{Where: where, NotDecided: chain.NotDecided{JobID: id, RunID: "r2"}})
			c.Ready = append(c.Ready, &jobdb.Ready{Where: where, RetryReady: chain.RetryReady{JobID: id, RunID: "r1"}})
			c.Parked = append(c.Parked, &jobdb.Parked{Where: where})
		}
		return c
	}
	for p := range 2 {
		c := contentsOf(p)
		commit(t, db.Writer, p, at(0), at(1), &c)
	}
	gone := map[string]bool{"not there": true}
	ids := []string{"not there"}
	for i := 0; i < 200; i += 2 {
		id := fmt.Sprintf("j%03d", i)
		ids, gone[id] = append(ids, id), true
	}
	tx, err := db.Writer.Begin(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	to := at(1)
	to.Pruned = jobdb.Pruned{Jobs: 100, Through: at(1).Events, Ended: 77, When: 88}
	n, err := tx.Delete(t.Context(), ids, nil)
	if err == nil {
		err = tx.Commit(t.Context(), at(1), to)
	}
	if err != nil || n != 100*6 {
		t.Fatalf("deleted %d rows, %v", n, err)
	}
	other, left := contents(t, db.Reader, 0), contents(t, db.Reader, 1)
	if other.Rows() != 1400 || left.Rows() != 800 || len(left.Parked) != 200 {
		t.Errorf("%d rows in the other partition, %d in this one", other.Rows(), left.Rows())
	}
	for _, d := range left.Decisions {
		if gone[d.JobID] {
			t.Errorf("decision on %s is still there", d.JobID)
		}
	}
	equal(t, "positions", to, left.Positions)
}

// testPrunedElsewhere: pruning moves the position, so another writer notices.
func testPrunedElsewhere(t *testing.T, db Database) {
	commit(t, db.Writer, 0, at(0), at(1), &jobdb.Changes{Jobs: []*jobdb.Job{job(0, "a")}})
	to := at(1)
	to.Pruned.Jobs = 1
	commit(t, db.Other, 0, at(1), to, &jobdb.Changes{})
	if err := try(db.Writer, 0, at(1), at(2), &jobdb.Changes{}); !errors.Is(err, jobdb.ErrMoved) {
		t.Errorf("a writer that has not noticed: %v, want ErrMoved", err)
	}
}
