package program

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/cmd/internal/version"
	"github.com/refloat/refloat/internal/app"
)

// flags holds a program's flags and the configuration built from them.
type flags struct {
	*Program
	config app.Config
	usage  bool // the error is a usage error

	pulsar *pulsarflags.Flags
	data   string
	scrub  float64
	memory string
}

func (f *flags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: f.Name + " --data DIR | --pulsar URL", Short: f.Short, SilenceUsage: true, SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			return errors.Join(cobra.NoArgs(cmd, args), settings.CheckEmpty(cmd, nil))
		},
		Long: f.Short + `.

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
	f.Bind(cmd, c)
	settings.MayBeEmpty(cmd, "listen")
	settings.Bind(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return settings.Explain(cmd.Flags(), err) })
	version.Add(cmd)
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := settings.Load(cmd); err != nil {
			return err
		}
		if err := f.complete(cmd); err != nil {
			return err
		}
		f.usage = false
		return f.Run(cmd.Context(), f.config)
	}
	return cmd
}

// complete checks the flags and derives the rest of the configuration from them.
func (f *flags) complete(cmd *cobra.Command) error {
	c := &f.config
	c.Data = app.Dir(f.data)
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
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
	if err := app.CheckPolicySeries(c.PolicySeries); err != nil {
		return fmt.Errorf("--policy-series %w", err)
	}
	if f.scrub < 0 {
		return fmt.Errorf("--scrub-rate %v: want MiB a second, or 0 to switch verification off", f.scrub)
	}
	c.ScrubRate = int64(f.scrub * (1 << 20))
	if f.pulsar.Given() {
		cluster, err := f.pulsar.Config(c.Log)
		if err != nil {
			return err
		}
		c.Pulsar = &app.Pulsar{Cluster: cluster, Events: f.pulsar.Events, Decisions: f.pulsar.Decisions, Policies: f.pulsar.Policies}
	}
	if err := f.Complete(cmd, c); err != nil {
		return err
	}
	if f.data == "" && (f.NeedsData || c.JobDB == "" || c.Pulsar == nil) {
		return errors.New("--data DIR is required")
	}
	return nil
}
