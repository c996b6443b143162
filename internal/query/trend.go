package query

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
)

// Trend is decisions by their effect over time, from kept counts: pruned jobs are still in it.
type Trend struct {
	Start time.Time     // of the first step
	Step  time.Duration // whole hours
	Steps []Effects     // one for each step
}

// The length of a trend: what it covers unless it is asked for another time, and the number of steps.
const (
	trendHours = 7 * 24
	trendSteps = 60
)

// All adds up the steps.
func (t *Trend) All() (n Effects) {
	for i := range t.Steps {
		n.sum(&t.Steps[i])
	}
	return n
}

// At returns the start of a step.
func (t *Trend) At(step int) time.Time { return t.Start.Add(time.Duration(step) * t.Step) }

// Trend returns the decisions of a queue, of a policy, or all, from one time to another, in Unix nanoseconds. 0: to the newest
// decision, and from a week before. nil: there is no decision.
func (s *Source) Trend(ctx context.Context, queue, policy string, from, to int64) (t *Trend, err error) {
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		if to == 0 {
			if _, err := q.DecisionList(&jobdb.Criteria{Queue: queue, Policy: policy}, jobdb.Page{Sort: "time", Descending: true, Limit: 1}, func(d *jobdb.Decision) error {
				to = d.Time + 1
				return nil
			}); err != nil || to == 0 {
				return err
			}
		}
		last := jobdb.HourOf(to-1) + 1
		first := last - trendHours
		if from != 0 {
			first = min(jobdb.HourOf(from), last-1)
		}
		counts, err := q.Hours(jobdb.HourFilter{Queue: queue, Policy: policy, From: first, To: last})
		t = trendOf(counts, first, last)
		return err
	})
	return t, err
}

// NodeRuns is how many runs of a node a trend is about at most: the newest.
const NodeRuns = 2000

// NodeTrend returns what was decided on the newest runs of a node, by when they ended, of the week before the last such end. It
// is from the rows of runs, as counts of nodes, which come and go, are not kept: what was pruned is not in it. cut: older runs
// are left out. nil: nothing was decided.
func (s *Source) NodeTrend(ctx context.Context, node string) (t *Trend, cut bool, err error) {
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		var counts []jobdb.HourCount
		n, last := 0, int64(0)
		_, err := q.RunList(&jobdb.Criteria{Node: node}, jobdb.Page{Sort: "leased", Descending: true, Limit: NodeRuns}, func(r *jobdb.Run) error {
			if n++; r.Decision != 0 && r.Times.Ended > 0 {
				hour := jobdb.HourOf(r.Times.Ended)
				counts, last = append(counts, jobdb.HourCount{Hour: hour, Requeue: r.Outcome == jobdb.Requeued, Shadow: r.Shadow, Acted: r.Outcome != jobdb.Released, Count: 1}), max(last, hour+1)
			}
			return nil
		})
		if err != nil || counts == nil {
			return err
		}
		cut = n == NodeRuns
		first := last - trendHours
		counts = slices.DeleteFunc(counts, func(c jobdb.HourCount) bool { return c.Hour < first })
		if cut {
			first = slices.MinFunc(counts, func(a, b jobdb.HourCount) int { return cmp.Compare(a.Hour, b.Hour) }).Hour
		}
		t = trendOf(counts, first, last)
		return nil
	})
	return t, cut, err
}

// trendOf gathers the counts of hours in as many steps as there is room for, of which the last one ends with last.
func trendOf(counts []jobdb.HourCount, first, last int64) *Trend {
	step := (last - first + trendSteps - 1) / trendSteps
	for _, round := range []int64{1, 2, 3, 6, 12, 24, 48, 168} {
		if round >= step {
			step = round
			break
		}
	}
	n := (last - first + step - 1) / step
	first = last - n*step
	t := &Trend{Start: time.Unix(first*3600, 0).UTC(), Step: time.Duration(step) * time.Hour, Steps: make([]Effects, n)}
	for _, c := range counts {
		t.Steps[(c.Hour-first)/step].add(effectOf(c.Requeue, c.Shadow, c.Acted), c.Count)
	}
	return t
}

// around is how many hours before and after a change are compared.
const around = 24

// Around asks for the decisions around some changes: of a queue, of a policy or a rule of it, or all.
type Around struct {
	Queue, Policy, Rule string
	First, Last         int64 // when the first and the last change came, in Unix nanoseconds
}

// BeforeAfter are the decisions of the 24 hours before the hour of the first change, and of those after that of the last one, as far
// as there are any yet. These hours, and what is between them, are in neither.
type BeforeAfter struct {
	Before Effects `json:"before"`
	After  Effects `json:"after"`
}

// BeforeAfter counts decisions before and after changes. Errors: ErrAllQueues, of a policy.
func (s *Source) BeforeAfter(ctx context.Context, asked Around) (n BeforeAfter, err error) {
	if asked.Policy != "" && s.limited != nil && s.limited(ctx) {
		return n, ErrAllQueues
	}
	if asked.First > asked.Last {
		return n, invalid("last", "%s is before %s", TimeText(asked.Last), TimeText(asked.First))
	}
	first, last := jobdb.HourOf(asked.First), jobdb.HourOf(asked.Last)
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		counts, err := q.Hours(jobdb.HourFilter{Queue: asked.Queue, Policy: asked.Policy, Rule: asked.Rule, From: first - around, To: last + 1 + around})
		for _, c := range counts {
			effect := effectOf(c.Requeue, c.Shadow, c.Acted)
			switch {
			case c.Hour < first:
				n.Before.add(effect, c.Count)
			case c.Hour > last:
				n.After.add(effect, c.Count)
			}
		}
		return err
	})
	return n, err
}

// sum adds counts.
func (n *Effects) sum(o *Effects) {
	n.Retried, n.FailedForGood, n.InShadow, n.Superseded = n.Retried+o.Retried, n.FailedForGood+o.FailedForGood, n.InShadow+o.InShadow, n.Superseded+o.Superseded
}
