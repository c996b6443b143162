package main

import (
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
	output, queue, set string
	limit              int
}

func newGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show jobs, runs, groups, decisions, releases, policies, group policies, queues and settings",
		Long:  "Show the jobs, runs, groups, decisions and releases of a data directory or a job database, also while `refloatctl up`\nruns on it; or the policies, group policies, queues and settings of a running server.",
	}
	cmd.AddCommand(newGetJobs(), newGetJob(), newGetRuns(), newGetDecisions(), newGetReleases(), newGetGroups(), newGetGroup())
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

func newGetJob() *cobra.Command {
	var f getFlags
	var at string
	cmd := &cobra.Command{
		Use:   "job JOB (--data DIR | --job-db URL) [--at TIME|POSITION]",
		Short: "Show one job with its runs, now or at an earlier time",
		Long: `Show one job with its runs. JOB is its id, or the beginning of it if no other job's begins so.

With --at, show the job as it was at a time (of messages that were fed from a recording:
a time in the recording), or after the message at a position, as decisions name it (if
several recordings were fed, in the first one that reaches it). That is derived from the
logs, in the data directory or on Pulsar, and takes as long as reading them.`,
		Example: `  refloatctl get job 01m7xn681y99tqr99073yk0v9j --data .refloat-run
  refloatctl get job 01m7xn681y99tqr99073yk0v9j --data .refloat-run --at 2026-12-01T06:00:00Z
  refloatctl get job 01m7xn681y99tqr99073yk0v9j --data .refloat-run --at 4:1998:1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if cmd.Flags().Changed("at") {
				return getJobAt(cmd, &f, args[0], at)
			}
			jobs, runs, err := findJob(cmd, f.deployment, args[0])
			if err != nil {
				return err
			}
			late, err := findSuperseded(cmd, f.deployment, jobs[0].JobID)
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
	cmd.Flags().StringVar(&at, "at", "", "show the job as of this time (RFC 3339), or after the message at this position of events (ledger:entry:batch)")
	completeJob(cmd, &f.deployment)
	return cmd
}

// findJob finds a job by its id or a unique beginning of it, with its runs; several
// partitions may have a job of that id.
func findJob(cmd *cobra.Command, from deployment, id string) (jobs []jobdb.Job, runs [][]jobdb.Run, err error) {
	err = from.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		found, err := lookUp(q, id)
		for i, j := range found {
			jobs, runs = append(jobs, *j), append(runs, nil)
			err = errors.Join(err, q.Runs(j.Partition, j.JobID, func(r *jobdb.Run) error {
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
