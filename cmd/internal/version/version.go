// Package version reports what a program was built from, in the same form for all
// three programs, by --version and by a subcommand.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/chain"
)

// Set by the linker (see Makefile). The commit is needed where the go command cannot know it, as in an image built
// without .git.
var version, commit string

// Add adds the flag --version and the subcommand to a program's root command.
func Add(root *cobra.Command) {
	root.Version = text(debug.ReadBuildInfo())
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Show version, commit, Go version and semantics version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s version %s\n", root.Name(), root.Version)
			return err
		},
	})
}

// text formats a version such as v1.2.0 (commit 0123456789ab, go1.26.8, semantics 1).
func text(info *debug.BuildInfo, known bool) string {
	name, revision, modified := version, commit, ""
	if known {
		name = cmp.Or(name, info.Main.Version)
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = cmp.Or(revision, s.Value)
			case s.Key == "vcs.modified" && s.Value == "true" && commit == "":
				modified = ", modified"
			}
		}
	}
	revision = cmp.Or(revision, "unknown")
	return fmt.Sprintf("%s (commit %s%s, %s, semantics %d)",
		cmp.Or(name, "unknown"), revision[:min(len(revision), 12)], modified, runtime.Version(), chain.NewestSemantics)
}
