package query_test

import (
	"context"
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
	before, after, err := s.BeforeAfter(t.Context(), 1190*3600e9+7)
	if err != nil || before.Retried != 48 || after.Retried != 18 {
		t.Errorf("before %+v, after %+v, %v: want 48 and 18 retried", before, after, err)
	}
}
