package jobdbtest

import (
	"fmt"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
	"github.com/refloat/refloat/internal/policy"
)

// asked is a Source that notes queries and finds nothing.
type asked struct{ queries []table.Query }

// Find implements table.Source.
func (a *asked) Find(q table.Query, _ func() []any, _ func() error) error {
	q.Columns = []string{"1"}
	a.queries = append(a.queries, q)
	return nil
}

// Lists returns the queries of lists as they are asked for most: in their default orders, here and on the page, and by
// the first filters of the page; first pages and later ones, in both directions. Each must read its rows in the order of
// an index, so that a page takes as long with a million rows as with a thousand.
func Lists(t *testing.T) map[string][]table.Query {
	t.Helper()
	jobs := func(q jobdb.Queries, c *jobdb.Criteria, p jobdb.Page) error {
		_, err := q.JobList(c, p, nil)
		return err
	}
	runs := func(q jobdb.Queries, c *jobdb.Criteria, p jobdb.Page) error {
		_, err := q.RunList(c, p, nil)
		return err
	}
	decisions := func(q jobdb.Queries, c *jobdb.Criteria, p jobdb.Page) error {
		_, err := q.DecisionList(c, p, nil)
		return err
	}
	groups := func(q jobdb.Queries, c *jobdb.Criteria, p jobdb.Page) error {
		_, err := q.GroupList(c, p, nil)
		return err
	}
	byID, byRun, byNumber := []any{"j", int64(0)}, []any{"j", "r", int64(0)}, []any{int64(0), int64(7)}
	timed := func(rest []any) []any { return append([]any{int64(7)}, rest...) }
	found := map[string][]table.Query{}
	for name, l := range map[string]struct {
		list  func(jobdb.Queries, *jobdb.Criteria, jobdb.Page) error
		sort  string
		after []any
		of    jobdb.Criteria
	}{
		"jobs":                     {jobs, "", byID, jobdb.Criteria{}},
		"jobs by submission":       {jobs, "submitted", timed(byID), jobdb.Criteria{}},
		"jobs since":               {jobs, "submitted", timed(byID), jobdb.Criteria{Since: 5, Until: 9}},
		"jobs in a state":          {jobs, "submitted", timed(byID), jobdb.Criteria{States: []uint8{uint8(jobdb.JobFailed)}}},
		"jobs of a queue":          {jobs, "submitted", timed(byID), jobdb.Criteria{Queue: "q1"}},
		"jobs of a queue since":    {jobs, "submitted", timed(byID), jobdb.Criteria{Queue: "q1", Since: 5}},
		"jobs by end":              {jobs, "ended", timed(byID), jobdb.Criteria{}},
		"jobs that failed, by end": {jobs, "ended", timed(byID), jobdb.Criteria{States: []uint8{uint8(jobdb.JobFailed)}}},
		"jobs that wait":           {jobs, "retry-after", timed(byID), jobdb.Criteria{Waiting: true}},
		"runs":                     {runs, "", []any{"j", int64(0), "r", int64(0)}, jobdb.Criteria{}},
		"runs by lease":            {runs, "leased", timed(byRun), jobdb.Criteria{}},
		"runs since":               {runs, "leased", timed(byRun), jobdb.Criteria{Since: 5}},
		"runs on a node":           {runs, "leased", timed(byRun), jobdb.Criteria{Node: "n1"}},
		"decisions":                {decisions, "", byNumber, jobdb.Criteria{}},
		"decisions by time":        {decisions, "time", timed(byNumber), jobdb.Criteria{}},
		"decisions since":          {decisions, "time", timed(byNumber), jobdb.Criteria{Since: 5, Until: 9}},
		"decisions of a queue":     {decisions, "time", timed(byNumber), jobdb.Criteria{Queue: "q1"}},
		"decisions of a rule":      {decisions, "time", timed(byNumber), jobdb.Criteria{Rule: "oom"}},
		"decisions of a policy":    {decisions, "time", timed(byNumber), jobdb.Criteria{Policy: "infra", Rule: "oom"}},
		"decisions of a code":      {decisions, "time", timed(byNumber), jobdb.Criteria{Codes: []policy.Code{policy.RuleRetry}}},
		"groups":                   {groups, "", []any{"q", "s", "g", int64(0)}, jobdb.Criteria{}},
		"groups of a queue":        {groups, "", []any{"q", "s", "g", int64(0)}, jobdb.Criteria{Queue: "q1"}},
	} {
		for _, after := range [][]any{nil, l.after} {
			for _, descending := range []bool{false, true} {
				noted := &asked{}
				p := jobdb.Page{Sort: l.sort, Descending: descending, After: after, Limit: 50}
				if err := l.list(table.Queries{Source: noted}, &l.of, p); err != nil || len(noted.queries) == 0 {
					t.Fatalf("%s: %v, %d queries", name, err, len(noted.queries))
				}
				name := fmt.Sprintf("%s, continued %v, descending %v", name, after != nil, descending)
				found[name] = noted.queries
			}
		}
	}
	return found
}
