package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
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
		Use:   "nodes [NAME]",
		Short: "List the nodes that retries avoid, or that are trusted, by overrides",
		Long: `List the nodes that retries avoid because the guard suspects them or a person said so, until
when and why, and those that are trusted. First runs still start on them: the last column is
the command that keeps these away too.`,
		Example: `  refloatctl get nodes --data .refloat-run`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.reading(cmd.Context(), func(ctx context.Context, c pb.PoliciesClient) error {
				overrides, err := overridesAbout(ctx, c, args, func(o *policyfile.Override) string { return o.Node })
				if err != nil {
					return err
				}
				return overridden(cmd, f.output, &nodeRows, nodesOf(overrides, time.Now().UnixNano()), "Retries avoid no node by an override.", args)
			})
		},
	}
	f.bind(cmd)
	addOutput(cmd, &f.output)
	completeArg(cmd, &f.client, named("node"))
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

// overridesAbout returns all overrides, or those with a name that an argument gives.
func overridesAbout(ctx context.Context, c pb.PoliciesClient, args []string, name func(*policyfile.Override) string) ([]*pb.BrakeState, error) {
	answer, err := c.List(ctx, &pb.ListRequest{})
	return slices.DeleteFunc(answer.GetBrakes(), func(b *pb.BrakeState) bool {
		o := api.OverrideOf(b)
		return len(args) > 0 && name(&o.Override) != args[0]
	}), err
}

// overridden lists what overrides say of something, or of what an argument names; none is what a person reads if there is nothing.
func overridden[T any](cmd *cobra.Command, output string, rows *show.Rows[T], all []T, none string, args []string) error {
	if len(all) > 0 || output != show.FormTable {
		return list(cmd, output, rows, all)
	}
	if len(args) > 0 {
		none = fmt.Sprintf("No override is about %s.", query.OneLine(args[0]))
	}
	fmt.Fprintln(cmd.OutOrStdout(), none)
	return nil
}
