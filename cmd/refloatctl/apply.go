package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/suggest"
)

type applyFlags struct {
	client
	files                  []string
	dryRun, reason, output string
	prune, allowEmpty      bool
}

// dryServer is what --dry-run means without a value, as of other commands.
const dryServer = "server"

func newApply() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f PATH",
		Short: "Create or update policies, group policies, queues and settings from files",
		Long: `Create or update the policies, queue bindings and settings of a running Refloat from
files, all in one generation. Resources that no file names stay as they are, or are
removed with --prune. The files are checked first; if one is invalid, nothing is sent.

Exit codes: 0 done, 1 a problem in a file, 2 usage, 3 the server refused or cannot be reached.`,
		Example: `  refloatctl apply -f policies/ --reason "more retries for evictions"
  refloatctl apply -f policies/ --prune --dry-run
  refloatctl get policies infra -o yaml > infra.yaml && $EDITOR infra.yaml && refloatctl apply -f infra.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.dryRun == dryServer && len(args) == 1 { // the value of --dry-run, which may stand without one
				f.dryRun, args = args[0], nil
			}
			if len(args) > 0 {
				return usageError{fmt.Errorf("argument %q: files are given with -f, as -f %s", args[0], args[0])}
			}
			return f.run(cmd)
		},
	}
	f.bind(cmd)
	cmd.Flags().StringArrayVarP(&f.files, "filename", "f", nil, "policy file or directory of policy files; may be repeated (required)")
	cmd.Flags().StringVar(&f.dryRun, "dry-run", "none", "none, client (check the files only) or server (ask the server what would change)")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = dryServer
	cmd.Flags().BoolVar(&f.prune, "prune", false, "remove resources that no file names")
	cmd.Flags().BoolVar(&f.allowEmpty, "allow-empty", false, "also if no policy is left, or one that a queue or the settings name is missing")
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason, recorded in the history")
	addOutput(cmd, &f.output)
	return cmd
}

func (f *applyFlags) run(cmd *cobra.Command) error {
	switch {
	case len(f.files) == 0:
		return usageError{errors.New("-f PATH is required: a policy file or a directory of policy files")}
	case f.dryRun != "none" && f.dryRun != "client" && f.dryRun != dryServer:
		return usageError{suggest.Unknown("--dry-run", f.dryRun, "none", "client", dryServer)}
	}
	set, err := readPolicies(cmd, f.files...)
	if err != nil {
		return err
	}
	docs, err := api.DocumentsOf(set)
	if err != nil {
		return err
	}
	if len(docs) == 0 && (!f.allowEmpty || !f.prune) {
		return usageError{fmt.Errorf("-f %s: no resource in it: give policy files (.yaml, .yml or .json), or a directory of them", strings.Join(f.files, " -f "))}
	}
	if f.dryRun == "client" {
		for _, id := range set.Resources() {
			fmt.Fprintf(cmd.OutOrStdout(), "%s is valid (dry run: nothing was sent)\n", id)
		}
		return nil
	}
	dry := f.dryRun == dryServer
	return f.changed(cmd, f.output, set.Resources(), dry, func(ctx context.Context, c pb.PoliciesClient) (*pb.Change, error) {
		return c.Apply(ctx, &pb.ApplyRequest{Documents: docs, Prune: f.prune, Reason: f.reason, DryRun: dry, AllowEmpty: f.allowEmpty})
	})
}

// changed asks a server for a change, and shows it.
func (c *client) changed(cmd *cobra.Command, form string, asked []policyfile.ID, dry bool, ask func(context.Context, pb.PoliciesClient) (*pb.Change, error)) error {
	return c.policies(cmd.Context(), func(ctx context.Context, p pb.PoliciesClient) error {
		change, err := ask(ctx, p)
		if err != nil {
			return err
		}
		return showChange(cmd.OutOrStdout(), form, change, asked, dry)
	})
}

// showChange prints the outcome for each resource; a requested resource that is not among the changes was
// unchanged.
func showChange(w io.Writer, output string, c *pb.Change, asked []policyfile.ID, dry bool) error {
	if output == show.FormJSON {
		return show.JSONLines(w).Encode(changeOut{Generation: c.Generation, Changes: resourcesJSON(c.Changes), Notes: c.Notes, DryRun: dry})
	}
	changed := map[policyfile.ID]bool{}
	for _, r := range c.Changes {
		id := policyfile.ID{Kind: r.Kind, Name: r.Name}
		changed[id] = true
		fmt.Fprintf(w, "%s %s%s\n", id, r.Op, dryNote(dry))
	}
	for _, id := range asked {
		if !changed[id] {
			fmt.Fprintf(w, "%s unchanged\n", id)
		}
	}
	for _, note := range c.Notes {
		if !dry || len(c.Changes) == 0 {
			fmt.Fprintln(w, note)
		}
	}
	if !dry {
		fmt.Fprintf(w, "generation %d\n", c.Generation)
	}
	return nil
}

func dryNote(dry bool) string {
	if dry {
		return " (dry run)"
	}
	return ""
}

type changeOut struct {
	Generation uint64        `json:"generation"`
	Changes    []resourceOut `json:"changes"`
	Notes      []string      `json:"notes,omitempty"`
	DryRun     bool          `json:"dryRun,omitempty"`
}

type resourceOut struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	Op   string `json:"op"`
}

func resourcesJSON(changes []*pb.ResourceChange) []resourceOut {
	out := make([]resourceOut, len(changes))
	for i, r := range changes {
		out[i] = resourceOut{r.Kind, r.Name, r.Op}
	}
	return out
}
