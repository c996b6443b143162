package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/apiflags"
	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/cmd/internal/text"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

type upFlags struct {
	deployment
	policies, pace, listen string
	ingestMode, retain     string
	feed                   []string
	partitions             int
	semantics              uint32
	scrub                  float64
	memory                 string
	policySeries           int
	drained, quiet         bool
	settle                 time.Duration
	allowEmpty             bool
	api                    *apiflags.Serve
	follow                 *apiflags.Follow
	notify                 *apiflags.Notify
}

func newUp() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up --data DIR [--policies PATH] [--feed FILE]...",
		Short: "Run Refloat in one process on one directory",
		Long: `Run evaluator and ingester in one process, on the embedded log and SQLite, in one data
directory. After a restart it continues where the log ends. With --job-db, the job
database is elsewhere, and its tables are created if they do not exist. If it is
Armada's scheduler database, --ingest-mode selects what is written there.

Every flag can also be set by the environment (REFLOAT_DATA for --data) and by a YAML
file (--config); flags take precedence over the environment, and the environment over
the file.`,
		Example: `  refloatctl up --data /tmp/demo --policies examples/policies --feed testdata/recordings/plain.jsonl.gz --exit-when-drained
  refloatctl up --data /var/lib/refloat --policies /etc/refloat/policies --listen 127.0.0.1:9470
  refloatctl up --data /tmp/slow --policies examples/policies --feed testdata/recordings/plain.jsonl.gz --pace 10x
  PGPASSWORD=… refloatctl up --data /var/lib/refloat --policies /etc/refloat/policies --job-db postgres://refloat@db:5432/refloat`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error { return up(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.data, "data", "", "data directory, created if it does not exist (required)")
	f.bindJobDB(cmd)
	flags.StringVar(&f.ingestMode, "ingest-mode", app.IngestModes()[0], "what to write if --job-db is Armada's scheduler database: holdback (for an unmodified Armada), direct (for a scheduler that honours retry_after), passthrough (what Armada's own ingester writes) or observe (only Refloat's tables)")
	flags.StringVar(&f.retain, "retain", "auto", app.RetainUsage)
	flags.StringVar(&f.policies, "policies", "", "policy file, or directory of policy files; changes are published")
	flags.StringArrayVar(&f.feed, "feed", nil, "recording to write into the events log; may be repeated")
	flags.StringVar(&f.pace, "pace", "", "speed relative to the recorded times, such as 10x (default: as fast as possible)")
	flags.StringVar(&f.listen, "listen", "", "address for /metrics, /healthz and /readyz (default: none)")
	flags.DurationVar(&f.settle, "policies-settle", app.PolicySettle, app.PolicySettleUsage)
	flags.BoolVar(&f.allowEmpty, "allow-empty", false, app.AllowEmptyUsage)
	f.api = apiflags.BindServe(cmd, apiflags.Default)
	f.follow = apiflags.BindFollow(cmd)
	f.notify = apiflags.BindNotify(cmd)
	flags.Uint32Var(&f.semantics, "semantics", 0, app.SemanticsUsage)
	flags.IntVar(&f.partitions, "partitions", 0, "partitions of a new log (default: as many as the feeds have)")
	flags.IntVar(&f.policySeries, "policy-series", app.DefaultPolicySeries, app.PolicySeriesUsage)
	flags.Float64Var(&f.scrub, "scrub-rate", app.DefaultScrubRate, "background verification of local files against their checksums, in MiB a second; 0: off")
	flags.StringVar(&f.memory, "memory", "", app.MemoryUsage)
	flags.BoolVar(&f.drained, "exit-when-drained", false, "exit with a summary when everything fed is decided and in the job database")
	flags.BoolVar(&f.quiet, "quiet", false, "log only warnings and errors, and print no summary")
	settings.MayBeEmpty(cmd, "listen")
	bindSettings(cmd)
	return cmd
}

func up(cmd *cobra.Command, f upFlags) error {
	if f.data == "" {
		return usageError{errors.New("--data DIR is required: the directory for logs, state and job database")}
	}
	if f.partitions < 0 {
		return usageError{fmt.Errorf("--partitions %d: want 1 or more, or 0 for as many as the feeds have", f.partitions)}
	}
	if err := app.CheckIngestMode(f.ingestMode); err != nil {
		return usageError{fmt.Errorf("--ingest-mode: %w", err)}
	}
	retain, err := app.ParseRetain(f.retain)
	if err != nil {
		return usageError{fmt.Errorf("--retain: %w", err)}
	}
	if err := app.CheckSemantics(f.semantics); err != nil {
		return usageError{fmt.Errorf("--semantics: %w", err)}
	}
	if err := app.CheckPolicySeries(f.policySeries); err != nil {
		return usageError{fmt.Errorf("--policy-series %w", err)}
	}
	if f.scrub < 0 {
		return usageError{fmt.Errorf("--scrub-rate %v: want MiB a second, or 0 to switch verification off", f.scrub)}
	}
	memory, err := app.ParseMemory(f.memory)
	if err != nil {
		return usageError{fmt.Errorf("--memory %w", err)}
	}
	pace, err := parsePace(f.pace)
	if err != nil {
		return usageError{err}
	}
	follow, err := f.follow.Source(f.policies)
	if err != nil {
		return usageError{err}
	}
	receiver, err := f.notify.Receiver()
	if err != nil {
		return usageError{err}
	}
	served, err := f.api.API(cmd.Context())
	if err != nil {
		return usageError{err}
	}
	served.Program = cmd.Root().Version
	if f.drained && !cmd.Flags().Changed("api") {
		served.Listen = "" // it ends by itself, so no client needs the API
	}
	level := slog.LevelInfo
	if f.quiet {
		level = slog.LevelWarn
	}
	bar := show.NewProgress()
	defer bar.Done()
	start := time.Now()
	var fed app.Status
	drained := false
	err = app.Run(cmd.Context(), app.Config{
		Data: app.Dir(f.data), JobDB: f.jobDB, IngestMode: f.ingestMode, Retain: retain, Partitions: f.partitions, Policies: f.policies,
		PolicySettle: f.settle, AllowEmpty: f.allowEmpty,
		Feeds: f.feed, Pace: pace, Evaluate: true, Ingest: true, Semantics: f.semantics,
		Listen: f.listen, PolicySeries: f.policySeries, API: served, Follow: follow, Notify: receiver, ExitWhenDrained: f.drained,
		ScrubRate: int64(f.scrub * (1 << 20)), Memory: memory,
		Progress: func(s app.Status) { fed = s; bar.Update("fed %d of %d messages", s.Fed, s.Total) },
		Drained:  func() { drained = true },
		Fatal:    func(err error) { os.Exit(exitCode(cmd.CommandPath(), err)) },
		Log:      slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})),
		Now:      time.Now,
	})
	bar.Done()
	if problems, ok := errors.AsType[policyfile.Problems](err); ok {
		return printedProblems(cmd, problems)
	}
	if err == nil && f.drained && !drained && cmd.Context().Err() != nil {
		return interrupted(cmd, f, fed)
	}
	if err != nil || f.quiet || !f.drained || cmd.Context().Err() != nil {
		return err
	}
	return summarize(cmd, f, time.Since(start))
}

// interrupted reports how far an up that was to drain came.
func interrupted(cmd *cobra.Command, f upFlags, fed app.Status) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), time.Second)
	defer cancel()
	decided := ""
	_ = f.viewJobs(ctx, func(q jobdb.Queries) error { // there may be none yet
		s, err := q.Summary()
		if err != nil {
			return err
		}
		total := uint64(0)
		for _, c := range s.Decisions {
			total += c.Count
		}
		decided = ", " + plural.Of(total, "decision is", "decisions are") + " in the job database"
		return nil
	})
	fmt.Fprintf(cmd.ErrOrStderr(), "refloatctl: interrupted before everything was decided: %d of %d messages were fed%s; run the same command again to go on\n",
		fed.Fed, fed.Total, decided)
	return errInterrupted
}

// parsePace parses 10x, 0.5x or 10; empty is 0: as fast as possible.
func parsePace(s string) (float64, error) {
	if s == "" {
		return 0, nil
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "x"), 64)
	if err != nil || v <= 0 || v > 1e9 {
		return 0, fmt.Errorf("--pace %q: want a factor above 0, such as 10x or 0.5x", s)
	}
	return v, nil
}

// summarize prints what up decided, and commands to try next.
func summarize(cmd *cobra.Command, f upFlags, took time.Duration) error {
	out := cmd.OutOrStdout()
	from := f.source(nil)
	s, err := from.Summary(cmd.Context())
	if err != nil {
		return err
	}
	example, err := from.Example(cmd.Context())
	if err != nil {
		return err
	}
	text.Decisions(out, s)
	text.Jobs(out, s, took)
	fmt.Fprintf(out, "\n%s\n", show.Bold(out, "Try next"))
	if example != "" {
		fmt.Fprintf(out, "  bin/refloatctl explain %s %s\n", example, f.deployment)
	}
	fmt.Fprintf(out, "  bin/refloatctl get jobs %s --waiting\n", f.deployment)
	fmt.Fprintf(out, "  bin/refloatctl get decisions %s -o json\n", f.deployment)
	if len(s.Releases) > 0 {
		fmt.Fprintf(out, "  bin/refloatctl get releases %s\n", f.deployment)
	}
	if slices.ContainsFunc(s.Decisions, func(c query.DecisionCount) bool { return c.Shadow }) {
		fmt.Fprintf(out, "  bin/refloatctl shadow report %s\n", f.deployment)
	}
	fmt.Fprintf(out, "  bin/refloatctl verify --data %s\n", f.data)
	if f.policies != "" {
		fmt.Fprintf(out, "  edit %s, then: bin/refloatctl lint %s && bin/refloatctl replay --log %s --policies %s\n",
			f.policies, f.policies, app.Dir(f.data).Events(), f.policies)
	}
	return nil
}
