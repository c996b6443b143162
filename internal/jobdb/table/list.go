package table

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
)

// listing is how a list is read: its orders, each of which an index has, and what it selects by.
type listing struct {
	key    string            // columns that are unique together, and have an index
	orders map[string]string // columns, the last of them unique together
	sorts  []string          // the first one is the default
	// always holds for the rows of an order: without it, SQLite does not use its index.
	always map[string]string
}

var (
	jobListing = listing{
		key: "job_id partition",
		orders: map[string]string{
			"id": "job_id partition", "submitted": "submitted job_id partition", "ended": "ended job_id partition",
			"retry-after": "retry_after job_id partition", "runs": "runs job_id partition",
		},
		sorts: jobdb.JobSorts,
	}
	runListing = listing{
		key:    "job_id run_id partition",
		orders: map[string]string{"job": "job_id run_index run_id partition", "leased": "leased job_id run_id partition", "ended": "ended job_id run_id partition"},
		sorts:  jobdb.RunSorts,
	}
	decisionListing = listing{
		key:    "partition number",
		orders: map[string]string{"log": "partition number", "time": "time partition number"}, sorts: jobdb.DecisionSorts,
	}
	groupListing = listing{
		key:    "group_id partition",
		orders: map[string]string{"name": "queue job_set grp partition", "restarts": "restarts queue job_set grp partition"}, sorts: jobdb.GroupSorts,
		always: map[string]string{"name": "queue >= ''"},
	}
)

// condition is something that a list selects by.
type condition struct {
	where Query // on a row, with a tilde before each column whose index is not to be used
	// lookup is the same, as an index finds the rows; empty: no index does.
	lookup Query
	via    Query // what the lookup reads in an index of another table; empty: it is of the list's own
	// orders are those in which that index has the rows that it finds, by names with spaces between them. It finds a range of
	// such an order too.
	orders string
	few    bool // rows, so that they can always be sorted
	// It is a range of the order that orders names, which begins there or ends there.
	since, until bool
}

// simple returns a condition on columns, which an index finds unless it is a scan.
func simple(orders, where string, args ...any) condition {
	c := condition{orders: orders}
	c.where.where(where, args...)
	c.lookup.where(strings.ReplaceAll(where, "~", ""), args...)
	return c
}

// scan returns a condition that no index finds.
func scan(where string, args ...any) condition {
	c := condition{}
	c.where.where(where, args...)
	return c
}

// joined returns a condition on a row of another table, x, of which some columns are those of the row. The index of the
// first of the conditions finds them.
func joined(list, from string, on []string, conditions []condition) []condition {
	if len(conditions) == 0 {
		return nil
	}
	same := make([]string, len(on))
	for i, c := range on {
		same[i] = "x." + c + " = " + list + "." + c
	}
	of := fmt.Sprintf(" FROM {%s} x WHERE ", from)
	all := combined(conditions, -1)
	c := condition{}
	// The limit keeps both databases from making a join of it, and from reading the other table first.
	c.where.where("EXISTS (SELECT 1"+of+strings.Join(append(same, all.Where...), " AND ")+" LIMIT 1 OFFSET 0)", all.Args...)
	if all = combined(conditions, 0); len(conditions[0].lookup.Where) > 0 {
		c.via = conditions[0].lookup
		c.via.From = from
		mark := "~" // SQLite is not to read a whole partition, the last of the columns
		if key := strings.Join(on, " "); key == jobListing.key && list == Jobs.Name || key == runListing.key && list == Runs.Name {
			mark = "" // it looks all of the columns up in one index, for which it finds the others once; else twice
		}
		c.lookup.where("("+strings.Join(on[:len(on)-1], ", ")+", "+mark+on[len(on)-1]+") IN (SELECT x."+strings.Join(on, ", x.")+of+strings.Join(all.Where, " AND ")+")", all.Args...)
	}
	return []condition{c}
}

// combined returns all conditions, the one at lead as its index finds the rows.
func combined(all []condition, lead int) (q Query) {
	for i := range all {
		of := &all[i].where
		if i == lead {
			of = &all[i].lookup
		}
		q.Where, q.Args = append(q.Where, of.Where...), append(q.Args, of.Args...)
	}
	return q
}

// plan is what a list selects by, and how it is read.
type plan struct {
	*listing
	all     []condition
	lead    int         // whose index finds the rows; -1: none
	implied []condition // ranges of orders that have all rows
}

// planned takes the first condition with an index: they are in the order of how few rows they usually select.
func (l *listing) planned(c *jobdb.Criteria, all []condition) plan {
	p := plan{l, all, slices.IndexFunc(all, func(c condition) bool { return len(c.lookup.Where) > 0 }), nil}
	for _, i := range implications {
		if i.of == l.key && i.when(c) {
			p.implied = append(p.implied, i.then)
		}
	}
	return p
}

// found returns the conditions, so that the index of the leading one finds the rows.
func (p *plan) found() Query {
	if p.lead < 0 {
		return combined(p.all, -1)
	}
	all, orders := slices.Clone(p.all), strings.Fields(p.all[p.lead].orders)
	for i := range all {
		if c := &all[i]; (c.since || c.until) && slices.Contains(orders, c.orders) { // in the same index, behind
			c.where = c.lookup
		}
	}
	return combined(all, p.lead)
}

// window is how many rows of an order are looked at for a page, before all that an index finds are sorted. If those are no more than few,
// they are sorted at once: to find and sort one costs several times as much.
const (
	window = 5000
	few    = window / 4
)

// reading is the reading of a page of a list.
type reading[T any] struct {
	plan
	source   Source
	table    *Of[T]
	by       []string
	sort     string
	down     bool
	limit, n int64
	last     *T
	next     []any
	visit    func(*T) error
}

// page visits the rows of one page. It returns the values that the next page begins after; nil: this was the last one.
//
// It reads as few rows as it can without knowing how they are distributed. If an index finds the rows in the order, or if
// there is nothing to find, it reads in the order of the index until the page is full. If an index finds few rows, it sorts
// them. Otherwise it looks at a window of the order, and if the page is not full then, it finds and sorts those in the rest: rows
// are where the order has them last. The tildes (Query.SQL) leave SQLite no other way, as it has no statistics; PostgreSQL decides by its own.
func page[T any](s Source, t *Of[T], of plan, p jobdb.Page, visit func(*T) error) (next []any, err error) {
	r := &reading[T]{plan: of, source: s, table: t, sort: p.Sort, down: p.Descending, visit: visit}
	if r.sort == "" {
		r.sort = of.sorts[0]
	}
	if r.by = columns(of.orders[r.sort]); len(r.by) == 0 {
		return nil, fmt.Errorf("a list of %s has no order %q", t.Name, r.sort)
	}
	if p.After != nil && !places(t, r.by, p.After) {
		return nil, jobdb.ErrToken
	}
	if p.Limit > 0 {
		r.limit = min(int64(p.Limit), math.MaxInt32)
	}
	r.all = slices.Clone(r.all)
	for _, c := range r.implied {
		if c.orders == r.sort {
			r.all = append(r.all, c)
		}
	}
	if p.After != nil { // from there on the index is to be read
		for i := range r.all {
			if r.begins(&r.all[i]) {
				r.all[i].lookup = r.all[i].where
			}
		}
	}
	var lead condition
	if r.lead >= 0 {
		lead = r.all[r.lead]
	}
	switch {
	case r.lead < 0 || slices.Contains(strings.Fields(lead.orders), r.sort):
		q := r.found()
		if r.lead < 0 {
			r.bounded(&q, true)
		}
		r.ordered(&q, p.After, nil)
		err = r.read(q)
	case lead.few || r.limit == 0:
		err = r.sorted(p.After)
	default:
		err = r.searched(p.After, lead)
	}
	return r.next, err
}

// compare adds the condition that rows are behind a place of the order, or not; nil: all are.
func (r *reading[T]) compare(q *Query, mark, with string, place []any) {
	if place != nil {
		q.where("("+mark+strings.Join(r.by, ", ")+") "+with+" (?"+strings.Repeat(", ?", len(r.by)-1)+")", place...)
	}
}

// begins reports whether a condition says where the order begins.
func (r *reading[T]) begins(c *condition) bool {
	return r.sort == c.orders && (c.since && !r.down || c.until && r.down)
}

// ends reports whether a condition says where the order ends.
func (r *reading[T]) ends(c *condition) bool {
	return r.sort == c.orders && (c.until && !r.down || c.since && r.down)
}

func (r *reading[T]) order(mark string) string {
	direction := ""
	if r.down {
		direction = " DESC"
	}
	return " ORDER BY " + mark + strings.Join(r.by, direction+", ") + direction
}

// ordered makes a query read the rows behind a place in the order of an index, and up to another one; nil: no limit.
func (r *reading[T]) ordered(q *Query, after, until []any) {
	if always := r.always[r.sort]; always != "" && after == nil && until == nil {
		q.where(always)
	}
	behind, before := r.behind()
	r.compare(q, "", behind, after)
	r.compare(q, "", before+"=", until)
	q.Rest = r.order("")
}

// behind returns the comparisons of what is behind a place of the order, and of what is before it.
func (r *reading[T]) behind() (behind, before string) {
	if r.down {
		return "<", ">"
	}
	return ">", "<"
}

// sorted finds rows, and sorts them. The limit of what it finds keeps both databases from reading it in the order instead. Of a
// page, it sorts no more of a row than its place and its key.
func (r *reading[T]) sorted(after []any) error {
	rows := r.found()
	rows.Columns, rows.From, rows.Rest = []string{"*"}, r.table.Name, fmt.Sprintf(" LIMIT %d", math.MaxInt64)
	q := Query{Of: &rows, Args: slices.Clone(rows.Args)}
	behind, _ := r.behind()
	r.compare(&q, "~", behind, after)
	q.Rest = r.order("~")
	if r.limit > 0 {
		key := columns(r.key)
		rows.Columns = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.by, key))))
		q.Columns, q.From = key, r.table.Name
		q.Rest += r.most()
		page := Query{Rest: r.order("~")}
		page.where("("+strings.Join(key, ", ")+") IN ("+q.text()+")", q.Args...)
		q = page
	}
	return r.read(q)
}

// most is the clause that ends a query with the page. One more row shows whether there is a next one.
func (r *reading[T]) most() string { return fmt.Sprintf(" LIMIT %d", r.limit+1-r.n) }

// searched looks for rows behind a place, of which an index finds those of a condition in another order.
func (r *reading[T]) searched(after []any, lead condition) error {
	many, err := r.many(lead)
	if many && err == nil {
		if after, err = r.inWindow(after); after == nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return r.sorted(after)
}

// many reports whether an index finds more than few rows by a condition.
func (r *reading[T]) many(c condition) (many bool, err error) {
	q := c.via
	if q.From == "" {
		q = c.lookup
		q.From = r.table.Name
	}
	one := 0
	q.Columns, q.Rest, q.Index = []string{"1"}, fmt.Sprintf(" LIMIT 1 OFFSET %d", few), true
	err = r.source.Find(q, func() []any { return []any{&one} }, func() error {
		many = true
		return nil
	})
	return many, err
}

// inWindow looks for rows in the next ones of the order. It returns the place of the last one if the page is not full and the order goes on.
func (r *reading[T]) inWindow(after []any) (until []any, err error) {
	edge, q := Query{Columns: r.by, From: r.table.Name}, combined(r.all, -1)
	r.bounded(&edge, true)
	r.ordered(&edge, after, nil)
	edge.Rest += fmt.Sprintf(" LIMIT 1 OFFSET %d", window)
	row := new(T)
	all := r.table.Fields(row, nil)
	if err := r.source.Find(edge, func() (fields []any) {
		for _, c := range r.by {
			fields = append(fields, all[slices.Index(r.table.Columns, c)])
		}
		return fields
	}, func() error {
		until = r.place(row)
		return nil
	}); err != nil {
		return nil, err
	}
	r.bounded(&q, until == nil)
	r.ordered(&q, after, until)
	if err := r.read(q); err != nil || r.next != nil {
		return nil, err
	}
	return until, nil
}

// bounded makes a query read the order from where it begins, and up to the end.
func (r *reading[T]) bounded(q *Query, end bool) {
	for i := range r.all {
		if c := &r.all[i]; r.begins(c) || end && r.ends(c) {
			q.where(c.lookup.Where[0], c.lookup.Args...)
		}
	}
}

// read visits the rows of a query, until the page is full.
func (r *reading[T]) read(q Query) error {
	if r.limit > 0 {
		q.Rest += r.most()
	}
	return find(r.source, r.table, q, func(row *T) error {
		if r.n++; r.limit > 0 && r.n > r.limit {
			r.next = r.place(r.last)
			return nil
		}
		r.last = row
		return r.visit(row)
	})
}

// place returns the values of a row by which the list is ordered.
func (r *reading[T]) place(row *T) []any {
	fields := r.table.Fields(row, nil)
	list := make([]any, len(r.by))
	for i, c := range r.by {
		list[i] = Plain(fields[slices.Index(r.table.Columns, c)])
	}
	return list
}

// places reports whether values could be those of a row: clients send them back, and may send others.
func places[T any](t *Of[T], of []string, values []any) bool {
	fields := t.Fields(new(T), nil)
	return len(values) == len(of) && !slices.ContainsFunc(of, func(c string) bool {
		v := values[slices.Index(of, c)]
		n, number := v.(int64)
		switch fields[slices.Index(t.Columns, c)].(type) {
		case *string:
			_, text := v.(string)
			return !text
		case *int: // a partition, of 32 bits in PostgreSQL
			return !number || n != int64(int32(n))
		default:
			return !number
		}
	})
}
