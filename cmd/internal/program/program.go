// Package program is the shared main of evaluator and ingester: flags, settings, signals and the exit code.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

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

// Main runs a node with the roles that role enables, until a signal stops it, and returns the exit code.
func Main(name, short string, role func(*app.Config)) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	f := flags{config: app.Config{Now: time.Now}, usage: true}
	f.config.Fatal = func(err error) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, terminal.Safe(err.Error()))
		os.Exit(exitEnvironment)
	}
	role(&f.config)
	cmd := f.command(name, short)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil, errors.Is(err, settings.ErrPrinted):
		return exitFine
	case f.usage:
		fmt.Fprintf(os.Stderr, "%s: %v\n%s --help lists the flags\n", name, terminal.Safe(err.Error()), name)
		return exitUsage
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, terminal.Safe(err.Error()))
	return exitEnvironment
}
