package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/query"
)

func newGetJobs() *cobra.Command {
	var f listFlags
	l := listing[*query.Job]{
		list: query.Jobs, id: jobID, ask: query.Answers.ListJobs, failures: "only jobs submitted",
		Command: cobra.Command{
			Use:   "jobs (--data DIR | --job-db URL | --server HOST:PORT)",
			Short: "List jobs",
			Long: `List jobs. A job is selected by its own state, queue, job set and submission, by any of
its decisions (--code, --policy, --rule), and by any of its runs (--node, --category).
ARMADA ALONE is Failed for a job that Armada would have failed by now without Refloat.`,
			Example: `  refloatctl get jobs --data .refloat-run --queue genomics --state Queued
  refloatctl get jobs --data .refloat-run --waiting -o json
  refloatctl get jobs --data .refloat-run --category oom --since 24h --sort -submitted --limit 20
  refloatctl get jobs --job-db postgres://refloat@db:5432/scheduler --state Failed`,
		},
		rows: show.Rows[*query.Job]{
			Columns: []show.Column[*query.Job]{
				{Heading: "JOB", Cell: func(j *query.Job) string { return j.JobID }},
				{Heading: "QUEUE", Cell: func(j *query.Job) string { return j.Queue }},
				{Heading: "JOB SET", Cell: func(j *query.Job) string { return j.JobSet }},
				{Heading: "GROUP", Wide: true, Cell: func(j *query.Job) string { return j.Group }},
				{Heading: "MEMBER", Wide: true, Cell: func(j *query.Job) string { return j.Member.String() }},
				{Heading: "STATE", Cell: func(j *query.Job) string { return j.State }},
				{Heading: "RUNS", Cell: func(j *query.Job) string { return fmt.Sprint(j.Runs) }},
				{Heading: "RETRY AFTER", Cell: func(j *query.Job) string { return show.Millis(j.RetryAfter) }},
				{Heading: "SUBMITTED", Wide: true, Cell: func(j *query.Job) string { return show.Millis(j.Submitted) }},
				{Heading: "ENDED", Wide: true, Cell: func(j *query.Job) string { return show.Millis(j.Ended) }},
				{Heading: "AVOIDS", Cell: func(j *query.Job) string { return strings.Join(j.AvoidNodes, ",") }},
				{Heading: "ARMADA ALONE", Cell: func(j *query.Job) string {
					if j.Armada != nil {
						return "Failed"
					}
					return ""
				}},
			},
			Name: func(j *query.Job) string { return j.JobID },
		},
	}
	cmd := l.command(&f)
	cmd.Flags().BoolVar(&f.ask.Waiting, "waiting", false, "only jobs with a pending retry")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { // of the jobs of a group, one wants to know which members they are
		for i := range l.rows.Columns {
			c := &l.rows.Columns[i]
			c.Wide = c.Wide && (c.Heading != "MEMBER" || f.ask.Group == "")
		}
		return run(cmd, args)
	}
	return cmd
}

func newGetRuns() *cobra.Command {
	var f listFlags
	l := listing[*query.Run]{
		list: query.Runs, id: runID, ask: query.Answers.ListRuns, failures: "only runs leased",
		Command: cobra.Command{
			Use:   "runs (--data DIR | --job-db URL | --server HOST:PORT)",
			Short: "List runs of jobs",
			Long: `List runs. A run is selected by its own state, node, error category and lease, by its
job (--job, --queue, --job-set, --group), and by the decision on it (--code, --policy, --rule).`,
			Example: `  refloatctl get runs --data .refloat-run --state Failed --node gpu-07
  refloatctl get runs --data .refloat-run --code RuleLimit -o wide`,
		},
		rows: show.Rows[*query.Run]{
			Columns: []show.Column[*query.Run]{
				{Heading: "JOB", Cell: func(r *query.Run) string { return r.JobID }},
				{Heading: "RUN", Cell: func(r *query.Run) string { return fmt.Sprint(r.Index) }},
				{Heading: "ID", Wide: true, Cell: func(r *query.Run) string { return r.RunID }},
				{Heading: "STATE", Cell: func(r *query.Run) string { return r.State }},
				{Heading: "EXECUTOR", Wide: true, Cell: func(r *query.Run) string { return r.Executor }},
				{Heading: "NODE", Cell: func(r *query.Run) string { return r.Node }},
				{Heading: "LEASED", Cell: func(r *query.Run) string { return show.Millis(r.Leased) }},
				{Heading: "ENDED", Cell: func(r *query.Run) string { return show.Millis(r.Ended) }},
				{Heading: "ERROR", Cell: func(r *query.Run) string { return r.Error }},
				{Heading: "CATEGORY", Cell: func(r *query.Run) string { return r.Category }},
				{Heading: "DECIDED", Cell: func(r *query.Run) string {
					if r.Decision == 0 {
						return r.Outcome
					}
					return r.Outcome + text.EffectNote(r.Effect())
				}},
				{Heading: "MESSAGE", Cell: func(r *query.Run) string { return r.Message }},
			},
			Name: func(r *query.Run) string { return r.JobID + "/" + r.RunID },
		},
	}
	return l.command(&f)
}

func newGetDecisions() *cobra.Command {
	var f listFlags
	var all bool
	var last int
	l := listing[*audit.Decision]{
		list: query.Decisions, id: decisionID, ask: query.Answers.ListDecisions, failures: "only decisions on failures",
		Command: cobra.Command{
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
		},
		rows: show.Rows[*audit.Decision]{
			Columns: []show.Column[*audit.Decision]{
				{Heading: "TIME", Wide: true, Cell: func(d *audit.Decision) string { return show.Millis(d.EventTime) }},
				{Heading: "JOB", Cell: func(d *audit.Decision) string { return d.JobID }},
				{Heading: "RUN", Cell: func(d *audit.Decision) string { return fmt.Sprint(d.RunIndex) }},
				{Heading: "QUEUE", Cell: func(d *audit.Decision) string { return d.Queue }},
				{Heading: "JOB SET", Wide: true, Cell: func(d *audit.Decision) string { return d.JobSet }},
				{Heading: "DECISION", Cell: func(d *audit.Decision) string { return text.Kind(d) }},
				{Heading: "CODE", Cell: func(d *audit.Decision) string { return d.Code }},
				{Heading: "RULE", Cell: func(d *audit.Decision) string { return query.RuleName(d.Policy, d.Rule) }},
				{Heading: "USED", Cell: func(d *audit.Decision) string { return text.Used(d) }},
				{Heading: "DELAY", Cell: func(d *audit.Decision) string { return d.Delay }},
				{Heading: "RETRY AFTER", Wide: true, Cell: func(d *audit.Decision) string { return show.Millis(d.RetryAfter) }},
				{Heading: "WHY", Cell: func(d *audit.Decision) string {
					if d.Superseded {
						return text.Superseded + ": " + d.Reason
					}
					return d.Reason
				}},
			},
			Name: func(d *audit.Decision) string { return fmt.Sprintf("%d/%d", d.Partition, d.Number) },
		},
	}
	cmd := l.command(&f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		switch {
		case last < 0:
			return usageError{fmt.Errorf("--last %d: want 1 or more, or 0 for all", last)}
		case last > 0 && (f.ask.Limit > 0 || f.ask.Sort != "" || f.ask.Continue != ""):
			return usageError{errors.New("--last is an order and a limit: it goes with none of --sort, --limit and --continue")}
		case last > 0 && f.watch && !f.ask.Streams():
			return usageError{errors.New("--last with --watch goes only with --queue, --job-set, --job, --code, --policy and --rule")}
		case all:
			return allRecords(cmd, &f, last)
		case f.watch && f.ask.Streams():
			if !cmd.Flags().Changed("last") {
				last = -1
			}
			return watchDecisions(cmd, &f, &l.rows, last)
		case last > 0:
			l.ask = func(from query.Answers, ctx context.Context, of *query.List, visit func(*audit.Decision) error) (string, error) {
				return "", query.LastDecisions(ctx, from, of, last, visit)
			}
		}
		return l.run(cmd, &f)
	}
	cmd.Flags().BoolVar(&all, "all", false, "also print records that are not decisions")
	cmd.Flags().IntVar(&last, "last", 0, "only the last N decisions; with --watch, those first (default: all)")
	return cmd
}

// watchDecisions prints the last decisions (all if last is negative), and those that come.
func watchDecisions(cmd *cobra.Command, f *listFlags, rows *show.Rows[*audit.Decision], last int) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	row, end, err := rows.Printer(out, f.output)
	if err != nil {
		return usageError{err}
	}
	if f.onServer() {
		f.remote.timeout = 0
	}
	err = f.answers(nil).WatchDecisions(cmd.Context(), &f.ask, last, f.every, row, func() error { return errors.Join(end(), out.Flush()) })
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
	err = f.source(nil).AllRecords(cmd.Context(), f.ask.JobID, last, func(r *query.Record) error { return p.print(r.Where.Partition, r.Record, true, r.Where.Superseded) })
	return errors.Join(err, p.end(), out.Flush())
}
