package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
)

var jobRows = rows[*jobdb.Job]{
	columns: []column[*jobdb.Job]{
		{heading: "JOB", cell: func(j *jobdb.Job) string { return j.JobID }},
		{heading: "QUEUE", cell: func(j *jobdb.Job) string { return j.Queue }},
		{heading: "JOB SET", cell: func(j *jobdb.Job) string { return j.JobSet }},
		{heading: "GROUP", wide: true, cell: func(j *jobdb.Job) string { return j.Member.Group }},
		{heading: "STATE", cell: func(j *jobdb.Job) string { return j.State.String() }},
		{heading: "RUNS", cell: func(j *jobdb.Job) string { return fmt.Sprint(j.Queueing.Runs) }},
		{heading: "RETRY AFTER", cell: func(j *jobdb.Job) string { return timeText(j.Queueing.RetryAfter) }},
		{heading: "SUBMITTED", wide: true, cell: func(j *jobdb.Job) string { return timeText(j.Times.Submitted) }},
		{heading: "ENDED", wide: true, cell: func(j *jobdb.Job) string { return timeText(j.Times.Ended) }},
		{heading: "AVOIDS", cell: func(j *jobdb.Job) string { return strings.Join(j.Queueing.AvoidNodes, ",") }},
		{heading: "ARMADA SAYS", cell: func(j *jobdb.Job) string {
			if j.Armada.Failed {
				return "Failed"
			}
			return ""
		}},
	},
	name:   func(j *jobdb.Job) string { return j.JobID },
	object: func(j *jobdb.Job) any { return jobJSON(j, nil) },
}

func newGetJobs() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "jobs (--data DIR | --job-db URL)",
		Short: "List jobs",
		Long: `List jobs. A job is selected by its own state, queue, job set and submission, by any of
its decisions (--code, --policy, --rule), and by any of its runs (--node, --category).`,
		Example: `  refloatctl get jobs --data .refloat-run --queue genomics --state Queued
  refloatctl get jobs --data .refloat-run --waiting -o json
  refloatctl get jobs --data .refloat-run --category oom --since 24h --sort -submitted --limit 20
  refloatctl get jobs --job-db postgres://refloat@db:5432/scheduler --state Failed`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return runList(cmd, &f, &jobRows, func(j *jobdb.Job) string { return fmt.Sprint(j.Partition, j.JobID) },
				func(q jobdb.Queries, visit func(*jobdb.Job) error) ([]any, error) {
					return q.JobList(&f.criteria, f.page, visit)
				})
		},
	}
	f.bindList(cmd, "jobs", jobdb.JobSorts, jobStates())
	f.bindFailures(cmd, "only jobs submitted")
	cmd.Flags().BoolVar(&f.criteria.Waiting, "waiting", false, "only jobs with a pending retry")
	return cmd
}

func jobStates() (names []string) {
	for _, s := range jobdb.JobStates() {
		names = append(names, s.String())
	}
	return names
}

func runStates() (names []string) {
	for s := jobdb.UnknownRun; s <= jobdb.RunCancelled; s++ {
		names = append(names, s.String())
	}
	return names
}

// listedRun is the JSON form of a run in a list.
type listedRun struct {
	JobID     string `json:"jobId"`
	Partition int    `json:"partition"`
	attempt
}

var runRows = rows[*jobdb.Run]{
	columns: []column[*jobdb.Run]{
		{heading: "JOB", cell: func(r *jobdb.Run) string { return r.JobID }},
		{heading: "RUN", cell: func(r *jobdb.Run) string { return fmt.Sprint(r.Index) }},
		{heading: "ID", wide: true, cell: func(r *jobdb.Run) string { return r.RunID }},
		{heading: "STATE", cell: func(r *jobdb.Run) string { return r.State.String() }},
		{heading: "EXECUTOR", wide: true, cell: func(r *jobdb.Run) string { return r.Executor }},
		{heading: "NODE", cell: func(r *jobdb.Run) string { return r.Node }},
		{heading: "LEASED", cell: func(r *jobdb.Run) string { return timeText(r.Times.Leased) }},
		{heading: "ENDED", cell: func(r *jobdb.Run) string { return timeText(r.Times.Ended) }},
		{heading: "ERROR", cell: func(r *jobdb.Run) string { return r.Error.Reason }},
		{heading: "CATEGORY", cell: func(r *jobdb.Run) string { return r.Error.Category }},
		{heading: "DECIDED", cell: func(r *jobdb.Run) string {
			if r.Decision == 0 {
				return ""
			}
			return r.Outcome.String()
		}},
		{heading: "MESSAGE", cell: func(r *jobdb.Run) string { return r.Error.Message }},
	},
	name:   func(r *jobdb.Run) string { return r.JobID + "/" + r.RunID },
	object: func(r *jobdb.Run) any { return listedRun{r.JobID, r.Partition, attemptJSON(r)} },
}

func newGetRuns() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "runs (--data DIR | --job-db URL)",
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
			return runList(cmd, &f, &runRows, func(r *jobdb.Run) string { return fmt.Sprint(r.Partition, r.JobID, r.RunID) },
				func(q jobdb.Queries, visit func(*jobdb.Run) error) ([]any, error) {
					return q.RunList(&f.criteria, f.page, visit)
				})
		},
	}
	f.bindList(cmd, "runs", jobdb.RunSorts, runStates())
	f.bindFailures(cmd, "only runs leased")
	return cmd
}

// keptDecision returns the JSON form of a decision in a job database.
func keptDecision(d *jobdb.Decision) audit.Decision {
	shown := audit.DecisionOf(d.Partition, &d.Decision)
	shown.Superseded = d.Superseded
	return shown
}

var decisionRows = rows[*jobdb.Decision]{
	columns: []column[*jobdb.Decision]{
		{heading: "TIME", wide: true, cell: func(d *jobdb.Decision) string { return timeText(d.Time) }},
		{heading: "JOB", cell: func(d *jobdb.Decision) string { return d.JobID }},
		{heading: "RUN", cell: func(d *jobdb.Decision) string { return fmt.Sprint(d.RunIndex) }},
		{heading: "QUEUE", cell: func(d *jobdb.Decision) string { return d.Queue }},
		{heading: "JOB SET", wide: true, cell: func(d *jobdb.Decision) string { return d.JobSet }},
		{heading: "DECISION", cell: func(d *jobdb.Decision) string { return kindOf(&d.Decision) }},
		{heading: "CODE", cell: func(d *jobdb.Decision) string { return d.Code.String() }},
		{heading: "RULE", cell: func(d *jobdb.Decision) string { return ruleName(d.Policy, d.Rule) }},
		{heading: "USED", cell: func(d *jobdb.Decision) string { return usedText(keptDecision(d)) }},
		{heading: "DELAY", cell: func(d *jobdb.Decision) string { return keptDecision(d).Delay }},
		{heading: "RETRY AFTER", wide: true, cell: func(d *jobdb.Decision) string { return timeText(d.RetryAfter) }},
		{heading: "WHY", cell: func(d *jobdb.Decision) string {
			if d.Superseded {
				return supersededText + ": " + audit.Reason(&d.Decision)
			}
			return audit.Reason(&d.Decision)
		}},
	},
	name:   func(d *jobdb.Decision) string { return fmt.Sprintf("%d/%d", d.Partition, d.Number) },
	object: func(d *jobdb.Decision) any { return keptDecision(d) },
}

func ruleName(policy, rule string) string {
	if policy == "" {
		return rule
	}
	return policy + "/" + rule
}

func usedText(d audit.Decision) string {
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
		Use:   "decisions (--data DIR | --job-db URL)",
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
			case last > 0 && (f.page.Limit > 0 || f.watch || f.sort != "" || f.token != ""):
				return usageError{errors.New("--last is an order and a limit: it goes with none of --sort, --limit, --continue and --watch")}
			case all:
				return allRecords(cmd, &f, last)
			}
			return getDecisions(cmd, &f, last)
		},
	}
	f.bindList(cmd, "decisions", jobdb.DecisionSorts, nil)
	f.bindFailures(cmd, "only decisions on failures")
	cmd.Flags().StringVar(&f.criteria.JobID, "job", "", "only decisions on this job")
	cmd.Flags().BoolVar(&all, "all", false, "also print records that are not decisions")
	cmd.Flags().IntVar(&last, "last", 0, "only the last N decisions")
	return cmd
}

func getDecisions(cmd *cobra.Command, f *listFlags, last int) error {
	return runList(cmd, f, &decisionRows, func(d *jobdb.Decision) string { return fmt.Sprint(d.Partition, d.Number) },
		func(q jobdb.Queries, visit func(*jobdb.Decision) error) ([]any, error) {
			if last == 0 {
				return q.DecisionList(&f.criteria, f.page, visit)
			}
			var found []*jobdb.Decision
			_, err := q.DecisionList(&f.criteria, jobdb.Page{Sort: "time", Descending: true, Limit: last}, func(d *jobdb.Decision) error {
				found = append(found, d)
				return nil
			})
			for i := len(found) - 1; i >= 0 && err == nil; i-- {
				err = visit(found[i])
			}
			return nil, err
		})
}

// allRecords prints decisions and other records, of all jobs or of one.
func allRecords(cmd *cobra.Command, f *listFlags, last int) error {
	only := f.criteria
	only.JobID = ""
	if f.watch || f.token != "" || f.page.Limit > 0 || f.sort != "" || !only.Empty() {
		return usageError{errors.New("--all shows records that are not decisions too, and goes only with --job, --last and -o table or json")}
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	p, err := newRecordPrinter(out, f.output)
	if err != nil {
		return err
	}
	err = f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		positions, err := q.Positions()
		for _, at := range positions {
			if err != nil {
				break
			}
			var kept []told
			kept, err = keptRecords(q, jobdb.RecordFilter{Partition: &at.Partition, JobID: f.criteria.JobID, Last: last})
			for i := range kept {
				err = errors.Join(err, p.printKept(at.Partition, kept[i].rec, true, kept[i].where.Superseded))
			}
		}
		return err
	})
	return errors.Join(err, p.end(), out.Flush())
}

// keptRecords returns the records of one partition in log order.
func keptRecords(q jobdb.Queries, filter jobdb.RecordFilter) (kept []told, err error) {
	add := func(where jobdb.Where, r chain.Record) error {
		kept = append(kept, told{where, r})
		return nil
	}
	err = errors.Join(
		q.Decisions(filter, func(d *jobdb.Decision) error { return add(d.Where, &d.Decision) }),
		q.NotDecided(filter, func(r *jobdb.NotDecided) error { return add(r.Where, &r.NotDecided) }),
		q.Ready(filter, func(r *jobdb.Ready) error { return add(r.Where, &r.RetryReady) }),
		q.Parked(jobdb.RecordFilter{Partition: filter.Partition}, func(r *jobdb.Parked) error { return add(r.Where, &r.Parked) }),
		q.GroupRecords(filter, func(r *jobdb.GroupRecord) error {
			rec, err := r.Record()
			if err != nil {
				return err
			}
			return add(r.Where, rec)
		}),
	)
	sortTold(kept)
	return kept, err
}
