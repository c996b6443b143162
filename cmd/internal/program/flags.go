package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/apiflags"
	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/cmd/internal/version"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/checkpoint/storage"
	"github.com/refloat/refloat/internal/eventlog"
)

// flags holds a program's flags and the configuration built from them.
type flags struct {
	config app.Config
	usage  bool // the error is a usage error

	pulsar  *pulsarflags.Flags
	data    string
	history string
	api     *apiflags.Serve // nil: the program serves no policy API
	jobs    string          // job database that an evaluator answers questions from
	control string
	retain  string
	scrub   float64
	memory  string
	follow  *apiflags.Follow

	checkpoints string // a URL
}

func (f *flags) command(name, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name + " --data DIR | --pulsar URL", Short: short, SilenceUsage: true, SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			return errors.Join(cobra.NoArgs(cmd, args), settings.CheckEmpty(cmd, nil))
		},
		Long: short + `.

With --pulsar, on the topics of an Apache Pulsar cluster, sharing the partitions
with all processes of the same kind. Without it, on the logs in a data directory.

Every flag can also be set by the environment (REFLOAT_DATA for --data) and by
a YAML file (--config); flags take precedence over the environment, and the environment over the file.`,
	}
	c, set := &f.config, cmd.Flags()
	f.pulsar = pulsarflags.Bind(cmd)
	set.StringVar(&f.data, "data", "", "data directory; an evaluator on Pulsar keeps its state there")
	set.StringVar(&c.Listen, "listen", "", "address for /metrics, /healthz and /readyz (default: none)")
	set.IntVar(&c.PolicySeries, "policy-series", app.DefaultPolicySeries, app.PolicySeriesUsage)
	set.Float64Var(&f.scrub, "scrub-rate", app.DefaultScrubRate, "background verification of local files against their checksums, in MiB a second; 0: off")
	set.StringVar(&f.memory, "memory", "", app.MemoryUsage)
	set.StringVar(&c.Instance, "instance", "", "name of this process on Pulsar: unique, and best stable across restarts (default: host name and process id)")
	if c.Evaluate {
		f.api = apiflags.BindServe(cmd, "")
		f.follow = apiflags.BindFollow(cmd)
		set.StringVar(&f.jobs, "job-db", "", "job database from which the API answers questions about jobs: sqlite:///path or postgres://… (default: none)")
		settings.Secret(cmd, "job-db")
		set.StringVar(&c.Policies, "policies", "", "policy file, or directory of policy files; changes are published")
		set.DurationVar(&c.PolicySettle, "policies-settle", app.PolicySettle, app.PolicySettleUsage)
		set.BoolVar(&c.AllowEmpty, "allow-empty", false, app.AllowEmptyUsage)
		set.StringVar(&f.checkpoints, "checkpoints", "", "shared storage for checkpoints of the state: file:///dir or s3://bucket?prefix=… (default: none)")
		set.DurationVar(&c.CheckpointEvery, "checkpoint-every", 0, "how often to take a checkpoint (default 1m)")
		set.StringVar(&f.history, "accept-history-from", "", "operator acknowledgement that events were trimmed before they were decided, or that the state was lost: continue at 'beginning' (of what is left), or after position L:E:B")
		set.BoolVar(&c.AcceptEmptyDecisions, "accept-empty-decisions", false, "operator acknowledgement: start a new decision log although an older one may have been deleted")
		set.Uint32Var(&c.Semantics, "semantics", 0, app.SemanticsUsage)
		set.IntVar(&c.AcceptPartitions, "accept-partitions", 0, "operator acknowledgement: continue although events now has this number of partitions")
	}
	if c.Ingest {
		set.StringVar(&c.JobDB, "job-db", "", "job database: sqlite:///path or postgres://… (default: SQLite in the data directory)")
		settings.Secret(cmd, "job-db")
		set.StringVar(&c.IngestMode, "mode", app.IngestModes()[0], "what to write if the job database is Armada's scheduler database: holdback (for an unmodified Armada), direct (for a scheduler that honours retry_after), passthrough (what Armada's own ingester writes) or observe (only Refloat's tables)")
		set.StringVar(&f.control, "control-plane", "control-plane", "Armada's control-plane topic (executor settings, jobs cancelled or preempted by executor or queue), applied if the job database is Armada's and the mode is not observe; empty: another process applies it")
		set.StringVar(&c.NodeLabel, "node-id-label", "", "Armada's scheduling.nodeIdLabel (default kubernetes.io/hostname)")
		set.DurationVar(&c.ReleaseAfter, "release-after", 0, "how long an event may wait for a decision before it is written to the job database without one (default: forever)")
		set.StringVar(&f.retain, "retain", "auto", app.RetainUsage)
	}
	settings.MayBeEmpty(cmd, "listen")
	if c.Ingest {
		settings.MayBeEmpty(cmd, "control-plane")
	}
	settings.Bind(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return settings.Explain(cmd.Flags(), err) })
	version.Add(cmd)
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := settings.Load(cmd); err != nil {
			return err
		}
		if err := f.complete(); err != nil {
			return err
		}
		if f.api != nil {
			var err error
			if f.config.API, err = f.api.API(cmd.Context()); err != nil {
				return err
			}
			f.config.API.Program = cmd.Root().Version
			if f.config.API.JobDB = f.jobs; f.jobs != "" && f.config.API.Listen == "" {
				return errors.New("--job-db is what the API answers from: give --api ADDRESS too")
			}
			if f.config.Follow, err = f.follow.Source(f.config.Policies); err != nil {
				return err
			}
		}
		f.usage = false
		return app.Run(cmd.Context(), f.config)
	}
	return cmd
}

// complete checks the flags and derives the rest of the configuration from them.
func (f *flags) complete() error {
	c := &f.config
	c.Data = app.Dir(f.data)
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if f.checkpoints != "" {
		c.Checkpoints = func(ctx context.Context) (checkpoint.Storage, error) {
			return storage.Open(ctx, f.checkpoints, storage.Environment{Getenv: os.Getenv, Now: time.Now})
		}
	}
	if c.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("--instance is required: %w", err)
		}
		c.Instance = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	var err error
	if c.Memory, err = app.ParseMemory(f.memory); err != nil {
		return fmt.Errorf("--memory %w", err)
	}
	if err := app.CheckIngestMode(c.IngestMode); err != nil {
		return fmt.Errorf("--mode: %w", err)
	}
	if c.Ingest {
		var err error
		if c.Retain, err = app.ParseRetain(f.retain); err != nil {
			return fmt.Errorf("--retain: %w", err)
		}
	}
	if err := app.CheckSemantics(c.Semantics); err != nil {
		return fmt.Errorf("--semantics: %w", err)
	}
	if err := app.CheckPolicySeries(c.PolicySeries); err != nil {
		return fmt.Errorf("--policy-series %w", err)
	}
	if f.scrub < 0 {
		return fmt.Errorf("--scrub-rate %v: want MiB a second, or 0 to switch verification off", f.scrub)
	}
	c.ScrubRate = int64(f.scrub * (1 << 20))
	if c.AcceptHistory, err = parseHistory(f.history); err != nil {
		return err
	}
	if f.pulsar.Given() {
		cluster, err := f.pulsar.Config(c.Log)
		if err != nil {
			return err
		}
		c.Pulsar = &app.Pulsar{Cluster: cluster, Events: f.pulsar.Events, Decisions: f.pulsar.Decisions, Policies: f.pulsar.Policies, Control: f.control}
	}
	needsData := c.Evaluate || c.JobDB == "" || c.Pulsar == nil
	if f.data == "" && needsData {
		return errors.New("--data DIR is required")
	}
	return nil
}

func parseHistory(s string) (*eventlog.Position, error) {
	switch s {
	case "":
		return nil, nil
	case "beginning":
		at := eventlog.Start
		return &at, nil
	}
	at, err := eventlog.ParsePosition(s)
	if err != nil || strings.HasPrefix(s, "-") {
		return nil, fmt.Errorf("--accept-history-from %q: want `beginning` or a position such as 12:345:6", s)
	}
	return &at, nil
}
