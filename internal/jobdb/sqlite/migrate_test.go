package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// TestMigrateReleases: a database from before releases keeps its rows; its events
// position is that of its chain, and nothing in it is superseded.
func TestMigrateReleases(t *testing.T) {
	t.Parallel()
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "jobs.db")
	old, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		migrations[0],
		fmt.Sprintf("PRAGMA application_id = %d; UPDATE refloat_schema SET version = 1", applicationID),
		"INSERT INTO positions VALUES (3, 7, zeroblob(32), 2, zeroblob(16), 10, 11, -1, 20, 21, -1)",
		"INSERT INTO parked VALUES (3, 5, 0, 10, 9, -1, '', 10, 9, -1, 1, 1, x'726177')",
		"INSERT INTO ready VALUES (3, 6, 0, 10, 9, -1, '', 1, 10, 9, -1, 'j', 'r', 50)",
	} {
		if _, err := old.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(ctx, path); !errors.Is(err, jobdb.ErrOlder) {
		t.Errorf("a reader opened it as it is: %v, want ErrOlder", err)
	}

	db, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := OpenReader(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got *jobdb.Contents
	if err := r.View(ctx, func(q jobdb.Queries) (err error) { got, err = q.Contents(3); return err }); err != nil {
		t.Fatal(err)
	}
	at := func(ledger, entry int64) eventlog.Position {
		return eventlog.Position{Ledger: ledger, Entry: entry, Batch: -1}
	}
	positions := jobdb.Positions{Chain: chain.End{Seq: 7, Epoch: 2, InTo: at(10, 11)}, Decisions: at(20, 21), Events: at(10, 11)}
	if got.Positions != positions {
		t.Errorf("positions %+v, want %+v", got.Positions, positions)
	}
	where := jobdb.Where{Partition: 3, Seq: 6, Log: at(10, 9)}
	if len(got.Parked) != 1 || len(got.Ready) != 1 || !reflect.DeepEqual(got.Ready[0].Where, where) || !got.Ready[0].Acted {
		t.Errorf("rows %+v, %+v", got.Parked, got.Ready)
	}

	tx, err := db.Begin(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // committed below
	next := positions
	next.Events = at(10, 12)
	release := &jobdb.Release{Partition: 3, Seq: 7, From: positions.Events, To: next.Events, Messages: 1, When: 5}
	if err := tx.Write(ctx, &jobdb.Changes{Releases: []*jobdb.Release{release}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx, positions, next); err != nil {
		t.Fatal(err)
	}
}

// TestMigrateLists: a database from before the indexes of lists keeps its rows, and its lists are in order.
func TestMigrateLists(t *testing.T) {
	t.Parallel()
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "jobs.db")
	old, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range append(slices.Clone(migrations[:10]), fmt.Sprintf("PRAGMA application_id = %d; UPDATE refloat_schema SET version = 10", applicationID)) {
		if _, err := old.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	for i, submitted := range []int64{5, 9, 7} {
		j := &jobdb.Job{JobID: fmt.Sprint(i), Queue: "q", Known: true, Times: jobdb.JobTimes{Submitted: submitted}}
		args := table.Jobs.Fields(j, nil)
		for i := range args {
			args[i] = table.Plain(args[i])
		}
		jobs := table.Jobs
		jobs.Columns = jobs.Columns[:len(jobs.Columns)-2] // requests and retry came later
		if _, err := old.Exec(insert(&jobs, 1), args[:len(args)-2]...); err != nil {
			t.Fatal(err)
		}
		d := &jobdb.Decision{Where: jobdb.Where{Partition: i}, Acted: true}
		d.JobID, d.RunID, d.Queue, d.Policy, d.Time, d.Requeue = fmt.Sprint(i), "run", "q", "p", 1e18+int64(i), i == 1
		args = table.Decisions.Fields(d, nil)
		for i := range args {
			args[i] = table.Plain(args[i])
		}
		decisions := table.Decisions
		decisions.Columns = decisions.Columns[:len(decisions.Columns)-1] // budget came later
		if _, err := old.Exec(insert(&decisions, 1), args[:len(args)-1]...); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		r := &jobdb.Run{Partition: i, JobID: fmt.Sprint(i), RunID: "run", Node: "leased", Error: jobdb.RunError{Node: fmt.Sprint("node", i), Category: []string{"oom", "", "oom"}[i]}}
		args := table.Runs.Fields(r, nil)
		for i := range args {
			args[i] = table.Plain(args[i])
		}
		if _, err := old.Exec(insert(&table.Runs, 1), args...); err != nil {
			t.Fatal(err)
		}
	}
	const before, last = 15, 17 // counts; what was pruned before is still in the counts of hours; and before all rows were counted again
	for _, query := range slices.Concat(migrations[10:before], []string{"DELETE FROM decisions WHERE partition = 2"}, migrations[before:last], []string{
		"UPDATE counts SET n = 7", "INSERT INTO counts VALUES (8, '', '', 277752, 'oom', 'p', '', 0, 4, 0, 1, 1)", fmt.Sprintf("UPDATE refloat_schema SET version = %d", last),
	}) {
		if _, err := old.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := OpenReader(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.View(ctx, func(q jobdb.Queries) error {
		for _, f := range []jobdb.HourFilter{{}, {Queue: "q"}, {Policy: "p"}} {
			got, err := q.Hours(f)
			want := []jobdb.HourCount{{Hour: 277_777, Requeue: true, Acted: true, Count: 1}, {Hour: 277_777, Acted: true, Count: 2}}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%+v: the old decisions: %+v, want %+v: %v", f, got, want, err)
			}
		}
		counts, err := q.CountDecisions(&jobdb.Criteria{Queue: "q"})
		if want := []jobdb.DecisionCount{{Requeue: true, Acted: true, Policy: "p", Count: 1}, {Acted: true, Policy: "p", Count: 1}}; err != nil || !slices.Equal(counts, want) {
			t.Errorf("the old decisions that were not pruned: %+v, want %+v: %v", counts, want, err)
		}
		for by, want := range map[string][]jobdb.Top{
			"node": {{Key: "node1", Retries: 1}, {Key: "node0", Failures: 1}}, "category": {{Key: "", Retries: 1}, {Key: "oom", Failures: 1}},
		} {
			if top, err := q.Top(by, &jobdb.Criteria{}, 0, false); err != nil || !slices.Equal(top, want) {
				t.Errorf("the old decisions by %s: %+v, want %+v: %v", by, top, want, err)
			}
		}
		for partition := range 3 {
			rows, err := q.Contents(partition)
			if err != nil || rows.Miscounted != nil {
				t.Errorf("kept counts of partition %d: %+v, %v", partition, rows.Miscounted, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ids := ""
	if err := r.View(ctx, func(q jobdb.Queries) error {
		_, err := q.JobList(&jobdb.Criteria{Queue: "q"}, jobdb.Page{Sort: "submitted", Descending: true, Limit: 9}, func(j *jobdb.Job) error { ids += j.JobID; return nil })
		return err
	}); err != nil || ids != "120" {
		t.Errorf("jobs %q, want 120: %v", ids, err)
	}
}
