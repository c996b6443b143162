package postgres

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// TestMigrateLists: a database from before the indexes of lists keeps its rows, and its lists are in order.
func TestMigrateLists(t *testing.T) {
	t.Parallel()
	ctx, at := t.Context(), pgtest.Database(t)
	old, err := pgx.Connect(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close(ctx)
	const before = 12 // the version of the schema
	for _, query := range migrations[:before] {
		if _, err := old.Exec(ctx, query); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := old.Exec(ctx, "UPDATE refloat_schema SET version = $1", before); err != nil {
		t.Fatal(err)
	}
	var jobs []*jobdb.Job
	for i, submitted := range []int64{5, 9, 7} {
		jobs = append(jobs, &jobdb.Job{JobID: fmt.Sprint(i), Queue: "q", Known: true, Times: jobdb.JobTimes{Submitted: submitted}})
	}
	oldJobs := without(table.Jobs, 2) // requests and retry came later
	columns, _ := arrays(&oldJobs, jobs, limit)
	if _, err := old.Exec(ctx, insert(&oldJobs, columns), args(columns)...); err != nil {
		t.Fatal(err)
	}
	var runs []*jobdb.Run
	var decisions []*jobdb.Decision
	for i := range 3 {
		d := &jobdb.Decision{Where: jobdb.Where{Partition: i}, Acted: true}
		d.JobID, d.RunID, d.Queue, d.Policy, d.Time, d.Requeue = fmt.Sprint(i), "run", "q", "p", 1e18+int64(i), i == 1
		decisions = append(decisions, d)
		runs = append(runs, &jobdb.Run{Partition: i, JobID: fmt.Sprint(i), RunID: "run", Node: "leased", Error: jobdb.RunError{Node: fmt.Sprint("node", i), Category: []string{"oom", "", "oom"}[i]}})
	}
	columns, _ = arrays(&table.Runs, runs, limit)
	if _, err := old.Exec(ctx, insert(&table.Runs, columns), args(columns)...); err != nil {
		t.Fatal(err)
	}
	then := without(table.Decisions, 1) // budget came later
	columns, _ = arrays(&then, decisions, limit)
	if _, err := old.Exec(ctx, insert(&then, columns), args(columns)...); err != nil {
		t.Fatal(err)
	}
	const counts, last = 18, 20 // what was pruned before counts is still in the counts of hours; and before all rows were counted again
	for _, query := range slices.Concat(migrations[before:counts], []string{"DELETE FROM refloat_decisions WHERE partition = 2"}, migrations[counts:last], []string{
		"UPDATE refloat_counts SET n = 7", "INSERT INTO refloat_counts VALUES (8, '', '', 'oom', 277752, 'p', '', 0, 4, 0, 1, 1)", fmt.Sprintf("UPDATE refloat_schema SET version = %d", last),
	}) {
		if _, err := old.Exec(ctx, query); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenReader(ctx, at); !errors.Is(err, jobdb.ErrOlder) {
		t.Errorf("a reader opened it as it is: %v, want ErrOlder", err)
	}
	db, err := Open(ctx, at, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := OpenReader(ctx, at)
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
	var found int
	if err := old.QueryRow(ctx, "SELECT count(*) FROM pg_indexes WHERE indexname IN ('refloat_jobs_submitted', 'refloat_jobs_queue', 'refloat_jobs_over', 'refloat_runs_leased', 'refloat_decisions_rule')").Scan(&found); err != nil || found != 5 {
		t.Errorf("%d of 5 indexes: %v", found, err)
	}
	if err := old.QueryRow(ctx, "SELECT count(*) FROM pg_indexes WHERE tablename = 'refloat_decisions' AND indexdef LIKE '%number)'").Scan(&found); err != nil || found != 2 {
		t.Errorf("%d indexes of decisions have their numbers, want those of the key and the time: %v", found, err)
	}
}

// TestMigrateBesideWriter: what an older ingester writes while the tables are migrated is counted too, since the migration waits for it.
func TestMigrateBesideWriter(t *testing.T) {
	t.Parallel()
	ctx, at := t.Context(), pgtest.Database(t)
	old, err := pgx.Connect(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close(ctx)
	const last = 18 // before counts
	row := &jobdb.PartitionPositions{Positions: jobdb.Beginning}
	positions, _ := arrays(&table.Positions, []*jobdb.PartitionPositions{row}, 1)
	d := &jobdb.Decision{Acted: true}
	d.Queue, d.Time = "q", 1e18
	decision, _ := arrays(&table.Decisions, []*jobdb.Decision{d}, limit)
	for _, query := range append(slices.Clone(migrations[:last]), fmt.Sprintf("UPDATE refloat_schema SET version = %d", last)) {
		if _, err := old.Exec(ctx, query); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := old.Exec(ctx, insert(&table.Positions, positions), args(positions)...); err != nil {
		t.Fatal(err)
	}
	tx, err := old.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "SELECT version FROM refloat_schema, refloat_positions FOR UPDATE OF refloat_positions"); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	var db *DB
	go func() {
		var err error
		db, err = Open(ctx, at, Options{})
		opened <- err
	}()
	watch, err := pgx.Connect(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close(ctx)
	for waits := false; !waits; {
		select {
		case err := <-opened:
			t.Fatalf("it is migrated while an older ingester writes: %v", err)
		default:
		}
		if err := watch.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'refloat_positions'::regclass AND NOT granted)").Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.Exec(ctx, insert(&table.Decisions, decision), args(decision)...); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int64
	if err := watch.QueryRow(ctx, "SELECT coalesce(sum(n), 0)::bigint FROM refloat_counts WHERE of = 0").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d decisions are counted, want 1: %v", n, err)
	}
}

// without returns a table as it was before its last columns.
func without[T any](t table.Of[T], last int) table.Of[T] {
	now := t.Fields
	t.Columns = t.Columns[:len(t.Columns)-last]
	t.Fields = func(row *T, v []any) []any {
		v = now(row, v)
		return v[:len(v)-last]
	}
	return t
}
