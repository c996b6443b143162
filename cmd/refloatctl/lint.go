package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/node"
	"github.com/refloat/refloat/internal/policy"
)

func newLint() *cobra.Command {
	return &cobra.Command{
		Use:   "lint PATH...",
		Short: "Check policy files",
		Long: `Check policy files, or directories of them, as one policy set. Every problem is
printed with file:line:column, the field, the value and the fix. Exit code 1
when there is one.`,
		Example: "  refloatctl lint examples/policies",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := node.PolicyFiles(args...)
			if err != nil {
				return err
			}
			set, err := policy.Parse(files)
			var problems policy.Problems
			switch {
			case errors.As(err, &problems):
			case err != nil:
				return err
			default:
				problems = policy.Lint(files)
			}
			for _, p := range problems {
				fmt.Fprintln(cmd.OutOrStdout(), p)
			}
			if len(problems) > 0 {
				return errFinding
			}
			d := set.Digest()
			fmt.Fprintf(cmd.OutOrStdout(), "%d files are fine; policy set %x\n", len(files), d[:6])
			return nil
		},
	}
}
