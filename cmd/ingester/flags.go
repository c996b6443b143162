package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/internal/app"
)

// flags are those that only an ingester has.
type flags struct{ control, retain string }

func (f *flags) bind(cmd *cobra.Command, c *app.Config) {
	set := cmd.Flags()
	set.StringVar(&c.JobDB, "job-db", "", "job database: sqlite:///path or postgres://… (default: SQLite in the data directory)")
	settings.Secret(cmd, "job-db")
	set.StringVar(&c.IngestMode, "mode", app.IngestModes()[0], "what to write if the job database is Armada's scheduler database: holdback (for an unmodified Armada), direct (for a scheduler that honours retry_after), passthrough (what Armada's own ingester writes) or observe (only Refloat's tables)")
	set.StringVar(&f.control, "control-plane", "control-plane", "Armada's control-plane topic (executor settings, jobs cancelled or preempted by executor or queue), applied if the job database is Armada's and the mode is not observe; empty: another process applies it")
	settings.MayBeEmpty(cmd, "control-plane")
	set.StringVar(&c.NodeLabel, "node-id-label", "", "Armada's scheduling.nodeIdLabel (default kubernetes.io/hostname)")
	set.DurationVar(&c.ReleaseAfter, "release-after", 0, "how long an event may wait for a decision before it is written to the job database without one (default: forever)")
	set.StringVar(&f.retain, "retain", "auto", app.RetainUsage)
}

func (f *flags) complete(_ *cobra.Command, c *app.Config) (err error) {
	if err := app.CheckIngestMode(c.IngestMode); err != nil {
		return fmt.Errorf("--mode: %w", err)
	}
	if c.Retain, err = app.ParseRetain(f.retain); err != nil {
		return fmt.Errorf("--retain: %w", err)
	}
	if c.Pulsar != nil {
		c.Pulsar.Control = f.control
	}
	return nil
}
