package jobdbtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// asked is a Source that notes queries and finds nothing in them, but that there are many rows, once, and where a window of an order ends.
type asked struct {
	queries []table.Query
	many    bool
}

// Find implements table.Source.
func (a *asked) Find(q table.Query, fields func() []any, found func() error) error {
	a.queries = append(a.queries, q)
	switch {
	case !strings.Contains(q.Rest, "OFFSET"):
		return nil
	case q.Index && a.many:
		return nil
	}
	a.many = true
	fields()
	return found()
}

// Plan is a page of a list, and what it asks a database.
type Plan struct {
	Name     string
	List     string
	Filters  []Filter
	Criteria jobdb.Criteria
	Page     jobdb.Page
	Queries  []table.Query
}

// Plans returns what every list asks with every filter, and every two of them, in every order and direction, of the first
// page and of later ones, and without a limit. A filter without effect on a list is left out.
func Plans(t testing.TB, decisions int) (plans []Plan) {
	t.Helper()
	all := Filters(t, decisions)
	for _, list := range []string{jobsList, runsList, decisionsList, groupsList} {
		var its []Filter // that have an effect
		none := statements(t, list, nil, jobdb.Page{})
		for _, f := range all {
			if fmt.Sprint(statements(t, list, []Filter{f}, jobdb.Page{})) != fmt.Sprint(none) {
				its = append(its, f)
			}
		}
		sets := [][]Filter{nil}
		for i, f := range its {
			sets = append(sets, []Filter{f})
			for _, other := range its[i+1:] {
				if other.Field != f.Field && f.Value != "dense" && other.Value != "dense" {
					sets = append(sets, []Filter{f, other})
				}
			}
		}
		if list == jobsList { // the page of a job set
			of := func(field, value string) Filter {
				return its[slices.IndexFunc(its, func(f Filter) bool { return f.Field == field && f.Value == value })]
			}
			for _, f := range []Filter{of("States", "failed"), of("Waiting", "sparse")} {
				sets = append(sets, []Filter{of("Queue", "sparse"), of("JobSet", "sparse"), f})
			}
		}
		for _, filters := range sets {
			for _, sort := range Lists[list] {
				for _, p := range pages(list, sort) {
					var name strings.Builder
					fmt.Fprintf(&name, "%s by %s, descending %v, continued %v, limit %d", list, sort, p.Descending, p.After != nil, p.Limit)
					for _, f := range filters {
						fmt.Fprintf(&name, ", %s %s", f.Value, f.Field)
					}
					plans = append(plans, Plan{name.String(), list, filters, criteria(list, filters), p, statements(t, list, filters, p)})
				}
			}
		}
	}
	return plans
}

func criteria(list string, filters []Filter) (c jobdb.Criteria) {
	for _, f := range filters {
		f.Set(list, &c)
	}
	return c
}

func statements(t testing.TB, list string, filters []Filter, p jobdb.Page) []table.Query {
	t.Helper()
	c := criteria(list, filters)
	noted := &asked{}
	if _, _, err := List(table.Queries{Source: noted}, list, &c, p); err != nil || len(noted.queries) == 0 {
		t.Fatalf("%s: %v, %d queries", list, err, len(noted.queries))
	}
	return noted.queries
}

// pages are the pages of a list in an order.
func pages(list, sort string) (all []jobdb.Page) {
	place := map[string][]any{
		"id": {"j", int64(0)}, "job": {"j", int64(0), "r", int64(0)}, "log": {int64(0), int64(7)}, "name": {"q", "s", "g", int64(0)}, "restarts": {int64(1), "q", "s", "g", int64(0)},
	}[sort]
	if place == nil { // a time or a number, and the row
		place = append([]any{int64(7)}, map[string][]any{jobsList: {"j", int64(0)}, runsList: {"j", "r", int64(0)}, decisionsList: {int64(0), int64(7)}}[list]...)
	}
	for _, down := range []bool{false, true} {
		for _, after := range [][]any{nil, place} {
			all = append(all, jobdb.Page{Sort: sort, Descending: down, After: after, Limit: 50})
		}
		all = append(all, jobdb.Page{Sort: sort, Descending: down})
	}
	return all
}

// OfGroup returns what the story of a group asks: its members, units, records and decisions, and those of one envelope.
func OfGroup(t testing.TB) []table.Query {
	t.Helper()
	noted, one := &asked{}, 1
	q, g := table.Queries{Source: noted}, &jobdb.Group{Partition: one, ID: "g", Binding: 3}
	err := errors.Join(q.Members(g, func(*jobdb.Job) error { return nil }), q.Units(g, func(*jobdb.Unit) error { return nil }))
	for _, seq := range []uint64{0, 4} {
		f := jobdb.RecordFilter{Partition: &one, Group: g, Seq: seq}
		err = errors.Join(err, q.GroupRecords(f, func(*jobdb.GroupRecord) error { return nil }), q.Decisions(f, func(*jobdb.Decision) error { return nil }))
	}
	if err != nil || len(noted.queries) != 6 {
		t.Fatalf("%d queries: %v", len(noted.queries), err)
	}
	return noted.queries
}

// Counts returns what counts ask with every filter.
func Counts(t testing.TB, decisions int) (plans []Plan) {
	t.Helper()
	for _, f := range Filters(t, decisions) {
		var c jobdb.Criteria
		f.Set(jobsList, &c)
		noted := &asked{}
		q := table.Queries{Source: noted}
		_, err := q.CountJobs(&c)
		if err == nil {
			_, err = q.CountDecisions(&c)
		}
		for _, by := range jobdb.Tops {
			if err == nil {
				_, err = q.Top(by, &c, 10, true)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, Plan{Name: fmt.Sprintf("counts by %s %s", f.Value, f.Field), Filters: []Filter{f}, Queries: noted.queries})
	}
	return plans
}

// Sorts reports whether a query sorts what an index finds, by the hint before its order.
func Sorts(q *table.Query) bool { return strings.Contains(q.Rest, "ORDER BY ~") }

// Pages checks the pages of every list with every filter, or those by some fields, and every order against the list without a limit, as
// far as its first rows: a page looks for rows in other ways.
func Pages(t *testing.T, db jobdb.Reader, decisions int, fields ...string) {
	t.Helper()
	const limit, rows = 40, 100
	checked := 0
	for _, p := range Plans(t, decisions) {
		if len(p.Filters) > 1 || p.Page.Limit > 0 || len(fields) > 0 && (len(p.Filters) == 0 || !slices.Contains(fields, p.Filters[0].Field)) {
			continue
		}
		view(t, db, func(q jobdb.Queries) error {
			all, _, err := idsOf(q, p.List, &p.Criteria, p.Page, rows)
			if err != nil && !errors.Is(err, errEnough) {
				return err
			}
			var paged []string
			page := p.Page
			for page.Limit = limit; len(paged) < len(all); {
				ids, next, err := idsOf(q, p.List, &p.Criteria, page, limit+1)
				if err != nil {
					return err
				}
				paged = append(paged, ids...)
				if page.After = next; next == nil {
					break
				}
			}
			if !slices.Equal(all, paged[:min(len(paged), len(all))]) || len(all) < rows && len(paged) > len(all) {
				t.Errorf("%s: in pages\n%v, in one\n%v", p.Name, paged, all)
			}
			checked += len(all)
			return nil
		})
	}
	if checked < 5_000 {
		t.Errorf("only %d rows in all lists", checked)
	}
}
