package web

import (
	"cmp"
	"errors"
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
	ByLabel string
	By      []choice // the same, counted by something, or more of some kind
	Repeats []choice // whether repeats are collapsed
	// Elsewhere leads to what the list is about in other systems.
	Elsewhere elsewhere
	Table     table
	Trend     *trend
	Hidden    map[string]string // parameters that the form keeps
}

// filter is one field by which a list is filtered.
type filter struct {
	Name, Label, Value, Hint string
	Options                  []string // none: a text
	Values                   []string // of a text, some that it may have
	Complete                 bool     // it has a name of a kind of query.Kinds, its own
	Problem                  string   // what is wrong with it
}

// chosen is a filter in use, with the address of the list without it.
type chosen struct{ Label, Value, Without string }

var errNoJobs = problem{http.StatusNotImplemented, "No job database here", "This process has no job database, so it cannot list jobs, runs and decisions. Ask `refloatctl up`, or the commands with --job-db.", nil}

// fields are those by which a list is filtered, and of which the second part is shown on demand.
func fields(list string) (first, more []filter) {
	field := func(name, label, hint string, options ...string) filter {
		return filter{Name: name, Label: label, Hint: hint, Options: options, Complete: slices.Contains(query.Kinds(), name) && name != query.KindJob}
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

// offered is how many names a filter offers.
const offered = 50

// filled sets the values that were asked for, and names that a filter may have.
func (p *page) filled(filters []filter) ([]filter, error) {
	var kinds []string
	for i := range filters {
		f := &filters[i]
		f.Value = p.arg(f.Name)
		if f.Complete {
			kinds = append(kinds, f.Name)
		}
		if len(f.Options) > 0 && f.Value != "" && !slices.Contains(f.Options, f.Value) {
			f.Options = append(slices.Clip(f.Options), f.Value) // it is refused, and is there to be seen
		}
	}
	if p.fragment {
		return filters, nil // the form stays as it is
	}
	names, err := p.site.Query.Names(p.ctx, kinds, "", offered)
	for i := range filters {
		filters[i].Values = names[filters[i].Name]
	}
	return filters, err
}

// names offers names for a filter that begin with what was typed, or contain it; whoever asks for a page gets them as a search.
func (s *Site) names(p *page) error {
	if s.Query.Jobs == nil {
		return errNoJobs
	}
	p.to = "/search"
	for kind := range p.form {
		if !p.fragment {
			p.to = link(p.to, "q", p.arg(kind), "kind", kind)
			return nil
		}
		p.to = ""
		found, err := s.Query.Names(p.ctx, []string{kind}, p.arg(kind), offered)
		if err != nil {
			return err
		}
		p.live = "options"
		return p.show("list", "Names", "", &listing{Filters: []filter{{Values: found[kind]}}})
	}
	return nil
}

// list reads what is asked for of a list, in this order if none is. Of what cannot be asked for, it returns the form too.
func (p *page) list(name, order string) (*query.List, *listing, error) {
	if p.site.Query.Jobs == nil {
		return nil, nil, errNoJobs
	}
	l := &query.List{Sort: cmp.Or(p.arg("sort"), order), Limit: pageRows, Continue: p.arg("continue")}
	shown := &listing{Hidden: map[string]string{"sort": p.arg("sort"), "live": p.arg("live"), "repeats": p.arg("repeats")}}
	first, more := fields(name)
	all, err := p.filled(append(first, more...))
	if err != nil {
		return nil, nil, err
	}
	shown.Filters, shown.More = all[:len(first)], all[len(first):]
	for i, f := range all {
		if f.Value != "" {
			shown.Chosen = append(shown.Chosen, chosen{f.Label, f.Value, p.with(f.Name, "", "continue", "")})
			shown.Open = shown.Open || i >= len(first)
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
		return l, shown, &query.Invalid{Param: "waiting", Err: fmt.Errorf("%q: want yes", w)}
	}
	for _, x := range []struct {
		name string
		to   *int64
	}{{"since", &l.Since}, {"until", &l.Until}} {
		if *x.to, err = query.Moment(p.arg(x.name), p.site.Now()); err != nil {
			return l, shown, &query.Invalid{Param: x.name, Err: err}
		}
	}
	return l, shown, l.Check(name)
}

// mark says beside a filter what is wrong with it. It reports whether there is such a filter.
func (l *listing) mark(bad *query.Invalid) bool {
	for _, filters := range [][]filter{l.Filters, l.More} {
		for i := range filters {
			if filters[i].Name == bad.Param {
				filters[i].Problem = sentence(bad.Err.Error())
				return true
			}
		}
	}
	return false
}

// refused shows the form of a list again, with what is wrong beside the filter; an error that is about none is returned.
func (p *page) refused(title string, shown *listing, err error) error {
	bad, ok := errors.AsType[*query.Invalid](err)
	if !ok || shown == nil || !shown.mark(bad) {
		return err
	}
	p.status, p.live = http.StatusBadRequest, ""
	shown.Table.Empty = "Nothing is listed: correct the filter."
	return p.show("list", title, p.r.URL.Path, shown)
}

// missing says beside a filter of an empty list that nothing has this name.
func (p *page) missing(l *query.List, shown *listing) {
	if len(shown.Table.Rows) > 0 || p.fragment {
		return
	}
	if bad := query.Missing(p.ctx, &p.site.Query, &l.Criteria); bad != nil {
		shown.mark(bad)
	}
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

// listed shows a list, with the orders that its columns have, by the index of the column.
func (p *page) listed(title string, l *query.List, shown *listing, orders map[int]string, next string) error {
	p.sortable(&shown.Table, orders, l.Sort)
	p.paged(&shown.Table, next)
	p.missing(l, shown)
	return p.show("list", title, "/"+strings.ToLower(title), shown)
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
	return cell{Class: "rule", Text: policy + "/" + cmp.Or(rule, "default"), Link: link("/policy", "name", policy)}
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
		effectBadge(query.EffectOf(d), d.Requeues()),
		{Text: d.Code, Class: "tok"},
		ruleCell(d.Policy, d.Rule), number(used(d)), next,
		{Text: d.Reason, Class: "why"},
	}
}

// decisionRows are rows of decisions, of which those that say the same of one job may be one.
type decisionRows struct {
	all    [][]cell
	each   bool           // is shown
	at     map[string]int // rows, by what they say
	counts []int
}

// decisionRows collapses repeats unless the address says otherwise, and offers the other way.
func (p *page) decisionRows(shown *listing) *decisionRows {
	each := p.arg("repeats") == "each"
	shown.Repeats = []choice{{"collapsed", p.with("repeats", ""), !each}, {"each", p.with("repeats", "each"), each}}
	return &decisionRows{each: each, at: map[string]int{}}
}

func (rows *decisionRows) add(d *audit.Decision) error {
	same := fmt.Sprint(d.Partition, " ", d.JobID, "\x00", query.EffectOf(d), d.Requeues(), d.Code, d.Policy, "\x00", d.Rule)
	i, repeated := rows.at[same]
	if !repeated || rows.each {
		rows.at[same] = len(rows.all)
		rows.all, rows.counts = append(rows.all, decisionRow(d)), append(rows.counts, 1)
		return nil
	}
	rows.counts[i]++
	c := &rows.all[i][1]
	c.Note, c.NoteLink = fmt.Sprintf("%d × the same job", rows.counts[i]), link("/decisions", "job", d.JobID, "repeats", "each")
	return nil
}

func (s *Site) decisions(p *page) error {
	l, shown, err := p.list(query.Decisions, "-time")
	if err != nil {
		return p.refused("Decisions", shown, err)
	}
	shown.Lead = "What was decided on each failed run, newest first. A number under Run opens the explanation."
	t := &shown.Table
	*t = table{Caption: "Decisions", Columns: decisionColumns(), Empty: "No decision matches these filters."}
	rows := p.decisionRows(shown)
	next, err := s.Query.ListDecisions(p.ctx, l, rows.add)
	if err != nil {
		return err
	}
	t.Rows = rows.all
	shown.ByLabel = "Group by"
	for _, by := range jobdb.Tops {
		shown.By = append(shown.By, choice{Name: kindNames[by], Link: p.on("/top", "by", by, "sort", "", "continue", "", "live", "", "repeats", "")})
	}
	if l.Continue == "" && l.Sort == "-time" {
		t.Now = p.liveFrom("live", "table", "5s", t.Rows)
	}
	return p.listed("Decisions", l, shown, map[int]string{0: "time"}, next)
}

func (s *Site) jobs(p *page) error {
	l, shown, err := p.list(query.Jobs, "-submitted")
	if err != nil {
		return p.refused("Jobs", shown, err)
	}
	shown.Lead = "Jobs, newest first. To find out why jobs failed for good, filter by state Failed and open one."
	if p.arg("state") == jobdb.JobFailed.String() {
		shown.Lead = "Jobs that failed for good. Open one to find out why."
	}
	t := &shown.Table
	*t = table{Caption: "Jobs", Columns: jobColumns(), Empty: "No job matches these filters."}
	next, err := s.Query.ListJobs(p.ctx, l, func(j *query.Job) error {
		t.Rows = append(t.Rows, jobRow(j))
		return nil
	})
	if err != nil {
		return err
	}
	return p.listed("Jobs", l, shown, map[int]string{0: "id", 5: "runs", 6: "retry-after", 7: "submitted", 8: "ended"}, next)
}

// jobColumns are those of jobRow.
func jobColumns() []column {
	return columns("Job", "Queue", "Job set", "Group", "State", "Runs>", "Retry after", "Submitted", "Ended")
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
		return p.refused("Runs", shown, err)
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
	if node := l.Node; node != "" && len(t.Rows) > 0 {
		shown.Elsewhere.command(naming([]string{"kubectl", "describe", "node"}, node))
		if len(shown.Chosen) == 1 && l.Continue == "" { // the page of the node
			if shown.Trend, err = s.nodeTrend(p, node); err != nil {
				return err
			}
		}
	}
	return p.listed("Runs", l, shown, map[int]string{4: "leased", 5: "ended"}, next)
}

func runRow(r *query.Run) []cell {
	decided := cell{}
	if r.Decision != 0 {
		decided = effectBadge(r.Effect(), r.Outcome == jobdb.Requeued.String())
		decided.Link = link("/explain", "id", r.JobID, "partition", fmt.Sprint(r.Partition), "run", fmt.Sprint(r.Index))
	}
	return []cell{
		{Text: r.JobID, Link: jobLink(r.Partition, r.JobID), Class: "mono id"},
		number(r.Index), badge(r.State, kind(r.State)),
		{Text: r.Node, Link: p0("/runs", "node", r.Node), Class: "node"},
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
		return p.refused("Groups", shown, err)
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
	return p.listed("Groups", l, shown, map[int]string{0: "name", 5: "restarts"}, next)
}
