package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
)

// summarize prints what up decided, and commands to try next.
func summarize(cmd *cobra.Command, f upFlags, took time.Duration) error {
	out := cmd.OutOrStdout()
	var s *jobdb.Summary
	var example *jobdb.Decision
	var without []released
	err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) (err error) {
		if s, err = q.Summary(); err != nil {
			return err
		}
		if without, err = releasedIn(q); err != nil {
			return err
		}
		return q.Decisions(jobdb.RecordFilter{}, func(d *jobdb.Decision) error {
			if example == nil || better(d, example) {
				copied := *d
				example = &copied
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	printDecisions(out, s)
	printJobs(out, s, without, took)
	fmt.Fprintf(out, "\n%s\n", bold(out, "Try next"))
	if example != nil {
		fmt.Fprintf(out, "  bin/refloatctl explain %s %s\n", example.JobID, f.deployment)
	}
	fmt.Fprintf(out, "  bin/refloatctl get jobs %s --waiting\n", f.deployment)
	fmt.Fprintf(out, "  bin/refloatctl get decisions %s -o json\n", f.deployment)
	if len(without) > 0 {
		fmt.Fprintf(out, "  bin/refloatctl get releases %s\n", f.deployment)
	}
	if slices.ContainsFunc(s.Decisions, func(c jobdb.DecisionCount) bool { return c.Shadow }) {
		fmt.Fprintf(out, "  bin/refloatctl shadow report %s\n", f.deployment)
	}
	fmt.Fprintf(out, "  bin/refloatctl verify --data %s\n", f.data)
	if f.policies != "" {
		fmt.Fprintf(out, "  edit %s, then: bin/refloatctl lint %s && bin/refloatctl replay --log %s --policies %s\n",
			f.policies, f.policies, app.Dir(f.data).Events(), f.policies)
	}
	return nil
}

// better prefers a decision with more to explain: one late in its job's budget.
func better(d, than *jobdb.Decision) bool { return d.RuleUsed > than.RuleUsed }

func printDecisions(out io.Writer, s *jobdb.Summary) {
	total := uint64(0)
	fmt.Fprintf(out, "%s\n", bold(out, "Decisions"))
	t := newTable(out, "  DECISION", "CODE", "POLICY", "RULE", "COUNT")
	for _, c := range s.Decisions {
		kind := "JobFailed"
		if c.Requeue {
			kind = "JobRequeued"
		}
		if c.Shadow {
			kind += " (shadow)"
		}
		t.row("  "+kind, c.Code.String(), c.Policy, c.Rule, fmt.Sprint(c.Count))
		total += c.Count
	}
	t.row("  total", " ", " ", " ", fmt.Sprint(total))
	_ = t.flush()
}

// released counts what went to the job database without a decision in a partition.
type released struct {
	partition, times int
	messages         uint64
	last             int64
}

func releasedIn(q jobdb.Queries) (all []released, err error) {
	err = q.Releases(jobdb.RecordFilter{}, func(r *jobdb.Release) error {
		if byCutover(r) {
			return nil
		}
		if n := len(all); n == 0 || all[n-1].partition != r.Partition {
			all = append(all, released{partition: r.Partition})
		}
		p := &all[len(all)-1]
		p.times, p.messages, p.last = p.times+1, p.messages+r.Messages, max(p.last, r.When)
		return nil
	})
	return all, err
}

func printJobs(out io.Writer, s *jobdb.Summary, released []released, took time.Duration) {
	fmt.Fprintf(out, "\n%s\n", bold(out, "Jobs"))
	t := newTable(out, "  STATE", "COUNT")
	for _, c := range s.Jobs {
		t.row("  "+c.State.String(), fmt.Sprint(c.Count))
	}
	_ = t.flush()
	for _, c := range s.NotDecided {
		fmt.Fprintf(out, "\n  %s not decided: %s", plural.Of(c.Count, "failed run"), c.Reason)
	}
	for _, c := range s.Parked {
		fmt.Fprintf(out, "\n  %d parked: %s", c.Count, c.Reason)
	}
	for _, r := range released {
		fmt.Fprintf(out, "\n  partition %d: %s released without a decision, %s, the last at %s", r.partition, plural.Of(r.messages, "message"), plural.Of(r.times, "time"), timeText(r.last))
	}
	if s.Superseded > 0 {
		fmt.Fprintf(out, "\n  %s superseded: after the events were released, without effect", plural.Of(s.Superseded, "decision"))
	}
	fmt.Fprintf(out, "\n  %s, %.1f s\n", plural.Of(s.Runs, "run"), took.Seconds())
}
