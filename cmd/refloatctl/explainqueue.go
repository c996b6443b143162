package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

type explainQueueFlags struct {
	deployment
	query.QueueQuestion
	since, output string
}

const explainQueueLong = `: how often each code, rule and cause of failure
occurred, the jobs that failed for good and why, the retries that are pending, and the
policies and overrides that are in force. With --job-db alone, the policies and overrides
are left out, which are in the policies log. Jobs that the job database has pruned
(--retain) are not counted. --since limits all but the pending retries.`

func newExplainQueue() *cobra.Command {
	var f explainQueueFlags
	cmd := &cobra.Command{
		Use:     "queue QUEUE (--data DIR | --pulsar URL --job-db URL | --job-db URL | --server HOST:PORT)",
		Short:   "Explain what happened to the failed runs of a queue",
		Long:    "Explain what happened to the failed runs of a queue" + explainQueueLong,
		Example: "  refloatctl explain queue genomics --data .refloat-run\n  refloatctl explain queue genomics --data .refloat-run --since 24h",
		Args:    argument("QUEUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Queue = args[0]
			return f.run(cmd)
		},
	}
	f.bindAll(cmd)
	completeArg(cmd, &f.deployment, queues)
	return cmd
}

func newExplainJobSet() *cobra.Command {
	var f explainQueueFlags
	cmd := &cobra.Command{
		Use:     "job-set QUEUE/SET (--data DIR | --pulsar URL --job-db URL | --job-db URL | --server HOST:PORT)",
		Short:   "Explain what happened to the failed runs of a job set",
		Long:    "Explain what happened to the failed runs of a job set" + explainQueueLong,
		Example: "  refloatctl explain job-set genomics/align-7 --data .refloat-run",
		Args:    argument("QUEUE/SET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ok bool
			if f.Queue, f.JobSet, ok = strings.Cut(args[0], "/"); !ok || f.Queue == "" || f.JobSet == "" {
				return usageError{fmt.Errorf("job set %q: want QUEUE/SET, such as genomics/align-7", args[0])}
			}
			return f.run(cmd)
		},
	}
	f.bindAll(cmd)
	completeArg(cmd, &f.deployment, jobSets)
	return cmd
}

func (f *explainQueueFlags) bindAll(cmd *cobra.Command) {
	f.bind(cmd)
	f.bindServer(cmd)
	cmd.Flags().StringVar(&f.since, "since", "", "only failures, and ends of jobs, at or after this time (RFC 3339), or less than this duration ago, such as 1h")
	cmd.Flags().IntVar(&f.Limit, "limit", 10, "maximum number of jobs in each list; 0: all")
	addOutput(cmd, &f.output)
}

func (f *explainQueueFlags) run(cmd *cobra.Command) error {
	switch {
	case f.Limit < 0:
		return usageError{fmt.Errorf("--limit %d: want 1 or more, or 0 for all", f.Limit)}
	}
	if err := f.checkJobs(); err != nil {
		return err
	}
	var err error
	if f.Since, err = moment("--since", f.since); err != nil {
		return err
	}
	decisions := 0
	err = answer(cmd, &f.deployment, f.output, func(ctx context.Context, from query.Answers) ([]*query.QueueStory, error) {
		s, err := from.QueueStory(ctx, f.QueueQuestion)
		if missing, ok := errors.AsType[*query.NotFound](err); ok {
			missing.Text = fmt.Sprintf("%s; `refloatctl get jobs %s` lists its jobs", missing, f.deployment)
		}
		if err == nil {
			decisions = s.Decisions
		}
		return one(s, err)
	}, text.Queue)
	if err == nil && decisions == 0 {
		newestHint(cmd, f.answers(nil), &query.List{Criteria: jobdb.Criteria{Queue: f.Queue, JobSet: f.JobSet, Since: f.Since}})
	}
	return err
}
