package web

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// startPage is what the start page shows.
type startPage struct {
	NoJobs  bool
	Figures []figure
	States  []figure
	Trend   *trend
	Rules   table
	Newest  listing
}

// figure is a number with what it counts, and the list of those.
type figure struct {
	Count, Name, Link, Note string // without Link, no list has just these
	Class                   string
}

func (s *Site) start(p *page) error {
	if s.Query.Jobs == nil {
		return p.show("start", "What happened to failed runs", "/", startPage{NoJobs: true})
	}
	shown := startPage{}
	err := s.Query.Jobs(p.ctx, func(q jobdb.Queries) error {
		n, err := q.Counted(nil)
		shown.count(&n)
		return err
	})
	if err != nil {
		return err
	}
	if shown.Trend, err = s.trendOf(p, "", "", 0, 0); err != nil {
		return err
	}
	l, newest, err := p.list(query.Decisions, "-time")
	if err != nil {
		return p.refused("Newest decisions", newest, err)
	}
	l.Limit = 12
	t := &newest.Table
	*t = table{Caption: "Newest decisions", Columns: decisionColumns(), Empty: "No decision yet."}
	if len(newest.Chosen) > 0 {
		t.Empty = "No decision matches these filters."
	}
	rows := p.decisionRows(newest)
	if _, err = s.Query.ListDecisions(p.ctx, l, rows.add); err != nil {
		return err
	}
	t.Rows = rows.all
	p.missing(l, newest)
	t.Now = p.liveFrom("live", "table", "3s", t.Rows)
	shown.Newest = *newest
	return p.show("start", "What happened to failed runs", "/", shown)
}

// count shows counts.
func (shown *startPage) count(sum *jobdb.Counted) {
	var undecided uint64
	for _, n := range sum.NotDecided {
		undecided += n.Count
	}
	shown.Figures = append(effectFigures(query.CountEffects(sum.Decisions), "", "/shadow"), figure{size(undecided), "not decided", "", "failed runs whose job was already over", ""})
	for _, j := range sum.Jobs {
		shown.States = append(shown.States, figure{Count: size(j.Count), Name: j.State.String(), Link: link("/jobs", "state", j.State.String()), Class: kind(j.State.String())})
	}
	shown.Rules = rulesTable(sum)
}

// effectFigures counts decisions by their effects. failed and shadow are the addresses of those lists.
func effectFigures(n query.Effects, failed, shadow string) []figure {
	all := []figure{
		{size(n.Retried), query.Retried.String(), "", "failed runs whose job was queued again", "good"},
		{size(n.FailedForGood), query.FailedForGood.String(), failed, "failed runs that ended their job", "bad"},
	}
	if n.InShadow > 0 {
		all = append(all, figure{size(n.InShadow), query.InShadow.String(), shadow, "decided without effect", ""})
	}
	if n.Superseded > 0 {
		all = append(all, figure{size(n.Superseded), query.Superseded.String(), "", "decided too late, without effect", ""})
	}
	return all
}

// rulesTable counts decisions by what decided them, the most frequent first.
func rulesTable(sum *jobdb.Counted) table {
	t := table{Caption: "Decisions by rule", Columns: columns("Decision", "Code", "Rule", "Count>", "Share"), Empty: "No decision yet."}
	all := slices.Clone(sum.Decisions)
	slices.SortStableFunc(all, func(a, b jobdb.DecisionCount) int { return cmp.Compare(b.Count, a.Count) })
	var total uint64
	for _, d := range all {
		total += d.Count
	}
	for i := range all {
		d := &all[i]
		c := effectBadge(query.EffectOfCount(d), d.Requeue)
		share := 100 * float64(d.Count) / float64(total)
		list := link("/decisions", "code", d.Code.String(), "policy", d.Policy, "rule", d.Rule)
		t.Rows = append(t.Rows, []cell{c, linked(d.Code.String(), list), ruleCell(d.Policy, d.Rule), number(size(d.Count)), {Bar: true, Share: share, Text: fmt.Sprintf("%.0f %%", share)}})
	}
	return t
}
