package sqlite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
	"github.com/refloat/refloat/internal/test/jobdbtest"
)

// TestPruningByIndex: what prunes looks rows up in an index, by the job or the end.
func TestPruningByIndex(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db, err := Open(ctx, made(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	begun, err := db.Begin(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer begun.Rollback() //nolint:errcheck // nothing is to stay
	if _, err := begun.Delete(ctx, make([]string, 3), make([]string, 3)); err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{fmt.Sprintf(table.LastEndQuery, "", "?"): "(partition=?"}
	for _, which := range []jobdb.Candidates{{}, {Unsubmitted: true}} {
		q := table.Candidates(0, which)
		q.Alone("", which)
		queries["SELECT job_id FROM "+q.From+q.Conditions()+q.Rest] = "(partition=? AND "
	}
	for _, name := range table.OfJobs {
		queries[deleteQuery(name, 64)] = "(job_id=?"
	}
	for _, name := range table.OfGroups {
		queries[deleteGroupQuery(name, 64)] = "(group_id=?"
	}
	for query, want := range queries {
		plan := planOf(t, db, query, make([]any, strings.Count(query, "?"))...)
		if !strings.Contains(plan, "SEARCH") || !strings.Contains(plan, want) || strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP") {
			t.Errorf("%s:\n%s", query, plan)
		}
	}
}

// planOf returns how SQLite runs a query, a step a line.
func planOf(t *testing.T, db *DB, query string, args ...any) (plan string) {
	t.Helper()
	rows, err := db.conn.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var line string
		if err := rows.Scan(&id, &parent, &unused, &line); err != nil {
			t.Fatal(err)
		}
		plan += line + "\n"
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestListsByIndex: no list that is often asked for reads or sorts a whole table. (Rows that an index has at one place of
// the order may be sorted among themselves: "FOR LAST 2 TERMS".)
func TestListsByIndex(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), made(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, queries := range jobdbtest.Lists(t) {
		for _, q := range queries {
			plan := planOf(t, db, q.SQL(""), q.Args...)
			for line := range strings.Lines(plan) {
				if strings.Contains(line, "SCAN") && !strings.Contains(line, "INDEX") || strings.Contains(line, "TEMP B-TREE FOR ORDER BY") {
					t.Errorf("%s: %s\n%s", name, q.SQL(""), plan)
				}
			}
		}
	}
}
