package web

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/query"
)

// The size of a chart in its own units.
const (
	trendWidth  = 600
	trendHeight = 100
)

// trend is a chart of decisions over time, with its numbers.
type trend struct {
	ID, Title, Desc string
	Bars            []trendBar
	Marks           []trendMark
	From, To        string // times
	Top             string // the highest bar
	Other           bool   // there are decisions without effect
	Numbers         table
}

// trendBar is a part of a bar, from the top left, in units of the chart.
type trendBar struct{ X, Y, Width, Height, Class, Title string }

// trendMark is where a generation came into force.
type trendMark struct{ X, Name, Link string }

// trendOf draws a trend; nil: there is nothing to draw. Without a chart, a page is still of use: only Query errors are returned.
func (s *Site) trendOf(p *page, queue, policy string, from, to int64) (*trend, error) {
	t, err := s.Query.Trend(p.ctx, queue, policy, from, to)
	if err != nil || t == nil {
		return nil, err
	}
	return s.marked(p, t), nil
}

// nodeTrend draws that of a node.
func (s *Site) nodeTrend(p *page, node string) (*trend, error) {
	t, cut, err := s.Query.NodeTrend(p.ctx, node)
	if err != nil || t == nil {
		return nil, err
	}
	d := s.marked(p, t)
	if d.Title += ", on this node"; cut {
		d.Title += fmt.Sprintf(", of its newest %d runs", query.NodeRuns)
	}
	return d, nil
}

// marked draws a trend with marks where generations came into force.
func (s *Site) marked(p *page, t *query.Trend) *trend {
	history, err := s.API.Store.History(p.ctx)
	if err != nil {
		history = nil // a policies log that does not answer takes the marks, not the page
	}
	return drawTrend(t, history)
}

func drawTrend(t *query.Trend, history []*policylog.Version) *trend {
	const minute = "2006-01-02 15:04"
	end := t.At(len(t.Steps))
	d := &trend{ID: "trend", From: query.TimeText(t.Start.UnixNano()), To: query.TimeText(end.UnixNano())}
	step := plural.Of(int(t.Step/time.Hour), "hour")
	d.Title = fmt.Sprintf("Decisions of each %s by what they did", step)
	most, all := uint64(1), t.All()
	peak := 0
	for i := range t.Steps {
		if n := t.Steps[i].All(); n > most {
			most, peak = n, i
		}
	}
	d.Top, d.Other = size(most), all.WithoutEffect() > 0
	d.Desc = fmt.Sprintf("From %s to %s UTC: %s. The most, %d, were in the %s from %s.", t.Start.Format(minute), end.Format(minute), all.Words(), most, step, t.At(peak).Format(minute))
	d.Numbers = table{Caption: d.Title, Columns: columns("From", "Retried>", "Failed for good>", "Without effect>", "Policies")}
	marks := map[int][]uint64{}
	for _, v := range slices.Backward(history) { // the oldest first
		if at := time.Unix(0, v.Time); v.Err == nil && !at.Before(t.Start) && at.Before(end) {
			marks[int(at.Sub(t.Start)/t.Step)] = append(marks[int(at.Sub(t.Start)/t.Step)], v.Number)
			x := trendWidth * float64(at.Sub(t.Start)) / float64(end.Sub(t.Start))
			d.Marks = append(d.Marks, trendMark{units(x), fmt.Sprintf("Generation %d came into force at %s UTC", v.Number, at.UTC().Format(minute)), link("/generation", "number", strconv.FormatUint(v.Number, 10))})
		}
	}
	width := float64(trendWidth) / float64(len(t.Steps))
	for i := range t.Steps {
		n, y := &t.Steps[i], float64(trendHeight)
		for _, part := range []struct {
			class string
			count uint64
		}{{"good", n.Retried}, {"bad", n.FailedForGood}, {"other", n.WithoutEffect()}} {
			if part.count > 0 {
				h := trendHeight * float64(part.count) / float64(most)
				y -= h
				d.Bars = append(d.Bars, trendBar{units(float64(i)*width + width*.1), units(y), units(width * .8), units(h), part.class, t.At(i).Format(minute) + ": " + n.Words()})
			}
		}
		if n.All() > 0 || len(marks[i]) > 0 {
			row := []cell{at(query.TimeText(t.At(i).UnixNano())), number(size(n.Retried)), number(size(n.FailedForGood)), number(size(n.WithoutEffect())), {}}
			if of := marks[i]; len(of) > 0 {
				row[4] = generationCell(of[len(of)-1])
				row[4].Text = "generation " + row[4].Text
				if more := len(of) - 1; more > 0 {
					row[4].Note = fmt.Sprintf("and %d before it", more)
				}
			}
			d.Numbers.Rows = append(d.Numbers.Rows, row)
		}
	}
	return d
}

// spark is a small trend in a row of a list.
type spark struct {
	Text string
	Bars []trendBar
}

const (
	sparkWidth  = 100
	sparkHeight = 16
)

// sparkCell draws a small trend; an empty cell: there is nothing to draw.
func (s *Site) sparkCell(p *page, queue, policy string, from, to int64) (cell, error) {
	t, err := s.Query.Trend(p.ctx, queue, policy, from, to)
	if err != nil || t == nil {
		return cell{}, err
	}
	most, all := uint64(1), t.All()
	for i := range t.Steps {
		most = max(most, t.Steps[i].All())
	}
	c := &spark{Text: fmt.Sprintf("%s from %s to %s UTC", all.Words(), t.Start.Format("2006-01-02 15:04"), t.At(len(t.Steps)).Format("2006-01-02 15:04"))}
	width := float64(sparkWidth) / float64(len(t.Steps))
	for i := range t.Steps {
		if n := t.Steps[i].All(); n > 0 {
			h := max(1, sparkHeight*float64(n)/float64(most))
			c.Bars = append(c.Bars, trendBar{X: units(float64(i) * width), Y: units(sparkHeight - h), Width: units(width * .8), Height: units(h)})
		}
	}
	return cell{Spark: c}, nil
}

func units(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }
