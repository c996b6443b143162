package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/cmd/internal/text"
	"github.com/refloat/refloat/internal/audit/whynot"
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
of the failure, of what the job had used, or of the policies (as whatif --set takes them),
of a member of a group also of its group policy. Each was evaluated by the engine. The smallest comes first: one change before two; then a
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
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && args[0] == "gang" {
				return fmt.Errorf("did you mean `refloatctl explain group %s`?", args[1])
			}
			return argument("JOB")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
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
				return printStory(cmd, &f)
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
	cmd.AddCommand(newExplainBreaker(), newExplainBudget(), newExplainField(), newExplainGroup(), newExplainJobSet(), newExplainNode(), newExplainQueue())
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
	if f.whyNot != "" && !f.place().Policies {
		return usageError{errors.New("--why-not evaluates the policies, which are in the policies log: give --data DIR or --pulsar URL")}
	}
	e, err := asking(func(bar *show.Progress) (*query.Explanation, error) {
		return f.answers(bar).Explain(cmd.Context(), f.job, f.run)
	})
	if none, ok := errors.AsType[*query.NotDecided](err); ok {
		fmt.Fprintln(cmd.ErrOrStderr(), none)
		text.ByGroup(cmd.ErrOrStderr(), nil, none.ByGroup, f.place())
		return errFinding
	}
	if err != nil {
		return f.asked(cmd, err)
	}
	if f.whyNot != "" {
		return whyNot(cmd, e, f)
	}
	w := cmd.OutOrStdout()
	if f.output == show.FormJSON {
		return json.NewEncoder(w).Encode(e)
	}
	text.Explanation(w, e, f.place())
	return nil
}

// printStory shows all runs of a job as one story.
func printStory(cmd *cobra.Command, f *explainFlags) error {
	next := false
	return answer(cmd, &f.deployment, f.output, func(ctx context.Context, from query.Answers) ([]*query.Story, error) {
		return from.Stories(ctx, f.job)
	}, func(w io.Writer, s *query.Story) error {
		if next {
			fmt.Fprintln(w)
		}
		next = true
		err := text.Story(w, s)
		text.ByGroup(w, &s.Job, s.ByGroup, f.place())
		return err
	})
}

// whyNot shows the smallest changes that would have given another outcome.
func whyNot(cmd *cobra.Command, e *query.Explanation, f explainFlags) error {
	d := &e.Decision
	found, err := f.answers(nil).WhyNot(cmd.Context(), d.JobID, int(d.RunIndex), f.whyNot)
	if none, ok := errors.AsType[*query.NoAnswer](err); ok {
		fmt.Fprintln(cmd.ErrOrStderr(), none)
		return errFinding
	}
	if err != nil {
		return fmt.Errorf("--why-not: %w", err)
	}
	err = printed(cmd, func(w io.Writer) error {
		if f.output == show.FormJSON {
			return show.JSONLines(w).Encode(found)
		}
		return text.WhyNot(w, e, found)
	})
	if err == nil && len(found.Changes) == 0 {
		return errFinding
	}
	return err
}
