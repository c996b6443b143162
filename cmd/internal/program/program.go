// Package program is what the mains of evaluator and ingester share: flags,
// settings, signals and the exit code.
package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/internal/node"
)

// The exit codes, as refloatctl's.
const (
	exitFine        = 0
	exitUsage       = 2
	exitEnvironment = 3
)

// Main runs a node with the roles that role switches on, until a signal ends
// it, and returns the exit code.
func Main(name, short string, role func(*node.Config)) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	usage := true
	cmd := &cobra.Command{
		Use: name + " --data DIR", Short: short, SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		Long: short + `.

Every flag can also be set by the environment (REFLOAT_DATA for --data) and by
a YAML file (--config); flags win over the environment, and that over the file.`,
	}
	c := node.Config{Now: time.Now}
	role(&c)
	data := cmd.Flags().String("data", "", "data directory (required)")
	listen := cmd.Flags().String("listen", "", "address for /metrics, /healthz and /readyz (default: none)")
	if c.Evaluate {
		cmd.Flags().StringVar(&c.Policies, "policies", "", "policy file, or directory of policy files, read again when it changes")
	}
	settings.Bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := settings.Load(cmd); err != nil {
			return err
		}
		if *data == "" {
			return errors.New("--data DIR is required")
		}
		usage = false
		c.Data, c.Listen = node.Dir(*data), *listen
		c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
		return node.Run(cmd.Context(), c)
	}
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil, errors.Is(err, settings.ErrPrinted):
		return exitFine
	case usage:
		fmt.Fprintf(os.Stderr, "%s: %v\n%s --help lists the flags\n", name, err, name)
		return exitUsage
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return exitEnvironment
}
