package main

import (
	"context"
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
	return explainFailures("queue", "QUEUE", "a queue", "  refloatctl explain queue genomics --data .refloat-run\n  refloatctl explain queue genomics --data .refloat-run --since 24h",
		queues, func(q *query.QueueQuestion, arg string) error {
			q.Queue = arg
			return nil
		})
}

func newExplainJobSet() *cobra.Command {
	return explainFailures("job-set", "QUEUE/SET", "a job set", "  refloatctl explain job-set genomics/align-7 --data .refloat-run",
		jobSets, func(q *query.QueueQuestion, arg string) (err error) {
			var ok bool
			if q.Queue, q.JobSet, ok = strings.Cut(arg, "/"); !ok || q.Queue == "" || q.JobSet == "" {
				err = usageError{fmt.Errorf("job set %q: want QUEUE/SET, such as genomics/align-7", arg)}
			}
			return err
		})
}

// explainFailures returns a command that explains what happened to the failed runs of what its argument names.
func explainFailures(name, arg, of, example string, names lookup, read func(*query.QueueQuestion, string) error) *cobra.Command {
	var f explainQueueFlags
	cmd := &cobra.Command{
		Use:     name + " " + arg + " (--data DIR | --pulsar URL --job-db URL | --job-db URL | --server HOST:PORT)",
		Short:   "Explain what happened to the failed runs of " + of,
		Long:    "Explain what happened to the failed runs of " + of + explainQueueLong,
		Example: example,
		Args:    argument(arg),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := read(&f.QueueQuestion, args[0]); err != nil {
				return err
			}
			return f.run(cmd)
		},
	}
	f.bind(cmd)
	f.bindServer(cmd)
	cmd.Flags().StringVar(&f.since, "since", "", "only failures, and ends of jobs, at or after this time (RFC 3339), or less than this duration ago, such as 1h")
	cmd.Flags().IntVar(&f.Limit, "limit", 10, "maximum number of jobs in each list; 0: all")
	addOutput(cmd, &f.output)
	completeArg(cmd, &f.deployment, names)
	return cmd
}

func (f *explainQueueFlags) run(cmd *cobra.Command) error {
	if f.Limit < 0 {
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
		err = nothingCalled(ctx, from, &jobdb.Criteria{Queue: f.Queue, JobSet: f.JobSet}, err, fmt.Sprintf("`refloatctl get jobs %s` lists jobs", f.deployment))
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
