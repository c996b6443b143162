package text

import (
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
