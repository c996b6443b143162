package main

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

// TestOffered: a completion offers what begins as typed, once, up to a number; and no name that a shell would not take as it is.
func TestOffered(t *testing.T) {
	t.Parallel()
	values := []string{"", "ml", "ml", "ml-2", "mlops/a_b.c:d@e+f,g=h%i", "mlé", "m", "ml$(reboot)", "ml;x", "ml x", "ml`x`", "ml'", "ml\n", "ml\x1b[2J", "ml*", "ml~", "ml!", "ml&", "ml|x", "ml>x", "ml\\x", "ml#", "ml{a,b}", "ml?"}
	complete := offered(func(_ context.Context, _ *cobra.Command, _ string, offer func(string, string)) error {
		for _, v := range values {
			offer(v, "")
		}
		offer("-ml", "")
		for i := range 100 {
			offer(fmt.Sprint("ml", i), "a description\nof two lines")
		}
		return nil
	})
	got, _ := complete(&cobra.Command{}, nil, "ml")
	want := []string{"ml", "ml-2", "mlops/a_b.c:d@e+f,g=h%i", "mlé"}
	if len(got) != maxOffered || !slices.Equal(got[:len(want)], want) || got[len(want)] != "ml0\ta description of two lines" {
		t.Errorf("%d: %q", len(got), got)
	}
}
