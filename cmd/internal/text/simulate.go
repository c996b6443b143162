package text

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/simulate"
)

// hours lists resource-hours by resource.
func hours(of map[string]float64, resources []string) (cells []string) {
	for _, name := range resources {
		cells = append(cells, fmt.Sprintf("%.1f", of[name]))
	}
	return cells
}

// shortResource leaves out the domain of a resource, unless another one has the same name then.
func shortResource(name string, all []string) string {
	last := func(name string) string { return name[strings.LastIndex(name, "/")+1:] }
	short := last(name)
	for _, other := range all {
		if other != name && last(other) == short {
			return name
		}
	}
	return short
}

// simulatedQueues prints what became of each queue's jobs, and how long they took.
func simulatedQueues(w io.Writer, r *simulate.Result) error {
	t := show.NewTable(w, "QUEUE", "JOBS", "DONE", "LOST", "RETRIES", "PREEMPTED", "BELOW SHARE", "FAIR-SHARE ERROR", "AT MOST")
	row := func(name string, q *simulate.Tally, shares ...string) {
		t.Row(append([]string{name, fmt.Sprint(q.Jobs), fmt.Sprint(q.Done), fmt.Sprint(q.Lost), fmt.Sprint(q.Retries), fmt.Sprint(q.Preemptions)}, shares...)...)
	}
	percent := func(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }
	for i := range r.Queues {
		q := &r.Queues[i]
		row(q.Queue, &q.Tally, percent(q.Shortfall), percent(q.FairShareError), percent(q.MaxFairShareError))
	}
	row("all", &r.Tally, "", "", "")
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = show.NewTable(w, "QUEUE", "WAIT P50", "P95", "P99", "RETRY WAIT P95", "COMPLETION P50", "P95", "P99")
	times := func(name string, q *simulate.Tally) {
		t.Row(name, simulate.Seconds(q.Waiting.P50), simulate.Seconds(q.Waiting.P95), simulate.Seconds(q.Waiting.P99), simulate.Seconds(q.RetryWaiting.P95),
			simulate.Seconds(q.Completion.P50), simulate.Seconds(q.Completion.P95), simulate.Seconds(q.Completion.P99))
	}
	for i := range r.Queues {
		times(r.Queues[i].Queue, &r.Queues[i].Tally)
	}
	times("all", &r.Tally)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return nil
}

// Simulation prints what became of the jobs of a candidate under one seed.
func Simulation(w io.Writer, r *simulate.Result, seeds int) error {
	fmt.Fprintf(w, "%s, seed %d", query.OneLine(r.Candidate), r.Seed)
	if seeds > 1 {
		fmt.Fprintf(w, " (the first of %d)", seeds)
	}
	fmt.Fprintf(w, ": of %s, %d done (%d of them by retries), %d lost, %d not over, after %.1f hours\n", plural.Of(r.Jobs, "job"), r.Done, r.DoneByRetries, r.Lost, r.NotOver, r.Hours)
	for _, reason := range slices.Sorted(maps.Keys(r.NotOverBecause)) {
		fmt.Fprintf(w, "  not over: %d %s\n", r.NotOverBecause[reason], reason)
	}
	if r.Cancelled > 0 {
		fmt.Fprintf(w, "  cancelled: %d\n", r.Cancelled)
	}
	fmt.Fprintf(w, "  %s, %d of them retries; %s; %s passed by a retry of their queue\n",
		plural.Of(r.Runs, "run"), r.Retries, plural.Of(r.Preemptions, "preemption"), plural.Of(r.Passed, "first run"))
	fmt.Fprintf(w, "  done within %s: %d; shares and use are averages from hour %.1f to %.1f (average use %.0f%%)\n", simulate.Seconds(r.InTimeSeconds), r.DoneInTime, r.Measured.From, r.Measured.Until, 100*r.MeanUse)
	if r.Tail.Hours > 0 {
		fmt.Fprintf(w, "  %.1f hours after the last submission are apart: %s, average use %.0f%%\n", r.Tail.Hours, plural.Of(r.Tail.Done, "job")+" done", 100*r.Tail.MeanUse)
	}
	if p := r.Protection; p != nil {
		fmt.Fprintf(w, "  the guard: %s, %d of them certain, %d of healthy nodes, in %.0f node-days\n", plural.Of(p.Suspicions, "suspicion"), p.Certain, p.Healthy, p.NodeDays)
	}
	if b := r.Breakers; b != nil {
		fmt.Fprintf(w, "  breakers: %s, %d of them false; %s held, %d started as canaries, %d released\n", plural.Of(b.Openings, "opening"), b.False, plural.Of(b.Held, "retry", "retries"), b.Canaries, b.Released)
	}
	for _, cause := range slices.Sorted(maps.Keys(r.Recovery)) {
		fmt.Fprintf(w, "  the last retry of a run that failed of %s started %s after its end\n", query.OneLine(cause), simulate.Seconds(r.Recovery[cause]))
	}
	fmt.Fprintln(w)
	if err := simulatedQueues(w, r); err != nil {
		return err
	}
	var headings []string
	for _, name := range r.Resources {
		headings = append(headings, strings.ToUpper(shortResource(name, r.Resources))+" HOURS")
	}
	t := show.NewTable(w, append([]string{"CAUSE", "POLICY", "RULE", "CODE", "RUNS", "RETRIED"}, headings...)...)
	for i := range r.Failures {
		x := &r.Failures[i]
		t.Row(append([]string{x.Cause, x.Policy, x.Rule, x.Code, fmt.Sprint(x.Runs), fmt.Sprint(x.Retried)}, hours(x.WastedHours, r.Resources)...)...)
	}
	t.Row(append([]string{"all that was wasted", "", "", "", "", ""}, hours(r.WastedHours, r.Resources)...)...)
	t.Row(append([]string{"useful", "", "", "", "", ""}, hours(r.UsefulHours, r.Resources)...)...)
	if err := t.Flush(); err != nil || len(r.AvoidedNodes) == 0 {
		return err
	}
	fmt.Fprintf(w, "\navoided nodes (the average use of all nodes is %.0f%%):\n", 100*r.MeanUse)
	t = show.NewTable(w, "NODE", "AVOIDED", "RUNS", "FAILED", "USE")
	for _, n := range r.AvoidedNodes[:min(10, len(r.AvoidedNodes))] {
		t.Row(n.Node, fmt.Sprint(n.Avoided), fmt.Sprint(n.Runs), fmt.Sprint(n.Failed), fmt.Sprintf("%.0f%%", 100*n.Use))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more := len(r.AvoidedNodes) - 10; more > 0 {
		fmt.Fprintf(w, "and %s more: -o json lists them\n", plural.Of(more, "node"))
	}
	return nil
}

// Comparisons prints a table of the first candidate, and one more for each other candidate beside it. Candidates
// are letters there, since their names are paths; tables stay within 100 columns.
func Comparisons(w io.Writer, all []simulate.Comparison) error {
	fmt.Fprintf(w, "\nmedians of %s", plural.Of(all[0].Seeds, "seed"))
	if all[0].Headline[0].Low != nil {
		fmt.Fprint(w, " (with their 95% confidence intervals)")
	} else {
		fmt.Fprint(w, ", too few for confidence intervals: 6 or more have them")
	}
	if len(all) > 1 {
		fmt.Fprint(w, "; * marks differences that are hardly chance")
	}
	fmt.Fprintln(w)
	if few := simulate.FewSeeds(all[0].Seeds); few != "" {
		fmt.Fprintln(w, few)
	}
	for i := range all {
		fmt.Fprintf(w, "  %s: %s\n", simulate.Letter(i), query.OneLine(all[i].Candidate))
	}
	for i := range all {
		if i == 0 && len(all) > 1 {
			continue
		}
		if err := comparison(w, all, i); err != nil {
			return err
		}
	}
	return nil
}

func comparison(w io.Writer, all []simulate.Comparison, i int) error {
	first, own := &all[0], &all[i]
	t := comparisonTable(w, "HEADLINE", i)
	for m := range own.Headline {
		compareRow(t, own.Headline[m].Name, &first.Headline[m], &own.Headline[m])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for m := range own.Headline {
		if d := own.Headline[m].Difference; d != nil {
			fmt.Fprintf(w, "%s: %s\n", own.Headline[m].Name, d.Conclusion(own.Seeds, simulate.Letter(0), simulate.Letter(i)))
		}
	}
	t = comparisonTable(w, "OTHER MEASURES", i)
	for m := range own.Measures {
		compareRow(t, own.Measures[m].Name, &first.Measures[m], &own.Measures[m])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, by := range []simulate.PartKind{simulate.ByQueue, simulate.ByCause, simulate.ByRule} {
		t, left := comparisonTable(w, map[simulate.PartKind]string{simulate.ByQueue: "BY QUEUE", simulate.ByCause: "BY CAUSE", simulate.ByRule: "BY RULE"}[by], i), 0
		for p := range own.Parts {
			part := &own.Parts[p]
			if part.By != by {
				continue
			}
			for m := range part.Measures {
				of := &part.Measures[m]
				if always(&of.Interval, 0) && always(&first.Parts[p].Measures[m].Interval, 0) || of.Difference != nil && always(&of.Difference.Interval, 0) {
					left++
					continue
				}
				compareRow(t, show.Cut(query.OneLine(part.Name()), 22)+": "+of.Name, &first.Parts[p].Measures[m], of)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if left > 0 {
			fmt.Fprintf(w, "(%s left out, equal under every seed or 0: -o json has them)\n", plural.Of(left, "row"))
		}
	}
	return nil
}

// always says whether a number was the same under every seed.
func always(i *simulate.Interval, v float64) bool {
	return i.Median == v && i.Mean == v && (i.Low == nil || *i.Low == v && *i.High == v)
}

func comparisonTable(w io.Writer, rows string, i int) *show.Table {
	fmt.Fprintln(w)
	if i == 0 {
		return show.NewTable(w, rows, simulate.Letter(0))
	}
	return show.NewTable(w, rows, simulate.Letter(0), simulate.Letter(i), simulate.Letter(i)+" - "+simulate.Letter(0))
}

func compareRow(t *show.Table, name string, first, own *simulate.Measure) {
	cells := []string{show.Cut(name, 46), first.String()}
	if d := own.Difference; d != nil {
		cells = append(cells, own.String(), starred(d))
	}
	t.Row(cells...)
}

// starred marks a difference that is hardly chance.
func starred(d *simulate.Difference) string {
	if d.Differs {
		return d.String() + " *"
	}
	return d.String()
}

// SweepPoint is a line of `simulate --sweep -o json`: how the candidates compare at one load and rate of failures.
type SweepPoint struct {
	Record      string                `json:"record"` // SweepPoint
	Load        float64               `json:"load"`
	Failures    float64               `json:"failures"`
	Comparisons []simulate.Comparison `json:"comparisons"`
}

// Sweep prints a table for each measure of the headline, and whether the order of the candidates is the same everywhere.
func Sweep(w io.Writer, points []SweepPoint) error {
	first := points[0].Comparisons
	fmt.Fprintf(w, "medians of %s at each load and rate of failures, as multiples of the workload's; * marks differences that are hardly chance\n", plural.Of(first[0].Seeds, "seed"))
	heads := []string{"LOAD", "FAILURES", simulate.Letter(0)}
	for i := range first {
		fmt.Fprintf(w, "  %s: %s\n", simulate.Letter(i), query.OneLine(first[i].Candidate))
		if i > 0 {
			heads = append(heads, simulate.Letter(i)+" - "+simulate.Letter(0))
		}
	}
	for m := range first[0].Headline {
		fmt.Fprintf(w, "\n%s\n", first[0].Headline[m].Name)
		t := show.NewTable(w, heads...)
		for i := range points {
			p := &points[i]
			cells := []string{fmt.Sprint(p.Load), fmt.Sprint(p.Failures), p.Comparisons[0].Headline[m].String()}
			for _, c := range p.Comparisons[1:] {
				cells = append(cells, starred(c.Headline[m].Difference))
			}
			t.Row(cells...)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for i := range first[1:] {
			fmt.Fprintln(w, ranking(points, m, i+1))
		}
	}
	return nil
}

// ranking says whether a candidate is on one side of the first one at all points where they differ.
func ranking(points []SweepPoint, measure, candidate int) string {
	above, below := 0, 0
	for i := range points {
		d := points[i].Comparisons[candidate].Headline[measure].Difference
		switch {
		case !d.Differs:
		case cmp.Compare(d.Median, 0) > 0:
			above++
		default:
			below++
		}
	}
	a, b, all := simulate.Letter(0), simulate.Letter(candidate), plural.Of(len(points), "point")
	switch {
	case above == 0 && below == 0:
		return fmt.Sprintf("%s and %s are told apart at none of %s", b, a, all)
	case below == 0:
		return fmt.Sprintf("%s is above %s at %d of %s, and below it at none: the order holds", b, a, above, all)
	case above == 0:
		return fmt.Sprintf("%s is below %s at %d of %s, and above it at none: the order holds", b, a, below, all)
	}
	return fmt.Sprintf("%s is above %s at %d of %s, and below it at %d: the order depends on load and failures", b, a, above, all, below)
}
