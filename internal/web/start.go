package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// The counts of the start page scan runs. They may be countsAge old, and countsShare times as old as
// counting takes, so that it never takes more than that part of the time. It goes on without the page that asked for it.
const (
	countsAge   = 5 * time.Second
	countsShare = 20
	countsLimit = 10 * time.Minute
	// countsWait is how long a page waits for counts.
	countsWait = 2 * time.Second
)

// counts are those of the start page. The zero value is ready to use.
type counts struct {
	mu      sync.Mutex
	sum     *jobdb.Summary // nil: never counted
	made    time.Time
	age     time.Duration // that they may have
	err     error         // of the last time
	running chan struct{} // closed when the count that runs has ended; nil: no count runs
	stop    func()        // ends it
}

// countsBy has counts by the queues whose jobs a caller may see. The zero value is ready to use.
type countsBy struct {
	mu sync.Mutex
	of map[string]*counts
}

func (b *countsBy) at(ctx context.Context) *counts {
	some, all := api.QueuesOf(ctx)
	key := fmt.Sprintf("%t %q", all, some)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[key] == nil {
		if b.of == nil {
			b.of = map[string]*counts{}
		}
		b.of[key] = &counts{}
	}
	return b.of[key]
}

func (b *countsBy) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.of {
		c.end()
	}
}

// summary counts what is in the job database, and says when that was. nil: it is still being counted.
func (s *Site) summary(ctx context.Context) (*jobdb.Summary, time.Time, error) {
	c := s.counts.at(ctx)
	c.mu.Lock()
	if c.sum != nil && s.Now().Sub(c.made) < c.age {
		defer c.mu.Unlock()
		return c.sum, c.made, nil
	}
	if c.running == nil {
		counting, cancel := context.WithTimeout(context.WithoutCancel(ctx), countsLimit)
		c.running, c.stop = make(chan struct{}), cancel
		go s.count(counting)
	}
	running := c.running
	c.mu.Unlock()
	wait := time.NewTimer(countsWait)
	defer wait.Stop()
	select {
	case <-running:
	case <-wait.C:
	case <-ctx.Done():
		return nil, time.Time{}, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sum == nil && c.err != nil && !errors.Is(c.err, context.DeadlineExceeded) { // countsLimit: it begins again
		return nil, time.Time{}, c.err
	}
	return c.sum, c.made, nil
}

// count counts, and ends what summary has begun.
func (s *Site) count(ctx context.Context) {
	c := s.counts.at(ctx)
	begun := s.Now()
	var sum *jobdb.Summary
	err := s.Query.Jobs(ctx, func(q jobdb.Queries) (err error) {
		sum, err = q.Summary()
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err = err; err == nil {
		c.sum, c.made = sum, s.Now()
		c.age = max(countsAge, countsShare*c.made.Sub(begun))
	}
	c.stop()
	close(c.running)
	c.running, c.stop = nil, nil
}

// end ends counting.
func (c *counts) end() {
	c.mu.Lock()
	running := c.running
	if running != nil {
		c.stop()
	}
	c.mu.Unlock()
	if running != nil {
		<-running
	}
}

// startPage is what the start page shows.
type startPage struct {
	NoJobs  bool
	Counted string // when, if not just now; "": or it is still being counted
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
	sum, made, err := s.summary(p.ctx)
	if err != nil {
		return err
	}
	shown := startPage{}
	if sum != nil {
		shown.count(sum)
		if s.Now().Sub(made) > countsAge {
			shown.Counted = made.UTC().Format(time.RFC3339Nano)
		}
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
func (shown *startPage) count(sum *jobdb.Summary) {
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
func rulesTable(sum *jobdb.Summary) table {
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
