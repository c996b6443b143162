package text

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

// Explanation explains a decision.
func Explanation(w io.Writer, e *query.Explanation, p Place) {
	Case(w, e)
	for _, o := range e.Overrides {
		fmt.Fprintln(w, o)
	}
	if e.Differs != "" {
		fmt.Fprintf(w, "\nNote: %s. The job probably ended, was forgotten after the horizon, and was submitted again. The recorded decision above is authoritative.\n", e.Differs)
	}
	ByGroup(w, &e.Job, e.ByGroup, p)
}

// runOf is the run that an explanation is about.
func runOf(e *query.Explanation) query.Attempt {
	if len(e.Job.Attempts) == 0 {
		return query.Attempt{}
	}
	return e.Job.Attempts[0]
}

// Case prints a failed run, the decision on it, and what it follows from.
func Case(w io.Writer, e *query.Explanation) {
	d := &e.Decision
	fmt.Fprintf(w, "%s %s  queue %s, job set %s\n", show.Bold(w, "Job"), query.OneLine(d.JobID), query.OneLine(d.Queue), query.OneLine(d.JobSet))
	fmt.Fprintf(w, "%s %d (%s) failed at %s%s\n", show.Bold(w, "Run"), d.RunIndex, query.OneLine(d.RunID), d.EventTime, OnNode(runOf(e).Node))
	Failure(w, e)
	fmt.Fprintf(w, "\n%s %s, %s\n  %s\n", show.Bold(w, "Decision"), Kind(d), d.Code, query.OneLine(d.Reason))
	superseded(w, e)
	if d.RetryAfter != "" {
		next := "next run:"
		if e.NotActedOn {
			next = "the next run would have been:"
		}
		fmt.Fprintf(w, "  %s pod %s, not before %s\n", next, query.OneLine(e.NextPod), d.RetryAfter)
	}
	if e.Unknown {
		fmt.Fprintf(w, "\n%s are in the policies log: give --pulsar URL or --data DIR to see which rule matched, and why the others did not\n", show.Bold(w, "Rules"))
	} else if policiesAsked(d) {
		Ladder(w, e.Ladder)
	}
	member(w, e)
	Counts(w, d, e.Before)
	Delay(w, e)
	generation := d.Generation
	if d.PolicyGeneration != nil {
		generation = *d.PolicyGeneration
	}
	fmt.Fprintf(w, "\n%s decision %d of partition %d, policy generation %d (set %s), event at %v\n",
		show.Bold(w, "Where"), d.Number, d.Partition, generation, cutTo(d.PolicySet, 12), position(d.Position))
	if waiting := e.Job.Waiting(time.Now()); waiting != "" && e.Job.RetryAfter == d.RetryAfter && !e.NotActedOn {
		fmt.Fprintf(w, "%s the job is %s: %s\n", show.Bold(w, "Now"), e.Job.State, waiting)
	}
	for i := range e.Changes {
		fmt.Fprintf(w, "%s %s%s\n", show.Bold(w, "Policies"), changeText(&e.Changes[i]), afterFailure(&e.Changes[i], d))
	}
	if e.Pruned {
		fmt.Fprintf(w, "%s the job was pruned from the job database; this was derived from the logs\n", show.Bold(w, "Pruned"))
	}
	if v := e.Job.Armada; v != nil {
		fmt.Fprintf(w, "%s failed: %s %s\n", show.Bold(w, "Armada's own verdict"), v.Reason, query.OneLine(v.Message))
	}
}

// afterFailure explains a change of the policies that is later than the failure that they decided, as in a history that was fed.
func afterFailure(l *query.LastChange, d *audit.Decision) string {
	changed, err := time.Parse(time.RFC3339Nano, l.Time)
	failed, err2 := time.Parse(time.RFC3339Nano, d.EventTime)
	if err != nil || err2 != nil || !changed.After(failed) {
		return ""
	}
	return " (after this failure, which was decided even later)"
}

func cutTo(s string, n int) string { return s[:min(len(s), n)] }

// policiesAsked reports whether the policies of the job were asked for a decision, as audit.Asked does for the record.
func policiesAsked(d *audit.Decision) bool {
	return d.Code != policy.GroupOver.String() && (d.Code != policy.GroupRestart.String() || d.GroupRule != nil)
}

// superseded explains why a decision had no effect.
func superseded(w io.Writer, e *query.Explanation) {
	if !e.Decision.Superseded {
		return
	}
	fmt.Fprintf(w, "  superseded: the decision came too late and had no effect; the run stays as Armada left it\n")
	if r := e.Release; r != nil && r.Messages == 0 {
		fmt.Fprintf(w, "  Armada's own ingester had applied the events up to %s before the cut-over\n", r.To)
	} else if r != nil {
		fmt.Fprintf(w, "  at %s, %s after %s up to %s had been released, because no decision came in time\n", r.Made, plural.Of(r.Messages, "message"), r.From, r.To)
	}
}

// OnNode names the node of a run, to be put behind it.
func OnNode(node string) string {
	if node == "" {
		return ""
	}
	return " on node " + query.OneLine(node)
}

// Failure prints the facts of a failure.
func Failure(w io.Writer, e *query.Explanation) {
	facts := e.Failure
	if len(facts) == 0 {
		facts = []string{"no facts that a rule could match"}
	}
	for _, f := range facts {
		fmt.Fprintf(w, "  %s\n", query.OneLine(f))
	}
	if r := runOf(e); r.Error != "" || r.Message != "" {
		fmt.Fprintf(w, "  %s: %s\n", query.OneLine(r.Error), query.OneLine(r.Message))
	}
}

// Ladder prints the rules that were tried.
func Ladder(w io.Writer, traces []query.RuleTrace) {
	if len(traces) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", show.Bold(w, "Rules, in order"))
	t := show.NewTable(w, "  ", "POLICY", "RULE", "WHY")
	for _, r := range traces {
		mark, why := "  ✗", r.Why
		switch {
		case r.Matched:
			mark, why = "  ✓", "matches: first match wins"
		case !r.Tried:
			mark, why = "  ·", "not tried"
		}
		t.Row(mark, r.Policy, r.Rule, why)
	}
	_ = t.Flush()
}

// Counts prints what the retries of the rule and of the job were counted as.
func Counts(w io.Writer, d *audit.Decision, before uint32) {
	fmt.Fprintf(w, "\n%s\n", show.Bold(w, "Counts"))
	for _, r := range query.RetryCounts(d, before) {
		fmt.Fprintf(w, "  %-5s %s\n", r.Of+":", r)
	}
}

// Delay prints how long a retry waits, and why.
func Delay(w io.Writer, e *query.Explanation) {
	if e.Decision.RetryAfter == "" { // no retry
		return
	}
	fmt.Fprintf(w, "\n%s %s%s\n", show.Bold(w, "Delay"), e.Decision.Delay, e.DelayText())
}

// member shows what a decision did to the unit and the group of a member.
func member(w io.Writer, e *query.Explanation) {
	if d := &e.Decision; d.Replica != nil {
		fmt.Fprintf(w, "\n%s %s, part %s, replica %d, index %d; generation %d of the unit\n  %s\n", show.Bold(w, "Group"), query.OneLine(d.Group), query.OneLine(d.Part), *d.Replica, *d.Index, d.Generation, query.OneLine(e.GroupEffect))
	}
}

// maxKinds is the number of kinds of changes that are printed.
const maxKinds = 30

// WhatIf prints what a candidate decides differently.
func WhatIf(w io.Writer, r *query.WhatIfResult) error {
	fmt.Fprintf(w, "%s, against %s: %d of %d failed runs are decided differently\n", query.OneLine(r.Candidate), query.OneLine(query.SideName(r.Against)), r.Changed, r.Compared)
	if r.Units > 0 {
		fmt.Fprintf(w, "  and %d of %s that ended by themselves\n", r.UnitsChanged, plural.Of(r.Units, "unit"))
	}
	for _, f := range r.Fields {
		fmt.Fprintf(w, "  %s\n", query.OneLine(f.String()))
	}
	rules := r.ChangedRules()
	for _, u := range rules[:min(len(rules), maxKinds)] {
		fmt.Fprintf(w, "  %s\n", query.OneLine(r.RuleUseText(u)))
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
	against, candidate := r.Heads()
	if r.Against == query.AgainstDecided {
		against, candidate = "DECIDED", "CANDIDATE"
	}
	t := show.NewTable(w, "COUNT", "QUEUE", "CAUSE", against, candidate)
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
	t = show.NewTable(w, "JOB", "RUN", "QUEUE", "CAUSE", against, candidate)
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

// Compare prints the sides of what-ifs in one table: the candidates, what they are compared with, and what happened.
func Compare(w io.Writer, results []query.WhatIfResult) error {
	c := query.Compare(results)
	for _, letter := range c.Legend {
		fmt.Fprintln(w, query.OneLine(letter))
	}
	t := show.NewTable(w, append([]string{"FIGURE"}, c.Heads...)...)
	for _, r := range c.Rows {
		t.Row(append([]string{r.Name}, r.Values...)...)
	}
	err := t.Flush()
	for _, note := range c.Notes {
		fmt.Fprintf(w, "  %s\n", query.OneLine(note))
	}
	return err
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
			t.Row("  "+kindsOf(c), c.Gives(), c.String())
		}
		err = t.Flush()
		if more := len(changes) - maxChanges; more > 0 {
			fmt.Fprintf(w, "  and %s more: -o json lists them\n", plural.Of(more, "change"))
		}
	}
	for _, note := range found.Notes() {
		fmt.Fprintln(w, query.OneLine(note))
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
