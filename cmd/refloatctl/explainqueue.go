package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
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
	case f.output != outputTable && f.output != outputJSON:
		return badOutput(f.output)
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
	s, err := f.answers(nil).QueueStory(cmd.Context(), f.QueueQuestion)
	if missing, ok := errors.AsType[*query.NotFound](err); ok {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s; `refloatctl get jobs %s` lists its jobs\n", missing, f.deployment)
		return errFinding
	}
	if err != nil {
		return f.asked(cmd, err)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if f.output == outputJSON {
		err = jsonLines(out).Encode(s)
	} else {
		err = printQueue(out, s)
	}
	err = errors.Join(err, out.Flush())
	if err == nil && s.Decisions == 0 {
		newestHint(cmd, f.answers(nil), &query.List{Criteria: jobdb.Criteria{Queue: f.Queue, JobSet: f.JobSet, Since: f.Since}})
	}
	return err
}

func printQueue(w io.Writer, s *query.QueueStory) error {
	name := s.Name()
	if s.Since != "" {
		name += " since " + toMillis(s.Since)
	}
	effects := s.Effects()
	fmt.Fprintf(w, "%s%s: %s: %s\n", bold(w, strings.ToUpper(name[:1])), name[1:], plural.Of(s.Decisions, "decision"), effects.Words())
	for _, c := range []struct {
		heading string
		counts  []query.Tally
	}{{"CODE", s.Codes}, {"RULE", s.Rules}, {"CAUSE" + strings.ToUpper(s.NewestCauses()), s.Causes}} {
		if len(c.counts) == 0 {
			continue
		}
		fmt.Fprintln(w)
		t := newTable(w, "COUNT", c.heading)
		for _, n := range c.counts {
			t.row(fmt.Sprint(n.Count), n.Key)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		what string
		*query.Fates
		time func(*query.Fate) string
		head string
	}{
		{"Failed for good", &s.Failed, func(f *query.Fate) string { return toMillis(f.Ended) }, "ENDED"},
		{"Pending retries", &s.Pending, func(f *query.Fate) string { return toMillis(f.RetryAfter) }, "RETRY AFTER"},
	} {
		fmt.Fprintf(w, "\n%s: %s\n", bold(w, l.what), plural.Of(l.Count, "job"))
		if l.Count == 0 {
			continue
		}
		t := newTable(w, "  JOB", "RUNS", l.head, "CODE", "RULE", "WHY")
		for i := range l.Jobs {
			j := &l.Jobs[i]
			t.row("  "+j.JobID, fmt.Sprint(j.Runs), l.time(j), j.Code, j.Rule, j.Reason)
		}
		if err := t.flush(); err != nil {
			return err
		}
		if more := l.Count - len(l.Jobs); more > 0 {
			fmt.Fprintf(w, "  and %d more: --limit 0 lists all\n", more)
		}
	}
	printInForce(w, s.Policies)
	return nil
}

func printInForce(w io.Writer, p *query.InForce) {
	if p == nil {
		fmt.Fprintf(w, "\n%s are in the policies log: give --pulsar URL or --data DIR to see what is in force\n", bold(w, "Policies"))
		return
	}
	applying, mode := strings.Join(p.Applying, ", then "), ""
	if applying == "" {
		applying = "none, so that failed runs are decided as Armada does"
	}
	if p.Shadow {
		mode = "; the queue is in shadow"
	}
	fmt.Fprintf(w, "\n%s in force, generation %d, for jobs that name none: %s; globalMaxRetries %d%s\n", bold(w, "Policies"), p.Generation, oneLine(applying), p.Limit, mode)
	for i := range p.Changes {
		fmt.Fprintf(w, "  %s\n", changeText(&p.Changes[i]))
	}
	for _, o := range p.Overrides {
		fmt.Fprintf(w, "  %s\n", o)
	}
}
