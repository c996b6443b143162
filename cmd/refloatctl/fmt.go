package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

func newFmt() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "fmt PATH...",
		Short: "Give policy files one layout, with their comments",
		Long: `Rewrite policy files, or those of directories, in one layout: two spaces for each level,
one empty line at most. Order, style and comments stay, and so does every value: a file of
which one would change is left as it is. The names of changed files are printed.

With --check, nothing is written.

Exit codes: 0 done, 1 --check found a file to be changed, 2 usage, 3 a file could not be
read, understood or written.`,
		Example: `  refloatctl fmt my-policies
  refloatctl fmt --check my-policies`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := app.PolicyFiles(cmd.Context(), args...)
			if err != nil {
				return err
			}
			changed := false
			for _, f := range files {
				after, err := policyfile.Format(f)
				if err != nil {
					return err
				}
				if bytes.Equal(after, f.Data) {
					continue
				}
				changed = true
				fmt.Fprintln(cmd.OutOrStdout(), f.Name)
				if !check {
					if err := os.WriteFile(f.Name, after, 0o644); err != nil { // which keeps the mode that it has
						return err
					}
				}
			}
			if check && changed {
				return errFinding
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only name the files that would be changed")
	return cmd
}
