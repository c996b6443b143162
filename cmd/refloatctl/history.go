package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

func newHistory() *cobra.Command {
	var c client
	var output string
	var limit uint32
	cmd := &cobra.Command{
		Use:   "history [policy NAME | group-policy NAME | queue NAME | settings]",
		Short: "Show who changed policies, group policies, queues and settings, when and why",
		Long: `Show who changed policies, group policies, queues and settings, when and why. If
no process runs on the data directory, it is read from the policies log there.`,
		Example: `  refloatctl history
  refloatctl history policy infra
  refloatctl get policies infra --generation 7 -o yaml`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var id policyfile.ID
			var err error
			if len(args) > 0 {
				if id, err = resourceArgs(args); err != nil {
					return usageError{err}
				}
			}
			return c.reading(cmd.Context(), func(ctx context.Context, p pb.PoliciesClient) error {
				h, err := p.History(ctx, &pb.HistoryRequest{Kind: id.Kind, Name: id.Name, Limit: limit})
				if err != nil {
					return err
				}
				return showHistory(cmd.OutOrStdout(), output, h.Generations, id == policyfile.ID{})
			})
		},
	}
	c.bind(cmd)
	cmd.Flags().Uint32Var(&limit, "limit", 100, "maximum number of generations, newest first")
	addOutput(cmd, &output)
	completeResource(cmd, &c, "")
	return cmd
}

type generationOut struct {
	Generation uint64        `json:"generation"`
	Time       string        `json:"time"`
	Author     string        `json:"author"`
	Reason     string        `json:"reason,omitempty"`
	Changes    []resourceOut `json:"changes"`
	Overrides  []string      `json:"brakes,omitempty"`
	Unusable   string        `json:"unusable,omitempty"`
}

func generationJSON(g *pb.Generation) generationOut {
	var overrides strings.Builder
	overrideLines(&overrides, g.Brakes)
	lines := strings.FieldsFunc(overrides.String(), func(r rune) bool { return r == '\n' })
	return generationOut{g.Generation, rfc3339(g.Time), g.Author, g.Reason, resourcesJSON(g.Changes), lines, g.Unusable}
}

// showHistory prints generations, newest first. If they are all, numbers that are missing between them are superseded
// changes: two evaluators that start with the same files publish both, and the second one finds the first.
func showHistory(w io.Writer, output string, generations []*pb.Generation, all bool) error {
	enc, t := show.JSONLines(w), show.NewTable(io.Discard)
	if output == show.FormTable {
		t = show.NewTable(w, "GENERATION", "TIME", "BY", "CHANGED", "REASON")
	}
	for i, g := range generations {
		if all && i > 0 {
			for n := generations[i-1].Generation - 1; n > g.Generation; n-- {
				t.Row(fmt.Sprint(n), "-", "", "nothing: another change came first, or it cannot be read", "")
			}
		}
		if output == show.FormJSON {
			if err := enc.Encode(generationJSON(g)); err != nil {
				return err
			}
			continue
		}
		var changed []string
		for _, r := range g.Changes {
			changed = append(changed, policyfile.ID{Kind: r.Kind, Name: r.Name}.String()+" "+r.Op)
		}
		for _, line := range g.BrakeChanges {
			changed = append(changed, query.OneLine(line))
		}
		if g.Unusable != "" {
			changed = append(changed, "cannot be used here: "+g.Unusable)
		}
		t.Row(fmt.Sprint(g.Generation), rfc3339(g.Time), g.Author, strings.Join(changed, "; "), g.Reason)
	}
	return t.Flush()
}

type changeFlags struct {
	client
	reason, output string
	dryRun         bool
	to             uint64
	everything     bool
}

func (f *changeFlags) bindAll(cmd *cobra.Command) {
	f.bind(cmd)
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason, recorded in the history")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only show what would change")
	addOutput(cmd, &f.output)
}

func (f *changeFlags) change(cmd *cobra.Command, ask func(context.Context, pb.PoliciesClient) (*pb.Change, error)) error {
	return f.changed(cmd, f.output, nil, f.dryRun, ask)
}

func newRollback() *cobra.Command {
	var f changeFlags
	cmd := &cobra.Command{
		Use:   "rollback (policy NAME | group-policy NAME | queue NAME | settings | --everything) --to GENERATION",
		Short: "Restore policies, queues or settings from an earlier generation",
		Example: `  refloatctl rollback policy infra --to 7 --reason "too many retries"
  refloatctl rollback --everything --to 7 --dry-run`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.to == 0 {
				return usageError{errors.New("--to GENERATION is required: `refloatctl history` lists them")}
			}
			if f.everything == (len(args) > 0) {
				return usageError{errors.New("give policy NAME, group-policy NAME, queue NAME, settings, or --everything")}
			}
			var id policyfile.ID
			if !f.everything {
				var err error
				if id, err = resourceArgs(args); err != nil {
					return usageError{err}
				}
			}
			return f.change(cmd, func(ctx context.Context, c pb.PoliciesClient) (*pb.Change, error) {
				return c.RollBack(ctx, &pb.RollBackRequest{Kind: id.Kind, Name: id.Name, To: f.to, Reason: f.reason, DryRun: f.dryRun})
			})
		},
	}
	f.bindAll(cmd)
	cmd.Flags().Uint64Var(&f.to, "to", 0, "generation to restore from (required)")
	cmd.Flags().BoolVar(&f.everything, "everything", false, "restore all policies, group policies, queues and settings")
	completeResource(cmd, &f.client, "")
	return cmd
}

func newDelete() *cobra.Command {
	var f changeFlags
	cmd := &cobra.Command{
		Use:     "delete (policy NAME | group-policy NAME | queue NAME | settings)",
		Short:   "Remove a policy, a queue binding or the settings",
		Example: `  refloatctl delete policy infra --reason "nobody uses it"`,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := resourceArgs(args)
			if err != nil {
				return usageError{err}
			}
			return f.change(cmd, func(ctx context.Context, c pb.PoliciesClient) (*pb.Change, error) {
				return c.Delete(ctx, &pb.DeleteRequest{Kind: id.Kind, Name: id.Name, Reason: f.reason, DryRun: f.dryRun})
			})
		},
	}
	f.bindAll(cmd)
	completeResource(cmd, &f.client, "")
	return cmd
}
