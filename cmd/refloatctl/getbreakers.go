package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
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
	*query.BreakerCounts
	override *policylog.Override
}

func newGetBreakers() *cobra.Command {
	var f getPoliciesFlags
	cmd := &cobra.Command{
		Use:   "breakers [CATEGORY]",
		Short: "List the breakers that overrides have open",
		Long: `List the failure categories whose retries are held because the guard or a person opened a
breaker, until when and why, and from the job database how many retries it holds now, how many
of those that it held have started and are not held again, and how many failed again. A breaker
is half-open once some have started. ` + "`get decisions --code BreakerHeld`" + ` lists what they held.`,
		Example: `  refloatctl get breakers --data .refloat-run`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.reading(cmd.Context(), func(ctx context.Context, c pb.PoliciesClient) error {
				overrides, err := overridesAbout(ctx, c, args, func(o *policyfile.Override) string { return o.Category })
				if err != nil {
					return err
				}
				all := breakersOf(overrides, time.Now().UnixNano())
				for i := range all {
					if all[i].BreakerCounts, err = query.CountBreaker(ctx, f.jobAnswers(), all[i].override); err != nil {
						fmt.Fprintln(cmd.ErrOrStderr(), "What breakers hold is not known:", err)
						break
					}
				}
				return overridden(cmd, f.output, &breakerRows, all, "No breaker is open by an override.", args)
			})
		},
	}
	f.bind(cmd)
	addOutput(cmd, &f.output)
	completeArg(cmd, &f.client, named("category"))
	return cmd
}

// breakersOf lists the breakers that overrides open and that are not over.
func breakersOf(overrides []*pb.BrakeState, now int64) (all []breakerLine) {
	for _, b := range overrides {
		if o := api.OverrideOf(b); o.Category != "" && !o.Over(now) {
			all = append(all, breakerLine{o.Category, o.Subcategory, o.Queue, rfc3339(b.HeldUntil), o.Author, rfc3339(b.Time), o.Reason, nil, &o})
		}
	}
	return all
}

// ifCounted is a cell of what was counted.
func ifCounted(cell func(*query.BreakerCounts) string) func(breakerLine) string {
	return func(b breakerLine) string {
		if b.BreakerCounts == nil {
			return ""
		}
		return cell(b.BreakerCounts)
	}
}

var breakerRows = show.Rows[breakerLine]{Columns: []show.Column[breakerLine]{
	{Heading: "CATEGORY", Cell: func(b breakerLine) string {
		return query.OneLine((&policyfile.Override{Category: b.Category, Subcategory: b.Subcategory}).Cause())
	}},
	{Heading: "QUEUE", Cell: func(b breakerLine) string { return query.OneLine(cmp.Or(b.Queue, "all")) }},
	{Heading: "STATE", Cell: ifCounted(func(n *query.BreakerCounts) string { return n.State })},
	{Heading: "HELD", Cell: ifCounted(func(n *query.BreakerCounts) string { return strconv.Itoa(n.Held) })},
	{Heading: "STARTED", Cell: ifCounted(func(n *query.BreakerCounts) string { return strconv.Itoa(n.Started) })},
	{Heading: "FAILED AGAIN", Cell: ifCounted(func(n *query.BreakerCounts) string { return strconv.Itoa(n.Failed) })},
	{Heading: "SINCE", Cell: func(b breakerLine) string { return b.Since }},
	{Heading: "UNTIL", Cell: func(b breakerLine) string { return b.Until }},
	{Heading: "BY", Cell: func(b breakerLine) string { return query.OneLine(b.By) }},
	{Heading: "WHY", Cell: func(b breakerLine) string { return query.OneLine(b.Reason) }},
}}
