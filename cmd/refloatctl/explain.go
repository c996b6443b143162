package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/plural"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whynot"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

func newExplain() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain JOB (--data DIR | --pulsar URL --job-db URL | --job-db URL) [--run N | --all-runs] [--why-not OUTCOME]",
		Short: "Explain the decision on a failed run of a job",
		Long: `Explain the decision on a failed run of a job: what failed, the rules in order with
the first matcher of each that did not hold, the counts before and after, where the
limit came from, how the delay was computed, the policy generation and the position
in the log. Of a member of a group, also what its unit and its group made of it, and
what the group did to the job. Without --run: the last decided run; with --all-runs: one
line for each run of the job, how it ended, what was decided, and what came next. JOB is the job's id,
or the beginning of it if no other job's begins so.

--why-not Retry (or Fail, or Ignore) lists what would have given another outcome: changes
of the failure, of what the job had used, or of the policies (as whatif --set takes them).
Each was evaluated by the engine. The smallest comes first: one change before two; then a
count or a limit, the nearest first; a fact of the failure or the job; a value of a
matcher; an action; which policies apply, or whether retries are on. Exit code 1: none
was found.

The decision is read from the job database, and the rules from the policies log, in
a data directory or on Pulsar. With --job-db alone, the rules and the computation of
the delay are left out. If the job database has pruned the job (--retain), the decision
is derived from the logs, which takes as long as reading them.`,
		Example: `  refloatctl explain 01m7xn681y99tqr99073yk0v9j --data .refloat-run --run 1
  refloatctl explain 01m7xn681y99tqr99073yk0v9j --data .refloat-run --all-runs
  refloatctl explain 01m7xn681y99tqr99073yk0v9j --data .refloat-run --why-not Retry
  refloatctl explain 01m7xn681y99tqr99073yk0v9j --pulsar pulsar://pulsar:6650 --job-db postgres://refloat@db:5432/scheduler`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.output != outputTable && f.output != outputJSON {
				return badOutput(f.output)
			}
			if err := f.checkJobs(); err != nil {
				return err
			}
			f.job = args[0]
			if f.allRuns && f.run >= 0 {
				return usageError{errors.New("--all-runs tells all of a job, --run N explains one run: give only one")}
			}
			if f.whyNot != "" && !slices.Contains(whynot.Outcomes(), f.whyNot) {
				return usageError{fmt.Errorf("--why-not: %w", suggest.Unknown("outcome", f.whyNot, whynot.Outcomes()...))}
			}
			if f.allRuns && f.whyNot != "" {
				return usageError{errors.New("--why-not is about one run: give --run N instead of --all-runs")}
			}
			if f.allRuns {
				return tellStory(cmd, &f)
			}
			return explain(cmd, f)
		},
	}
	f.bind(cmd)
	cmd.Flags().IntVar(&f.run, "run", -1, "index of the failed run, from 0")
	cmd.Flags().BoolVar(&f.allRuns, "all-runs", false, "tell all runs of the job as one story, one line a run")
	cmd.Flags().StringVar(&f.whyNot, "why-not", "", "find the smallest changes under which the run had been decided so: Retry, Fail or Ignore")
	complete(cmd, "why-not", whynot.Outcomes()...)
	addOutput(cmd, &f.output)
	cmd.AddCommand(newExplainGroup(), newExplainJobSet(), newExplainQueue())
	completeJob(cmd, &f.deployment)
	return cmd
}

type explainFlags struct {
	deployment
	job, output string
	whyNot      string
	run         int
	allRuns     bool
}

func explain(cmd *cobra.Command, f explainFlags) error {
	if f.whyNot != "" && f.data == "" && !f.onPulsar() {
		return usageError{errors.New("--why-not evaluates the policies, which are in the policies log: give --data DIR or --pulsar URL")}
	}
	bar := newProgress()
	defer bar.done()
	e, err := f.source(bar).Explain(cmd.Context(), f.job, f.run)
	bar.done()
	if none, ok := errors.AsType[*query.NotDecided](err); ok {
		return notDecided(cmd, &f, none)
	}
	if err != nil {
		return f.asked(cmd, err)
	}
	if f.whyNot != "" {
		return whyNot(cmd, e, f)
	}
	return showAll(cmd, e, &f)
}

// notDecided reports why there is no decision to explain.
func notDecided(cmd *cobra.Command, f *explainFlags, none *query.NotDecided) error {
	fmt.Fprintln(cmd.ErrOrStderr(), none)
	for _, l := range none.Found {
		if !l.FromLogs {
			if err := printChanges(cmd, cmd.ErrOrStderr(), &f.deployment, l.Job); err != nil {
				return err
			}
		}
	}
	return errFinding
}

// showAll shows an explanation, and to people what the job's group did to the job.
func showAll(cmd *cobra.Command, e *query.Explanation, f *explainFlags) error {
	w := cmd.OutOrStdout()
	if f.output == outputJSON {
		return json.NewEncoder(w).Encode(e)
	}
	printCase(w, e)
	for _, o := range e.Basis.Overrides {
		fmt.Fprintln(w, query.OverrideText(o))
	}
	if e.Basis.Diverged != nil {
		fmt.Fprintf(w, "\nNote: %v. The job probably ended, was forgotten after the horizon, and was submitted again. The recorded decision above is authoritative.\n", e.Basis.Diverged)
	}
	if e.Pruned {
		return nil
	}
	return printChanges(cmd, w, &f.deployment, e.Basis.Job)
}

func printCase(w io.Writer, e *query.Explanation) {
	c, x, d := &e.Basis.Decided, &e.Basis.Explanation, e.Basis.Decision
	fmt.Fprintf(w, "%s %s  queue %s, job set %s\n", bold(w, "Job"), oneLine(d.JobID), oneLine(d.Queue), oneLine(d.JobSet))
	fmt.Fprintf(w, "%s %d (%s) failed at %s%s\n", bold(w, "Run"), d.RunIndex, oneLine(d.RunID), timeText(d.Time), onNode(c.Run.Node))
	printFailure(w, c.Run, &x.Facts)
	fmt.Fprintf(w, "\n%s %s, %s\n  %s\n", bold(w, "Decision"), kindOf(d), d.Code, oneLine(audit.Reason(d)))
	printSuperseded(w, c)
	if d.Requeue {
		next := "next run:"
		if d.Shadow || c.Mode == query.Passthrough {
			next = "the next run would have been:"
		}
		fmt.Fprintf(w, "  %s pod %s, not before %s\n", next, oneLine(c.NextPod()), timeText(d.RetryAfter))
	}
	if e.Basis.Evaluated {
		if audit.Asked(d) {
			printLadder(w, x.Rungs)
		}
	} else {
		fmt.Fprintf(w, "\n%s are in the policies log: give --pulsar URL or --data DIR to see which rule matched, and why the others did not\n", bold(w, "Rules"))
	}
	printMember(w, d)
	printCounts(w, d, x.Before.Granted)
	printDelay(w, d, e.DelayText())
	fmt.Fprintf(w, "\n%s decision %d of partition %d, policy generation %d (set %x), event at %v\n",
		bold(w, "Where"), d.Number, c.Job.Partition, d.Generation, d.PolicySet[:6], d.Position)
	for i := range e.Changes {
		fmt.Fprintf(w, "%s %s\n", bold(w, "Policies"), changeText(&e.Changes[i]))
	}
	if c.FromLogs {
		fmt.Fprintf(w, "%s the job was pruned from the job database; this was derived from the logs\n", bold(w, "Pruned"))
	}
	if v := c.Job.Armada; v.Failed {
		fmt.Fprintf(w, "%s failed: %s %s\n", bold(w, "Armada's own verdict"), v.Reason, oneLine(v.Message))
	}
}

// printSuperseded explains why a decision had no effect.
func printSuperseded(w io.Writer, c *query.Decided) {
	if !c.Superseded {
		return
	}
	fmt.Fprintf(w, "  superseded: the decision came too late and had no effect; the run stays as Armada left it\n")
	if r := c.Release; r != nil && query.ByCutover(r) {
		fmt.Fprintf(w, "  Armada's own ingester had applied the events up to %v before the cut-over\n", r.To)
	} else if r != nil {
		fmt.Fprintf(w, "  at %s, %s after %v up to %v had been released, because no decision came in time\n", timeText(r.When), plural.Of(r.Messages, "message"), r.From, r.To)
	}
}

func onNode(node string) string {
	if node == "" {
		return ""
	}
	return " on node " + oneLine(node)
}

func printFailure(w io.Writer, r *jobdb.Run, f *policy.Failure) {
	facts := query.FactsOf(f)
	if len(facts) == 0 {
		facts = []string{"no facts that a rule could match"}
	}
	fmt.Fprintf(w, "  %s\n", strings.Join(facts, "\n  "))
	if r.Error.Reason != "" || r.Error.Message != "" {
		fmt.Fprintf(w, "  %s: %s\n", oneLine(r.Error.Reason), oneLine(r.Error.Message))
	}
}

func printLadder(w io.Writer, rungs []policy.Rung) {
	if len(rungs) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", bold(w, "Rules, in order"))
	t := newTable(w, "  ", "POLICY", "RULE", "WHY")
	for _, r := range rungs {
		mark, why := "  ✗", r.Why
		switch {
		case r.Matched:
			mark, why = "  ✓", "matches: first match wins"
		case !r.Tried:
			mark, why = "  ·", "not tried"
		}
		t.row(mark, r.Policy, r.Rule, why)
	}
	_ = t.flush()
}

func printCounts(w io.Writer, d *chain.Decision, before uint32) {
	fmt.Fprintf(w, "\n%s\n", bold(w, "Counts"))
	for _, r := range query.RetriedOf(d, before) {
		fmt.Fprintf(w, "  %-6s%s\n", r.Of+":", r)
	}
}

func printDelay(w io.Writer, d *chain.Decision, why string) {
	if d.Requeue {
		fmt.Fprintf(w, "\n%s %v%s\n", bold(w, "Delay"), time.Duration(d.DelayMS)*time.Millisecond, why)
	}
}

// sameChange returns how many records from the first on are the same change, by one message, of members of one unit.
func sameChange(history []query.Record) int {
	first, ok := history[0].Record.(*chain.MemberChange)
	n := 1
	for ; ok && n < len(history); n++ {
		r, same := history[n].Record.(*chain.MemberChange)
		if !same || r.Change != first.Change || r.Position != first.Position || r.RetryAfter != first.RetryAfter ||
			r.Member.Part != first.Member.Part || r.Member.Replica != first.Member.Replica {
			break
		}
	}
	return n
}
