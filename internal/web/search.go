package web

import (
	"fmt"
	"strconv"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// search shows what the text names: a job by the beginning of its id, anything else by a part of its name.
func (s *Site) search(p *page) error {
	if s.Query.Jobs == nil {
		return errNoJobs
	}
	q, only := p.arg("q"), p.arg("kind")
	shown := &listing{Lead: "Enter the beginning of a job's id or of its pod's name, or a part of the name of a queue, job set, group, node, failure category, policy or rule, or an exit code that a rule lists."}
	t := &shown.Table
	*t = table{Caption: "Found"}
	if q == "" {
		return p.show("list", "Search", "", shown)
	}
	asked := query.SearchQuestion{Text: q}
	if only != "" {
		asked.Kinds, asked.Limit = []string{only}, 1000
	}
	found, err := s.Query.Search(p.ctx, asked)
	if err != nil {
		return err
	}
	jobs := 0
	for i := range found.Matches {
		if found.Matches[i].Kind == query.KindJob {
			jobs++
		}
	}
	place := p.arg("continue")
	switch {
	case len(found.Matches) == 1 && place == "":
		p.to = matchLink(&found.Matches[0])
		return nil
	case len(found.Matches) == 0:
		t.Empty = fmt.Sprintf("Nothing is called like %q. Of a job and its pods, give the beginning; a job that was pruned from the job database is found by its full id only.", q)
		if _, err := strconv.ParseInt(q, 10, 32); err == nil {
			t.Empty += " No rule in force lists it as an exit code, and no list selects by exit code."
		}
		shown.Lead = ""
		return p.show("list", "Search", "", shown)
	case jobs == len(found.Matches):
		return s.searchJobs(p, shown, q)
	}
	shown.Lead = fmt.Sprintf("What is called like %q.", q)
	t.Columns = columns("Kind", "Name", "Queue", "Job set", "State")
	for i := range found.Matches {
		m := &found.Matches[i]
		row := []cell{text(kindNames[m.Kind]), {Text: m.Name, Link: matchLink(m), Class: "mono"}, named(m.Queue, p0("/queue", "name", m.Queue)), named(m.JobSet, p0("/jobs", "set", m.JobSet)), {}}
		if m.State != "" {
			row[4] = badge(m.State, kind(m.State))
		}
		t.Rows = append(t.Rows, row)
	}
	shown.ByLabel = "More"
	for _, more := range found.More {
		if only == "" {
			shown.By = append(shown.By, choice{Name: kindNames[more], Link: p.with("kind", more)})
		}
	}
	return p.show("list", "Search", "", shown)
}

// searchJobs lists jobs whose ids begin with a text, in pages.
func (s *Site) searchJobs(p *page, shown *listing, q string) error {
	t := &shown.Table
	*t = table{Caption: "Jobs", Columns: jobColumns()}
	shown.Lead = fmt.Sprintf("Jobs whose id begins with %q.", q)
	next, err := s.Query.ListJobs(p.ctx, &query.List{Criteria: jobdb.Criteria{JobPrefix: query.JobOfPod(q)}, Limit: pageRows, Continue: p.arg("continue")}, func(j *query.Job) error {
		t.Rows = append(t.Rows, jobRow(j))
		return nil
	})
	if err != nil {
		return err
	}
	p.paged(t, next)
	return p.show("list", "Search", "", shown)
}

// kindNames are the kinds of things that are found, as people read them.
var kindNames = map[string]string{
	query.KindJob: "job", "queue": "queue", "set": "job set", "group": "group", "node": "node", "category": "category", "policy": "policy", "rule": "rule",
}

// matchLink is where something that was found is shown.
func matchLink(m *query.Match) string {
	switch m.Kind {
	case query.KindJob:
		return jobLink(m.Partition, m.Name)
	case "queue":
		return link("/queue", "name", m.Name)
	case "group":
		return link("/group", "queue", m.Queue, "set", m.JobSet, "name", m.Name)
	case "node", "category":
		return link("/runs", m.Kind, m.Name)
	case "policy":
		return link("/policy", "name", m.Name)
	case "rule":
		return link("/decisions", "rule", m.Name)
	}
	return link("/jobs", m.Kind, m.Name)
}
