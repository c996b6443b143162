package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// maxKinds is the number of kinds of changes that are printed.
const maxKinds = 30

// WhatIf prints what a candidate decides differently.
func WhatIf(w io.Writer, r *query.WhatIfResult) error {
	against := r.Against
	switch against {
	case query.AgainstDecided:
		against = "what was decided"
	case query.AgainstNow:
		against = "the policies in force"
	}
	fmt.Fprintf(w, "%s, against %s: %d of %d failed runs are decided differently\n", query.OneLine(r.Candidate), query.OneLine(against), r.Changed, r.Compared)
	if r.Units > 0 {
		fmt.Fprintf(w, "  and %d of %s that ended by themselves\n", r.UnitsChanged, plural.Of(r.Units, "unit"))
	}
	for _, f := range r.Fields {
		fmt.Fprintf(w, "  %s\n", query.OneLine(f.String()))
	}
	rules := r.ChangedRules()
	for _, u := range rules[:min(len(rules), maxKinds)] {
		fmt.Fprintf(w, "  %s\n", query.OneLine(query.RuleUseText(u)))
	}
	if more := len(rules) - maxKinds; more > 0 {
		fmt.Fprintf(w, "  and %s more: -o json lists them\n", plural.Of(more, "rule"))
	}
	if r.Differences() == 0 {
		return nil
	}
	for _, text := range r.Effects() {
		fmt.Fprintf(w, "  %s\n", text)
	}
	fmt.Fprintln(w)
	t := show.NewTable(w, "COUNT", "QUEUE", "CAUSE", "DECIDED", "CANDIDATE")
	for _, row := range r.Rows[:min(len(r.Rows), maxKinds)] {
		t.Row(fmt.Sprint(row.Count), row.Queue, row.Cause, row.Decided, row.Candidate)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more := len(r.Rows) - maxKinds; more > 0 {
		fmt.Fprintf(w, "and %s more: -o json lists them\n", plural.Of(more, "kind"))
	}
	if r.RowsMore > 0 {
		fmt.Fprintf(w, "and %s of other kinds\n", plural.Of(r.RowsMore, "more change"))
	}
	if len(r.Jobs) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t = show.NewTable(w, "JOB", "RUN", "QUEUE", "CAUSE", "DECIDED", "CANDIDATE")
	for i := range r.Jobs {
		c := &r.Jobs[i]
		t.Row(c.JobID, c.RunID, c.Queue, c.Cause, c.Decided.String(), c.Candidate.String())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Next > 0 {
		fmt.Fprintf(w, "and more: --skip %d lists the next ones, --jobs %d all\n", r.Next, r.Differences())
	}
	return nil
}

// maxChanges is how many changes are shown to people.
const maxChanges = 12

// WhyNot prints the smallest changes that would have given another outcome.
func WhyNot(w io.Writer, e *query.Explanation, found *query.WhyNot) (err error) {
	d, changes := &e.Decision, found.Changes
	fmt.Fprintf(w, "%s %s, run %d: %s %s, not %s: %s\n", show.Bold(w, "Job"), query.OneLine(d.JobID), d.RunIndex, found.Outcome, d.Code, found.Asked, query.OneLine(d.Reason))
	Failure(w, e)
	if len(changes) == 0 {
		fmt.Fprintf(w, "\nNo change of one or two things was found that gives %s.\n", found.Asked)
	} else {
		fmt.Fprintf(w, "\nIt would have been %s with any one of these, the smallest first; each was evaluated\n", found.Asked)
		t := show.NewTable(w, "  CHANGE OF", "GIVES", "CHANGE")
		for i := range changes[:min(len(changes), maxChanges)] {
			c := &changes[i]
			t.Row("  "+kindsOf(c), strings.TrimSpace(c.Code+" "+query.RuleName(c.Policy, c.Rule)), c.String())
		}
		err = t.Flush()
		if more := len(changes) - maxChanges; more > 0 {
			fmt.Fprintf(w, "  and %s more: -o json lists them\n", plural.Of(more, "change"))
		}
		fmt.Fprintln(w, "Changes of policies are in the form of `refloatctl whatif --set`, which shows what else they change.")
	}
	if found.Partial {
		fmt.Fprintln(w, "The policies are so large that not all rules were tried.")
	}
	if d.Replica != nil {
		fmt.Fprintln(w, "The job is a member of a group: what the group would have done about it was not evaluated.")
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
