package web

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// topPage is what causes the most retries.
type topPage struct {
	listing
	By      []choice
	Windows []choice
	Cost    table
	Newest  string // the time of the newest decision
	LastURL string // the last hour of the data, if the time that was asked for is empty
}

// choice is one of several values of a parameter.
type choice struct {
	Name, Link string
	Now        bool
}

func (s *Site) top(p *page) error {
	l, shown, err := p.list(query.Decisions, "")
	if err != nil {
		return p.refused("What causes the most retries", shown, err)
	}
	by := cmp.Or(p.arg("by"), "queue")
	top := topPage{}
	shown.Hidden["by"] = p.arg("by")
	l.Limit = 0 // a share is one of all of them
	rows, err := s.Query.TopRetries(p.ctx, by, false, l)
	if err != nil {
		return err
	}
	for _, key := range jobdb.Tops {
		top.By = append(top.By, choice{kindNames[key], p.with("by", key), key == by})
	}
	top.Windows = windows(p)
	shown.Lead = "What caused the most retries. Decisions in shadow, and superseded ones, are not counted: they had no effect."
	t := &shown.Table
	*t = table{Caption: "Retries by " + kindNames[by], Columns: columns(title(kindNames[by]), "Retries>", "Share", "Failed for good>"), Empty: "No decision in this time."}
	trends := by == "queue" // of which hours are counted
	if trends {
		t.Columns = append(t.Columns, column{Name: "Decisions over time"})
	}
	var all uint64
	for _, r := range rows {
		all += r.Retries
	}
	for _, r := range rows[:min(len(rows), 50)] {
		share := 100 * float64(r.Retries) / float64(max(all, 1))
		name := cell{Text: r.Key, Link: p.about(by, r.Key)}
		if r.Key == "" {
			name = text("none")
		}
		t.Rows = append(t.Rows, []cell{name, number(size(r.Retries)), {Bar: true, Share: share, Text: fmt.Sprintf("%.0f %%", share)}, number(size(r.Failures))})
		if trends && r.Key != "" {
			c, err := s.sparkCell(p, r.Key, "", l.Since, l.Until)
			if err != nil {
				return err
			}
			last := len(t.Rows) - 1
			t.Rows[last] = append(t.Rows[last], c)
		}
	}
	if key, ok := summedBy(by, l); ok {
		if top.Cost, err = s.costBy(p, by, key, l.Since, l.Until); err != nil {
			return err
		}
	}
	p.missing(l, shown)
	newest, err := s.newest(p)
	if err != nil {
		return err
	}
	if end, err := time.Parse(time.RFC3339Nano, newest); err == nil {
		top.Newest, end = newest, end.Add(time.Second)
		top.LastURL = p.with("since", end.Add(-time.Hour).Format(time.RFC3339), "until", end.Format(time.RFC3339))
	}
	top.listing = *shown
	return p.show("top", "What causes the most retries", "/top", top)
}

// about is the list behind a row.
func (p *page) about(by, key string) string {
	if by == "queue" && len(p.form) <= 1 {
		return link("/queue", "name", key)
	}
	return p.on("/decisions", by, key, "by", "")
}

// newest returns the time of the newest decision; "": there is none.
func (s *Site) newest(p *page) (at string, err error) {
	_, err = s.Query.ListDecisions(p.ctx, &query.List{Sort: "-time", Limit: 1}, func(d *audit.Decision) error {
		at = d.EventTime
		return nil
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
	All      table
	Source   []string
	ReadOnly string
}

func (s *Site) partitions(p *page) error {
	shown := partitionsPage{All: table{
		Caption: "Who decides what, and how far",
		Columns: columns("Partition>", "Decided by", "Policies", "In force since", "Lag>", "Behind>", "Decision log>", "Events up to"),
		Empty:   "This process decides no partition now, and knows of none.",
	}}
	list, err := s.Query.ListPartitions(p.ctx)
	if err != nil {
		return err
	}
	for i := range list {
		shown.All.Rows = append(shown.All.Rows, partitionRow(&list[i]))
	}
	status, err := s.status(p)
	if err != nil {
		return err
	}
	shown.ReadOnly = sentence(status.ReadOnly)
	if src := status.Source; src != nil {
		shown.Source = append(shown.Source, "Policies are followed from Armada at "+src.Address+".")
		if src.Error != "" {
			shown.Source = append(shown.Source, "It cannot be read now: "+src.Error)
		}
	}
	return p.show("partitions", "Partitions", "/partitions", shown)
}

// windows are the times that a page may be limited to.
func windows(p *page) (all []choice) {
	for _, w := range []struct{ since, name string }{{"1h", "last hour"}, {"24h", "last day"}, {"168h", "last week"}, {"", "all"}} {
		all = append(all, choice{w.name, p.with("since", w.since, "until", ""), p.arg("since") == w.since && p.arg("until") == ""})
	}
	return all
}

func partitionRow(x *query.Partition) []cell {
	by := cell{Text: "unknown", Class: "note"}
	switch {
	case x.Refused != "":
		by = cell{Text: "nobody: refused", Note: x.Refused}
	case x.Here:
		by = cell{Text: "this process", Note: x.Owner}
	case x.Owner != "":
		by = cell{Text: "another process", Note: "claim " + clip(x.Owner, 12)}
	}
	generation := cell{}
	if x.Generation != 0 {
		generation = linked(fmt.Sprintf("generation %d", x.Generation), link("/generation", "number", fmt.Sprint(x.Generation)))
	}
	lag, behind, envelope := cell{Class: "num"}, cell{Class: "num"}, cell{Class: "num"}
	if x.LagSeconds != nil {
		lag.Text = fmt.Sprintf("%.1f s", *x.LagSeconds)
	}
	if x.Behind != nil {
		behind.Text = fmt.Sprintf("%.0f messages", *x.Behind)
	}
	if x.Envelope != 0 {
		envelope = number(x.Envelope)
	}
	return []cell{number(x.Partition), by, generation, at(x.Since), lag, behind, envelope, mono(x.Events)}
}

// queueJobs limits the lists of jobs of a queue.
const queueJobs = 10

// queuePage is a queue, or a job set of it.
type queuePage struct {
	*query.QueueStory
	Windows  []choice
	Figures  []figure
	Trend    *trend // of the whole queue, as Cost, if it is not about a job set
	Cost     table
	Tallies  []table
	Outcomes []table
	Newest   table
	Override string
}

func (s *Site) queue(p *page) error {
	name, set := p.form.Get("name"), p.form.Get("set")
	if name == "" {
		return &query.Invalid{Param: "name", Err: fmt.Errorf("missing: name a queue")}
	}
	if s.Query.Jobs == nil {
		return errNoJobs
	}
	since, err := query.Moment(p.arg("since"), s.Now())
	if err != nil {
		return &query.Invalid{Param: "since", Err: err}
	}
	story, err := s.Query.QueueStory(p.ctx, query.QueueQuestion{Queue: name, JobSet: set, Since: since, Limit: queueJobs})
	if err != nil {
		return err
	}
	shown := queuePage{QueueStory: story, Windows: windows(p), Override: link("/overrides", "queue", name)}
	failed := link("/jobs", "queue", name, "set", set, "state", "Failed", "sort", "-ended")
	if since != 0 {
		failed = "" // that list cannot be limited by when jobs ended
	}
	shown.Figures = effectFigures(story.Effects(), failed, link("/shadow", "queue", name))
	if set == "" {
		if shown.Trend, err = s.trendOf(p, name, "", since, 0); err != nil {
			return err
		}
		if shown.Cost, err = s.costBy(p, "queue", &name, since, 0); err != nil {
			return err
		}
	}
	for _, t := range []struct {
		heading string
		counts  []query.Tally
	}{{"Code", story.Codes}, {"Rule", story.Rules}, {"Cause" + story.NewestCauses(), story.Causes}} {
		first, _, _ := strings.Cut(t.heading, " ")
		one := table{Caption: "Decisions by " + strings.ToLower(t.heading), Columns: columns(first, "Count>"), Empty: "None."}
		for _, n := range t.counts {
			c := text(n.Key)
			if t.heading == "Code" {
				c.Link = link("/decisions", "queue", name, "set", set, "code", n.Key, "since", p.arg("since"))
			}
			one.Rows = append(one.Rows, []cell{c, number(size(uint64(n.Count)))})
		}
		shown.Tallies = append(shown.Tallies, one)
	}
	shown.Outcomes = []table{
		outcomesTable("Failed for good", "Ended", &story.Failed, failed),
		outcomesTable("Pending retries", "Retry after", &story.Pending, link("/jobs", "queue", name, "set", set, "waiting", "yes")),
	}
	shown.Newest = table{Caption: "Newest decisions", Columns: decisionColumns(), Empty: "Nothing was decided yet."}
	if _, err = s.Query.ListDecisions(p.ctx, &query.List{Criteria: jobdb.Criteria{Queue: name, JobSet: set, Since: since}, Sort: "-time", Limit: queueJobs}, func(d *audit.Decision) error {
		shown.Newest.Rows = append(shown.Newest.Rows, decisionRow(d))
		return nil
	}); err != nil {
		return err
	}
	heading := "Queue " + clip(name, 60)
	if set != "" {
		heading = fmt.Sprintf("Job set %s of queue %s", clip(set, 60), clip(name, 60))
	}
	if story.Since != "" {
		heading += " since " + part(story.Since, "2006-01-02 15:04:05 UTC")
	}
	return p.show("queue", heading, "/top", shown)
}

// outcomesTable lists the newest jobs with one outcome; all is the address of the whole list.
func outcomesTable(what, when string, f *query.Outcomes, all string) table {
	t := table{Caption: what + ": " + plural.Of(f.Count, "job"), Columns: columns("Job", "Runs>", when, "Code", "Rule", "Why"), Empty: "None."}
	for i := range f.Jobs {
		j := &f.Jobs[i]
		t.Rows = append(t.Rows, []cell{
			{Text: j.JobID, Link: link("/job", "id", j.JobID), Class: "mono id"},
			number(j.Runs), at(cmp.Or(j.Ended, j.RetryAfter)),
			{Text: j.Code, Class: "tok"},
			{Text: j.Rule, Class: "rule"},
			{Text: clip(j.Reason, 300), Class: "why"},
		})
	}
	if f.Count > len(f.Jobs) {
		t.Next = all
	}
	return t
}
