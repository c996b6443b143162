package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refloat/refloat/cmd/internal/text"

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
		Short: "List jobs, runs, groups, decisions, policies and more",
		Long:  "Show the jobs, runs, groups, decisions and partitions of a data directory, a job database or a server, also while\n`refloatctl up` runs on it; the releases of a data directory or a job database; or the policies, group policies, queues and settings of a running server.",
	}
	cmd.AddCommand(newGetJobs(), newGetJob(), newGetRuns(), newGetDecisions(), newGetReleases(), newGetGroups(), newGetGroup(), newGetPartitions(), newGetNodes(), newGetBreakers())
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
				var err error
				if at, err = f.moment(at); err != nil {
					return err
				}
			}
			return answer(cmd, &f.deployment, f.output, func(ctx context.Context, from query.Answers) ([]query.Job, error) {
				return from.GetJob(ctx, args[0], at)
			}, text.Job)
		},
	}
	f.add(cmd)
	f.bindServer(cmd)
	cmd.Flags().StringVar(&at, "at", "", "show the job as of this time, or this duration ago, such as 24h, or after the message at this position of events (ledger:entry:batch)")
	completeArg(cmd, &f.deployment, jobIDs)
	return cmd
}

// moment returns what --at says, as a time or a position, unless no job can be shown as of then: that is derived from the logs.
func (f *getFlags) moment(at string) (string, error) {
	when, err := query.At(at, time.Now())
	if bad, ok := errors.AsType[*query.Invalid](err); ok {
		return "", usageError{fmt.Errorf("--at %w", bad.Err)}
	}
	switch {
	case at == "":
		return "", usageError{errors.New("--at is empty: want a time, a duration or a position")}
	case f.data == "" && !f.onPulsar() && !f.onServer():
		return "", usageError{errors.New("--at is derived from the logs: give --data DIR, or --pulsar URL beside --job-db URL")}
	}
	return when, nil
}
