package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/query"
)

var jobRows = rows[*query.Job]{
	columns: []column[*query.Job]{
		{heading: "JOB", cell: func(j *query.Job) string { return j.JobID }},
		{heading: "QUEUE", cell: func(j *query.Job) string { return j.Queue }},
		{heading: "JOB SET", cell: func(j *query.Job) string { return j.JobSet }},
		{heading: "GROUP", wide: true, cell: func(j *query.Job) string { return j.Group }},
		{heading: "STATE", cell: func(j *query.Job) string { return j.State }},
		{heading: "RUNS", cell: func(j *query.Job) string { return fmt.Sprint(j.Runs) }},
		{heading: "RETRY AFTER", cell: func(j *query.Job) string { return toMillis(j.RetryAfter) }},
		{heading: "SUBMITTED", wide: true, cell: func(j *query.Job) string { return toMillis(j.Submitted) }},
		{heading: "ENDED", wide: true, cell: func(j *query.Job) string { return toMillis(j.Ended) }},
		{heading: "AVOIDS", cell: func(j *query.Job) string { return strings.Join(j.AvoidNodes, ",") }},
		{heading: "ARMADA ALONE", cell: func(j *query.Job) string {
			if j.Armada != nil {
				return "Failed"
			}
			return ""
		}},
	},
	name:   func(j *query.Job) string { return j.JobID },
	object: func(j *query.Job) any { return j },
}

func newGetJobs() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "jobs (--data DIR | --job-db URL | --server HOST:PORT)",
		Short: "List jobs",
		Long: `List jobs. A job is selected by its own state, queue, job set and submission, by any of
its decisions (--code, --policy, --rule), and by any of its runs (--node, --category).
ARMADA ALONE is Failed for a job that Armada would have failed by now without Refloat.`,
		Example: `  refloatctl get jobs --data .refloat-run --queue genomics --state Queued
  refloatctl get jobs --data .refloat-run --waiting -o json
  refloatctl get jobs --data .refloat-run --category oom --since 24h --sort -submitted --limit 20
  refloatctl get jobs --job-db postgres://refloat@db:5432/scheduler --state Failed`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return runList(cmd, &f, &jobRows, jobID, f.answers(nil).ListJobs)
		},
	}
	f.bindList(cmd, query.Jobs)
	f.bindFailures(cmd, "only jobs submitted")
	cmd.Flags().BoolVar(&f.ask.Waiting, "waiting", false, "only jobs with a pending retry")
	completeValues(cmd, &f.deployment)
	return cmd
}

var runRows = rows[*query.Run]{
	columns: []column[*query.Run]{
		{heading: "JOB", cell: func(r *query.Run) string { return r.JobID }},
		{heading: "RUN", cell: func(r *query.Run) string { return fmt.Sprint(r.Index) }},
		{heading: "ID", wide: true, cell: func(r *query.Run) string { return r.RunID }},
		{heading: "STATE", cell: func(r *query.Run) string { return r.State }},
		{heading: "EXECUTOR", wide: true, cell: func(r *query.Run) string { return r.Executor }},
		{heading: "NODE", cell: func(r *query.Run) string { return r.Node }},
		{heading: "LEASED", cell: func(r *query.Run) string { return toMillis(r.Leased) }},
		{heading: "ENDED", cell: func(r *query.Run) string { return toMillis(r.Ended) }},
		{heading: "ERROR", cell: func(r *query.Run) string { return r.Error }},
		{heading: "CATEGORY", cell: func(r *query.Run) string { return r.Category }},
		{heading: "DECIDED", cell: func(r *query.Run) string {
			if r.Decision == 0 {
				return r.Outcome
			}
			return r.Outcome + effectNote(r.Effect())
		}},
		{heading: "MESSAGE", cell: func(r *query.Run) string { return r.Message }},
	},
	name:   func(r *query.Run) string { return r.JobID + "/" + r.RunID },
	object: func(r *query.Run) any { return r },
}

func newGetRuns() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "runs (--data DIR | --job-db URL | --server HOST:PORT)",
		Short: "List runs of jobs",
		Long: `List runs. A run is selected by its own state, node, error category and lease, by its
job (--queue, --job-set, --group), and by the decision on it (--code, --policy, --rule).`,
		Example: `  refloatctl get runs --data .refloat-run --state Failed --node gpu-07
  refloatctl get runs --data .refloat-run --code RuleLimit -o wide`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return runList(cmd, &f, &runRows, runID, f.answers(nil).ListRuns)
		},
	}
	f.bindList(cmd, query.Runs)
	f.bindFailures(cmd, "only runs leased")
	completeValues(cmd, &f.deployment)
	return cmd
}

var decisionRows = rows[*audit.Decision]{
	columns: []column[*audit.Decision]{
		{heading: "TIME", wide: true, cell: func(d *audit.Decision) string { return toMillis(d.EventTime) }},
		{heading: "JOB", cell: func(d *audit.Decision) string { return d.JobID }},
		{heading: "RUN", cell: func(d *audit.Decision) string { return fmt.Sprint(d.RunIndex) }},
		{heading: "QUEUE", cell: func(d *audit.Decision) string { return d.Queue }},
		{heading: "JOB SET", wide: true, cell: func(d *audit.Decision) string { return d.JobSet }},
		{heading: "DECISION", cell: func(d *audit.Decision) string { return shownKind(d) }},
		{heading: "CODE", cell: func(d *audit.Decision) string { return d.Code }},
		{heading: "RULE", cell: func(d *audit.Decision) string { return query.RuleName(d.Policy, d.Rule) }},
		{heading: "USED", cell: func(d *audit.Decision) string { return usedText(d) }},
		{heading: "DELAY", cell: func(d *audit.Decision) string { return d.Delay }},
		{heading: "RETRY AFTER", wide: true, cell: func(d *audit.Decision) string { return toMillis(d.RetryAfter) }},
		{heading: "WHY", cell: func(d *audit.Decision) string {
			if d.Superseded {
				return supersededText + ": " + d.Reason
			}
			return d.Reason
		}},
	},
	name:   func(d *audit.Decision) string { return fmt.Sprintf("%d/%d", d.Partition, d.Number) },
	object: func(d *audit.Decision) any { return d },
}

// shownKind names a decision, and says if it had no effect.
func shownKind(d *audit.Decision) string { return d.Decision + effectNote(query.EffectOf(d)) }

// effectNote says why a decision had no effect; "": it had one.
func effectNote(e query.Effect) string {
	switch e {
	case query.InShadow:
		return " (shadow)"
	case query.Superseded:
		return " (superseded)"
	case query.Retried, query.FailedForGood:
	}
	return ""
}

func usedText(d *audit.Decision) string {
	if d.RuleUsed == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", *d.RuleUsed, *d.RuleLimit)
}

func newGetDecisions() *cobra.Command {
	var f listFlags
	var all bool
	var last int
	cmd := &cobra.Command{
		Use:   "decisions (--data DIR | --job-db URL | --server HOST:PORT)",
		Short: "List decisions",
		Long: `List decisions in partition and log order. The JSON form is that of
` + "`refloatctl replay -o json`" + `. With --all, also list failed runs that were not decided,
parked messages, and retries that became ready. A decision on an event that had been
released without one (` + "`refloatctl get releases`" + `) is superseded: it is kept, but had no
effect.`,
		Example: `  refloatctl get decisions --data .refloat-run -o json
  refloatctl get decisions --data .refloat-run --queue ml --code RuleLimit --since 1h
  refloatctl get decisions --data .refloat-run -o custom-columns=JOB:.jobId,WHY:.reason`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			switch {
			case last < 0:
				return usageError{fmt.Errorf("--last %d: want 1 or more, or 0 for all", last)}
			case last > 0 && (f.ask.Limit > 0 || f.watch || f.ask.Sort != "" || f.ask.Continue != ""):
				return usageError{errors.New("--last is an order and a limit: it goes with none of --sort, --limit, --continue and --watch")}
			case all:
				return allRecords(cmd, &f, last)
			}
			return getDecisions(cmd, &f, last)
		},
	}
	f.bindList(cmd, query.Decisions)
	f.bindFailures(cmd, "only decisions on failures")
	cmd.Flags().StringVar(&f.ask.JobID, "job", "", "only decisions on this job")
	cmd.Flags().BoolVar(&all, "all", false, "also print records that are not decisions")
	cmd.Flags().IntVar(&last, "last", 0, "only the last N decisions")
	completeValues(cmd, &f.deployment)
	return cmd
}

func getDecisions(cmd *cobra.Command, f *listFlags, last int) error {
	from := f.answers(nil)
	list := from.ListDecisions
	if f.watch && f.streams() {
		return watchDecisions(cmd, f)
	}
	if last > 0 {
		list = func(ctx context.Context, l *query.List, visit func(*audit.Decision) error) (string, error) {
			return "", query.LastDecisions(ctx, from, l, last, visit)
		}
	}
	return runList(cmd, f, &decisionRows, decisionID, list)
}

// streams reports whether a server streams the decisions that are watched: it selects by fewer criteria than a list.
func (f *listFlags) streams() bool {
	rest := f.ask.Criteria
	rest.Queue, rest.JobSet, rest.JobID, rest.Policy, rest.Rule = "", "", "", "", ""
	return f.onServer() && rest.Empty() && f.ask.Sort == ""
}

// watchDecisions prints decisions, and those that come as the server streams them.
func watchDecisions(cmd *cobra.Command, f *listFlags) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	show, end, err := decisionRows.printer(out, f.output)
	if err != nil {
		return err
	}
	f.remote.timeout = 0
	err = f.remote.questions().WatchDecisions(cmd.Context(), &f.ask, func(d *audit.Decision) error { return show(d) }, func() error { return errors.Join(end(), out.Flush()) })
	if cmd.Context().Err() != nil {
		return nil
	}
	return err
}

// allRecords prints decisions and other records, of all jobs or of one.
func allRecords(cmd *cobra.Command, f *listFlags, last int) error {
	if f.onServer() {
		return usageError{errors.New("--all reads the job database itself: give --data DIR or --job-db URL instead of --server")}
	}
	only := f.ask.Criteria
	only.JobID = ""
	if f.watch || f.ask.Continue != "" || f.ask.Limit > 0 || f.ask.Sort != "" || !only.Empty() || len(f.ask.Codes) > 0 {
		return usageError{errors.New("--all shows records that are not decisions too, and goes only with --job, --last and -o table or json")}
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	p, err := newRecordPrinter(out, f.output)
	if err != nil {
		return err
	}
	err = f.source(nil).AllRecords(cmd.Context(), f.ask.JobID, last, func(r *query.Record) error { return p.printKept(r.Where.Partition, r.Record, true, r.Where.Superseded) })
	return errors.Join(err, p.end(), out.Flush())
}
