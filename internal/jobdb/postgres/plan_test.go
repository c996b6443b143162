package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/jobdbtest"
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

// sorts finds how many rows a plan sorts, as PostgreSQL estimates it.
var sorts = regexp.MustCompile(`-> {2}Sort .* rows=(\d+)`)

// TestListsByIndex: no list that is often asked for reads or sorts a whole table. (Rows that an index has at one place of
// the order may be sorted among themselves, and so may the few that an index finds.)
func TestListsByIndex(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
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
	c := &jobdb.Changes{}
	const rows = 20_000
	for i := range rows {
		at, job, queue := int64(i+1), fmt.Sprintf("job%06d", i), fmt.Sprint("q", i%20)
		j := &jobdb.Job{JobID: job, Queue: queue, JobSet: fmt.Sprint("s", i%500), Known: true, State: jobdb.JobState(1 + i%8), Times: jobdb.JobTimes{Submitted: at}}
		if i%20 > 0 {
			j.Times.Ended = at
		}
		if i%100 == 0 {
			j.State, j.Queueing.RetryAfter = jobdb.JobQueued, at
		}
		c.Jobs = append(c.Jobs, j)
		c.Runs = append(c.Runs, &jobdb.Run{JobID: job, RunID: "r" + job, State: jobdb.RunFailed, Node: fmt.Sprint("n", i%20), Times: jobdb.RunTimes{Leased: at}})
		d := chain.Decision{Number: uint64(i + 1), JobID: job, Queue: queue, Time: at, Policy: "infra", Rule: []string{"oom", "gpu", "disk"}[i%3], Code: policy.Code(1 + i%3)}
		c.Decisions = append(c.Decisions, &jobdb.Decision{Decision: d})
		if i%10 == 0 {
			c.Groups = append(c.Groups, &jobdb.Group{ID: job, Queue: queue, JobSet: j.JobSet, Name: job})
		}
	}
	if err := tx.Write(ctx, c); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.tx.Exec(ctx, "ANALYZE refloat_jobs, refloat_runs, refloat_decisions, refloat_groups"); err != nil {
		t.Fatal(err)
	}
	for name, queries := range jobdbtest.Lists(t) {
		for _, q := range queries {
			query := numbered(q.SQL("refloat_"))
			steps, err := tx.tx.Query(ctx, "EXPLAIN "+query, q.Args...)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			lines, err := pgx.CollectRows(steps, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			plan, sorted := strings.Join(lines, "\n"), 0
			if m := sorts.FindStringSubmatch(plan); m != nil {
				sorted, _ = strconv.Atoi(m[1])
			}
			if strings.Contains(plan, "Seq Scan") || sorted > rows/20 {
				t.Errorf("%s: %s\n%s", name, query, plan)
			}
		}
	}
}
