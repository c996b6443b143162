package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whynot"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

func newExplain() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain JOB (--data DIR | --pulsar URL --job-db URL | --job-db URL | --server HOST:PORT) [--run N | --all-runs] [--why-not OUTCOME]",
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
		Example: `  refloatctl explain 01m7xn681y99tqr9907wrzd7wm --data .refloat-run --run 1
  refloatctl explain 01m7xn681y99tqr9907wrzd7wm --data .refloat-run --all-runs
  refloatctl explain 01m7xn681y99tqr9907wrzd7wm --data .refloat-run --why-not Retry
  refloatctl explain 01m7xn681y99tqr9907wrzd7wm --pulsar pulsar://pulsar:6650 --job-db postgres://refloat@db:5432/scheduler`,
		Args: argument("JOB"),
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
	f.bindServer(cmd)
	cmd.Flags().IntVar(&f.run, "run", -1, "index of the failed run, from 0")
	cmd.Flags().BoolVar(&f.allRuns, "all-runs", false, "show all runs of the job, one line a run")
	cmd.Flags().StringVar(&f.whyNot, "why-not", "", "find the smallest changes after which the decision would have been another one: Retry, Fail or Ignore")
	complete(cmd, "why-not", whynot.Outcomes()...)
	addOutput(cmd, &f.output)
	cmd.AddCommand(newExplainGroup(), newExplainJobSet(), newExplainQueue())
	completeArg(cmd, &f.deployment, jobIDs)
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
	if f.whyNot != "" && f.data == "" && !f.onPulsar() && !f.onServer() {
		return usageError{errors.New("--why-not evaluates the policies, which are in the policies log: give --data DIR or --pulsar URL")}
	}
	bar := newProgress()
	defer bar.done()
	e, err := f.answers(bar).Explain(cmd.Context(), f.job, f.run)
	bar.done()
	if none, ok := errors.AsType[*query.NotDecided](err); ok {
		fmt.Fprintln(cmd.ErrOrStderr(), none)
		printChanges(cmd.ErrOrStderr(), none.ByGroup)
		return errFinding
	}
	if err != nil {
		return f.asked(cmd, err)
	}
	if f.whyNot != "" {
		return whyNot(cmd, e, f)
	}
	w := cmd.OutOrStdout()
	if f.output == outputJSON {
		return json.NewEncoder(w).Encode(e)
	}
	printCase(w, e)
	for _, o := range e.Overrides {
		fmt.Fprintln(w, o)
	}
	if e.Differs != "" {
		fmt.Fprintf(w, "\nNote: %s. The job probably ended, was forgotten after the horizon, and was submitted again. The recorded decision above is authoritative.\n", e.Differs)
	}
	printChanges(w, e.ByGroup)
	return nil
}

// runOf is the run that an explanation is about.
func runOf(e *query.Explanation) query.Attempt {
	if len(e.Job.Attempts) == 0 {
		return query.Attempt{}
	}
	return e.Job.Attempts[0]
}

func printCase(w io.Writer, e *query.Explanation) {
	d := &e.Decision
	fmt.Fprintf(w, "%s %s  queue %s, job set %s\n", bold(w, "Job"), oneLine(d.JobID), oneLine(d.Queue), oneLine(d.JobSet))
	fmt.Fprintf(w, "%s %d (%s) failed at %s%s\n", bold(w, "Run"), d.RunIndex, oneLine(d.RunID), d.EventTime, onNode(runOf(e).Node))
	printFailure(w, e)
	fmt.Fprintf(w, "\n%s %s, %s\n  %s\n", bold(w, "Decision"), shownKind(d), d.Code, oneLine(d.Reason))
	printSuperseded(w, e)
	if d.RetryAfter != "" {
		next := "next run:"
		if e.NotActedOn {
			next = "the next run would have been:"
		}
		fmt.Fprintf(w, "  %s pod %s, not before %s\n", next, oneLine(e.NextPod), d.RetryAfter)
	}
	if e.Unknown {
		fmt.Fprintf(w, "\n%s are in the policies log: give --pulsar URL or --data DIR to see which rule matched, and why the others did not\n", bold(w, "Rules"))
	} else if asked(d) {
		printLadder(w, e.Ladder)
	}
	printMember(w, e)
	printCounts(w, d, e.Before)
	printDelay(w, e)
	generation := d.Generation
	if d.PolicyGeneration != nil {
		generation = *d.PolicyGeneration
	}
	fmt.Fprintf(w, "\n%s decision %d of partition %d, policy generation %d (set %s), event at %v\n",
		bold(w, "Where"), d.Number, d.Partition, generation, cutTo(d.PolicySet, 12), position(d.Position))
	if waiting := e.Job.Waiting(time.Now()); waiting != "" && e.Job.RetryAfter == d.RetryAfter && !e.NotActedOn {
		fmt.Fprintf(w, "%s the job is %s: %s\n", bold(w, "Now"), e.Job.State, waiting)
	}
	for i := range e.Changes {
		fmt.Fprintf(w, "%s %s%s\n", bold(w, "Policies"), changeText(&e.Changes[i]), afterFailure(&e.Changes[i], d))
	}
	if e.Pruned {
		fmt.Fprintf(w, "%s the job was pruned from the job database; this was derived from the logs\n", bold(w, "Pruned"))
	}
	if v := e.Job.Armada; v != nil {
		fmt.Fprintf(w, "%s failed: %s %s\n", bold(w, "Armada's own verdict"), v.Reason, oneLine(v.Message))
	}
}

// afterFailure explains a change of the policies that is later than the failure that they decided, as in a history that was fed.
func afterFailure(l *query.LastChange, d *audit.Decision) string {
	changed, err := time.Parse(time.RFC3339Nano, l.Time)
	failed, err2 := time.Parse(time.RFC3339Nano, d.EventTime)
	if err != nil || err2 != nil || !changed.After(failed) {
		return ""
	}
	return " (after this failure, which was decided even later)"
}

func cutTo(s string, n int) string { return s[:min(len(s), n)] }

// asked reports whether the policies of the job were asked for a decision, as audit.Asked does for the record.
func asked(d *audit.Decision) bool {
	return d.Code != policy.GroupOver.String() && (d.Code != policy.GroupRestart.String() || d.GroupRule != nil)
}

// printSuperseded explains why a decision had no effect.
func printSuperseded(w io.Writer, e *query.Explanation) {
	if !e.Decision.Superseded {
		return
	}
	fmt.Fprintf(w, "  superseded: the decision came too late and had no effect; the run stays as Armada left it\n")
	if r := e.Release; r != nil && r.Messages == 0 {
		fmt.Fprintf(w, "  Armada's own ingester had applied the events up to %s before the cut-over\n", r.To)
	} else if r != nil {
		fmt.Fprintf(w, "  at %s, %s after %s up to %s had been released, because no decision came in time\n", r.Made, plural.Of(r.Messages, "message"), r.From, r.To)
	}
}

func onNode(node string) string {
	if node == "" {
		return ""
	}
	return " on node " + oneLine(node)
}

func printFailure(w io.Writer, e *query.Explanation) {
	facts := e.Failure
	if len(facts) == 0 {
		facts = []string{"no facts that a rule could match"}
	}
	for _, f := range facts {
		fmt.Fprintf(w, "  %s\n", oneLine(f))
	}
	if r := runOf(e); r.Error != "" || r.Message != "" {
		fmt.Fprintf(w, "  %s: %s\n", oneLine(r.Error), oneLine(r.Message))
	}
}

func printLadder(w io.Writer, rungs []query.Rung) {
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

func printCounts(w io.Writer, d *audit.Decision, before uint32) {
	fmt.Fprintf(w, "\n%s\n", bold(w, "Counts"))
	for _, r := range query.RetryCounts(d, before) {
		fmt.Fprintf(w, "  %-6s%s\n", r.Of+":", r)
	}
}

func printDelay(w io.Writer, e *query.Explanation) {
	if e.Decision.RetryAfter == "" { // no retry
		return
	}
	fmt.Fprintf(w, "\n%s %s%s\n", bold(w, "Delay"), e.Decision.Delay, e.DelayText())
}
