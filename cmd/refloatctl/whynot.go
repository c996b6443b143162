package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whynot"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
)

// whyNotJSON is the JSON form of --why-not. Fields keep their meaning; new ones may be added.
type whyNotJSON struct {
	JobID   string        `json:"jobId"`
	RunID   string        `json:"runId"`
	Outcome string        `json:"outcome"` // that the run had
	Asked   string        `json:"asked"`
	Partial bool          `json:"partial,omitempty"` // not all rules of very large policies were tried
	Changes []flippedJSON `json:"changes"`           // the smallest first
}

// flippedJSON is one change and the verdict after it.
type flippedJSON struct {
	Edits  []editJSON `json:"edits"`
	Code   string     `json:"code"`
	Policy string     `json:"policy,omitempty"`
	Rule   string     `json:"rule,omitempty"`
}

type editJSON struct {
	Kind string `json:"kind"`
	Text string `json:"text"` // of kind policies: what whatif --set takes
	Now  string `json:"now,omitempty"`
}

// maxChanges is how many changes are shown to people.
const maxChanges = 12

// input gathers what a decision followed from.
func (e *explanation) input(at *policiesAt) *whynot.Input {
	in := &whynot.Input{Base: at.Base, Failure: e.Facts, Counts: e.Before}
	for _, o := range at.ActiveOverrides() {
		in.Overrides = append(in.Overrides, o.Override)
	}
	return in
}

// byGroup reports whether a group made the decision, or has the last word on it.
func byGroup(code policy.Code) bool {
	switch code {
	case policy.GroupRestart, policy.GroupOver, policy.UnitLimit, policy.GangRetry:
		return true
	default:
		return false
	}
}

// whyNot shows the smallest changes that would have given another outcome.
func (e *explanation) whyNot(cmd *cobra.Command, at *policiesAt, f explainFlags) error {
	d := e.Decision
	switch {
	case e.diverged != nil:
		return fmt.Errorf("--why-not: %w", e.diverged)
	case byGroup(d.Code) || d.Code == policy.GangFail && d.Member != nil:
		fmt.Fprintf(cmd.ErrOrStderr(), "run %d of job %s was decided by its group (%s): no change of the job's own policies is evaluated; `refloatctl explain group %s` tells its history\n", d.RunIndex, d.JobID, d.Code, d.Member.Group)
		return errFinding
	}
	asked := whynot.Outcome(f.whyNot)
	changes, partial, err := whynot.Find(e.input(at), asked)
	if errors.Is(err, whynot.ErrSame) {
		fmt.Fprintf(cmd.ErrOrStderr(), "the outcome of run %d of job %s is %s: %s\n", d.RunIndex, d.JobID, asked, audit.Reason(d))
		return errFinding
	}
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	was := whynot.OutcomeOf(&e.Verdict)
	if f.output == outputJSON {
		err = jsonLines(out).Encode(whyNotOf(e, was, asked, changes, partial))
	} else {
		fmt.Fprintf(out, "%s %s, run %d: %s %s, not %s: %s\n", bold(out, "Job"), oneLine(d.JobID), d.RunIndex, was, d.Code, asked, oneLine(audit.Reason(d)))
		printFailure(out, e.Run, &e.Facts)
		if len(changes) == 0 {
			fmt.Fprintf(out, "\nNo change of one or two things was found that gives %s.\n", asked)
		} else {
			fmt.Fprintf(out, "\nIt would have been %s with any one of these, the smallest first; each was evaluated\n", asked)
			t := newTable(out, "  CHANGE OF", "GIVES", "CHANGE")
			for i := range changes[:min(len(changes), maxChanges)] {
				c := &changes[i]
				t.row("  "+kindsOf(c), strings.TrimSpace(c.Verdict.Code.String()+" "+ruleName(c.Verdict.Policy, c.Verdict.Rule)), c.String())
			}
			err = t.flush()
			if more := len(changes) - maxChanges; more > 0 {
				fmt.Fprintf(out, "  and %s more: -o json lists them\n", plural.Of(more, "change"))
			}
			fmt.Fprintln(out, "Changes of policies are in the form of `refloatctl whatif --set`, which shows what else they change.")
		}
		if partial {
			fmt.Fprintln(out, "The policies are so large that not all rules were tried.")
		}
		if d.Member != nil {
			fmt.Fprintln(out, "The job is a member of a group: what the group would have done about it was not evaluated.")
		}
	}
	if err = errors.Join(err, out.Flush()); err == nil && len(changes) == 0 {
		return errFinding
	}
	return err
}

func kindsOf(c *whynot.Change) string {
	var kinds []string
	for i, e := range c.Edits {
		if i == 0 || e.Kind != c.Edits[0].Kind {
			kinds = append(kinds, string(e.Kind))
		}
	}
	return strings.Join(kinds, ", ")
}

func whyNotOf(e *explanation, was, asked whynot.Outcome, changes []whynot.Change, partial bool) whyNotJSON {
	out := whyNotJSON{JobID: e.Decision.JobID, RunID: e.Decision.RunID, Outcome: string(was), Asked: string(asked), Partial: partial, Changes: []flippedJSON{}}
	for i := range changes {
		v := &changes[i].Verdict
		c := flippedJSON{Code: v.Code.String(), Policy: v.Policy, Rule: v.Rule}
		for _, edit := range changes[i].Edits {
			c.Edits = append(c.Edits, editJSON{string(edit.Kind), edit.Text, edit.Now})
		}
		out.Changes = append(out.Changes, c)
	}
	return out
}
