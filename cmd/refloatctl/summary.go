package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// summarize prints what up decided, and commands to try next.
func summarize(cmd *cobra.Command, f upFlags, took time.Duration) error {
	out := cmd.OutOrStdout()
	from := f.source(nil)
	s, err := from.Summary(cmd.Context())
	if err != nil {
		return err
	}
	example, err := from.Example(cmd.Context())
	if err != nil {
		return err
	}
	printDecisions(out, s)
	printJobs(out, s, took)
	fmt.Fprintf(out, "\n%s\n", bold(out, "Try next"))
	if example != "" {
		fmt.Fprintf(out, "  bin/refloatctl explain %s %s\n", example, f.deployment)
	}
	fmt.Fprintf(out, "  bin/refloatctl get jobs %s --waiting\n", f.deployment)
	fmt.Fprintf(out, "  bin/refloatctl get decisions %s -o json\n", f.deployment)
	if len(s.Releases) > 0 {
		fmt.Fprintf(out, "  bin/refloatctl get releases %s\n", f.deployment)
	}
	if slices.ContainsFunc(s.Decisions, func(c query.DecisionCount) bool { return c.Shadow }) {
		fmt.Fprintf(out, "  bin/refloatctl shadow report %s\n", f.deployment)
	}
	fmt.Fprintf(out, "  bin/refloatctl verify --data %s\n", f.data)
	if f.policies != "" {
		fmt.Fprintf(out, "  edit %s, then: bin/refloatctl lint %s && bin/refloatctl replay --log %s --policies %s\n",
			f.policies, f.policies, app.Dir(f.data).Events(), f.policies)
	}
	return nil
}

func printDecisions(out io.Writer, s *query.Summary) {
	total := uint64(0)
	fmt.Fprintf(out, "%s\n", bold(out, "Decisions"))
	t := newTable(out, "  DECISION", "CODE", "POLICY", "RULE", "COUNT")
	for i := range s.Decisions {
		c := &s.Decisions[i]
		t.row("  "+c.Decision+effectNote(c.Effect()), c.Code, c.Policy, c.Rule, fmt.Sprint(c.Count))
		total += c.Count
	}
	t.row("  total", " ", " ", " ", fmt.Sprint(total))
	_ = t.flush()
}

func printJobs(out io.Writer, s *query.Summary, took time.Duration) {
	fmt.Fprintf(out, "\n%s\n", bold(out, "Jobs"))
	t := newTable(out, "  STATE", "COUNT")
	for _, c := range s.Jobs {
		t.row("  "+c.State, fmt.Sprint(c.Count))
	}
	_ = t.flush()
	for _, c := range s.NotDecided {
		fmt.Fprintf(out, "\n  %s not decided: %s", plural.Of(c.Count, "failed run"), c.Reason)
	}
	for _, c := range s.Parked {
		fmt.Fprintf(out, "\n  %d parked: %s", c.Count, c.Reason)
	}
	for _, r := range s.Releases {
		fmt.Fprintf(out, "\n  partition %d: %s released without a decision, %s, the last at %s", r.Partition, plural.Of(r.Messages, "message"), plural.Of(r.Times, "time"), r.Last)
	}
	if s.Superseded > 0 {
		fmt.Fprintf(out, "\n  %s superseded: after the events were released, without effect", plural.Of(s.Superseded, "decision"))
	}
	fmt.Fprintf(out, "\n  %s, %.1f s\n", plural.Of(s.Runs, "run"), took.Seconds())
}
