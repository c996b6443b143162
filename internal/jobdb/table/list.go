package table

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
)

// orders are the columns of each order of a list, the last of them unique together.
var (
	jobOrders = map[string]string{
		"id": "job_id partition", "submitted": "submitted job_id partition", "ended": "ended job_id partition",
		"retry-after": "retry_after job_id partition", "runs": "runs job_id partition",
	}
	runOrders = map[string]string{
		"job": "job_id run_index run_id partition", "leased": "leased job_id run_id partition", "ended": "ended job_id run_id partition",
	}
	decisionOrders = map[string]string{"log": "partition number", "time": "time partition number"}
	groupOrders    = map[string]string{"name": "queue job_set grp partition", "restarts": "restarts queue job_set grp partition"}
)

// page visits the rows of one page. It returns the values that the next page begins
// after; nil: this was the last one.
func page[T any](s Source, t *Of[T], q Query, p jobdb.Page, orders map[string]string, sorts []string, visit func(*T) error) (next []any, err error) {
	sort := p.Sort
	if sort == "" {
		sort = sorts[0]
	}
	by := columns(orders[sort])
	if len(by) == 0 {
		return nil, fmt.Errorf("a list of %s has no order %q", t.Name, sort)
	}
	direction, beyond := "", ">"
	if p.Descending {
		direction, beyond = " DESC", "<"
	}
	if p.After != nil {
		if !places(t, by, p.After) {
			return nil, jobdb.ErrToken
		}
		q.where("("+strings.Join(by, ", ")+") "+beyond+" (?"+strings.Repeat(", ?", len(by)-1)+")", p.After...)
	}
	q.Rest = " ORDER BY " + strings.Join(by, direction+", ") + direction
	var n, limit int64
	if p.Limit > 0 {
		limit = min(int64(p.Limit), math.MaxInt32)
	}
	var last *T
	for _, part := range parts(q, t.Name, by[0], p.Descending) {
		if limit > 0 {
			part.Rest += fmt.Sprintf(" LIMIT %d", limit+1-n) // one more shows whether there is a next page
		}
		err = find(s, t, part, func(row *T) error {
			if n++; limit > 0 && n > limit {
				next = values(t, last, by)
				return nil
			}
			last = row
			return visit(row)
		})
		if err != nil || next != nil {
			break
		}
	}
	return next, err
}

// parts splits a list by the sign of the first column of its order, if the index of that
// column leaves out rows where it is 0. Each part is then in the order of an index.
func parts(q Query, table, first string, descending bool) []Query {
	if table != Jobs.Name || first != "ended" && first != "retry_after" {
		return []Query{q}
	}
	all := make([]Query, 3)
	for i, sign := range []string{"<> 0 AND %s < 0", "= 0", "<> 0 AND %s > 0"} {
		all[i] = q
		all[i].Where = append(slices.Clip(q.Where), first+" "+strings.ReplaceAll(sign, "%s", first))
	}
	if descending {
		slices.Reverse(all)
	}
	return all
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

func values[T any](t *Of[T], row *T, of []string) []any {
	fields := t.Fields(row, nil)
	list := make([]any, len(of))
	for i, c := range of {
		list[i] = Plain(fields[slices.Index(t.Columns, c)])
	}
	return list
}

// in adds a condition on the values of a column; none: any.
func in[V ~uint8](q *Query, column string, values []V) {
	if len(values) == 0 {
		return
	}
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = int64(v)
	}
	q.where(column+" IN (?"+strings.Repeat(", ?", len(args)-1)+")", args...)
}

// equal adds a condition on a column, unless the text is empty.
func (q *Query) equal(column, text string) {
	if text != "" {
		q.where(column+" = ?", text)
	}
}

func (q *Query) between(column string, since, until int64) {
	if since != 0 {
		q.where(column+" >= ?", since)
	}
	if until != 0 {
		q.where(column+" < ? AND "+column+" <> 0", until)
	}
}

func (q *Query) ofJob(column string, c *jobdb.Criteria) {
	q.equal(column, c.JobID)
	q.begins(column, c.JobPrefix)
}

// begins adds the condition that a column begins with a prefix; "": any does.
func (q *Query) begins(column, prefix string) {
	if prefix == "" {
		return
	}
	q.where(column+" >= ?", prefix)
	if end := after(prefix); end != "" {
		q.where(column+" < ?", end)
	}
}

// after returns the smallest text that is greater than all that begin with prefix; "":
// there is none.
func after(prefix string) string {
	for b := []byte(prefix); len(b) > 0; b = b[:len(b)-1] {
		if b[len(b)-1] < 0x7f { // a byte beyond would be no text
			b[len(b)-1]++
			return string(b)
		}
	}
	return ""
}

// exists adds the condition that a row of another table is there, if anything is asked
// of it. Braces around a table's name are the Source's to replace.
func (q *Query) exists(from, joined string, of Query) {
	if len(of.Where) > 0 {
		q.where("EXISTS (SELECT 1 FROM {"+from+"} x WHERE "+joined+" AND "+strings.Join(of.Where, " AND ")+")", of.Args...)
	}
}

// failed are the conditions on a run.
func failed(c *jobdb.Criteria) (q Query) {
	if c.Node != "" {
		q.where(nodeOf+" = ?", c.Node)
	}
	q.equal("x.error_category", c.Category)
	return q
}

// nodeOf is the node of a run, as its error says, else as its lease does.
const nodeOf = "(CASE WHEN x.error_node <> '' THEN x.error_node ELSE x.node END)"

// decided are the conditions on a decision.
func decided(c *jobdb.Criteria) (q Query) {
	in(&q, "x.code", c.Codes)
	q.equal("x.policy", c.Policy)
	q.equal("x.rule", c.Rule)
	return q
}

// JobList visits a page of jobs.
func (q Queries) JobList(c *jobdb.Criteria, p jobdb.Page, visit func(*jobdb.Job) error) (next []any, err error) {
	return page(q.Source, &Jobs, jobs(c), p, jobOrders, jobdb.JobSorts, visit)
}

func jobs(c *jobdb.Criteria) (s Query) {
	s.ofJob("job_id", c)
	s.equal("queue", c.Queue)
	s.equal("job_set", c.JobSet)
	s.equal("grp", c.Group)
	in(&s, "state", c.States)
	if c.Waiting {
		s.where("retry_after <> 0")
	}
	s.between("submitted", c.Since, c.Until)
	s.between("ended", c.EndedSince, 0)
	s.exists("runs", "x.job_id = jobs.job_id AND x.partition = jobs.partition", failed(c))
	s.exists("decisions", "x.job_id = jobs.job_id AND x.partition = jobs.partition", decided(c))
	return s
}

// RunList visits a page of runs.
func (q Queries) RunList(c *jobdb.Criteria, p jobdb.Page, visit func(*jobdb.Run) error) (next []any, err error) {
	var s, job Query
	s.ofJob("job_id", c)
	if p.Sort == "" || p.Sort == "job" {
		s.where("job_id >= ''") // always holds; without it, SQLite sorts all runs
	}
	in(&s, "state", c.States)
	s.between("leased", c.Since, c.Until)
	if c.Node != "" {
		s.where(strings.ReplaceAll(nodeOf, "x.", "")+" = ?", c.Node)
	}
	s.equal("error_category", c.Category)
	job.equal("x.queue", c.Queue)
	job.equal("x.job_set", c.JobSet)
	job.equal("x.grp", c.Group)
	s.exists("jobs", "x.job_id = runs.job_id AND x.partition = runs.partition", job)
	s.exists("decisions", "x.job_id = runs.job_id AND x.run_id = runs.run_id AND x.partition = runs.partition", decided(c))
	return page(q.Source, &Runs, s, p, runOrders, jobdb.RunSorts, visit)
}

// DecisionList visits a page of decisions.
func (q Queries) DecisionList(c *jobdb.Criteria, p jobdb.Page, visit func(*jobdb.Decision) error) (next []any, err error) {
	return page(q.Source, &Decisions, decisions(c), p, decisionOrders, jobdb.DecisionSorts, visit)
}

func decisions(c *jobdb.Criteria) (s Query) {
	s.ofJob("job_id", c)
	s.equal("queue", c.Queue)
	s.equal("job_set", c.JobSet)
	in(&s, "code", c.Codes)
	s.equal("policy", c.Policy)
	s.equal("rule", c.Rule)
	s.between("time", c.Since, c.Until)
	s.exists("runs", ofDecision, failed(c))
	if c.Group != "" {
		var job Query
		job.equal("x.grp", c.Group)
		s.exists("jobs", "x.job_id = decisions.job_id AND x.partition = decisions.partition", job)
	}
	return s
}

const ofDecision = "x.job_id = decisions.job_id AND x.run_id = decisions.run_id AND x.partition = decisions.partition"

// GroupList visits a page of groups.
func (q Queries) GroupList(c *jobdb.Criteria, p jobdb.Page, visit func(*jobdb.Group) error) (next []any, err error) {
	var s Query
	s.equal("queue", c.Queue)
	s.equal("job_set", c.JobSet)
	s.equal("grp", c.Group)
	s.begins("grp", c.GroupPrefix)
	in(&s, "state", c.States)
	s.equal("policy", c.Policy)
	s.equal("rule", c.Rule)
	return page(q.Source, &Groups, s, p, groupOrders, jobdb.GroupSorts, visit)
}

// keys are what decisions are counted by.
var keys = map[string]string{
	"queue": "queue", "policy": "policy",
	"rule":     "CASE WHEN rule = '' THEN '' ELSE policy || '/' || rule END",
	"node":     "coalesce((SELECT " + nodeOf + " FROM {runs} x WHERE " + ofDecision + "), '')",
	"category": "coalesce((SELECT x.error_category FROM {runs} x WHERE " + ofDecision + "), '')",
}

// Top counts the effective decisions that the criteria select, by one of jobdb.Tops,
// those with the most retries first.
func (q Queries) Top(by string, c *jobdb.Criteria, limit int) (top []jobdb.Top, err error) {
	s := decisions(c)
	s.where("acted")
	s.Columns = []string{keys[by], "count(*) FILTER (WHERE requeue)", "count(*) FILTER (WHERE NOT requeue)", "count(DISTINCT job_id)"}
	s.From, s.Rest = Decisions.Name, " GROUP BY 1 ORDER BY 2 DESC, 3 DESC, 1"
	if limit > 0 {
		s.Rest += fmt.Sprintf(" LIMIT %d", limit)
	}
	var row jobdb.Top
	err = q.Source.Find(s, func() []any {
		return []any{&row.Key, &row.Retries, &row.Failures, &row.Jobs}
	}, func() error {
		top = append(top, row)
		return nil
	})
	return top, err
}
