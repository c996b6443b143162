package main

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit/shadow"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

type shadowFlags struct {
	deployment
	log, policies, queue, since, output string
	jobs                                int
}

func newShadow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Show what decisions in shadow mode would have changed",
		Long:  "Show what decisions in shadow mode (mode: Shadow of a queue or of the settings) would have changed.",
	}
	cmd.AddCommand(newShadowReport())
	return cmd
}

func newShadowReport() *cobra.Command {
	var f shadowFlags
	cmd := &cobra.Command{
		Use:   "report (--data DIR | --job-db URL | --server HOST:PORT | --log DIR --policies PATH)",
		Short: "Compare decisions in shadow with what Armada did",
		Long: `Compare the decisions made in shadow mode with what became of the jobs, by queue and
rule: of the failed runs that we would have retried, how many jobs Armada failed; of
those that we would have failed, how many Armada ran again, and how many of these
succeeded. Both sides are in the job database: nothing acted on these decisions, so
its rows show what Armada did.

With --log and --policies, decide a recorded history as if all queues were in shadow
mode, and compare with the outcome in the same history: a report before you run
anything.

The tables count failed runs; the sentences above them count jobs. A failed run whose
job is unfinished is not compared. Whether a retry that was not made would have
succeeded is unknown. With -o json, each queue and each failed run is a line.`,
		Example: `  refloatctl shadow report --data .refloat-run
  refloatctl shadow report --job-db postgres://refloat@db:5432/scheduler --queue ml --since 168h
  refloatctl shadow report --log /tmp/plain --policies examples/policies --jobs 0
  refloatctl shadow report --data .refloat-run -o json | jq -r 'select(.run.lost).run.decision.jobId'`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.check()
			if err != nil {
				return err
			}
			out, seen := bufio.NewWriter(cmd.OutOrStdout()), f.queue == ""
			visit := func(show func(*query.ShadowLine) error) func(*query.ShadowLine) error {
				return func(l *query.ShadowLine) error {
					seen = seen || l.Queue != nil
					return show(l)
				}
			}
			if f.output == show.FormJSON {
				enc := show.JSONLines(out)
				err = f.read(cmd, filter, visit(func(l *query.ShadowLine) error { return enc.Encode(l) }))
			} else {
				var queues []*text.ShadowQueue
				err = f.read(cmd, filter, visit(func(l *query.ShadowLine) error {
					switch {
					case l.Queue != nil:
						queues = append(queues, &text.ShadowQueue{ShadowQueue: l.Queue})
					case l.Run != nil:
						last := queues[len(queues)-1]
						last.Runs = append(last.Runs, l.Run)
					}
					return nil
				}))
				if err == nil {
					err = text.Shadow(out, text.ShadowOf{Queue: f.queue, Since: f.since, Policies: f.policies, Jobs: f.jobs}, queues)
				}
			}
			if err == nil && !seen && f.log == "" {
				if err := missing(cmd.Context(), f.answers(nil), &jobdb.Criteria{Queue: f.queue}); err != nil {
					return err
				}
			}
			return errors.Join(err, out.Flush())
		},
	}
	bindData(cmd, &f.data, "data directory, with its job database")
	f.bindJobDB(cmd)
	f.bindServer(cmd)
	cmd.Flags().StringVar(&f.log, "log", "", "directory of an events log, as import writes it")
	cmd.Flags().StringVar(&f.policies, "policies", "", "policy file, or directory of policy files, with --log")
	cmd.Flags().StringVar(&f.queue, "queue", "", "only failed runs of this queue")
	cmd.Flags().StringVar(&f.since, "since", "", "only runs that failed since then: a duration such as 24h, or a time such as 2026-12-01T06:00:00Z")
	cmd.Flags().IntVar(&f.jobs, "jobs", 5, "maximum number of failed runs to show for each queue where Armada acted differently (-o json has all)")
	addOutput(cmd, &f.output)
	completeValues(cmd, &f.deployment)
	return cmd
}

func (f *shadowFlags) check() (filter shadow.Filter, err error) {
	filter.Queue = f.queue
	line := f.cmd.Flags().Changed
	if !line("data") && (f.jobDB != "" || f.log != "" || f.policies != "" || line("server")) {
		f.data = "" // the command line takes precedence
	}
	fromDB := f.data != "" || f.jobDB != "" || f.log == "" && f.policies == "" && f.onServer()
	switch {
	case f.jobs < 0:
		return filter, usageError{fmt.Errorf("--jobs %d: use 0 or more", f.jobs)}
	case fromDB && (f.log != "" || f.policies != "") || !fromDB && (f.log == "" || f.policies == ""):
		return filter, usageError{errors.New("shadow report needs --data DIR, --job-db URL, --server HOST:PORT, or --log DIR with --policies PATH")}
	case line("server") && (f.data != "" || f.jobDB != "" || f.log != ""):
		return filter, usageError{errors.New("--server and --data, --job-db or --log name two places to ask: give only one")}
	}
	filter.Since, err = moment("--since", f.since)
	return filter, err
}

func (f *shadowFlags) read(cmd *cobra.Command, filter shadow.Filter, visit func(*query.ShadowLine) error) error {
	if f.log == "" {
		return f.answers(nil).Shadow(cmd.Context(), filter.Queue, filter.Since, visit)
	}
	set, err := readPolicies(cmd, f.policies)
	if err != nil {
		return err
	}
	log, closeLog, err := app.OpenEvents(f.log)
	if err != nil {
		return err
	}
	defer func() { _ = closeLog() }()
	bar := show.NewProgress()
	defer bar.Done()
	bar.Update("deciding %s", plural.Of(log.Partitions(), "partition"))
	queues, err := shadow.Replay(cmd.Context(), log, set, filter)
	bar.Done()
	if err != nil {
		return err
	}
	return query.ShadowLines(queues, visit)
}
