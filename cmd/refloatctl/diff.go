package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy/diff"
	"github.com/refloat/refloat/internal/policy/policyfile"
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
differ, from what to what, by queue and rule, and for which jobs. Runs are taken as
they happened: a history cannot show what would have followed a different decision.
If there are group policies, the verdicts on units are compared too, and how groups end.

Exit code 1 if there is any difference, like diff.`,
		Example: `  refloatctl diff policies.old policies.new
  refloatctl diff main/policies my/policies --log .refloat-run/logs/events
  refloatctl diff main/policies my/policies --log /tmp/plain -o json | jq -r 'select(.effect).effect.jobId'`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.output != outputTable && f.output != outputJSON:
				return badOutput(f.output)
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
	Change  *changeJSON  `json:"change,omitempty"`
	Effect  *diff.Effect `json:"effect,omitempty"`
	Summary *summaryJSON `json:"summary,omitempty"`
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
	Changes  int  `json:"changes"`
	Failures *int `json:"failures,omitempty"` // with --log
	Effects  *int `json:"effects,omitempty"`  // of failed runs
	Groups   *int `json:"groups,omitempty"`   // that end differently
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
	enc := jsonLines(out)
	for _, c := range changes {
		if f.output == outputJSON {
			line := changeJSON(c)
			err = errors.Join(err, enc.Encode(difference{Change: &line}))
		} else {
			fmt.Fprintln(out, oneLine(c.String()))
		}
	}
	summary := summaryJSON{Changes: len(changes)}
	if f.log != "" && err == nil {
		err = effects(cmd, f, before, after, out, &summary)
	}
	switch {
	case err != nil:
	case f.output == outputJSON:
		err = enc.Encode(difference{Summary: &summary})
	case len(changes) == 0:
		fmt.Fprintln(out, "the policies are equal")
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if len(changes) > 0 || summary.Effects != nil && *summary.Effects+*summary.Groups > 0 {
		return errFinding
	}
	return nil
}

// effects decides the history by both sets.
func effects(cmd *cobra.Command, f diffFlags, before, after *policyfile.Set, out io.Writer, summary *summaryJSON) error {
	log, closeLog, err := app.OpenEvents(f.log)
	if err != nil {
		return err
	}
	defer func() { _ = closeLog() }()
	enc := jsonLines(out)
	failures, count, groups := 0, 0, 0
	var tally diff.Tally
	var shown []diff.Effect
	bar := newProgress()
	defer bar.done()
	for partition := range log.Partitions() {
		bar.say("deciding partition %d of %d", partition, log.Partitions())
		n, err := diff.Effects(cmd.Context(), log, partition, cmp.Or(f.semantics, evaluator.SemanticsVersion), before, after, func(e diff.Effect) error {
			if e.Group != "" {
				groups++
			} else {
				count++
			}
			tally.Add(&e)
			if f.output == outputJSON {
				return enc.Encode(difference{Effect: &e})
			}
			if len(shown) < f.jobs {
				shown = append(shown, e)
			}
			return nil
		})
		if err != nil {
			return err
		}
		failures += n
	}
	bar.done()
	summary.Failures, summary.Effects, summary.Groups = &failures, &count, &groups
	if f.output == outputJSON {
		return nil
	}
	fmt.Fprintf(out, "\n%d of %d failed runs are decided differently", count, failures)
	if groups > 0 {
		fmt.Fprintf(out, ", and %s", plural.Of(groups, "group ends differently", "groups end differently"))
	}
	if count+groups == 0 {
		fmt.Fprintln(out)
		return nil
	}
	fmt.Fprintf(out, ": %s\n\n", outcomes(tally.Groups()))
	t := newTable(out, "COUNT", "QUEUE", "OLD", "NEW")
	for _, g := range tally.Groups() {
		t.row(fmt.Sprint(g.Count), g.Queue, g.From, g.To)
	}
	if err := t.flush(); err != nil || len(shown) == 0 {
		return err
	}
	fmt.Fprintln(out)
	t = newTable(out, "JOB", "RUN", "QUEUE", "OLD", "NEW")
	for _, e := range shown {
		if e.Group != "" {
			e.JobID = "group " + e.Group
		}
		t.row(e.JobID, e.RunID, e.Queue, verdictText(&e.Old), verdictText(&e.New))
	}
	err = t.flush()
	if total := count + groups; total > len(shown) {
		fmt.Fprintf(out, "and %d more: --jobs %d shows all\n", total-len(shown), total)
	}
	return err
}

func verdictText(v *diff.Verdict) string {
	return strings.Join(slices.DeleteFunc([]string{v.Outcome, v.Code, v.Rule, v.GroupAction, v.GroupRule, v.Delay}, func(s string) bool { return s == "" }), " ")
}

// outcomes sums up the groups by kind of change.
func outcomes(groups []diff.Group) string {
	var order []string
	counts := map[string]int{}
	for _, g := range groups {
		from, _, _ := strings.Cut(g.From, " ")
		to, _, _ := strings.Cut(g.To, " ")
		kind := from + " → " + to
		if counts[kind] == 0 {
			order = append(order, kind)
		}
		counts[kind] += g.Count
	}
	for i, kind := range order {
		order[i] = fmt.Sprintf("%d %s", counts[kind], kind)
	}
	return strings.Join(order, ", ")
}
