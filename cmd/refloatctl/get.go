package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/jobdb"
)

type getFlags struct {
	deployment
	output, queue, set, job string
	states                  []string
	waiting, all            bool
	limit                   int
}

func newGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show jobs, groups, decisions, releases, policies, group policies, queues and settings",
		Long:  "Show the jobs, groups, decisions and releases of a data directory or a job database, also while `refloatctl up`\nruns on it; or the policies, group policies, queues and settings of a running server.",
	}
	cmd.AddCommand(newGetJobs(), newGetJob(), newGetDecisions(), newGetReleases(), newGetGroups(), newGetGroup())
	cmd.AddCommand(newGetResources()...)
	return cmd
}

func (f *getFlags) add(cmd *cobra.Command) {
	f.bind(cmd)
	hidePulsar(cmd)
	addOutput(cmd, &f.output)
}

func (f *getFlags) check() error {
	if err := f.checkJobs(); err != nil {
		return err
	}
	if f.limit < 0 {
		return usageError{fmt.Errorf("--limit or --last %d: want 1 or more, or 0 for all", f.limit)}
	}
	if f.output != outputTable && f.output != outputJSON {
		return badOutput(f.output)
	}
	return nil
}

func newGetJobs() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "jobs (--data DIR | --job-db URL)",
		Short: "List jobs",
		Example: `  refloatctl get jobs --data .refloat-run --queue genomics --state Queued
  refloatctl get jobs --data .refloat-run --waiting -o json
  refloatctl get jobs --job-db postgres://refloat@db:5432/scheduler --state Failed`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			filter := jobdb.JobFilter{Queue: f.queue, JobSet: f.set, Limit: f.limit}
			for _, s := range f.states {
				state, err := jobdb.ParseJobState(s)
				if err != nil {
					return usageError{fmt.Errorf("--state: %w", err)}
				}
				filter.States = append(filter.States, state)
			}
			if f.waiting {
				filter.WaitingAt = 1
				filter.States = []jobdb.JobState{jobdb.JobQueued}
			}
			return getJobs(cmd, f, filter)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.queue, "queue", "", "only jobs of this queue")
	cmd.Flags().StringVar(&f.set, "job-set", "", "only jobs of this job set")
	cmd.Flags().StringSliceVar(&f.states, "state", nil, "only jobs in these states")
	cmd.Flags().BoolVar(&f.waiting, "waiting", false, "only jobs with a pending retry")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "maximum number of jobs")
	return cmd
}

func getJobs(cmd *cobra.Command, f getFlags, filter jobdb.JobFilter) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	enc := jsonLines(out)
	t := newTable(out, "JOB", "QUEUE", "JOB SET", "STATE", "RUNS", "RETRY AFTER", "AVOIDS", "ARMADA SAYS")
	err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		return q.Jobs(filter, func(j *jobdb.Job) error {
			if f.output == outputJSON {
				return enc.Encode(jobJSON(j, nil))
			}
			armada := ""
			if j.Armada.Failed {
				armada = "Failed"
			}
			t.row(j.JobID, j.Queue, j.JobSet, j.State.String(), fmt.Sprint(j.Queueing.Runs), timeText(j.Queueing.RetryAfter),
				strings.Join(j.Queueing.AvoidNodes, ","), armada)
			return nil
		})
	})
	if err == nil && f.output == outputTable {
		err = t.flush()
	}
	return errors.Join(err, out.Flush())
}

func newGetJob() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:     "job JOB (--data DIR | --job-db URL)",
		Short:   "Show one job with its runs",
		Example: "  refloatctl get job 01m7xn681y99tqr99073yk0v9j --data .refloat-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			jobs, runs, err := findJob(cmd, f.deployment, args[0])
			if err != nil {
				return err
			}
			late, err := findSuperseded(cmd, f.deployment, args[0])
			if err != nil {
				return err
			}
			for i := range jobs {
				if err := printJob(cmd.OutOrStdout(), f.output, &jobs[i], runs[i], late[jobs[i].Partition]); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

// findJob finds a job with its runs; several partitions may have a job of that id.
func findJob(cmd *cobra.Command, from deployment, id string) (jobs []jobdb.Job, runs [][]jobdb.Run, err error) {
	err = from.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		err := q.Jobs(jobdb.JobFilter{JobID: id}, func(j *jobdb.Job) error {
			jobs = append(jobs, *j)
			return nil
		})
		for i := range jobs {
			runs = append(runs, nil)
			err = errors.Join(err, q.Runs(jobs[i].Partition, id, func(r *jobdb.Run) error {
				runs[i] = append(runs[i], *r)
				return nil
			}))
		}
		return err
	})
	if err == nil && len(jobs) == 0 {
		pruned, readErr := prunedIn(cmd.Context(), from)
		if readErr != nil {
			return nil, nil, readErr
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "job %s is not in the job database; `refloatctl get jobs %s` lists its jobs\n%s", id, from, prunedText(pruned))
		err = errFinding
	}
	return jobs, runs, err
}

// printJob prints a job with its runs; late holds the superseded decisions on them, by run.
func printJob(w io.Writer, output string, j *jobdb.Job, runs []jobdb.Run, late map[string]uint64) error {
	if output == outputJSON {
		out := jobJSON(j, runs)
		for i := range out.Attempts {
			out.Attempts[i].Superseded = late[out.Attempts[i].RunID]
		}
		return jsonLines(w).Encode(out)
	}
	fmt.Fprintf(w, "%s %s\n  queue %s, job set %s, partition %d, %s\n", bold(w, "Job"), oneLine(j.JobID), oneLine(j.Queue), oneLine(j.JobSet), j.Partition, j.State)
	if j.Queueing.RetryAfter != 0 {
		fmt.Fprintf(w, "  not before %s\n", timeText(j.Queueing.RetryAfter))
	}
	if len(j.Queueing.AvoidNodes) > 0 {
		fmt.Fprintf(w, "  not on %s\n", oneLine(strings.Join(j.Queueing.AvoidNodes, ", ")))
	}
	if j.Armada.Failed {
		fmt.Fprintf(w, "  Armada's own verdict: failed (%s) %s\n", j.Armada.Reason, oneLine(j.Armada.Message))
	}
	t := newTable(w, "  RUN", "ID", "STATE", "NODE", "ERROR", "DECIDED", "MESSAGE")
	for i := range runs {
		r := &runs[i]
		decided := ""
		switch {
		case r.Decision != 0:
			decided = fmt.Sprintf("decision %d", r.Decision)
			if r.Shadow {
				decided += " (shadow)"
			}
		case late[r.RunID] != 0:
			decided = fmt.Sprintf("released; decision %d superseded", late[r.RunID])
		case r.Outcome == jobdb.Released:
			decided = "released"
		}
		t.row(fmt.Sprintf("  %d", r.Index), r.RunID, r.State.String(), r.Node, r.Error.Reason, decided, r.Error.Message)
	}
	return t.flush()
}

func newGetDecisions() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "decisions (--data DIR | --job-db URL)",
		Short: "List decisions",
		Long: `List decisions in partition and log order. The JSON form is that of
` + "`refloatctl replay -o json`" + `. With --all, also list failed runs that were not decided,
parked messages, and retries that became ready. A decision on an event that had been
released without one (` + "`refloatctl get releases`" + `) is superseded: it is kept, but had no
effect.`,
		Example: "  refloatctl get decisions --data .refloat-run -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return getDecisions(cmd, f)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.job, "job", "", "only decisions on this job")
	cmd.Flags().BoolVar(&f.all, "all", false, "also print records that are not decisions")
	cmd.Flags().IntVar(&f.limit, "last", 0, "only the last N decisions")
	return cmd
}

func getDecisions(cmd *cobra.Command, f getFlags) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	p, err := newRecordPrinter(out, f.output)
	if err != nil {
		return err
	}
	filter := jobdb.RecordFilter{JobID: f.job, Last: f.limit}
	err = f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		err := q.Decisions(filter, func(d *jobdb.Decision) error { return p.printKept(d.Partition, &d.Decision, true, d.Superseded) })
		if err != nil || !f.all {
			return err
		}
		return errors.Join(
			q.NotDecided(filter, func(r *jobdb.NotDecided) error { return p.printKept(r.Partition, &r.NotDecided, true, r.Superseded) }),
			q.Ready(filter, func(r *jobdb.Ready) error { return p.printKept(r.Partition, &r.RetryReady, true, r.Superseded) }),
			q.Parked(jobdb.RecordFilter{}, func(r *jobdb.Parked) error { return p.printKept(r.Partition, &r.Parked, true, r.Superseded) }),
			q.GroupRecords(filter, func(r *jobdb.GroupRecord) error {
				rec, err := r.Record()
				if err != nil {
					return err
				}
				return p.printKept(r.Partition, rec, true, r.Superseded)
			}),
		)
	})
	return errors.Join(err, p.end(), out.Flush())
}

func jsonLines(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

func timeText(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}
