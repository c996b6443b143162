package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api"
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
				answer, err := c.List(ctx, &pb.ListRequest{})
				if err != nil {
					return err
				}
				return overridden(cmd, f.output, &nodeRows, nodesOf(answer.Brakes, time.Now().UnixNano()), "Retries avoid no node by an override.")
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
		o := api.OverrideOf(b)
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

var nodeRows = show.Rows[nodeLine]{Columns: []show.Column[nodeLine]{
	{Heading: "NODE", Cell: func(n nodeLine) string { return n.Node }},
	{Heading: "STATE", Cell: func(n nodeLine) string { return n.State }},
	{Heading: "UNTIL", Cell: func(n nodeLine) string { return n.Until }},
	{Heading: "BY", Cell: func(n nodeLine) string { return n.By }},
	{Heading: "WHY", Cell: func(n nodeLine) string { return query.OneLine(n.Reason) }},
	{Heading: "KEEP FIRST RUNS AWAY", Cell: func(n nodeLine) string { return n.Cordon }},
}}

// overridden lists what overrides say of something; none is what a person reads if there is nothing.
func overridden[T any](cmd *cobra.Command, output string, rows *show.Rows[T], all []T, none string) error {
	if len(all) == 0 && output == show.FormTable {
		fmt.Fprintln(cmd.OutOrStdout(), none)
		return nil
	}
	return list(cmd, output, rows, all)
}
