package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

type getGroupFlags struct {
	getFlags
	name string
}

var groupRows = rows[*query.Group]{
	columns: []column[*query.Group]{
		{heading: "GROUP", cell: func(g *query.Group) string { return g.Group }},
		{heading: "QUEUE", cell: func(g *query.Group) string { return g.Queue }},
		{heading: "JOB SET", cell: func(g *query.Group) string { return g.JobSet }},
		{heading: "POLICY", cell: func(g *query.Group) string { return g.Policy }},
		{heading: "STATE", cell: func(g *query.Group) string { return g.State }},
		{heading: "GENERATION", cell: func(g *query.Group) string { return fmt.Sprint(g.Generation) }},
		{heading: "RESTARTS", cell: restartsText},
		{heading: "ACTIVE", cell: func(g *query.Group) string { return fmt.Sprint(sum(g).Active) }},
		{heading: "HELD", cell: func(g *query.Group) string { return fmt.Sprint(sum(g).Held) }},
		{heading: "SUCCEEDED", cell: func(g *query.Group) string { return fmt.Sprint(sum(g).Succeeded) }},
		{heading: "FAILED", cell: func(g *query.Group) string { return fmt.Sprint(sum(g).Failed) }},
		{heading: "TERMINATING", cell: func(g *query.Group) string { return fmt.Sprint(sum(g).Terminating) }},
		{heading: "RULE", wide: true, cell: func(g *query.Group) string { return g.Rule }},
		{heading: "REASON", cell: func(g *query.Group) string { return g.Reason }},
	},
	name:   func(g *query.Group) string { return g.Queue + "/" + g.JobSet + "/" + g.Group },
	object: func(g *query.Group) any { return g },
}

func newGetGroups() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "groups (--data DIR | --job-db URL | --server HOST:PORT)",
		Short: "List groups of jobs",
		Long: `List groups of jobs (docs/reference/semantics.md, Groups), with their parts and units: how many
members of each are active, held or terminating, and which indexes have completed or
failed for good. -o yaml and json also have conditions: of a unit, those of a Kubernetes Job
(SuccessCriteriaMet, Complete, FailureTarget, Failed), of a group, those of a JobSet
(Completed, Failed), and Halted. --policy and --rule are those of the group.`,
		Example: `  refloatctl get groups --data .refloat-run --queue ml --state Failed
  refloatctl get groups --job-db postgres://refloat@db:5432/scheduler -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return runList(cmd, &f, &groupRows, groupID, f.answers(nil).ListGroups)
		},
	}
	f.bindList(cmd, query.Groups)
	completeValues(cmd, &f.deployment)
	return cmd
}

func newGetGroup() *cobra.Command {
	var f getGroupFlags
	cmd := &cobra.Command{
		Use:     "group NAME (--data DIR | --job-db URL | --server HOST:PORT)",
		Short:   "Show one group of jobs with its parts and units",
		Example: "  refloatctl get group training --data .refloat-run --queue ml --job-set run-7",
		Args:    argument("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.name = args[0]
			return getGroup(cmd, &f)
		},
	}
	f.bind(cmd)
	hidePulsar(cmd)
	f.bindServer(cmd)
	cmd.Flags().StringVarP(&f.output, "output", "o", outputTable, "table (for people), yaml or json (one object a line, stable)")
	f.bindSet(cmd)
	completeArg(cmd, &f.deployment, groupNames)
	completeValues(cmd, &f.deployment)
	return cmd
}

// bindSet adds the flags that say of which queue and job set a group is.
func (f *getFlags) bindSet(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.queue, "queue", "", "only groups of this queue")
	cmd.Flags().StringVar(&f.set, "job-set", "", "only groups of this job set")
}

func getGroup(cmd *cobra.Command, f *getGroupFlags) error {
	if err := f.checkJobs(); err != nil {
		return err
	}
	if f.output != outputTable && f.output != outputJSON && f.output != outputYAML {
		return usageError{suggest.Unknown("-o", f.output, outputTable, outputYAML, outputJSON)}
	}
	g, err := f.answers(nil).Group(cmd.Context(), f.key())
	if err != nil {
		return f.oneGroup(cmd, err)
	}
	if f.output == outputTable {
		return printGroup(cmd.OutOrStdout(), &g)
	}
	row, _, err := groupRows.printer(cmd.OutOrStdout(), f.output)
	if err != nil {
		return err
	}
	return row(&g)
}

func (f *getGroupFlags) key() query.GroupKey {
	return query.GroupKey{Queue: f.queue, JobSet: f.set, Group: f.name}
}

// oneGroup reports as a finding that there is not exactly one group of that name.
func (d *deployment) oneGroup(cmd *cobra.Command, err error) error {
	several, ok := errors.AsType[*query.Ambiguous](err)
	if !ok {
		if missing, none := errors.AsType[*query.NotFound](err); none {
			missing.Text += "; `refloatctl get groups` lists them"
		}
		return d.asked(cmd, err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s are called %q; choose one:\n", plural.Of(len(several.Groups), "group"), several.Name)
	for _, g := range several.Groups {
		fmt.Fprintf(cmd.ErrOrStderr(), "  --queue %s --job-set %s\n", oneLine(g.Queue), oneLine(g.JobSet))
	}
	return errFinding
}

func restartsText(g *query.Group) string {
	if g.MaxRestarts == nil {
		return fmt.Sprint(g.RestartsCounted)
	}
	return fmt.Sprintf("%d/%d", g.RestartsCounted, *g.MaxRestarts)
}

// sum adds up the members of all units.
func sum(g *query.Group) (sum query.Unit) {
	for _, p := range g.Parts {
		for _, u := range p.Units {
			sum.Active, sum.Held, sum.Succeeded = sum.Active+u.Active, sum.Held+u.Held, sum.Succeeded+u.Succeeded
			sum.Failed, sum.Terminating = sum.Failed+u.Failed, sum.Terminating+u.Terminating
		}
	}
	return sum
}

func printGroup(w io.Writer, g *query.Group) error {
	by := "a gang without a group policy"
	if g.Policy != "" {
		by = "group policy " + oneLine(g.Policy)
	}
	fmt.Fprintf(w, "%s %s\n  queue %s, job set %s, partition %d, %s, %s\n", bold(w, "Group"), oneLine(g.Group), oneLine(g.Queue), oneLine(g.JobSet), g.Partition, by, g.State)
	if g.Reason != "" {
		fmt.Fprintf(w, "  reason %s%s\n", g.Reason, ruleText(g.Rule))
	}
	if g.Newer != "" {
		fmt.Fprintf(w, "  the name begins a new group after each end: the newest is %s\n", oneLine(g.Newer))
	}
	fmt.Fprintf(w, "  generation %d, counted restarts %s, %s by rules in all\n", g.Generation, restartsText(g), plural.Of(uint64(g.Restarts), "restart"))
	t := newTable(w, "  UNIT", "STATE", "GENERATION", "RESTARTS", "RETRIES", "ACTIVE", "HELD", "SUCCEEDED", "FAILED", "CANCELLED", "STOPPED", "TERMINATING", "COMPLETED INDEXES", "FAILED INDEXES")
	for _, p := range g.Parts {
		for _, u := range p.Units {
			t.row(fmt.Sprintf("  %s/%d", p.Name, u.Replica), u.State, fmt.Sprint(u.Generation), fmt.Sprint(u.Restarts), fmt.Sprint(u.RetriesUsed),
				fmt.Sprint(u.Active), fmt.Sprint(u.Held), fmt.Sprint(u.Succeeded), fmt.Sprint(u.Failed), fmt.Sprint(u.Cancelled), fmt.Sprint(u.Stopped),
				fmt.Sprint(u.Terminating), u.CompletedIndexes, u.FailedIndexes)
		}
	}
	return t.flush()
}

func ruleText(rule string) string {
	if rule == "" {
		return ""
	}
	return ", by rule " + oneLine(rule)
}
