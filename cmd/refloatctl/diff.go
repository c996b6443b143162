package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync/atomic"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/authoring/diff"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

type diffFlags struct {
	log, output string
	jobs        int
	semantics   uint32
}

func newDiff() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff OLD NEW [--log DIR]",
		Short: "Compare policies by their fields and by their decisions",
		Long: `Compare two policy files or directories of them: which rules were added, removed,
changed or moved, by field. Comments and layout make no difference.

With --log, also decide the recorded history by both, and show how many decisions
differ, from what to what, by queue, cause and rule, and for which jobs. This is what
whatif --log DIR --against OLD --policies NEW shows, with the same assumptions: once one
side retries a job and the other does not, its later runs are not compared.

Exit code 1 if there is any difference, like diff.`,
		Example: `  refloatctl diff policies.old policies.new
  refloatctl diff main/policies my/policies --log .refloat-run/logs/events
  refloatctl diff main/policies my/policies --log /tmp/plain -o json | jq -r 'select(.effect).effect.jobId'`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case app.CheckSemantics(f.semantics) != nil:
				return usageError{fmt.Errorf("--semantics: %w", app.CheckSemantics(f.semantics))}
			case f.jobs < 0:
				return usageError{fmt.Errorf("--jobs %d: use 0 or more", f.jobs)}
			}
			return diffPolicies(cmd, f, args[0], args[1])
		},
	}
	cmd.Flags().StringVar(&f.log, "log", "", "directory of an events log, as import writes it")
	cmd.Flags().IntVar(&f.jobs, "jobs", 20, "maximum number of failed runs to show (-o json has all)")
	cmd.Flags().Uint32Var(&f.semantics, "semantics", 0, "version of the decision semantics (default: the newest)")
	addOutput(cmd, &f.output)
	return cmd
}

// difference is one line of `diff -o json`: exactly one field is set.
type difference struct {
	Change  *changeJSON    `json:"change,omitempty"`
	Effect  *whatif.Change `json:"effect,omitempty"`
	Summary *summaryJSON   `json:"summary,omitempty"`
}

type changeJSON struct {
	What  string `json:"what"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Field string `json:"field,omitempty"`
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

type summaryJSON struct {
	Changes  int     `json:"changes"`
	Failures *uint64 `json:"failures,omitempty"` // that were compared, with --log
	Effects  *uint64 `json:"effects,omitempty"`  // of them

	UnitsCompared uint64 `json:"unitsCompared,omitempty"` // that ended by themselves, with --log
	UnitsChanged  uint64 `json:"unitsChanged,omitempty"`

	differences uint64
}

func diffPolicies(cmd *cobra.Command, f diffFlags, oldPath, newPath string) error {
	before, err := readPolicies(cmd, oldPath)
	if err != nil {
		return err
	}
	after, err := readPolicies(cmd, newPath)
	if err != nil {
		return err
	}
	changes, err := diff.Rules(before, after)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	enc := show.JSONLines(out)
	for _, c := range changes {
		if f.output == show.FormJSON {
			line := changeJSON(c)
			err = errors.Join(err, enc.Encode(difference{Change: &line}))
		} else {
			fmt.Fprintln(out, query.OneLine(c.String()))
		}
	}
	summary := summaryJSON{Changes: len(changes)}
	if f.log != "" && err == nil {
		err = effects(cmd, f, whatif.Candidate{Name: oldPath, Set: before}, whatif.Candidate{Name: newPath, Set: after}, out, &summary)
	}
	switch {
	case err != nil:
	case f.output == show.FormJSON:
		err = enc.Encode(difference{Summary: &summary})
	case len(changes) == 0:
		fmt.Fprintln(out, "the policies are equal")
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if len(changes) > 0 || summary.differences > 0 {
		return errFinding
	}
	return nil
}

// effects decides the history by both sets: NEW is a candidate against OLD.
func effects(cmd *cobra.Command, f diffFlags, before, after whatif.Candidate, out io.Writer, summary *summaryJSON) error {
	fmt.Fprintln(cmd.ErrOrStderr(), "diff --log is the command whatif --log DIR --against OLD --policies NEW")
	log, closeLog, err := app.OpenEvents(f.log)
	if err != nil {
		return err
	}
	defer func() { _ = closeLog() }()
	bar := show.NewProgress()
	defer bar.Done()
	var messages atomic.Uint64
	o := whatif.Options{
		Candidates: []whatif.Candidate{after}, Against: &before, Semantics: cmp.Or(f.semantics, evaluator.SemanticsVersion), Limit: f.jobs,
		Parallel: runtime.GOMAXPROCS(0),
		Progress: func(int, uint64) { bar.UpdateShared("deciding: %s", plural.Of(messages.Add(1024), "message")) },
	}
	if f.output == show.FormJSON {
		o.Limit = math.MaxInt
	}
	results, err := whatif.Run(cmd.Context(), audit.Logs{Events: log}, o)
	if err != nil {
		return err
	}
	bar.Done()
	r := results[0]
	summary.Failures, summary.Effects = &r.Compared, &r.Changed
	summary.UnitsCompared, summary.UnitsChanged, summary.differences = r.Units, r.UnitsChanged, r.Differences()
	if f.output == show.FormJSON {
		enc := show.JSONLines(out)
		for i := range r.Jobs {
			if err := enc.Encode(difference{Effect: &r.Jobs[i]}); err != nil {
				return err
			}
		}
		return nil
	}
	more := r.Differences() - uint64(len(r.Jobs))
	r.Next = 0 // there are no pages here
	fmt.Fprintln(out)
	if err := text.WhatIf(out, &query.WhatIfResult{Result: r}); err != nil {
		return err
	}
	if more > 0 {
		fmt.Fprintf(out, "and %d more: --jobs %d shows all\n", more, r.Differences())
	}
	return nil
}
