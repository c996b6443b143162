package web

import (
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// topPage is what causes the most retries.
type topPage struct {
	listing
	By      []choice
	Windows []choice
	Newest  string // the time of the newest decision
	LastURL string // the last hour of the data, if the time that was asked for is empty
}

// choice is one of several values of a parameter.
type choice struct {
	Name, Link string
	Now        bool
}

func (s *site) top(p *page) error {
	l, shown, err := p.list(query.Decisions, "")
	if err != nil {
		return err
	}
	by := p.arg("by")
	if by == "" {
		by = "queue"
	}
	top := topPage{}
	shown.Hidden["by"] = p.arg("by")
	shown.Filters = []filter{{"since", "Since", p.arg("since"), "1h, or a time", nil}, {"until", "Until", p.arg("until"), "10m, or a time", nil}, {"queue", "Queue", p.arg("queue"), "", nil}, {"rule", "Rule", p.arg("rule"), "", nil}}
	shown.More = nil
	l.Limit = 50
	rows, err := s.Query.TopRetries(p.ctx, by, l)
	if err != nil {
		return err
	}
	for _, key := range jobdb.Tops {
		top.By = append(top.By, choice{key, p.with("by", key), key == by})
	}
	for _, w := range []string{"1h", "24h", "168h", ""} {
		name := map[string]string{"1h": "last hour", "24h": "last day", "168h": "last week", "": "all"}[w]
		top.Windows = append(top.Windows, choice{name, p.with("since", w, "until", ""), p.arg("since") == w && p.arg("until") == ""})
	}
	shown.Lead = "What caused the most retries. Decisions in shadow, and those that came too late, are not counted."
	t := &shown.Table
	*t = table{Caption: "Retries by " + by, Columns: columns(title(by), "Retries>", "Share", "Failures>", "Jobs>"), Empty: "No decision in this time."}
	var most uint64
	for _, r := range rows {
		most = max(most, r.Retries)
	}
	for _, r := range rows {
		name := cell{Text: r.Key, Link: p.about(by, r.Key)}
		if r.Key == "" {
			name = text("none")
		}
		t.Rows = append(t.Rows, []cell{name, number(size(r.Retries)), {Bar: true, Share: 100 * float64(r.Retries) / float64(max(most, 1))}, number(size(r.Failures)), number(size(r.Jobs))})
	}
	newest, err := s.newest(p)
	if err != nil {
		return err
	}
	if newest != 0 {
		top.Newest = unixTime(newest)
		end := time.Unix(0, newest).UTC().Add(time.Second)
		top.LastURL = p.with("since", end.Add(-time.Hour).Format(time.RFC3339), "until", end.Format(time.RFC3339))
	}
	top.listing = *shown
	return p.show("top", "What causes the most retries", "/top", top)
}

// about is the list behind a row.
func (p *page) about(by, key string) string {
	if by == "queue" {
		return link("/queue", "name", key)
	}
	return link("/decisions", by, key, "since", p.arg("since"), "until", p.arg("until"))
}

// newest returns the time of the newest decision; 0: there is none.
func (s *site) newest(p *page) (at int64, err error) {
	err = s.Query.Jobs(p.ctx, func(q jobdb.Queries) error {
		_, err := q.DecisionList(&jobdb.Criteria{}, jobdb.Page{Sort: "time", Descending: true, Limit: 1}, func(d *jobdb.Decision) error {
			at = d.Time
			return nil
		})
		return err
	})
	return at, err
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return string(s[0]-'a'+'A') + s[1:]
}

// partitionsPage is who decides which partition, and how far.
type partitionsPage struct {
	Positions table
	Here      table
	Source    []string
	ReadOnly  string
}

func (s *site) partitions(p *page) error {
	shown := partitionsPage{
		Here:      table{Caption: "Partitions that this process decides", Columns: columns("Partition>", "Policies", "In force since", "Lag>", "Behind>"), Empty: "This process decides no partition now."},
		Positions: table{Caption: "How far the job database is", Columns: columns("Partition>", "Decision log>", "Events up to", "Policies>"), Empty: "Nothing is in the job database yet."},
	}
	if s.Partitions != nil {
		list, err := s.Partitions(p.ctx)
		if err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b Partition) int { return a.Number - b.Number })
		for _, x := range list {
			lag, behind := cell{Class: "num"}, cell{Class: "num"}
			if x.Lag != nil {
				lag.Text = fmt.Sprintf("%.1f s", *x.Lag)
			}
			if x.Behind != nil {
				behind.Text = fmt.Sprintf("%.0f messages", *x.Behind)
			}
			generation := cell{}
			if x.Generation != 0 {
				generation = linked(fmt.Sprintf("generation %d", x.Generation), link("/generation", "number", fmt.Sprint(x.Generation)))
			}
			shown.Here.Rows = append(shown.Here.Rows, []cell{number(x.Number), generation, at(unixTime(x.Since)), lag, behind})
		}
	}
	status, err := s.status(p)
	if err != nil {
		return err
	}
	shown.ReadOnly = status.ReadOnly
	if src := status.Source; src != nil {
		shown.Source = append(shown.Source, "Policies are followed from Armada at "+src.Address+".")
		if src.Error != "" {
			shown.Source = append(shown.Source, "It cannot be read now: "+src.Error)
		}
	}
	if s.Query.Jobs != nil {
		err := s.Query.Jobs(p.ctx, func(q jobdb.Queries) error {
			all, err := q.Positions()
			for _, x := range all {
				shown.Positions.Rows = append(shown.Positions.Rows, []cell{number(x.Partition), number(x.Positions.Chain.Seq), mono(x.Positions.Chain.InTo.String()), {}})
			}
			return err
		})
		if err != nil {
			return err
		}
		shown.Positions.Columns = shown.Positions.Columns[:3]
		for i := range shown.Positions.Rows {
			shown.Positions.Rows[i] = shown.Positions.Rows[i][:3]
		}
	} else {
		shown.Positions.Empty = errNoJobs.text
	}
	return p.show("partitions", "Partitions", "/partitions", shown)
}

// queuePage is a queue, or a job set of it.
type queuePage struct {
	Name     string
	Figures  []figure
	Codes    table
	Failed   table
	Pending  table
	Newest   table
	InForce  []string
	Override string
}

func (s *site) queue(p *page) error {
	name := p.arg("name")
	if name == "" {
		return &query.Invalid{Param: "name", Err: fmt.Errorf("missing: name a queue")}
	}
	if s.Query.Jobs == nil {
		return errNoJobs
	}
	shown := queuePage{Name: name, Override: link("/overrides", "queue", name)}
	only := jobdb.Criteria{Queue: name}
	shown.Codes = table{Caption: "Retries and failures by rule", Columns: columns("Rule", "Retries>", "Failures>", "Jobs>"), Empty: "Nothing was decided on jobs of this queue."}
	rules, err := s.Query.TopRetries(p.ctx, "rule", &query.List{Criteria: only, Limit: 20})
	if err != nil {
		return err
	}
	var retries, failures uint64
	for _, r := range rules {
		cause := linked(r.Key, link("/decisions", "queue", name, "rule", r.Key))
		if r.Key == "" {
			cause = text("no rule")
		}
		retries, failures = retries+r.Retries, failures+r.Failures
		shown.Codes.Rows = append(shown.Codes.Rows, []cell{cause, number(size(r.Retries)), number(size(r.Failures)), number(size(r.Jobs))})
	}
	shown.Figures = []figure{
		{size(retries), "retried", link("/decisions", "queue", name), "", "good"},
		{size(failures), "failed for good", link("/jobs", "queue", name, "state", "Failed", "sort", "-ended"), "", "bad"},
	}
	jobsTable := func(caption, empty string, l query.List) (table, error) {
		t := table{Caption: caption, Columns: columns("Job", "Job set", "State", "Runs>", "Next run not before", "Ended"), Empty: empty}
		l.Queue, l.Limit = name, 10
		_, err := s.Query.ListJobs(p.ctx, &l, func(j *query.Job) error {
			t.Rows = append(t.Rows, []cell{{Text: j.JobID, Link: jobLink(j.Partition, j.JobID), Class: "mono id"}, text(j.JobSet), badge(j.State, kind(j.State)), number(j.Runs), at(j.RetryAfter), at(j.Ended)})
			return nil
		})
		return t, err
	}
	if shown.Failed, err = jobsTable("Failed for good, newest first", "No job of this queue failed for good.", query.List{States: []string{"Failed"}, Sort: "-ended"}); err != nil {
		return err
	}
	waiting := query.List{Sort: "-retry-after"}
	waiting.Waiting = true
	if shown.Pending, err = jobsTable("Pending retries", "No job of this queue waits for a retry.", waiting); err != nil {
		return err
	}
	shown.Newest = table{Caption: "Newest decisions", Columns: decisionColumns(), Empty: "Nothing was decided on jobs of this queue."}
	if _, err = s.Query.ListDecisions(p.ctx, &query.List{Criteria: only, Sort: "-time", Limit: 10}, func(d *audit.Decision) error {
		shown.Newest.Rows = append(shown.Newest.Rows, decisionRow(d))
		return nil
	}); err != nil {
		return err
	}
	if snap, err := s.newestPolicies(p); err == nil {
		shown.InForce = append(shown.InForce, snap.Set.Applying(name, "")...)
	}
	return p.show("queue", "Queue "+clip(name, 60), "/top", shown)
}
