package sqlite

import (
	"context"
	"fmt"
	"slices"
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

// TestUncountedByIndex: what prunes takes the rows of jobs out of the counts by looking them up by the job.
func TestUncountedByIndex(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), made(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, query := range table.Uncounted("", fmt.Sprintf(ofJobs, marks(64))) {
		if plan := planOf(t, db, query, make([]any, 65)...); !strings.Contains(plan, "(job_id=?") || strings.Contains(plan, "SCAN") {
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

// TestListsByIndex: in every order and with every filter, a list finds its rows by an index. It reads a whole table, or sorts
// it, only if there is no filter, or one that most rows pass; and it looks rows of another table up by the row, one by one. What a
// page sorts is what an index found.
func TestListsByIndex(t *testing.T) {
	t.Parallel()
	const decisions = 2_000
	db, err := Open(t.Context(), made(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	jobdbtest.Fill(t, db, decisions)
	plans := jobdbtest.Plans(t, decisions)
	for i := range plans {
		checkPlan(t, db, &plans[i])
	}
	for _, q := range jobdbtest.OfGroup(t) {
		if plan := planOf(t, db, q.SQL("", hint), q.Args...); !strings.Contains(plan, "(group_id=?") && !strings.Contains(plan, "seq=?") || strings.Contains(plan, "SCAN") {
			t.Errorf("%s:\n%s", q.SQL("", hint), plan)
		}
	}
	if len(plans) < 1000 {
		t.Errorf("%d plans: hardly any", len(plans))
	}
}

func checkPlan(t *testing.T, db *DB, p *jobdbtest.Plan) {
	t.Helper()
	filtered := slices.ContainsFunc(p.Filters, func(f jobdbtest.Filter) bool { return !f.MostPass() })
	for i := range p.Queries {
		q := &p.Queries[i]
		plan := planOf(t, db, q.SQL("", hint), q.Args...)
		lines := slices.Collect(strings.Lines(plan))
		bad := ""
		for k, main := range lines { // what finds rows: first, or inside
			switch {
			case k > 0 && !strings.HasPrefix(lines[k-1], "CO-ROUTINE"), strings.HasPrefix(main, "CO-ROUTINE"):
			case !strings.Contains(main, " USING "):
				bad = "no index"
			case strings.HasPrefix(main, "SCAN") && !strings.Contains(main, "jobs_waiting_in_set") && (jobdbtest.Sorts(q) || filtered && len(p.Queries) == 1):
				bad = "it reads the whole index"
			case strings.HasSuffix(strings.TrimSpace(main), "(partition=?)"):
				bad = "it reads the whole partition"
			case k == 0 && jobdbtest.Sorts(q) && p.Page.Limit > 0 && strings.Count(main, "=?") < 2:
				bad = "it does not look the rows of the page up by their key"
			}
		}
		if strings.Contains(plan, "TEMP B-TREE FOR ORDER BY") && !jobdbtest.Sorts(q) {
			bad = "it sorts"
		}
		for _, than := range []string{"<", ">"} { // of a window
			if text := q.SQL("", hint); len(p.Queries) == 4 && (i == 1 || i == 2) && (strings.Contains(text, ") "+than+" (") || strings.Contains(text, ") "+than+"= (")) && !strings.Contains(lines[0], ")"+than+"(") {
				bad = "it reads rows before or behind its place"
			}
		}
		for k, line := range lines {
			switch {
			case strings.Contains(line, "SCAN x"):
				bad = "it reads the whole of another table"
			case strings.HasPrefix(line, "CREATE BLOOM FILTER") && (p.List == "jobs" || p.List == "runs" && strings.Contains(lines[k-1], "decisions_")): // behind a second list of them
				bad = "it finds rows of another table twice"
			case strings.HasPrefix(line, "CORRELATED") && !strings.Contains(lines[k+1], "(job_id=?"):
				bad = "it does not look rows of another table up by the job"
			}
		}
		if bad != "" {
			t.Errorf("%s: query %d of %d: %s: %s\n%s", p.Name, i+1, len(p.Queries), bad, q.SQL("", hint), plan)
		}
	}
}

// TestPages: the pages of a list have the rows of the list, also where a page finds them behind its window.
func TestPages(t *testing.T) {
	t.Parallel()
	const decisions = 11_000 // a half of them is more than a window
	path := made(t)
	db, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	jobdbtest.Fill(t, db, decisions)
	reader, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	jobdbtest.Pages(t, reader, decisions)
	for _, c := range []struct {
		list, field, value string
		page               jobdb.Page
		want               int
	}{
		{"groups", "Policy", "sparse", jobdb.Page{Sort: "name"}, 2},                    // whether there are few, and these
		{"jobs", "Queue", "dense", jobdb.Page{Sort: "ended", Descending: true}, 3},     // many: the end of a window, and its rows
		{"jobs", "Node", "dense", jobdb.Page{Sort: "ended", Descending: true}, 3},      // the same by another table
		{"jobs", "Until", "dense", jobdb.Page{Sort: "ended", Descending: true}, 4},     // and those behind it
		{"jobs", "Until", "dense", jobdb.Page{Sort: "submitted", Descending: true}, 1}, // an index has them in order
	} {
		asked := &counted{}
		filters := jobdbtest.Filters(t, decisions)
		var of jobdb.Criteria
		filters[slices.IndexFunc(filters, func(f jobdbtest.Filter) bool { return f.Field == c.field && f.Value == c.value })].Set(c.list, &of)
		c.page.Limit = 50
		if err := reader.View(t.Context(), func(q jobdb.Queries) error {
			asked.Source = q.(table.Queries).Source
			_, _, err := jobdbtest.List(table.Queries{Source: asked}, c.list, &of, c.page)
			return err
		}); err != nil || asked.queries != c.want {
			t.Errorf("%s by %s %s: %d queries, want %d: %v", c.list, c.value, c.field, asked.queries, c.want, err)
		}
	}
}

// TestOrdersBegin: a page is looked for in that part of an order which can have the rows.
func TestOrdersBegin(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), made(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	begins := map[string]string{ // where, by list, filter and order
		"runs, dense Rule, ended":          "runs_ended (ended>?)", // what was decided on has ended
		"runs, dense Codes, ended":         "runs_ended (ended>?)",
		"runs, dense Policy, ended":        "runs_ended (ended>?)",
		"runs, dense Category, ended":      "runs_ended (ended>?)",
		"runs, dense States, ended":        "runs_ended (ended>?)",
		"runs, failed States, ended":       "runs_ended", // or was republished without a time
		"runs, live States, -ended":        "runs_ended (ended=?)",
		"jobs, dense States, ended":        "jobs_over (ended>?)",
		"jobs, dense States, -retry-after": "jobs_waiting (retry_after<?)",
		"jobs, dense Rule, runs":           "jobs_runs (runs>?)",
		"jobs, dense Node, runs":           "jobs_runs (runs>?)",
		"jobs, dense EndedSince, ended":    "jobs_over (ended>?)",
		"jobs, dense Since, submitted":     "jobs_submitted (submitted>?)",
	}
	for _, p := range jobdbtest.Plans(t, 2_000) {
		if len(p.Filters) != 1 || p.Page.After != nil || p.Page.Limit == 0 {
			continue
		}
		name := fmt.Sprintf("%s, %s %s, %s%s", p.List, p.Filters[0].Value, p.Filters[0].Field, map[bool]string{true: "-"}[p.Page.Descending], p.Page.Sort)
		want := begins[name]
		if want == "" {
			continue
		}
		delete(begins, name)
		q := &p.Queries[min(1, len(p.Queries)-1)] // whether there are few rows, and in the order
		if plan := planOf(t, db, q.SQL("", hint), q.Args...); !strings.Contains(plan, want+"\n") {
			t.Errorf("%s: %s\n%s", name, q.SQL("", hint), plan)
		}
	}
	if len(begins) > 0 {
		t.Errorf("no such lists: %v", begins)
	}
}

// counted is a Source that counts queries.
type counted struct {
	table.Source
	queries int
}

// Find implements table.Source.
func (c *counted) Find(q table.Query, fields func() []any, found func() error) error {
	c.queries++
	return c.Source.Find(q, fields, found)
}

// TestCountsByIndex: a count reads the rows that a filter finds, and no others.
func TestCountsByIndex(t *testing.T) {
	t.Parallel()
	const decisions = 2_000
	db, err := Open(t.Context(), made(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	jobdbtest.Fill(t, db, decisions)
	for _, p := range jobdbtest.Counts(t, decisions) {
		for i := range p.Queries {
			q := &p.Queries[i]
			plan := planOf(t, db, q.SQL("", hint), q.Args...)
			if strings.Contains(plan, "SCAN x") || len(q.Where) > 1 && !p.Filters[0].MostPass() && strings.Contains(plan, "SCAN ") {
				t.Errorf("%s: %s\n%s", p.Name, q.SQL("", hint), plan)
			}
		}
	}
}

// TestNames: names are found, each by a look into an index.
func TestNames(t *testing.T) {
	t.Parallel()
	path := made(t)
	db, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	jobdbtest.Names(t, db, func() jobdb.Reader {
		reader, err := OpenReader(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return reader
	})
	for _, q := range jobdbtest.NamesAsked(t) {
		plan := planOf(t, db, q.SQL("", hint), q.Args...)
		if strings.Count(plan, "SEARCH ") < 2 || strings.Count(plan, "SCAN ") != strings.Count(plan, "SCAN names")+strings.Count(plan, "SCAN CONSTANT") || strings.Contains(plan, "TEMP") {
			t.Errorf("%s:\n%s", q.SQL("", hint), plan)
		}
	}
}
