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

// nodeLine is a node of which an override says something.
type nodeLine struct {
	Node   string `json:"node"`
	State  string `json:"state"` // avoided or trusted
	Until  string `json:"until"`
	By     string `json:"by"`
	Since  string `json:"since"`
	Reason string `json:"reason"`
	Cordon string `json:"cordon,omitempty"` // the command that keeps first runs away too
}

func newGetNodes() *cobra.Command {
	var f getPoliciesFlags
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes that retries avoid, or that are trusted, by overrides",
		Long: `List the nodes that retries avoid because the guard suspects them or a person said so, until
when and why, and those that are trusted. First runs still start on them: the last column is
the command that keeps these away too.`,
		Example: `  refloatctl get nodes --data .refloat-run`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.reading(cmd.Context(), func(ctx context.Context, c pb.PoliciesClient) error {
				list, err := c.List(ctx, &pb.ListRequest{})
				if err != nil {
					return err
				}
				return showNodes(cmd.OutOrStdout(), f.output, nodesOf(list.Brakes, time.Now().UnixNano()))
			})
		},
	}
	f.bind(cmd)
	addOutput(cmd, &f.output)
	return cmd
}

// nodesOf lists the nodes of overrides that are not over.
func nodesOf(overrides []*pb.BrakeState, now int64) (all []nodeLine) {
	for _, b := range overrides {
		o := overrideOf(b)
		if o.Node == "" || o.Over(now) {
			continue
		}
		n := nodeLine{Node: o.Node, State: "trusted", Until: rfc3339(b.TrustedUntil), By: o.Author, Since: rfc3339(b.Time), Reason: o.Reason}
		if o.AvoidedUntil != 0 {
			n.State, n.Until, n.Cordon = "avoided", rfc3339(b.AvoidedUntil), "kubectl cordon "+o.Node
		}
		all = append(all, n)
	}
	return all
}

func showNodes(w io.Writer, output string, nodes []nodeLine) error {
	if output == show.FormJSON {
		enc := show.JSONLines(w)
		for _, n := range nodes {
			if err := enc.Encode(n); err != nil {
				return err
			}
		}
		return nil
	}
	if len(nodes) == 0 {
		fmt.Fprintln(w, "Retries avoid no node by an override.")
		return nil
	}
	t := show.NewTable(w, "NODE", "STATE", "UNTIL", "BY", "WHY", "KEEP FIRST RUNS AWAY")
	for _, n := range nodes {
		t.Row(n.Node, n.State, n.Until, n.By, query.OneLine(n.Reason), n.Cordon)
	}
	return t.Flush()
}
