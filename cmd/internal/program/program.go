// Package program is the shared main of evaluator and ingester: common flags, settings, signals and the exit code.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/cmd/internal/terminal"
	"github.com/refloat/refloat/internal/app"
)

// Exit codes, the same as refloatctl's.
const (
	exitFine        = 0
	exitUsage       = 2
	exitEnvironment = 3
)

// Program is what evaluator and ingester do not share.
type Program struct {
	Name, Short string
	NeedsData   bool // also on Pulsar
	// Bind adds the flags of this program to a command.
	Bind func(cmd *cobra.Command, c *app.Config)
	// Complete checks them and derives the rest of the configuration. Its errors are usage errors.
	Complete func(cmd *cobra.Command, c *app.Config) error
	Run      func(ctx context.Context, c app.Config) error
}

// Main runs a program until a signal stops it, and returns the exit code.
func Main(p *Program) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	f := flags{Program: p, config: app.Config{Now: time.Now}, usage: true}
	f.config.Fatal = func(err error) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, terminal.Safe(err.Error()))
		os.Exit(exitEnvironment)
	}
	err := f.command().ExecuteContext(ctx)
	switch {
	case err == nil, errors.Is(err, settings.ErrPrinted):
		return exitFine
	case f.usage:
		fmt.Fprintf(os.Stderr, "%s: %v\n%s --help lists the flags\n", p.Name, terminal.Safe(err.Error()), p.Name)
		return exitUsage
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, terminal.Safe(err.Error()))
	return exitEnvironment
}
