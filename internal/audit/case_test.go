package audit

import (
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
)

// TestNodeOfCase: a failure is explained with the node that decided it, that of its error before that of its run.
func TestNodeOfCase(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ ofRun, ofError, want string }{
		{"leased", "reported", "reported"},
		{"leased", "", "leased"},
		{"", "reported", "reported"},
	} {
		run := &jobdb.Run{Node: tt.ofRun, Error: jobdb.RunError{Node: tt.ofError}}
		f, err := Case{Job: &jobdb.Job{}, Run: run, Decision: &chain.Decision{}}.failure()
		if err != nil {
			t.Fatal(err)
		}
		if f.Node != tt.want {
			t.Errorf("a run on %q whose error names %q is explained with %q, want %q", tt.ofRun, tt.ofError, f.Node, tt.want)
		}
	}
}
