package sqlite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
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
		rows, err := db.conn.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query, make([]any, strings.Count(query, "?"))...)
		if err != nil {
			t.Fatal(err)
		}
		plan := ""
		for rows.Next() {
			var id, parent, unused int
			var line string
			if err := rows.Scan(&id, &parent, &unused, &line); err != nil {
				t.Fatal(err)
			}
			plan += line + "\n"
		}
		if rows.Err() != nil || !strings.Contains(plan, "SEARCH") || !strings.Contains(plan, want) || strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP") {
			t.Errorf("%s:\n%s%v", query, plan, rows.Err())
		}
	}
}
