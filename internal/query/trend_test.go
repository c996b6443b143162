package query_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// hourly is a job database with one decision of each kind in every hour from 1000 to 1199; the newest one is in 1199.
type hourly struct{ jobdb.Queries }

func (hourly) DecisionList(_ *jobdb.Criteria, _ jobdb.Page, visit func(*jobdb.Decision) error) ([]any, error) {
	d := &jobdb.Decision{}
	d.Time = 1199*3600e9 + 5
	return nil, visit(d)
}

func (hourly) Hours(f jobdb.HourFilter) (all []jobdb.HourCount, err error) {
	for h := max(f.From, 1000); h < 1200 && (f.To == 0 || h < f.To); h++ {
		all = append(all, jobdb.HourCount{Hour: h, Requeue: true, Acted: true, Count: 2}, jobdb.HourCount{Hour: h, Acted: true, Count: 1}, jobdb.HourCount{Hour: h, Shadow: true, Acted: true, Count: 3})
	}
	return all, nil
}

// TestTrend: every decision of the time that is asked for is in one step, and the steps cover it.
func TestTrend(t *testing.T) {
	t.Parallel()
	s := &query.Source{Jobs: func(_ context.Context, read func(jobdb.Queries) error) error { return read(hourly{}) }}
	for _, c := range []struct {
		from, to    int64 // hours
		step, steps int
		retried     uint64
	}{
		{0, 0, 3, 56, 2 * 168},
		{1190, 1200, 1, 10, 20},
		{1000, 1200, 6, 34, 2 * 200},
		{1199, 1200, 1, 1, 2},
		{1300, 1200, 1, 1, 2},
		{0, 2000, 3, 56, 0},
	} {
		got, err := s.Trend(t.Context(), "", "", c.from*3600e9, c.to*3600e9)
		if err != nil {
			t.Fatal(err)
		}
		if n := got.All(); got.Step != time.Duration(c.step)*time.Hour || len(got.Steps) != c.steps || n.Retried != c.retried || n.FailedForGood != c.retried/2 || n.InShadow != c.retried*3/2 {
			t.Errorf("%+v: %v, %d steps, %+v", c, got.Step, len(got.Steps), n)
		}
	}
	n, err := s.BeforeAfter(t.Context(), query.Around{First: 1190*3600e9 + 7, Last: 1190*3600e9 + 7})
	if err != nil || n.Before.Retried != 48 || n.After.Retried != 18 {
		t.Errorf("%+v, %v: want 48 and 18 retried", n, err)
	}
	n, err = s.BeforeAfter(t.Context(), query.Around{First: 1010 * 3600e9, Last: 1197 * 3600e9})
	if err != nil || n.Before.Retried != 20 || n.After.Retried != 4 {
		t.Errorf("%+v, %v: want 20 and 4 retried", n, err)
	}
	if _, err = s.BeforeAfter(t.Context(), query.Around{First: 2, Last: 1}); err == nil {
		t.Error("the last change is before the first one")
	}
	some := s.Limited(func(context.Context) ([]string, bool) { return []string{"q"}, false })
	if _, err = some.BeforeAfter(t.Context(), query.Around{Policy: "p"}); !errors.Is(err, query.ErrAllQueues) {
		t.Errorf("who sees one queue has the decisions of a policy: %v", err)
	}
}

// onNode is a job database with so many decided runs of a node, so many an hour, of which every third was retried, the fifth before
// the last was decided in shadow and the sixth was released; and with one run that goes on.
type onNode struct {
	jobdb.Queries
	runs, inHour int
}

func (q onNode) RunList(c *jobdb.Criteria, p jobdb.Page, visit func(*jobdb.Run) error) ([]any, error) {
	if c.Node != "n" || p.Sort != "leased" || !p.Descending {
		return nil, nil
	}
	err := visit(&jobdb.Run{})
	for i := range min(q.runs, p.Limit-1) {
		r := &jobdb.Run{Decision: uint64(i + 1), Outcome: jobdb.Denied, Shadow: i == 4}
		if r.Times.Ended = int64(5000-i/q.inHour) * 3600e9; i%3 == 0 {
			r.Outcome = jobdb.Requeued
		} else if i == 5 {
			r.Outcome = jobdb.Released
		}
		err = errors.Join(err, visit(r))
	}
	return nil, err
}

// TestNodeTrend: a week of decisions is counted by effect, of the newest runs.
func TestNodeTrend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		node    string
		runs    int
		inHour  int
		steps   int
		retried uint64
		failed  uint64
		shadow  uint64
		late    uint64
		cut     bool
	}{
		{"n", 0, 1, 0, 0, 0, 0, 0, false},
		{"other", 9, 1, 0, 0, 0, 0, 0, false},
		{"n", 9, 1, 56, 3, 4, 1, 1, false},
		{"n", 400, 1, 56, 56, 110, 1, 1, false},
		{"n", query.NodeRuns + 5, 1, 56, 56, 110, 1, 1, true},
		{"n", query.NodeRuns + 5, 100, 20, 667, 1330, 1, 1, true},
	} {
		s := &query.Source{Jobs: func(_ context.Context, read func(jobdb.Queries) error) error {
			return read(onNode{runs: c.runs, inHour: c.inHour})
		}}
		got, cut, err := s.NodeTrend(t.Context(), c.node)
		if err != nil || cut != c.cut || (got == nil) != (c.steps == 0) {
			t.Errorf("%+v: %v, %v, %v", c, got, cut, err)
			continue
		}
		if got == nil {
			continue
		}
		if n := got.All(); len(got.Steps) != c.steps || n != (query.Effects{Retried: c.retried, FailedForGood: c.failed, InShadow: c.shadow, Superseded: c.late}) {
			t.Errorf("%+v: %d steps, %+v", c, len(got.Steps), n)
		}
	}
}
