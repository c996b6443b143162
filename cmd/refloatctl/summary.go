package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/query"
)

// summarize prints what up decided, and commands to try next.
func summarize(cmd *cobra.Command, f upFlags, took time.Duration) error {
	out := cmd.OutOrStdout()
	from := f.source(nil)
	s, err := from.Summary(cmd.Context())
	if err != nil {
		return err
	}
	example, err := from.Example(cmd.Context())
	if err != nil {
		return err
	}
	text.Decisions(out, s)
	text.Jobs(out, s, took)
	fmt.Fprintf(out, "\n%s\n", show.Bold(out, "Try next"))
	if example != "" {
		fmt.Fprintf(out, "  bin/refloatctl explain %s %s\n", example, f.deployment)
	}
	fmt.Fprintf(out, "  bin/refloatctl get jobs %s --waiting\n", f.deployment)
	fmt.Fprintf(out, "  bin/refloatctl get decisions %s -o json\n", f.deployment)
	if len(s.Releases) > 0 {
		fmt.Fprintf(out, "  bin/refloatctl get releases %s\n", f.deployment)
	}
	if slices.ContainsFunc(s.Decisions, func(c query.DecisionCount) bool { return c.Shadow }) {
		fmt.Fprintf(out, "  bin/refloatctl shadow report %s\n", f.deployment)
	}
	fmt.Fprintf(out, "  bin/refloatctl verify --data %s\n", f.data)
	if f.policies != "" {
		fmt.Fprintf(out, "  edit %s, then: bin/refloatctl lint %s && bin/refloatctl replay --log %s --policies %s\n",
			f.policies, f.policies, app.Dir(f.data).Events(), f.policies)
	}
	return nil
}
