package version

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/chain"
)

func TestText(t *testing.T) {
	rest := fmt.Sprintf("%s, semantics %d)", runtime.Version(), chain.NewestSemantics)
	built := &debug.BuildInfo{
		Main:     debug.Module{Version: "v0.0.0-20260102030405-0123456789ab"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}},
	}
	if got, want := text(built, true), "v0.0.0-20260102030405-0123456789ab (commit 0123456789ab, modified, "+rest; got != want {
		t.Errorf("text of a build = %q, want %q", got, want)
	}
	if got, want := text(nil, false), "unknown (commit unknown, "+rest; got != want {
		t.Errorf("text of nothing = %q, want %q", got, want)
	}
	version, commit = "v1.2.0", "fedcba9876543210"
	defer func() { version, commit = "", "" }()
	if got, want := text(built, true), "v1.2.0 (commit fedcba987654, "+rest; got != want {
		t.Errorf("text of a release = %q, want %q", got, want)
	}
}

// TestAdd: flag and subcommand say the same.
func TestAdd(t *testing.T) {
	shape := regexp.MustCompile(`^prog version \S+ \(commit .+, go\S+.*, semantics \d+\)\n$`)
	for _, arg := range []string{"--version", "version"} {
		var out bytes.Buffer
		root := &cobra.Command{Use: "prog --data DIR", RunE: func(*cobra.Command, []string) error { return nil }}
		Add(root)
		root.SetOut(&out)
		root.SetArgs([]string{arg})
		if err := root.Execute(); err != nil || !shape.MatchString(out.String()) {
			t.Errorf("prog %s says %q, %v", arg, &out, err)
		}
	}
}
