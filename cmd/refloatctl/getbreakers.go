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
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
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
	*breakerCounts
	override *policylog.Override
}

// breakerCounts is what a breaker has held since it opened.
type breakerCounts struct {
	State   string `json:"state"`          // open, or half-open: retries that it held have started
	Held    int    `json:"held"`           // retries that wait for its end
	Started int    `json:"started"`        // jobs of which a held retry started and is not held again
	Failed  int    `json:"canariesFailed"` // held retries that started, failed of its category, and are held again
}

func newGetBreakers() *cobra.Command {
	var f getPoliciesFlags
	cmd := &cobra.Command{
		Use:   "breakers",
		Short: "List the breakers that overrides have open",
		Long: `List the failure categories whose retries are held because the guard or a person opened a
breaker, until when and why, and from the job database how many retries it holds now, how many
of those that it held have started and are not held again, and how many failed again. A breaker
is half-open once some have started. ` + "`get decisions --code BreakerHeld`" + ` lists what they held.`,
		Example: `  refloatctl get breakers --data .refloat-run`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.reading(cmd.Context(), func(ctx context.Context, c pb.PoliciesClient) error {
				answer, err := c.List(ctx, &pb.ListRequest{})
				if err != nil {
					return err
				}
				all := breakersOf(answer.Brakes, time.Now().UnixNano())
				for i := range all {
					if err := all[i].count(ctx, f.jobAnswers()); err != nil {
						fmt.Fprintln(cmd.ErrOrStderr(), "What breakers hold is not known:", err)
						break
					}
				}
				return overridden(cmd, f.output, &breakerRows, all, "No breaker is open by an override.")
			})
		},
	}
	f.bind(cmd)
	addOutput(cmd, &f.output)
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

// count counts what the breaker has held. That of one subcategory is not counted: lists select by the category.
func (b *breakerLine) count(ctx context.Context, from query.Answers) error {
	if b.Subcategory != "" {
		return nil
	}
	of := query.List{Criteria: jobdb.Criteria{Category: b.Category, Queue: b.Queue, Since: b.override.Time}, Codes: []string{policy.BreakerHeld.String()}}
	jobs, decisions := map[string]bool{}, 0
	if _, err := from.ListDecisions(ctx, &of, func(d *audit.Decision) error {
		if !d.Superseded && !d.Shadow {
			jobs[d.JobID] = true
			decisions++
		}
		return nil
	}); err != nil {
		return err
	}
	n := &breakerCounts{State: "open", Failed: decisions - len(jobs)}
	of.Since, of.Waiting = 0, true
	if _, err := from.ListJobs(ctx, &of, func(j *query.Job) error {
		if !j.Due(time.Unix(0, b.override.HeldUntil-1)) {
			n.Held++
			delete(jobs, j.JobID)
		}
		return nil
	}); err != nil {
		return err
	}
	if n.Started = len(jobs); n.Started > 0 {
		n.State = "half-open"
	}
	b.breakerCounts = n
	return nil
}

// ifCounted is a cell of what was counted.
func ifCounted(cell func(*breakerCounts) string) func(breakerLine) string {
	return func(b breakerLine) string {
		if b.breakerCounts == nil {
			return ""
		}
		return cell(b.breakerCounts)
	}
}

var breakerRows = show.Rows[breakerLine]{Columns: []show.Column[breakerLine]{
	{Heading: "CATEGORY", Cell: func(b breakerLine) string {
		return query.OneLine((&policyfile.Override{Category: b.Category, Subcategory: b.Subcategory}).Cause())
	}},
	{Heading: "QUEUE", Cell: func(b breakerLine) string { return query.OneLine(cmp.Or(b.Queue, "all")) }},
	{Heading: "STATE", Cell: ifCounted(func(n *breakerCounts) string { return n.State })},
	{Heading: "HELD", Cell: ifCounted(func(n *breakerCounts) string { return strconv.Itoa(n.Held) })},
	{Heading: "STARTED", Cell: ifCounted(func(n *breakerCounts) string { return strconv.Itoa(n.Started) })},
	{Heading: "FAILED AGAIN", Cell: ifCounted(func(n *breakerCounts) string { return strconv.Itoa(n.Failed) })},
	{Heading: "SINCE", Cell: func(b breakerLine) string { return b.Since }},
	{Heading: "UNTIL", Cell: func(b breakerLine) string { return b.Until }},
	{Heading: "BY", Cell: func(b breakerLine) string { return query.OneLine(b.By) }},
	{Heading: "WHY", Cell: func(b breakerLine) string { return query.OneLine(b.Reason) }},
}}
