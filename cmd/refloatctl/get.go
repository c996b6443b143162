package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/query"
)

type getFlags struct {
	deployment
	output, queue, set string
	limit              int
}

func newGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show jobs, runs, groups, decisions, releases, partitions, policies, group policies, queues and settings",
		Long:  "Show the jobs, runs, groups, decisions and partitions of a data directory, a job database or a server, also while\n`refloatctl up` runs on it; the releases of a data directory or a job database; or the policies, group policies, queues and settings of a running server.",
	}
	cmd.AddCommand(newGetJobs(), newGetJob(), newGetRuns(), newGetDecisions(), newGetReleases(), newGetGroups(), newGetGroup(), newGetPartitions())
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
		Use:   "job JOB (--data DIR | --job-db URL | --server HOST:PORT) [--at TIME|POSITION]",
		Short: "Show one job with its runs, now or at an earlier time",
		Long: `Show one job with its runs. JOB is its id, or the beginning of it if no other job's begins so.

With --at, show the job as it was at a time (of messages that were fed from a recording:
a time in the recording), or after the message at a position, as decisions name it (if
several recordings were fed, in the first one that reaches it). That is derived from the
logs, in the data directory or on Pulsar, and takes as long as reading them.`,
		Example: `  refloatctl get job 01m7xn681y99tqr9907wrzd7wm --data .refloat-run
  refloatctl get job 01m7xn681y99tqr9907wrzd7wm --data .refloat-run --at 2026-12-01T06:00:00Z
  refloatctl get job 01m7xn681y99tqr9907wrzd7wm --data .refloat-run --at 4:1998:1`,
		Args: argument("JOB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if cmd.Flags().Changed("at") {
				return getJobAt(cmd, &f, args[0], at)
			}
			found, err := f.answers(nil).GetJob(cmd.Context(), args[0], "")
			if err != nil {
				return f.asked(cmd, err)
			}
			for i := range found {
				if err := printJob(cmd.OutOrStdout(), f.output, &found[i]); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.add(cmd)
	f.bindServer(cmd)
	cmd.Flags().StringVar(&at, "at", "", "show the job as of this time (RFC 3339), or after the message at this position of events (ledger:entry:batch)")
	completeArg(cmd, &f.deployment, jobIDs)
	return cmd
}

// printJob prints a job with its runs.
func printJob(w io.Writer, output string, j *query.Job) error {
	if output == outputJSON {
		return jsonLines(w).Encode(j)
	}
	fmt.Fprintf(w, "%s %s\n  queue %s, job set %s, partition %d, %s\n", bold(w, "Job"), oneLine(j.JobID), oneLine(j.Queue), oneLine(j.JobSet), j.Partition, j.State)
	if j.RetryAfter != "" {
		fmt.Fprintf(w, "  not before %s\n", toMillis(j.RetryAfter))
	}
	if len(j.AvoidNodes) > 0 {
		fmt.Fprintf(w, "  not on %s\n", oneLine(strings.Join(j.AvoidNodes, ", ")))
	}
	if v := j.Armada; v != nil {
		fmt.Fprintf(w, "  Armada's own verdict: failed (%s) %s\n", v.Reason, oneLine(v.Message))
	}
	t := newTable(w, "  RUN", "ID", "STATE", "NODE", "ERROR", "DECIDED", "MESSAGE")
	for i := range j.Attempts {
		r := &j.Attempts[i]
		decided := ""
		switch {
		case r.Decision != 0 && r.Shadow:
			decided = fmt.Sprintf("decision %d (shadow)", r.Decision)
		case r.Decision != 0 && r.Superseded != 0:
			decided = fmt.Sprintf("decision %d superseded", r.Decision)
		case r.Decision != 0:
			decided = fmt.Sprintf("decision %d", r.Decision)
		case r.Superseded != 0:
			decided = fmt.Sprintf("released; decision %d superseded", r.Superseded)
		case r.Released:
			decided = "released"
		}
		t.row(fmt.Sprintf("  %d", r.Index), r.RunID, r.State, r.Node, r.Error, decided, r.Message)
	}
	return t.flush()
}

func jsonLines(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

// toMillis shortens a time to milliseconds, for people; JSON has it in full.
func toMillis(text string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return at.Format("2006-01-02T15:04:05.000Z07:00")
}

func timeText(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}
