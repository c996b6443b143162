package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

// group is the JSON form of a group of jobs. Fields keep their meaning; new ones may be added.
type group struct {
	Queue           string      `json:"queue"`
	JobSet          string      `json:"jobSet"`
	Group           string      `json:"group"`
	Policy          string      `json:"policy"`
	State           string      `json:"state"`
	Reason          string      `json:"reason"`
	Rule            string      `json:"rule,omitempty"`
	Generation      uint32      `json:"generation"`
	Restarts        uint32      `json:"restarts"`
	RestartsCounted uint32      `json:"restartsCounted"`
	MaxRestarts     *uint32     `json:"maxRestarts"` // null: it was bound before the rows start, and its rules were not asked since
	Partition       int         `json:"partition"`
	Conditions      []condition `json:"conditions"` // as of a JobSet
	Parts           []part      `json:"parts"`
}

// part is a part of a group.
type part struct {
	Name       string `json:"name"`
	Replicas   uint32 `json:"replicas,omitempty"` // 0: open
	Members    uint32 `json:"members,omitempty"`
	MinMembers uint32 `json:"minMembers,omitempty"`
	Units      []unit `json:"units"`
}

// unit is a replica of a part. Active members are neither held nor over; of the terminating ones, a run that was told to
// stop has not ended yet.
type unit struct {
	Replica          uint32      `json:"replica"`
	State            string      `json:"state"`
	Reason           string      `json:"reason,omitempty"`
	Generation       uint32      `json:"generation"`
	Restarts         uint32      `json:"restarts"`
	RetriesUsed      uint32      `json:"retriesUsed"`
	CompletedIndexes string      `json:"completedIndexes"`
	FailedIndexes    string      `json:"failedIndexes"`
	Active           int         `json:"active"`
	Held             int         `json:"held"`
	Succeeded        int         `json:"succeeded"`
	Failed           int         `json:"failed"`
	Cancelled        int         `json:"cancelled"` // or rejected
	Stopped          int         `json:"stopped"`   // with the unit or the group, or submitted after its end
	Terminating      int         `json:"terminating"`
	Conditions       []condition `json:"conditions"` // as of a Job
}

type getGroupFlags struct {
	getFlags
	name string
}

var groupRows = rows[*group]{
	columns: []column[*group]{
		{heading: "GROUP", cell: func(g *group) string { return g.Group }},
		{heading: "QUEUE", cell: func(g *group) string { return g.Queue }},
		{heading: "JOB SET", cell: func(g *group) string { return g.JobSet }},
		{heading: "POLICY", cell: func(g *group) string { return g.Policy }},
		{heading: "STATE", cell: func(g *group) string { return g.State }},
		{heading: "GENERATION", cell: func(g *group) string { return fmt.Sprint(g.Generation) }},
		{heading: "RESTARTS", cell: (*group).restartsText},
		{heading: "ACTIVE", cell: func(g *group) string { return fmt.Sprint(g.sum().Active) }},
		{heading: "HELD", cell: func(g *group) string { return fmt.Sprint(g.sum().Held) }},
		{heading: "SUCCEEDED", cell: func(g *group) string { return fmt.Sprint(g.sum().Succeeded) }},
		{heading: "FAILED", cell: func(g *group) string { return fmt.Sprint(g.sum().Failed) }},
		{heading: "TERMINATING", cell: func(g *group) string { return fmt.Sprint(g.sum().Terminating) }},
		{heading: "RULE", wide: true, cell: func(g *group) string { return g.Rule }},
		{heading: "REASON", cell: func(g *group) string { return g.Reason }},
	},
	name:   func(g *group) string { return g.Queue + "/" + g.JobSet + "/" + g.Group },
	object: func(g *group) any { return g },
}

func newGetGroups() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "groups (--data DIR | --job-db URL)",
		Short: "List groups of jobs",
		Long: `List groups of jobs (docs/semantics.md, Groups), with their parts and units: how many
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
			return runList(cmd, &f, &groupRows, func(g *group) string { return fmt.Sprint(g.Partition) + groupRows.name(g) },
				func(q jobdb.Queries, visit func(*group) error) ([]any, error) {
					return visitGroups(q, &f.criteria, f.page, visit)
				})
		},
	}
	var states []string
	for s := policy.GroupActive; s <= policy.GroupHalted; s++ {
		states = append(states, s.String())
	}
	f.bindList(cmd, "groups", jobdb.GroupSorts, states)
	return cmd
}

// visitGroups visits a page of groups with all that is known of each.
func visitGroups(q jobdb.Queries, c *jobdb.Criteria, p jobdb.Page, visit func(*group) error) (next []any, err error) {
	var found []*jobdb.Group
	next, err = q.GroupList(c, p, func(g *jobdb.Group) error {
		found = append(found, g)
		return nil
	})
	for _, row := range found {
		if err != nil {
			break
		}
		var g group
		if g, err = groupOf(q, row); err == nil {
			err = visit(&g)
		}
	}
	return next, err
}

func newGetGroup() *cobra.Command {
	var f getGroupFlags
	cmd := &cobra.Command{
		Use:     "group NAME (--data DIR | --job-db URL)",
		Short:   "Show one group of jobs with its parts and units",
		Example: "  refloatctl get group training --data .refloat-run --queue ml --job-set run-7",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.name = args[0]
			return getGroup(cmd, &f)
		},
	}
	f.bind(cmd)
	hidePulsar(cmd)
	cmd.Flags().StringVarP(&f.output, "output", "o", outputTable, "table (for people), yaml or json (one object a line, stable)")
	f.bindSet(cmd)
	completeGroup(cmd, &f.deployment)
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
	var groups []*group
	err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		_, err := visitGroups(q, f.criteria(), jobdb.Page{}, func(g *group) error {
			groups = append(groups, g)
			return nil
		})
		return err
	})
	if err == nil {
		err = onlyOne(cmd, f.name, groups, func(g **group) (string, string) { return (*g).Queue, (*g).JobSet })
	}
	if err != nil {
		return err
	}
	if f.output == outputTable {
		return printGroup(cmd.OutOrStdout(), groups[0])
	}
	row, _, err := groupRows.printer(cmd.OutOrStdout(), f.output)
	if err != nil {
		return err
	}
	return row(groups[0])
}

func (f *getGroupFlags) criteria() *jobdb.Criteria {
	return &jobdb.Criteria{Queue: f.queue, JobSet: f.set, Group: f.name}
}

// find returns the groups that the flags select.
func (f *getGroupFlags) find(q jobdb.Queries) (groups []*jobdb.Group, err error) {
	_, err = q.GroupList(f.criteria(), jobdb.Page{}, func(g *jobdb.Group) error {
		groups = append(groups, g)
		return nil
	})
	return groups, err
}

// onlyOne reports a finding unless there is exactly one group of that name.
func onlyOne[G any](cmd *cobra.Command, name string, groups []G, of func(*G) (queue, set string)) error {
	switch len(groups) {
	case 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "no group is called %q there; `refloatctl get groups` lists them\n", name)
		return errFinding
	case 1:
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s are called %q; choose one:\n", plural.Of(len(groups), "group"), name)
	for i := range groups {
		queue, set := of(&groups[i])
		fmt.Fprintf(cmd.ErrOrStderr(), "  --queue %s --job-set %s\n", oneLine(queue), oneLine(set))
	}
	return errFinding
}

// groupOf reads everything about a group.
func groupOf(q jobdb.Queries, g *jobdb.Group) (group, error) {
	out := group{
		Queue: g.Queue, JobSet: g.JobSet, Group: g.Name, Policy: g.Policy, State: g.State.String(), Reason: g.Reason.String(), Rule: g.Rule,
		Generation: g.Generation, Restarts: g.Restarts, RestartsCounted: g.Counted, Partition: g.Partition, Parts: []part{},
	}
	if g.Binding != 0 || g.MaxRestarts > 0 {
		out.MaxRestarts = &g.MaxRestarts
	}
	for i := range g.Shape.Parts {
		p := &g.Shape.Parts[i]
		out.Parts = append(out.Parts, part{Name: p.Name, Replicas: p.Replicas, Members: p.Members, MinMembers: p.MinMembers, Units: []unit{}})
	}
	members := map[[2]any][]*jobdb.Job{}
	err := q.Members(g, func(j *jobdb.Job) error {
		key := [2]any{j.Member.Part, j.Member.Replica}
		members[key] = append(members[key], j)
		return nil
	})
	err = errors.Join(err, q.Units(g, func(u *jobdb.Unit) error {
		i := slices.IndexFunc(out.Parts, func(p part) bool { return p.Name == u.Part })
		if i < 0 {
			i = len(out.Parts)
			out.Parts = append(out.Parts, part{Name: u.Part})
		}
		out.Parts[i].Units = append(out.Parts[i].Units, unitOf(g, u, members[[2]any{u.Part, u.Replica}]))
		slices.SortFunc(out.Parts[i].Units, func(a, b unit) int { return cmp.Compare(a.Replica, b.Replica) })
		return nil
	}))
	out.Conditions = conditionsOf(&out, g.State, g.Reason)
	return out, err
}

func unitOf(g *jobdb.Group, u *jobdb.Unit, members []*jobdb.Job) unit {
	out := unit{Replica: u.Replica, Reason: u.Reason.String(), Generation: u.Generation, Restarts: u.Restarts, RetriesUsed: u.Retries}
	slices.SortFunc(members, func(a, b *jobdb.Job) int { return cmp.Compare(a.Member.Index, b.Member.Index) })
	var completed, failed jobdb.Indexes
	for _, j := range members {
		if j.Terminating() {
			out.Terminating++
		}
		switch j.Member.State {
		case jobdb.MemberActive:
			out.Active++
		case jobdb.MemberHeld:
			out.Held++
		case jobdb.MemberSucceeded:
			out.Succeeded++
			completed.Add(j.Member.Index)
		case jobdb.MemberFailed:
			out.Failed++
			failed.Add(j.Member.Index)
		case jobdb.MemberUnitFail:
			out.Failed++
		case jobdb.MemberCancelled:
			out.Cancelled++
		case jobdb.MemberStopped:
			out.Stopped++
		case jobdb.NoMember:
		}
	}
	state := u.StateWith(out.Succeeded, &g.Shape)
	out.State, out.CompletedIndexes, out.FailedIndexes = state.String(), completed.String(), failed.String()
	out.Conditions = conditionsOfUnit(&out, g.Shape.Part(u.Part), state, u.Reason)
	return out
}

func (g *group) restartsText() string {
	if g.MaxRestarts == nil {
		return fmt.Sprint(g.RestartsCounted)
	}
	return fmt.Sprintf("%d/%d", g.RestartsCounted, *g.MaxRestarts)
}

// sum adds up the members of all units.
func (g *group) sum() (sum unit) {
	for _, p := range g.Parts {
		for _, u := range p.Units {
			sum.Active, sum.Held, sum.Succeeded = sum.Active+u.Active, sum.Held+u.Held, sum.Succeeded+u.Succeeded
			sum.Failed, sum.Terminating = sum.Failed+u.Failed, sum.Terminating+u.Terminating
		}
	}
	return sum
}

func printGroup(w io.Writer, g *group) error {
	by := "a gang without a group policy"
	if g.Policy != "" {
		by = "group policy " + oneLine(g.Policy)
	}
	fmt.Fprintf(w, "%s %s\n  queue %s, job set %s, partition %d, %s, %s\n", bold(w, "Group"), oneLine(g.Group), oneLine(g.Queue), oneLine(g.JobSet), g.Partition, by, g.State)
	if g.Reason != "" {
		fmt.Fprintf(w, "  reason %s%s\n", g.Reason, ruleText(g.Rule))
	}
	fmt.Fprintf(w, "  generation %d, counted restarts %s, %s by rules in all\n", g.Generation, g.restartsText(), plural.Of(uint64(g.Restarts), "restart"))
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
