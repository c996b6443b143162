package postgres

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
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

// explained is a Source that explains each query before it runs it.
type explained struct {
	source
	plans []string // with the query in the first line
	sorts []bool   // whether the query sorts what an index finds, or what is in a window
}

// Find implements table.Source.
func (e *explained) Find(q table.Query, fields func() []any, found func() error) error {
	query := numbered(q.SQL("refloat_", ""))
	b, lines := &pgx.Batch{}, []string(nil)
	if q.Index {
		onlyIndexes(b, "off")
	}
	b.Queue("EXPLAIN "+query, keys(q.Args)...).Query(func(steps pgx.Rows) (err error) {
		lines, err = pgx.CollectRows(steps, pgx.RowTo[string])
		return err
	})
	if err := e.tx.SendBatch(e.ctx, b).Close(); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	if q.Index && !strings.Contains(strings.Join(lines, "\n"), "Index") {
		return fmt.Errorf("%s: no index: %s", query, lines)
	}
	e.plans, e.sorts = append(e.plans, query+"\n"+strings.Join(lines, "\n")), append(e.sorts, jobdbtest.Sorts(&q) || q.Of != nil)
	return e.source.Find(q, fields, found)
}

// sorted finds how many rows a plan sorts, as PostgreSQL estimates it.
var sorted = regexp.MustCompile(`-> {2}Sort .* rows=(\d+)`)

// TestListsByIndex: in every order and with every filter, a list finds its rows by an index. It reads a whole table, or sorts most
// of it, only if there is no limit, or if most rows pass the filter.
func TestListsByIndex(t *testing.T) {
	t.Parallel()
	const decisions = 20_000
	ctx, at := t.Context(), pgtest.Database(t)
	db, err := Open(ctx, at, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	jobdbtest.Fill(t, db, decisions)
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "VACUUM ANALYZE"); err != nil { // as autovacuum does
		t.Fatal(err)
	}
	tx, err := db.BeginPlain(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)                                                   //nolint:errcheck // nothing is to stay
	if _, err := tx.Exec(ctx, "SET LOCAL enable_seqscan = on"); err != nil { // as readers have it
		t.Fatal(err)
	}
	plans := 0
	for _, p := range jobdbtest.Plans(t, decisions) {
		first := jobdbtest.Lists[p.List][0]
		if p.Page.Limit == 0 || p.Page.After != nil && len(p.Filters) > 0 || slices.ContainsFunc(p.Filters, func(f jobdbtest.Filter) bool { return f.MostPass() }) ||
			len(p.Filters) > 1 && (p.Page.Sort != first || !p.Page.Descending) {
			continue
		}
		e := &explained{source: source{ctx: ctx, address: db.address, tx: tx}}
		if _, _, err := jobdbtest.List(table.Queries{Source: e}, p.List, &p.Criteria, p.Page); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		for i, plan := range e.plans {
			plans++
			rows := 0
			if m := sorted.FindStringSubmatch(plan); m != nil {
				rows, _ = strconv.Atoi(m[1])
			}
			// Of a share of a small table, reading it all is cheaper than an index.
			dense := e.sorts[i] && slices.ContainsFunc(p.Filters, func(f jobdbtest.Filter) bool { return f.Value != "sparse" && f.Value != "one" })
			if strings.Contains(plan, "Seq Scan") && p.List != "groups" && !dense || rows > decisions/20 && !e.sorts[i] { // groups are few
				t.Errorf("%s: query %d of %d: %s", p.Name, i+1, len(e.plans), plan)
			}
		}
	}
	t.Logf("%d queries", plans)
	if _, err := tx.Exec(ctx, `INSERT INTO refloat_group_records SELECT 1, n, 0, 1, n, -1, '', false, true, 'MemberHeld', 'g' || n % 500, 'j' || n, '', NULL, ''
FROM generate_series(1, 20000) AS n; ANALYZE refloat_group_records; SET LOCAL enable_seqscan = off`); err != nil { // of units there are few rows
		t.Fatal(err)
	}
	byGroup := regexp.MustCompile(`Index Cond: .*(group_id|seq) =`)
	e := &explained{source: source{ctx: ctx, address: db.address, tx: tx}}
	for _, q := range jobdbtest.OfGroup(t) {
		if err := e.Find(q, func() []any { return nil }, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for _, plan := range e.plans {
		if !byGroup.MatchString(plan) {
			t.Error(plan)
		}
	}
}

// TestPages: the pages of a list have the rows of the list, also where a page finds them behind its window.
func TestPages(t *testing.T) {
	t.Parallel()
	const decisions = 11_000 // a half of them is more than a window
	at := pgtest.Database(t)
	db, err := Open(t.Context(), at, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	jobdbtest.Fill(t, db, decisions)
	reader, err := OpenReader(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	jobdbtest.Pages(t, reader, decisions, "Queue", "JobSet", "Node", "Rule", "Until")
}

// TestNames: names are found, each by a look into an index.
func TestNames(t *testing.T) {
	t.Parallel()
	ctx, at := t.Context(), pgtest.Database(t)
	db, err := Open(ctx, at, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	jobdbtest.Names(t, db, func() jobdb.Reader {
		reader, err := OpenReader(ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		return reader
	})
	tx, err := db.BeginPlain(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)                                                                                                                           //nolint:errcheck // nothing is to stay
	if _, err := tx.Exec(ctx, "ANALYZE refloat_jobs, refloat_runs, refloat_decisions, refloat_groups; SET LOCAL enable_seqscan = off"); err != nil { // the tables are small
		t.Fatal(err)
	}
	for _, q := range jobdbtest.NamesAsked(t) {
		query := numbered(q.SQL("refloat_", ""))
		steps, err := tx.Query(ctx, "EXPLAIN (ANALYZE, TIMING OFF) "+query, keys(q.Args)...) // only what runs shows all of such a plan
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(steps, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if plan := strings.Join(lines, "\n"); strings.Count(plan, "Index Cond: (") < 2 || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Sort") {
			t.Errorf("%s\n%s", query, plan)
		}
	}
}
