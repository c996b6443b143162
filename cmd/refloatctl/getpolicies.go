package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

type getPoliciesFlags struct {
	client
	output, at string
	generation uint64
}

// newGetResources returns `get policies`, `get group-policies`, `get queues`, `get settings` and `get resources`.
func newGetResources() []*cobra.Command {
	return []*cobra.Command{
		getResources("policies [NAME]", "Show policies, the generation in force in each partition, and overrides", policyfile.KindPolicy),
		getResources("group-policies [NAME]", "Show group policies", policyfile.KindGroup),
		getResources("queues [NAME]", "Show queue bindings", policyfile.KindQueue),
		getResources("budgets [NAME]", "Show retry budgets, and what is left of each in each partition", policyfile.KindBudget),
		getResources("settings", "Show the settings", policyfile.KindSettings),
		getResources("resources", "Show everything that `apply` manages: policies, group policies, queues and settings", ""),
	}
}

func getResources(use, short, kind string) *cobra.Command {
	var f getPoliciesFlags
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long: short + `.

If no process runs on the data directory, it is read from the policies log there.
With -o yaml it prints what ` + "`apply -f`" + ` reads.`,
		Example: `  refloatctl get ` + use + `
  refloatctl get resources -o yaml > before.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.at != "" && f.generation != 0 {
				return usageError{errors.New("--at and --generation both say which one: give only one")}
			}
			return f.reading(cmd.Context(), func(ctx context.Context, c pb.PoliciesClient) error {
				if f.at != "" {
					_, named, err := generations(ctx, c, map[string]string{"--at": f.at})
					if err != nil {
						return err
					}
					if f.generation = named["--at"]; f.generation == 0 {
						return usageError{errors.New("--at 0: there are no policies before generation 1")}
					}
				}
				return f.show(ctx, cmd, c, kind, args)
			})
		},
	}
	if kind == policyfile.KindSettings || kind == "" {
		cmd.Args = noArgument
	}
	f.bind(cmd)
	cmd.Flags().Uint64Var(&f.generation, "generation", 0, "show this generation (default: the newest)")
	cmd.Flags().StringVar(&f.at, "at", "", "show the generation that was the newest at this time, or this duration ago, such as 24h, or this generation")
	addForms(cmd, &f.output, "table (for people), yaml (what apply -f reads) or json (one object a line, stable)", show.FormTable, show.FormYAML, show.FormJSON)
	if kind != "" {
		completeResource(cmd, &f.client, kind)
	}
	return cmd
}

func (f *getPoliciesFlags) show(ctx context.Context, cmd *cobra.Command, c pb.PoliciesClient, kind string, args []string) error {
	w := cmd.OutOrStdout()
	var resources []*pb.Resource
	var overrides []*pb.BrakeState
	if len(args) == 1 {
		one, err := c.Get(ctx, &pb.GetRequest{Kind: kind, Name: args[0], Generation: f.generation})
		if err != nil {
			return err
		}
		resources = append(resources, one)
	} else {
		list, err := c.List(ctx, &pb.ListRequest{Kind: kind, Generation: f.generation})
		if err != nil {
			return err
		}
		resources, overrides = list.Resources, list.Brakes
	}
	switch f.output {
	case show.FormYAML:
		set, err := query.SetOf(resources)
		if err != nil {
			return err
		}
		text, err := set.YAML(set.Resources()...)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	case show.FormJSON:
		if kind != policyfile.KindBudget {
			return resourcesAsJSON(w, resources, nil)
		}
	}
	set, err := query.SetOf(resources)
	if err != nil {
		return err
	}
	var left map[string][]query.BudgetState
	if kind == policyfile.KindBudget && f.generation == 0 {
		if left, err = budgetStates(ctx, f.jobAnswers(), set, resources); err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "What is left of budgets is not known:", err)
		}
	}
	switch {
	case f.output == show.FormJSON:
		return resourcesAsJSON(w, resources, left)
	case kind == policyfile.KindBudget:
		err = budgetTable(w, set, resources, left)
	default:
		err = resourceTable(w, kind, set, resources)
	}
	if err != nil {
		return err
	}
	if f.generation != 0 {
		return nil
	}
	overrideLines(w, overrides)
	if f.fromLog {
		fmt.Fprintf(w, "Nothing that serves the policy API runs on %s: this is the newest generation in its policies log.\n", f.data)
		return nil
	}
	if kind == policyfile.KindPolicy {
		all, away, err := f.status(ctx)
		if err != nil {
			return err
		}
		inForceLines(w, all, away)
	}
	return nil
}

type resourceLine struct {
	Kind       string              `json:"kind"`
	Name       string              `json:"name,omitempty"`
	Generation uint64              `json:"generation"`
	UsedBy     []string            `json:"usedBy,omitempty"`
	Document   json.RawMessage     `json:"document"`
	State      []query.BudgetState `json:"state,omitempty"` // of a retry budget, what each partition has of it
}

func resourcesAsJSON(w io.Writer, resources []*pb.Resource, left map[string][]query.BudgetState) error {
	enc := show.JSONLines(w)
	for _, r := range resources {
		doc, err := json.Marshal(r.Document.AsMap())
		if err != nil {
			return fmt.Errorf("%s %s: %w", r.Kind, r.Name, err)
		}
		if err := enc.Encode(resourceLine{r.Kind, r.Name, r.Generation, r.UsedBy, doc, left[r.Name]}); err != nil {
			return err
		}
	}
	return nil
}

func resourceTable(w io.Writer, kind string, set *policyfile.Set, resources []*pb.Resource) error {
	if kind == policyfile.KindPolicy {
		t := show.NewTable(w, "POLICY", "RULES", "DEFAULT", "SINCE GENERATION", "USED BY")
		rules := map[string]policy.Outline{}
		for _, o := range set.Outlines() {
			rules[o.Name] = o
		}
		for _, r := range resources {
			o := rules[r.Name]
			t.Row(r.Name, fmt.Sprint(len(o.Rules)), o.Default.Action, fmt.Sprint(r.Generation), strings.Join(r.UsedBy, ", "))
		}
		return t.Flush()
	}
	t := show.NewTable(w, "KIND", "NAME", "SINCE GENERATION", "SAYS")
	for _, r := range resources {
		t.Row(r.Kind, r.Name, fmt.Sprint(r.Generation), summary(r))
	}
	return t.Flush()
}

// summary formats a document on one line, without the fields shown in other columns.
func summary(r *pb.Resource) string {
	m := r.Document.AsMap()
	for _, key := range []string{"apiVersion", "kind", "name", "metadata"} {
		delete(m, key)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return ""
	}
	return string(b)
}

func overrideLines(w io.Writer, overrides []*pb.BrakeState) {
	for _, b := range overrides {
		fmt.Fprintln(w, query.OverrideText(api.OverrideOf(b)))
	}
}

// inForceLines prints what is in force in the partitions of all servers.
func inForceLines(w io.Writer, all []*pb.StatusResponse, away []string) {
	newest := uint64(0)
	var partitions []*pb.PartitionStatus
	for _, s := range all {
		newest = max(newest, s.Generation)
		partitions = append(partitions, s.Partitions...)
	}
	slices.SortFunc(partitions, func(a, b *pb.PartitionStatus) int { return int(a.Partition - b.Partition) })
	fmt.Fprintf(w, "The newest generation is %d.\n", newest)
	shown := map[string]bool{} // several servers say the same
	for _, s := range all {
		var lines strings.Builder
		if s.ReadOnly != "" {
			fmt.Fprintf(&lines, "Read-only here: %s.\n", s.ReadOnly)
		}
		sourceLines(&lines, s.Source)
		for line := range strings.Lines(lines.String()) {
			if !shown[line] {
				_, _ = io.WriteString(w, line)
			}
			shown[line] = true
		}
	}
	for i, p := range partitions {
		if i > 0 && partitions[i-1].Partition == p.Partition && partitions[i-1].Generation == p.Generation {
			continue // it is moving from one server to another, or a server was named twice
		}
		late := ""
		if p.Generation < newest {
			late = " (not the newest yet)"
		}
		fmt.Fprintf(w, "Partition %d: generation %d, since %s%s\n", p.Partition, p.Generation, rfc3339(p.Since), late)
	}
	for _, server := range away {
		fmt.Fprintf(w, "No server answers at %s: what is in force in its partitions is unknown.\n", server)
	}
}

// sourceLines prints the status of the followed Armada.
func sourceLines(w io.Writer, s *pb.Source) {
	switch {
	case s == nil:
		return
	case s.Error == "":
		fmt.Fprintf(w, "Armada at %s was read at %s.\n", s.Address, rfc3339(s.LastGood))
	case s.LastGood == nil:
		fmt.Fprintf(w, "Armada at %s has been unreadable since %s, when this process started; the policies read before stay in force: %s\n", s.Address, rfc3339(s.FailingSince), query.OneLine(s.Error))
	default:
		fmt.Fprintf(w, "Armada at %s has been unreadable since %s; the policies read at %s stay in force: %s\n", s.Address, rfc3339(s.FailingSince), rfc3339(s.LastGood), query.OneLine(s.Error))
	}
	if s.MissingDefault != "" {
		fmt.Fprintf(w, "Armada has no retry policy %s, which our settings name as the default: queues without a policy of their own are not retried.\n", query.OneLine(s.MissingDefault))
	}
	for _, what := range s.NotUnderstood {
		fmt.Fprintf(w, "Cannot be used here: %s\n", query.OneLine(what))
	}
}

func rfc3339(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format(time.RFC3339)
}

// resourceKinds are the kinds of resources, as arguments name them.
var resourceKinds = map[string]string{"policy": policyfile.KindPolicy, "group-policy": policyfile.KindGroup, "queue": policyfile.KindQueue, "budget": policyfile.KindBudget, "settings": policyfile.KindSettings}

// resourceArgs parses `policy NAME`, `group-policy NAME`, `queue NAME` or `settings`.
func resourceArgs(args []string) (policyfile.ID, error) {
	kind, ok := resourceKinds[args[0]]
	switch {
	case !ok:
		return policyfile.ID{}, fmt.Errorf("unknown kind %q: %s", args[0], suggest.Fix(args[0], slices.Sorted(maps.Keys(resourceKinds)), "want policy NAME, group-policy NAME, queue NAME or settings"))
	case kind == policyfile.KindSettings && len(args) == 1:
		return policyfile.ID{Kind: kind}, nil
	case kind == policyfile.KindSettings:
		return policyfile.ID{}, errors.New("settings have no name")
	case len(args) != 2:
		return policyfile.ID{}, fmt.Errorf("%s needs a name", args[0])
	}
	return policyfile.ID{Kind: kind, Name: args[1]}, nil
}
