package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/authoring/diff"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

type diffFlags struct {
	client
	log, output, from, to string
	jobs                  int
	semantics             uint32
}

func newDiff() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff (OLD NEW [--log DIR] | --from GENERATION|TIME [--to GENERATION|TIME] (--data DIR | --server HOST:PORT))",
		Short: "Compare policies by their fields and by their decisions; or what is in force with what was",
		Long: `Compare two policy files or directories of them: which rules were added, removed,
changed or moved, by field. Comments and layout make no difference.

With --log, also decide the recorded history by both, and show how many decisions
differ, from what to what, by queue, cause and rule, and for which jobs. This is what
whatif --log DIR --against OLD --policies NEW shows, with the same assumptions: once one
side retries a job and the other does not, its later runs are not compared.

With --from, compare two generations of the policies of a deployment, by default with the
one in force now: what changed, who changed it, when and why, also of overrides, and how
many failed runs of what changed were retried in the 24 hours before, and in those after.
--from 24h is the generation that was in force a day ago, --from 0 what was before the first.

Exit code 1 if there is any difference, like diff.`,
		Example: `  refloatctl diff policies.old policies.new
  refloatctl diff main/policies my/policies --log .refloat-run/logs/events
  refloatctl diff main/policies my/policies --log /tmp/plain -o json | jq -r 'select(.effect).effect.jobId'
  refloatctl diff --from 24h --data .refloat-run
  refloatctl diff --from 3 --to 2026-12-01T06:00:00Z --data .refloat-run`,
		Args: cobra.MatchAll(cobra.MaximumNArgs(2), func(_ *cobra.Command, args []string) error {
			switch {
			case f.from == "" && f.to != "":
				return errors.New("--to needs --from: which generation is the older one?")
			case f.from == "" && len(args) != 2:
				return errors.New("diff needs OLD and NEW, or --from GENERATION or TIME")
			case f.from != "" && (len(args) > 0 || f.log != ""):
				return errors.New("--from compares generations of the policies log: omit OLD, NEW and --log; whatif --policies generation:N decides a history by one")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case app.CheckSemantics(f.semantics) != nil:
				return usageError{fmt.Errorf("--semantics: %w", app.CheckSemantics(f.semantics))}
			case f.jobs < 0:
				return usageError{fmt.Errorf("--jobs %d: use 0 or more", f.jobs)}
			case f.from != "":
				return diffGenerations(cmd, f)
			}
			return diffPolicies(cmd, f, args[0], args[1])
		},
	}
	f.bind(cmd)
	cmd.Flags().StringVar(&f.from, "from", "", "compare this generation of the policies log: its number, or the one in force at a time, or a duration ago, such as 24h")
	cmd.Flags().StringVar(&f.to, "to", "", "with this one (default: the one in force now)")
	cmd.Flags().StringVar(&f.log, "log", "", "directory of an events log, as import writes it")
	cmd.Flags().IntVar(&f.jobs, "jobs", 20, "maximum number of failed runs to show (-o json has all)")
	cmd.Flags().Uint32Var(&f.semantics, "semantics", 0, "version of the decision semantics (default: the newest)")
	addOutput(cmd, &f.output)
	return cmd
}

// difference is one line of `diff -o json`: exactly one field is set.
type difference struct {
	Change     *diff.Change       `json:"change,omitempty"`
	Effect     *whatif.Change     `json:"effect,omitempty"`
	Generation *generationOut     `json:"generation,omitempty"`
	Decisions  *query.DecisionsOf `json:"decisions,omitempty"`
	Summary    *summaryJSON       `json:"summary,omitempty"`
}

type summaryJSON struct {
	Changes  int     `json:"changes"`
	Failures *uint64 `json:"failures,omitempty"` // that were compared, with --log
	Effects  *uint64 `json:"effects,omitempty"`  // of them

	UnitsCompared uint64 `json:"unitsCompared,omitempty"` // that ended by themselves, with --log
	UnitsChanged  uint64 `json:"unitsChanged,omitempty"`

	From *uint64 `json:"from,omitempty"` // generations, with --from
	To   *uint64 `json:"to,omitempty"`

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
	err = showChanges(out, f.output, changes)
	summary := summaryJSON{Changes: len(changes)}
	if f.log != "" && err == nil {
		err = effects(cmd, f, whatif.Candidate{Name: oldPath, Set: before}, whatif.Candidate{Name: newPath, Set: after}, out, &summary)
	}
	switch {
	case err != nil:
	case f.output == show.FormJSON:
		err = show.JSONLines(out).Encode(difference{Summary: &summary})
	case len(changes) == 0:
		fmt.Fprintln(out, equalPolicies)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if len(changes) > 0 || summary.differences > 0 {
		return errFinding
	}
	return nil
}

const equalPolicies = "the policies are equal"

func showChanges(w io.Writer, output string, changes []diff.Change) (err error) {
	enc := show.JSONLines(w)
	for _, c := range changes {
		if output == show.FormJSON {
			err = errors.Join(err, enc.Encode(difference{Change: &c}))
		} else {
			fmt.Fprintln(w, query.OneLine(c.String()))
		}
	}
	return err
}

// diffGenerations compares generations of the policies log.
func diffGenerations(cmd *cobra.Command, f diffFlags) error {
	var c *query.PolicyChanges
	var decisions []query.DecisionsOf
	err := f.reading(cmd.Context(), func(ctx context.Context, p pb.PoliciesClient) error {
		history, named, err := generations(ctx, p, map[string]string{"--from": f.from, "--to": f.to})
		if err != nil {
			return err
		}
		c, err = query.ChangesBetween(ctx, policyReader{p}, history, named["--from"], named["--to"])
		if bad, ok := errors.AsType[*query.Invalid](err); ok {
			return usageError{bad}
		}
		if err != nil {
			return err
		}
		if decisions, err = c.Count(ctx, f.jobAnswers().BeforeAfter); err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "What became of decisions is not known:", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if f.output == show.FormJSON {
		err = showGenerationsJSON(out, c, decisions)
	} else {
		err = showGenerations(out, c, decisions)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if len(c.Fields) > 0 || slices.ContainsFunc(c.Made, func(g *pb.Generation) bool { return g.BrakesChanged }) {
		return errFinding
	}
	return nil
}

func showGenerationsJSON(w io.Writer, c *query.PolicyChanges, decisions []query.DecisionsOf) error {
	enc := show.JSONLines(w)
	err := showChanges(w, show.FormJSON, c.Fields)
	for _, g := range c.Made {
		line := generationJSON(g)
		err = errors.Join(err, enc.Encode(difference{Generation: &line}))
	}
	for i := range decisions {
		err = errors.Join(err, enc.Encode(difference{Decisions: &decisions[i]}))
	}
	return errors.Join(err, enc.Encode(difference{Summary: &summaryJSON{Changes: len(c.Fields), From: &c.From, To: &c.To}}))
}

func showGenerations(w io.Writer, c *query.PolicyChanges, decisions []query.DecisionsOf) error {
	fmt.Fprintf(w, "generation %d against generation %d\n", c.To, c.From)
	switch {
	case c.Single:
		fmt.Fprintln(w, "there is only one generation: --from 0 compares it with what was before it")
	case len(c.Fields) == 0:
		fmt.Fprintln(w, equalPolicies)
	}
	err := showChanges(w, show.FormTable, c.Fields)
	if len(c.Made) == 0 {
		return err
	}
	fmt.Fprintln(w)
	err = errors.Join(err, showHistory(w, show.FormTable, c.Made, false))
	if len(decisions) == 0 {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", c.Counted(decisions, time.Now()))
	seen := query.Seen(decisions)
	if len(seen) == 0 {
		return err
	}
	var heads []string
	for _, h := range query.DecisionHeads() {
		heads = append(heads, strings.ToUpper(h))
	}
	t := show.NewTable(w, heads...)
	for i := range seen {
		t.Row(seen[i].Cells()...)
	}
	return errors.Join(err, t.Flush())
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
