package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/query"
)

// breakerLine is an open breaker.
type breakerLine struct {
	Category    string `json:"category"`
	Subcategory string `json:"subcategory,omitempty"` // "": any
	Queue       string `json:"queue,omitempty"`       // "": all
	Until       string `json:"until"`
	By          string `json:"by"`
	Since       string `json:"since"`
	Reason      string `json:"reason"`
}

func newGetBreakers() *cobra.Command {
	var f getPoliciesFlags
	cmd := &cobra.Command{
		Use:   "breakers",
		Short: "List the breakers that overrides have open",
		Long: `List the failure categories whose retries are held because somebody opened a breaker, until
when and why. ` + "`get decisions --code BreakerHeld`" + ` lists what they held.`,
		Example: `  refloatctl get breakers --data .refloat-run`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.reading(cmd.Context(), func(ctx context.Context, c pb.PoliciesClient) error {
				list, err := c.List(ctx, &pb.ListRequest{})
				if err != nil {
					return err
				}
				return showBreakers(cmd.OutOrStdout(), f.output, list.Brakes, time.Now().UnixNano())
			})
		},
	}
	f.bind(cmd)
	addOutput(cmd, &f.output)
	return cmd
}

// showBreakers lists the overrides that open a breaker and are not over.
func showBreakers(w io.Writer, output string, overrides []*pb.BrakeState, now int64) error {
	t, enc, open := show.NewTable(w, "CATEGORY", "QUEUE", "UNTIL", "BY", "WHY"), show.JSONLines(w), false
	for _, b := range overrides {
		o := overrideOf(b)
		if o.Category == "" || o.Over(now) {
			continue
		}
		open = true
		line := breakerLine{o.Category, o.Subcategory, o.Queue, rfc3339(b.HeldUntil), o.Author, rfc3339(b.Time), o.Reason}
		if output == show.FormJSON {
			if err := enc.Encode(line); err != nil {
				return err
			}
			continue
		}
		queue := "all"
		if o.Queue != "" {
			queue = query.OneLine(o.Queue)
		}
		t.Row(query.OneLine(o.Cause()), queue, line.Until, query.OneLine(o.Author), query.OneLine(o.Reason))
	}
	switch {
	case output == show.FormJSON:
		return nil
	case !open:
		fmt.Fprintln(w, "No breaker is open by an override.")
		return nil
	}
	return t.Flush()
}
