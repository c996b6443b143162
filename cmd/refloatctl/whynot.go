package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// maxChanges is how many changes are shown to people.
const maxChanges = 12

// whyNot shows the smallest changes that would have given another outcome.
func whyNot(cmd *cobra.Command, e *query.Explanation, f explainFlags) error {
	d := &e.Decision
	found, err := f.answers(nil).WhyNot(cmd.Context(), d.JobID, int(d.RunIndex), f.whyNot)
	if none, ok := errors.AsType[*query.NoAnswer](err); ok {
		fmt.Fprintln(cmd.ErrOrStderr(), none)
		return errFinding
	}
	if err != nil {
		return fmt.Errorf("--why-not: %w", err)
	}
	changes := found.Changes
	out := bufio.NewWriter(cmd.OutOrStdout())
	if f.output == outputJSON {
		err = jsonLines(out).Encode(found)
	} else {
		fmt.Fprintf(out, "%s %s, run %d: %s %s, not %s: %s\n", bold(out, "Job"), oneLine(d.JobID), d.RunIndex, found.Outcome, d.Code, found.Asked, oneLine(d.Reason))
		printFailure(out, e)
		if len(changes) == 0 {
			fmt.Fprintf(out, "\nNo change of one or two things was found that gives %s.\n", found.Asked)
		} else {
			fmt.Fprintf(out, "\nIt would have been %s with any one of these, the smallest first; each was evaluated\n", found.Asked)
			t := newTable(out, "  CHANGE OF", "GIVES", "CHANGE")
			for i := range changes[:min(len(changes), maxChanges)] {
				c := &changes[i]
				t.row("  "+kindsOf(c), strings.TrimSpace(c.Code+" "+query.RuleName(c.Policy, c.Rule)), c.String())
			}
			err = t.flush()
			if more := len(changes) - maxChanges; more > 0 {
				fmt.Fprintf(out, "  and %s more: -o json lists them\n", plural.Of(more, "change"))
			}
			fmt.Fprintln(out, "Changes of policies are in the form of `refloatctl whatif --set`, which shows what else they change.")
		}
		if found.Partial {
			fmt.Fprintln(out, "The policies are so large that not all rules were tried.")
		}
		if d.Replica != nil {
			fmt.Fprintln(out, "The job is a member of a group: what the group would have done about it was not evaluated.")
		}
	}
	if err = errors.Join(err, out.Flush()); err == nil && len(changes) == 0 {
		return errFinding
	}
	return err
}

func kindsOf(c *query.Flipped) string {
	var kinds []string
	for i, e := range c.Edits {
		if i == 0 || e.Kind != c.Edits[0].Kind {
			kinds = append(kinds, e.Kind)
		}
	}
	return strings.Join(kinds, ", ")
}
