package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/apiflags"
	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/checkpoint/storage"
	"github.com/refloat/refloat/internal/eventlog"
)

// flags are those that only an evaluator has.
type flags struct {
	api         *apiflags.Serve
	follow      *apiflags.Follow
	notify      *apiflags.Notify
	jobs        string // job database from which questions are answered
	history     string
	checkpoints string // a URL
}

func (f *flags) bind(cmd *cobra.Command, c *app.Config) {
	set := cmd.Flags()
	f.api = apiflags.BindServe(cmd, "")
	f.follow = apiflags.BindFollow(cmd)
	f.notify = apiflags.BindNotify(cmd)
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

func (f *flags) complete(cmd *cobra.Command, c *app.Config) (err error) {
	if f.checkpoints != "" {
		c.Checkpoints = func(ctx context.Context) (checkpoint.Storage, error) {
			return storage.Open(ctx, f.checkpoints, storage.Environment{Getenv: os.Getenv, Now: time.Now})
		}
	}
	if err := app.CheckSemantics(c.Semantics); err != nil {
		return fmt.Errorf("--semantics: %w", err)
	}
	if c.AcceptHistory, err = parseHistory(f.history); err != nil {
		return err
	}
	if c.API, err = f.api.API(cmd.Context()); err != nil {
		return err
	}
	c.API.Program = cmd.Root().Version
	if c.API.JobDB = f.jobs; f.jobs != "" && c.API.Listen == "" {
		return errors.New("--job-db is what the API answers from: give --api ADDRESS too")
	}
	if c.Notify, err = f.notify.Receiver(); err != nil {
		return err
	}
	c.Follow, err = f.follow.Source(c.Policies)
	return err
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
