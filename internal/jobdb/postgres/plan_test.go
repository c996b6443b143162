package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// TestLookupsByIndex: a writer's lookups use an index, even if the plan is made while
// the tables are small.
func TestLookupsByIndex(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db, err := Open(ctx, pgtest.Database(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	begun, err := db.Begin(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer begun.Rollback() //nolint:errcheck // nothing is to stay
	tx := begun.(*Tx)
	if err := tx.Write(ctx, &jobdb.Changes{Jobs: []*jobdb.Job{{JobID: "a"}}, Runs: []*jobdb.Run{{JobID: "a", RunID: "b"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.tx.Exec(ctx, "ANALYZE refloat_jobs, refloat_runs; SET LOCAL plan_cache_mode = force_generic_plan"); err != nil {
		t.Fatal(err)
	}
	b, found, one := &pgx.Batch{}, &jobdb.Found{}, []string{"a"}
	lookup(b, &table.Jobs, &found.Jobs, byIDs, 0, one)
	join(b, &table.Jobs, &found.Jobs, ofSets, 0, one, one)
	join(b, &table.Runs, &found.Runs, byRunIDs, 0, one, one)
	lookup(b, &table.Runs, &found.Runs, openRuns, 0, one)
	for _, q := range b.QueuedQueries {
		rows, err := tx.tx.Query(ctx, "EXPLAIN "+q.SQL, q.Arguments...)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if plan := strings.Join(lines, "\n"); strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "Index") || !strings.Contains(plan, "Index Cond: (") {
			t.Errorf("%s:\n%s", q.SQL, plan)
		}
	}
}
