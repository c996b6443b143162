// Command refloatctl runs Refloat on one machine, feeds and imports histories, replays them, verifies decision
// logs, and shows what was decided and why.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
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
	cmd, err := cmd.ExecuteContextC(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "refloatctl: interrupted (%v)\n", terminal.Safe(err.Error()))
		err = errInterrupted
	}
	return exitCode(cmd.CommandPath(), err)
}

// exitCode prints an error and returns its exit code. A mistake in the command line names the command.
func exitCode(command string, err error) int {
	var usage usageError
	switch {
	case err == nil, errors.Is(err, settings.ErrPrinted):
		return exitFine
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.Is(err, errFinding):
		return exitFinding
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "%s: %v\n%s --help explains its arguments and flags\n", command, terminal.Safe(err.Error()), command)
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

  Why did a job fail for good?           get jobs --state Failed, then explain JOB
  Which queue retried most?              top --since 1h
  What would another limit have done?    whatif --set 'policies.NAME.rules[RULE].retryLimit=2'

Say where to look with --data DIR (or REFLOAT_DATA) or --server HOST:PORT.

Exit codes: 0 success, 1 finding (a difference, a problem in a file), 2 usage,
3 environment (a file, a lock, a database), 130 interrupted before the work was done.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
		Args:              noArgument,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{flagError(cmd, err)} })
	root.AddCommand(newUp(), newImport(), newReplay(), newVerify(), newWhatif(), newSimulate(), newExplain(), newGet(), newSearch(), newTop(), newExport(), newLint(),
		newDoctor(), newTopics(), newCutover(), newRecord(), newFeed(), newArchive(),
		newConvert(), newApply(), newDelete(), newHistory(), newRollback(), newKill(), newPause(), newResume(), newOpen(), newClose(), newAvoid(), newTrust(), newRetry(), newGiveUp(), newStart(), newLogin(), newLogout())
	root.AddCommand(newEval(), newTest(), newInit(), newFmt(), newDiff(), newShadow(), newSchema())
	root.AddCommand(newConnectionTopic())
	root.AddCommand(formerNames()...)
	sortIntoGroups(root)
	shortenHelp(root)
	version.Add(root)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	checkArgs(root)
	return root
}

// flagError explains an error about a flag. What looks like one may be an unknown subcommand: its flags are unknown
// to the command above it.
func flagError(cmd *cobra.Command, err error) error {
	unknown := (*pflag.NotExistError)(nil)
	if errors.As(err, &unknown) && unknown.GetSpecifiedName() == "server" && !onlySubcommands(cmd) {
		return needsFiles(cmd)
	}
	if errors.As(err, &unknown) && onlySubcommands(cmd) {
		if args := cmd.Flags().Args(); len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		if cmd.HasParent() {
			return fmt.Errorf("%w: %w", err, needsSubcommand(cmd))
		}
	}
	return settings.Explain(cmd.Flags(), err)
}

// needsFiles says why a command asks no server.
func needsFiles(cmd *cobra.Command) error {
	var instead []string
	for _, name := range []string{"data", "job-db", pulsarflags.URL} {
		if cmd.Flags().Lookup(name) != nil {
			instead = append(instead, "--"+name)
		}
	}
	if instead == nil {
		return errors.New("--server: it has nothing to ask a server")
	}
	return fmt.Errorf("--server: it reads logs or the job database itself: give %s instead", strings.Join(instead, " or "))
}

// onlySubcommands reports whether a command has subcommands and, unlike `test`, takes no arguments of its own.
func onlySubcommands(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && !strings.Contains(cmd.Use, " ")
}

func needsSubcommand(cmd *cobra.Command) error {
	return fmt.Errorf("needs a subcommand: %s", strings.Join(subcommands(cmd), ", "))
}

// unknownCommand names the nearest command to an unknown one.
func unknownCommand(cmd *cobra.Command, name string) error {
	all := subcommands(cmd)
	return fmt.Errorf("unknown command %q: %s", name, suggest.Fix(name, all, "want one of "+strings.Join(all, ", ")))
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}
