// Command refloatctl runs Refloat on one machine, feeds and imports histories, replays them, verifies decision
// logs, and shows what was decided and why.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/cmd/internal/terminal"
	"github.com/refloat/refloat/cmd/internal/version"
	"github.com/refloat/refloat/internal/suggest"
)

// The exit codes.
const (
	exitFine        = 0
	exitFinding     = 1
	exitUsage       = 2
	exitEnvironment = 3
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

// errFinding reports that the command ran and found something, which it has printed.
var errFinding = errors.New("finding")

// errInterrupted: a signal ended the command before its work was done; it said so.
var errInterrupted = errors.New("interrupted")

// usageError is a mistake in the command line.
type usageError struct{ error }

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	cmd := newRoot()
	cmd.SetOut(terminal.NewWriter(os.Stdout))
	cmd.SetErr(terminal.NewWriter(os.Stderr))
	err := cmd.ExecuteContext(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "refloatctl: interrupted (%v)\n", terminal.Safe(err.Error()))
		err = errInterrupted
	}
	return exitCode(err)
}

// exitCode prints an error and returns its exit code.
func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil, errors.Is(err, settings.ErrPrinted):
		return exitFine
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.Is(err, errFinding):
		return exitFinding
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "refloatctl: %v\nrefloatctl --help lists commands and flags\n", terminal.Safe(err.Error()))
		return exitUsage
	}
	fmt.Fprintf(os.Stderr, "refloatctl: %v\n", terminal.Safe(err.Error()))
	return exitEnvironment
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "refloatctl",
		Short: "Decide what happens to Armada jobs whose run failed",
		Long: `Refloat reads Armada's events, decides every failed run by retry policies, and
explains each decision. refloatctl runs it on one machine and inspects its logs and jobs.

Exit codes: 0 success, 1 finding (a difference, a problem in a file), 2 usage,
3 environment (a file, a lock, a database), 130 interrupted before the work was done.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
		Args:              cobra.NoArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{flagError(cmd, err)} })
	root.AddCommand(newUp(), newImport(), newReplay(), newExplain(), newGet(), newTail(), newLint(), newJobDB(),
		newDoctor(), newTopics(), newCutover(), newRecord(), newFeed(),
		newApply(), newDelete(), newHistory(), newRollback(), newKill(), newPause(), newResume())
	root.AddCommand(newPolicyTools()...)
	version.Add(root)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	wrapArgs(root)
	return root
}

// flagError names the command of an error about a flag, and the nearest flag to an unknown one.
func flagError(cmd *cobra.Command, err error) error {
	unknown := (*pflag.NotExistError)(nil)
	if errors.As(err, &unknown) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		if near := suggest.Nearest("--"+unknown.GetSpecifiedName(), names); near != "" {
			return fmt.Errorf("%s: %w: did you mean %s?", cmd.CommandPath(), err, near)
		}
	}
	return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
}

// argsError adds the nearest command to an error about an unknown one.
func argsError(cmd *cobra.Command, args []string, err error) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if len(args) > 0 && len(names) > 0 {
		if near := suggest.Nearest(args[0], names); near != "" {
			return fmt.Errorf("%w: did you mean %s?", err, near)
		}
	}
	return err
}

// wrapArgs makes a wrong number of arguments, and an empty argument or value of a flag,
// usage errors.
func wrapArgs(c *cobra.Command) {
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		var err error
		if check != nil {
			err = check(cmd, args)
		}
		if err != nil {
			err = argsError(cmd, args, err)
		}
		if err == nil {
			err = settings.CheckEmpty(cmd, args)
		}
		if err != nil {
			return usageError{err}
		}
		return nil
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}
