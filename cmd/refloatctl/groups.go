package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/cmd/internal/text"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

type getGroupFlags struct {
	getFlags
	name string
}

func newGetGroups() *cobra.Command {
	var f listFlags
	l := listing[*query.Group]{
		list: query.Groups, id: groupID, ask: query.Answers.ListGroups,
		Command: cobra.Command{
			Use:   "groups (--data DIR | --job-db URL | --server HOST:PORT)",
			Short: "List groups of jobs",
			Long: `List groups of jobs (docs/reference/semantics.md, Groups), with their parts and units: how many
members of each are active, held or terminating, and which indexes have completed or
failed for good. -o yaml and json also have conditions: of a unit, those of a Kubernetes Job
(SuccessCriteriaMet, Complete, FailureTarget, Failed), of a group, those of a JobSet
(Completed, Failed), and Halted. --policy and --rule are those of the group.`,
			Example: `  refloatctl get groups --data .refloat-run --queue ml --state Failed
  refloatctl get groups --job-db postgres://refloat@db:5432/scheduler -o json`,
		},
		rows: show.Rows[*query.Group]{
			Columns: []show.Column[*query.Group]{
				{Heading: "GROUP", Cell: func(g *query.Group) string { return g.Group }},
				{Heading: "QUEUE", Cell: func(g *query.Group) string { return g.Queue }},
				{Heading: "JOB SET", Cell: func(g *query.Group) string { return g.JobSet }},
				{Heading: "POLICY", Cell: func(g *query.Group) string { return g.Policy }},
				{Heading: "STATE", Cell: func(g *query.Group) string { return g.State }},
				{Heading: "GENERATION", Cell: func(g *query.Group) string { return fmt.Sprint(g.NewestGeneration()) }},
				{Heading: "RESTARTS", Cell: (*query.Group).RestartsUsed},
				{Heading: "ACTIVE", Cell: func(g *query.Group) string { return fmt.Sprint(text.Sum(g).Active) }},
				{Heading: "HELD", Cell: func(g *query.Group) string { return fmt.Sprint(text.Sum(g).Held) }},
				{Heading: "SUCCEEDED", Cell: func(g *query.Group) string { return fmt.Sprint(text.Sum(g).Succeeded) }},
				{Heading: "FAILED", Cell: func(g *query.Group) string { return fmt.Sprint(text.Sum(g).Failed) }},
				{Heading: "TERMINATING", Cell: func(g *query.Group) string { return fmt.Sprint(text.Sum(g).Terminating) }},
				{Heading: "RULE", Wide: true, Cell: func(g *query.Group) string { return g.Rule }},
				{Heading: "REASON", Cell: func(g *query.Group) string { return g.Reason }},
			},
			Name: (*query.Group).FullName,
		},
	}
	return l.command(&f)
}

func newGetGroup() *cobra.Command {
	var f getGroupFlags
	cmd := &cobra.Command{
		Use:     "group NAME (--data DIR | --job-db URL | --server HOST:PORT)",
		Short:   "Show one group of jobs: what happened to it, its members and its units",
		Example: "  refloatctl get group training --data .refloat-run --queue ml --job-set run-7",
		Args:    argument("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.name = args[0]
			return getGroup(cmd, &f)
		},
	}
	f.bindGroup(cmd)
	addForms(cmd, &f.output, "table (for people), yaml or json (one object a line, stable)", show.FormTable, show.FormYAML, show.FormJSON)
	return cmd
}

// bindGroup adds the flags of a command about a group: where it is, and of which queue and job set.
func (f *getFlags) bindGroup(cmd *cobra.Command) {
	f.bindJobs(cmd)
	cmd.Flags().StringVar(&f.queue, "queue", "", "only groups of this queue")
	cmd.Flags().StringVar(&f.set, "job-set", "", "only groups of this job set")
	completeArg(cmd, &f.deployment, named("group"))
	completeValues(cmd, &f.deployment)
}

func getGroup(cmd *cobra.Command, f *getGroupFlags) error {
	if err := f.checkJobs(); err != nil {
		return err
	}
	return answer(cmd, &f.deployment, f.output, func(ctx context.Context, from query.Answers) ([]query.Group, error) {
		g, err := from.Group(ctx, f.key())
		return one(g, f.groupError(ctx, f.key(), err))
	}, func(w io.Writer, g query.Group) error { return text.Group(w, &g, f.place()) })
}

func (f *getGroupFlags) key() query.GroupKey {
	return query.GroupKey{Queue: f.queue, JobSet: f.set, Group: f.name}
}

// groupError adds to the error of a question about a group which one was meant, and where groups are listed.
func (d *deployment) groupError(ctx context.Context, k query.GroupKey, err error) error {
	return nothingCalled(ctx, d.answers(nil), &jobdb.Criteria{Queue: k.Queue, JobSet: k.JobSet, Group: k.Group}, err, fmt.Sprintf("`refloatctl get groups %s` lists them", d))
}

func newExplainGroup() *cobra.Command {
	var f getGroupFlags
	cmd := &cobra.Command{
		Use:   "group NAME (--data DIR | --job-db URL | --server HOST:PORT)",
		Short: "Tell the history of a group of jobs",
		Long: `Show a group as get group does, and tell its history from the records of the decision log that the job
database keeps, in log order: what bound it, which members were held, released,
restarted or stopped, each decision on a member with what its unit and its group did
about it, and how the group ended.`,
		Example: "  refloatctl explain group training --data .refloat-run --queue ml --job-set run-7",
		Args:    argument("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.name = args[0]
			return explainGroup(cmd, &f)
		},
	}
	f.bindGroup(cmd)
	addOutput(cmd, &f.output)
	return cmd
}

func explainGroup(cmd *cobra.Command, f *getGroupFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	h, err := f.answers(nil).GroupHistory(cmd.Context(), f.key())
	if err != nil {
		return f.asked(cmd, f.groupError(cmd.Context(), f.key(), err))
	}
	return printed(cmd, func(w io.Writer) error {
		if f.output == show.FormJSON {
			return historyJSON(w, h.Lines)
		}
		err := text.Group(w, &h.Group, f.place())
		text.History(w, h.Lines)
		return err
	})
}

func historyJSON(w io.Writer, history []query.Line) (err error) {
	enc := show.JSONLines(w)
	for i := range history {
		err = errors.Join(err, enc.Encode(history[i].Shown()))
	}
	return err
}
