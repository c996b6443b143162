package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

const pageRows = 50

// listing is a list with its filters.
type listing struct {
	Lead    string
	Filters []filter
	More    []filter // shown on demand
	Open    bool     // because one of More is set
	Chosen  []chosen
	Table   table
	Hidden  map[string]string // parameters that the form keeps
}

// filter is one field by which a list is filtered.
type filter struct {
	Name, Label, Value, Hint string
	Options                  []string // none: a text
}

// chosen is a filter in use, with the address of the list without it.
type chosen struct{ Label, Value, Without string }

var errNoJobs = problem{http.StatusNotImplemented, "No job database here", "This process has no job database, so it cannot list jobs, runs and decisions. Ask `refloatctl up`, or the commands with --job-db.", nil}

// fields are those by which a list is filtered, and of which the second part is shown on demand.
func fields(list string) (first, more []filter) {
	field := func(name, label, hint string, options ...string) filter {
		return filter{name, label, "", hint, options}
	}
	queue, set, group := field("queue", "Queue", ""), field("set", "Job set", ""), field("group", "Group", "")
	rule, policy := field("rule", "Rule", ""), field("policy", "Policy", "")
	state := field("state", "State", "", query.States(list)...)
	since, until := field("since", "Since", "1h, or 2026-12-01T06:00:00Z"), field("until", "Until", "10m, or a time")
	code := field("code", "Code", "", query.Codes()...)
	node, category := field("node", "Node", ""), field("category", "Category", "oom")
	switch list {
	case query.Jobs:
		return []filter{queue, state, rule, since}, []filter{set, group, policy, code, node, category, until, field("waiting", "Pending retry", "", "yes")}
	case query.Runs:
		return []filter{queue, state, node, since}, []filter{field("job", "Job", ""), set, group, policy, rule, code, category, until}
	case query.Groups:
		return []filter{queue, state, set, group}, []filter{policy, rule}
	}
	return []filter{queue, code, rule, since}, []filter{field("job", "Job", ""), set, group, policy, node, category, until}
}

// fieldNames are the parameters that filter a list.
func fieldNames(list string) (names []string) {
	first, more := fields(list)
	for _, f := range append(first, more...) {
		names = append(names, f.Name)
	}
	return names
}

// filled sets the values that were asked for.
func (p *page) filled(filters []filter) []filter {
	for i := range filters {
		filters[i].Value = p.arg(filters[i].Name)
	}
	return filters
}

// list reads what is asked for of a list, in this order if none is.
func (p *page) list(name, order string) (*query.List, *listing, error) {
	if p.site.Query.Jobs == nil {
		return nil, nil, errNoJobs
	}
	l := &query.List{Sort: cmp.Or(p.arg("sort"), order), Limit: pageRows, Continue: p.arg("continue")}
	shown := &listing{Hidden: map[string]string{"sort": p.arg("sort"), "live": p.arg("live")}}
	first, more := fields(name)
	shown.Filters, shown.More = p.filled(first), p.filled(more)
	for i, f := range append(slices.Clip(shown.Filters), shown.More...) {
		if f.Value != "" {
			shown.Chosen = append(shown.Chosen, chosen{f.Label, f.Value, p.with(f.Name, "", "continue", "")})
			shown.Open = shown.Open || i >= len(shown.Filters)
		}
	}
	l.Criteria = jobdb.Criteria{
		JobID: p.arg("job"), Queue: p.arg("queue"), JobSet: p.arg("set"), Group: p.arg("group"),
		Policy: p.arg("policy"), Rule: p.arg("rule"), Node: p.arg("node"), Category: p.arg("category"), Waiting: p.arg("waiting") == "yes",
	}
	if s := p.arg("state"); s != "" {
		l.States = []string{s}
	}
	if c := p.arg("code"); c != "" {
		l.Codes = []string{c}
	}
	if w := p.arg("waiting"); w != "" && w != "yes" {
		return nil, nil, &query.Invalid{Param: "waiting", Err: fmt.Errorf("%q: want yes", w)}
	}
	var err error
	for name, to := range map[string]*int64{"since": &l.Since, "until": &l.Until} {
		if *to, err = query.Moment(p.arg(name), p.site.Now()); err != nil {
			return nil, nil, &query.Invalid{Param: name, Err: err}
		}
	}
	return l, shown, l.Check(name)
}

// paged adds the ways to other pages of a list.
func (p *page) paged(t *table, next string) {
	if next != "" {
		t.Next = p.with("continue", next)
	}
	if p.arg("continue") != "" {
		t.First = p.with("continue", "")
	}
}

// sortable adds orders to the columns of a list: by the index of the column.
func (p *page) sortable(t *table, orders map[int]string, now string) {
	name, down := strings.CutPrefix(now, "-")
	for i, order := range orders {
		c := &t.Columns[i]
		c.Sort = p.with("sort", "-"+order, "continue", "")
		if name == order {
			c.Sorted = "ascending"
			if down {
				c.Sorted = "descending"
				c.Sort = p.with("sort", order, "continue", "")
			}
		}
	}
}

func jobLink(partition int, id string) string {
	return link("/job", "id", id, "partition", fmt.Sprint(partition))
}

// kinds are the classes of badges, by what they say.
func kind(state string) string {
	switch state {
	case "Succeeded", query.Retried.String(), "Retry":
		return "good"
	case "Failed", "FailedUnit", query.FailedForGood.String(), "Fail":
		return "bad"
	case "Queued", "Held", "Pending", "Leased":
		return "wait"
	case "Running", "Active":
		return "busy"
	}
	return "plain"
}

func decisionBadge(d *audit.Decision) cell {
	return effectBadge(query.EffectOf(d), d.Requeues())
}

func effectBadge(e query.Effect, requeue bool) cell {
	c := badge(e.Text(requeue), kind(e.String()))
	if !e.Took() {
		c.Note = e.String()
	}
	return c
}

func ruleCell(policy, rule string) cell {
	if policy == "" {
		return cell{}
	}
	if rule == "" {
		rule = "default"
	}
	return cell{Class: "rule", Text: policy + "/" + rule, Link: link("/policy", "name", policy)}
}

func used(d *audit.Decision) string {
	if d.RuleUsed == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", *d.RuleUsed, *d.RuleLimit)
}

// decisionColumns are those of decisionRow.
func decisionColumns() []column {
	return columns("Time", "Job", "Queue", "Run>", "Decision", "Code", "Rule", "Used>", "Next run", "Why")
}

func decisionRow(d *audit.Decision) []cell {
	next := cell{}
	if d.Delay != "" {
		next = cell{Text: "after " + d.Delay, Class: "tok"}
	}
	explain := link("/explain", "id", d.JobID, "partition", fmt.Sprint(d.Partition), "run", fmt.Sprint(d.RunIndex))
	return []cell{
		at(d.EventTime),
		{Text: d.JobID, Link: jobLink(d.Partition, d.JobID), Class: "mono id"},
		named(d.Queue, link("/queue", "name", d.Queue)),
		{Text: fmt.Sprint(d.RunIndex), Link: explain, Class: "num", Title: "Explain this decision"},
		decisionBadge(d),
		{Text: d.Code, Class: "tok"},
		ruleCell(d.Policy, d.Rule), number(used(d)), next,
		{Text: d.Reason, Class: "why"},
	}
}

func (s *Site) decisions(p *page) error {
	l, shown, err := p.list(query.Decisions, "-time")
	if err != nil {
		return err
	}
	shown.Lead = "What was decided on each failed run, newest first. A number under Run opens the explanation."
	t := &shown.Table
	*t = table{Caption: "Decisions", Columns: decisionColumns(), Empty: "No decision matches these filters."}
	next, err := s.Query.ListDecisions(p.ctx, l, func(d *audit.Decision) error {
		t.Rows = append(t.Rows, decisionRow(d))
		return nil
	})
	if err != nil {
		return err
	}
	p.sortable(t, map[int]string{0: "time"}, l.Sort)
	p.paged(t, next)
	if l.Continue == "" && l.Sort == "-time" {
		t.Now = p.liveFrom("live", "table", "5s", t.Rows)
	}
	return p.show("list", "Decisions", "/decisions", shown)
}

func (s *Site) jobs(p *page) error {
	l, shown, err := p.list(query.Jobs, "-submitted")
	if err != nil {
		return err
	}
	shown.Lead = "Jobs, newest first. To find out why jobs failed for good, filter by state Failed and open one."
	if p.arg("state") == jobdb.JobFailed.String() {
		shown.Lead = "Jobs that failed for good. Open one to find out why."
	}
	t := &shown.Table
	*t = table{Caption: "Jobs", Columns: columns("Job", "Queue", "Job set", "Group", "State", "Runs>", "Retry after", "Submitted", "Ended"), Empty: "No job matches these filters."}
	next, err := s.Query.ListJobs(p.ctx, l, func(j *query.Job) error {
		t.Rows = append(t.Rows, jobRow(j))
		return nil
	})
	if err != nil {
		return err
	}
	p.sortable(t, map[int]string{0: "id", 5: "runs", 6: "retry-after", 7: "submitted", 8: "ended"}, l.Sort)
	p.paged(t, next)
	return p.show("list", "Jobs", "/jobs", shown)
}

func jobRow(j *query.Job) []cell {
	state := badge(j.State, kind(j.State))
	if j.Armada != nil && j.State != "Failed" {
		state.Note = "Armada says Failed"
	}
	group := cell{}
	if j.Group != "" {
		group = named(j.Group, link("/group", "queue", j.Queue, "set", j.JobSet, "name", j.Group))
		group.Note = j.Member.String()
	}
	return []cell{
		{Text: j.JobID, Link: jobLink(j.Partition, j.JobID), Class: "mono id"},
		named(j.Queue, link("/queue", "name", j.Queue)), named(j.JobSet, ""), group,
		state, number(j.Runs), at(j.RetryAfter), at(j.Submitted), at(j.Ended),
	}
}

func (s *Site) runs(p *page) error {
	l, shown, err := p.list(query.Runs, "-leased")
	if err != nil {
		return err
	}
	shown.Lead = "Runs, newest first, with the error that ended each."
	t := &shown.Table
	*t = table{Caption: "Runs", Columns: columns("Job", "Run>", "State", "Node", "Leased", "Ended", "Error", "Category", "Decision"), Empty: "No run matches these filters."}
	next, err := s.Query.ListRuns(p.ctx, l, func(r *query.Run) error {
		t.Rows = append(t.Rows, runRow(r))
		return nil
	})
	if err != nil {
		return err
	}
	p.sortable(t, map[int]string{4: "leased", 5: "ended"}, l.Sort)
	p.paged(t, next)
	return p.show("list", "Runs", "/runs", shown)
}

func runRow(r *query.Run) []cell {
	decided := cell{}
	if r.Decision != 0 {
		decided = effectBadge(r.Effect(), r.Outcome == jobdb.Requeued.String())
		decided.Link = link("/explain", "id", r.JobID, "partition", fmt.Sprint(r.Partition), "run", fmt.Sprint(r.Index))
	}
	return []cell{
		{Text: r.JobID, Link: jobLink(r.Partition, r.JobID), Class: "mono id"},
		number(r.Index), badge(r.State, kind(r.State)), named(r.Node, p0("/runs", "node", r.Node)),
		at(r.Leased), at(r.Ended),
		{Text: r.Error, Note: clip(r.Message, 200), Class: "why"},
		named(r.Category, ""), decided,
	}
}

// p0 is link, but no link where the value is empty.
func p0(path, name, value string) string {
	if value == "" {
		return ""
	}
	return link(path, name, value)
}

// clip shortens a text to so many characters.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

func (s *Site) groups(p *page) error {
	l, shown, err := p.list(query.Groups, "")
	if err != nil {
		return err
	}
	shown.Lead = "Groups of jobs that restart together."
	t := &shown.Table
	*t = table{Caption: "Groups", Columns: columns("Group", "Queue", "Job set", "Policy", "State", "Restarts>", "Why"), Empty: "No group matches these filters."}
	next, err := s.Query.ListGroups(p.ctx, l, func(g *query.Group) error {
		t.Rows = append(t.Rows, groupRow(g))
		return nil
	})
	if err != nil {
		return err
	}
	p.sortable(t, map[int]string{0: "name", 5: "restarts"}, l.Sort)
	p.paged(t, next)
	return p.show("list", "Groups", "/groups", shown)
}

// search shows the job that the text names, by its id or the beginning of it.
func (s *Site) search(p *page) error {
	if s.Query.Jobs == nil {
		return errNoJobs
	}
	q := p.arg("q")
	shown := &listing{Lead: "Enter the id of a job, or the beginning of it."}
	t := &shown.Table
	*t = table{Caption: "Jobs", Columns: columns("Job", "Queue", "Job set", "Group", "State", "Runs>", "Retry after", "Submitted", "Ended")}
	if q != "" {
		t.Empty = fmt.Sprintf("No job has an id that begins with %q. A job that was pruned from the job database is found by its full id only.", q)
		shown.Lead = fmt.Sprintf("Jobs whose id begins with %q.", q)
		place := p.arg("continue")
		asked := []jobdb.Criteria{{JobID: q}, {JobPrefix: q}}
		if place != "" {
			asked = asked[1:] // only the list of beginnings has more pages
		}
		for _, c := range asked {
			if len(t.Rows) > 0 {
				break
			}
			next, err := s.Query.ListJobs(p.ctx, &query.List{Criteria: c, Limit: pageRows, Continue: place}, func(j *query.Job) error {
				t.Rows = append(t.Rows, jobRow(j))
				return nil
			})
			if err != nil {
				return err
			}
			p.paged(t, next)
		}
		if len(t.Rows) == 1 && place == "" {
			p.to = t.Rows[0][0].Link
			return nil
		}
	}
	return p.show("list", "Search", "", shown)
}
