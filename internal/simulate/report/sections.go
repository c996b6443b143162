package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/simulate"
)

// maxLines is how many lines of one candidate a picture shows.
const maxLines = 8

// distributions shows how long jobs waited and took, each candidate a line.
func distributions(results [][]*simulate.Result, _ []simulate.Comparison) section {
	out := section{
		Title: "How long jobs waited and took",
		Lead:  "How many of the jobs were within a time. A line further to the left is better. Completion has only jobs that succeeded, so losing the slow ones moves it to the left: read the headline first. Each percentile is the average over the seeds.",
	}
	for _, kind := range []struct {
		id, title string
		of        func(*simulate.Result) []float64
	}{
		{"waiting", "Waiting, from submission to the first run", func(r *simulate.Result) []float64 { return r.Percentiles.Waiting }},
		{"completion", "Completion, from submission to success", func(r *simulate.Result) []float64 { return r.Percentiles.Completion }},
	} {
		f := figure{Title: kind.title, Axes: "time (logarithmic, from one second) → percent of jobs", Table: table{Head: []string{"Candidate", "p5", "p25", "p50", "p75", "p95", "p99", "p100"}}}
		p := picture{id: kind.id, title: kind.title, height: 270, y: ticks(1, percent)}
		least, most, sentences := 0.0, 0.0, []string{}
		for i, of := range results {
			times := averages(of, kind.of)
			if times == nil {
				continue
			}
			l := line{color: i, width: 2, dashed: i%2 == 1}
			for n, s := range times {
				l.x, l.y = append(l.x, logarithm(s)), append(l.y, float64(n)/100)
			}
			if len(p.lines) == 0 || times[0] < least {
				least = times[0]
			}
			most = max(most, times[100])
			p.lines = append(p.lines, l)
			f.Legend = append(f.Legend, legend{simulate.Letter(i) + " " + clean(of[0].Candidate), i % len(palette()), l.dashed})
			sentences = append(sentences, fmt.Sprintf("%s: half within %s, 95%% within %s, all within %s", simulate.Letter(i), simulate.Seconds(times[50]), simulate.Seconds(times[95]), simulate.Seconds(times[100])))
			r := row{Name: simulate.Letter(i)}
			for _, n := range []int{5, 25, 50, 75, 95, 99, 100} {
				r.Cells = append(r.Cells, cell{Text: simulate.Seconds(times[n])})
			}
			f.Table.Rows = append(f.Table.Rows, r)
		}
		p.x, p.desc = durations(least, most), strings.Join(sentences, "; ")+"."
		out.add(f, &p)
	}
	return out
}

// add draws a picture; one without lines is left out.
func (s *section) add(f figure, p *picture) {
	if len(p.lines) > 0 {
		f.SVG = p.svg()
		s.Figures = append(s.Figures, f)
	}
}

// averages are those of percentiles over the seeds that have them.
func averages(results []*simulate.Result, of func(*simulate.Result) []float64) []float64 {
	var sums []float64
	n := 0.0
	for _, r := range results {
		values := of(r)
		if len(values) == 0 {
			continue
		}
		n++
		if sums == nil {
			sums = make([]float64, len(values))
		}
		for i, v := range values {
			sums[i] += v
		}
	}
	for i := range sums {
		sums[i] /= n
	}
	return sums
}

type series struct {
	name   string
	values []float64
	color  int
}

// overTime shows queues and resources over time, each candidate in a picture of its own, with the same scales.
func overTime(results [][]*simulate.Result, _ []simulate.Comparison) section {
	out := section{Title: "Over time", Lead: fmt.Sprintf("What the scheduling cycles saw under seed %d. Pictures of one kind have the same scales.", results[0][0].Seed)}
	hours := 0.0
	for _, of := range results {
		hours = max(hours, of[0].Hours)
	}
	queues := func(of func(*simulate.QueueSeries) []float64) func(*simulate.Result) []series {
		return func(r *simulate.Result) (all []series) {
			for i := range r.Series.Queues {
				all = append(all, series{r.Series.Queues[i].Queue, of(&r.Series.Queues[i]), i})
			}
			return all
		}
	}
	for _, kind := range []struct {
		id, title, axes string
		format          func(float64) string
		of              func(*simulate.Result) []series
	}{
		{"queues", "Waiting jobs by queue", "hours → jobs that wait, for their first run or a retry", plain, queues(func(q *simulate.QueueSeries) []float64 { return q.Waiting })},
		{"use", "Use of resources", "hours → part of the nodes that are up", percent, func(r *simulate.Result) (all []series) {
			for i := range r.Series.Resources {
				all = append(all, series{r.Series.Resources[i].Resource, r.Series.Resources[i].Use, i})
			}
			return all
		}},
		{"fair", "Fair-share error by queue", "hours → |share − fair share|, of the dominant resource", percent, queues(func(q *simulate.QueueSeries) []float64 { return q.Error })},
	} {
		most := 0.0
		for _, of := range results {
			for _, s := range kind.of(of[0]) {
				most = max(most, slices.Max(append([]float64{0}, s.values...)))
			}
		}
		for i, of := range results {
			f := figure{Title: simulate.Letter(i) + ": " + kind.title, Axes: kind.axes, Table: table{Head: []string{"Line", "Average", "At most"}}}
			p := picture{id: fmt.Sprintf("%s-%d", kind.id, i), title: f.Title, height: 230, x: ticks(hours, plain), y: ticks(most, kind.format)}
			f.fill(&p, of[0], kind.of(of[0]), kind.format)
			out.add(f, &p)
		}
	}
	return out
}

// fill draws the lines with the largest averages, and lists all of them.
func (f *figure) fill(p *picture, r *simulate.Result, all []series, format func(float64) string) {
	mean := func(s series) (sum float64) {
		for _, v := range s.values {
			sum += v / float64(len(s.values))
		}
		return sum
	}
	if len(all) > maxLines {
		f.Axes += fmt.Sprintf("; the %d of %d with the largest averages", maxLines, len(all))
		slices.SortStableFunc(all, func(a, b series) int { return cmp.Compare(mean(b), mean(a)) })
	}
	var sentences []string
	for i, s := range all {
		average, most := format(round(mean(s))), format(round(slices.Max(append([]float64{0}, s.values...))))
		f.Table.Rows = append(f.Table.Rows, row{clean(s.name), []cell{{Text: average}, {Text: most}}})
		if i >= maxLines || len(s.values) == 0 {
			continue
		}
		l := line{color: s.color, width: 2, dashed: s.color%2 == 1}
		for n, v := range s.values { // a step for each interval
			l.x = append(l.x, float64(n)*r.Series.IntervalHours, min(float64(n+1)*r.Series.IntervalHours, r.Hours))
			l.y = append(l.y, v, v)
		}
		p.lines = append(p.lines, l)
		f.Legend = append(f.Legend, legend{clean(s.name), s.color % len(palette()), l.dashed})
		sentences = append(sentences, fmt.Sprintf("%s: %s on average, at most %s", s.name, average, most))
	}
	p.desc = strings.Join(sentences, "; ") + "."
}

func round(v float64) float64 {
	if v >= 10 {
		return float64(int64(v + 0.5))
	}
	return float64(int64(v*1000+0.5)) / 1000
}

func byCause(_ [][]*simulate.Result, all []simulate.Comparison) section {
	return bars(all, simulate.ByCause, "Retries and waste by cause",
		"Medians of the seeds. Wasted resource-hours are those of runs that did not succeed: of a core, a GiB or a device.")
}

func byRule(_ [][]*simulate.Result, all []simulate.Comparison) section {
	return bars(all, simulate.ByRule, "Retries and waste by rule",
		"Medians of the seeds, of the failed runs that each rule decided.")
}

// bars shows each measure of parts of a kind: a group of bars for each part, a bar for each candidate.
func bars(all []simulate.Comparison, by simulate.PartKind, title, lead string) section {
	out := section{Title: title, Lead: lead}
	var parts []int
	for p := range all[0].Parts {
		if all[0].Parts[p].By == by {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return out
	}
	for m, measure := range all[0].Parts[parts[0]].Measures {
		f := figure{Title: strings.ToUpper(measure.Name[:1]) + measure.Name[1:], Axes: strings.ToLower(string(by)) + " → median", Table: table{Head: []string{string(by)}}}
		p := picture{id: fmt.Sprintf("%s-%d", strings.ToLower(string(by)), m), title: f.Title, y: []tick{{Value: 0}}}
		most, group, sentences := 0.0, float64(len(all))+0.7, []string{}
		for i := range all {
			f.Table.Head = append(f.Table.Head, simulate.Letter(i))
			f.Legend = append(f.Legend, legend{simulate.Letter(i) + " " + clean(all[i].Candidate), i % len(palette()), false})
		}
		for n, part := range slices.Backward(parts) { // the first one on top
			below := float64(len(parts)-1-n) * group
			p.y = append(p.y, tick{Value: below + group/2, Label: short(all[0].Parts[part].Name())})
			for i := range all {
				v, at := all[i].Parts[part].Measures[m].Median, below+group-0.85-float64(i)
				if v > 0 {
					p.lines = append(p.lines, line{color: i, width: 10, x: []float64{0, v}, y: []float64{at, at}})
				}
				most = max(most, v)
			}
		}
		for _, part := range parts {
			r, values := row{Name: clean(all[0].Parts[part].Name())}, []string{}
			for i := range all {
				text := fmt.Sprintf("%.1f", all[i].Parts[part].Measures[m].Median)
				r.Cells, values = append(r.Cells, cell{Text: text}), append(values, simulate.Letter(i)+" "+text)
			}
			f.Table.Rows = append(f.Table.Rows, r)
			sentences = append(sentences, all[0].Parts[part].Name()+": "+strings.Join(values, ", "))
		}
		p.y = append(p.y, tick{Value: float64(len(parts)) * group})
		p.x, p.desc, p.height = ticks(most, plain), strings.Join(sentences, "; ")+".", 60+int(float64(len(parts))*group*13)
		out.add(f, &p)
	}
	return out
}
