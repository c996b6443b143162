// Package text prints answers of package query, and what commands found out, for people. It asks nothing and decides nothing:
// every figure is one that it is given.
package text

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// Job prints a job with its runs.
func Job(w io.Writer, j query.Job) error {
	fmt.Fprintf(w, "%s %s\n  queue %s, job set %s, partition %d, %s\n", show.Bold(w, "Job"), query.OneLine(j.JobID), query.OneLine(j.Queue), query.OneLine(j.JobSet), j.Partition, j.State)
	if j.RetryAfter != "" {
		fmt.Fprintf(w, "  not before %s\n", show.Millis(j.RetryAfter))
	}
	if len(j.AvoidNodes) > 0 {
		fmt.Fprintf(w, "  not on %s\n", query.OneLine(strings.Join(j.AvoidNodes, ", ")))
	}
	if v := j.Armada; v != nil {
		fmt.Fprintf(w, "  Armada's own verdict: failed (%s) %s\n", v.Reason, query.OneLine(v.Message))
	}
	t := show.NewTable(w, "  RUN", "ID", "STATE", "NODE", "ERROR", "DECIDED", "MESSAGE")
	for i := range j.Attempts {
		r := &j.Attempts[i]
		decided := ""
		switch {
		case r.Decision != 0 && r.Shadow:
			decided = fmt.Sprintf("decision %d (shadow)", r.Decision)
		case r.Decision != 0 && r.Superseded != 0:
			decided = fmt.Sprintf("decision %d superseded", r.Decision)
		case r.Decision != 0:
			decided = fmt.Sprintf("decision %d", r.Decision)
		case r.Superseded != 0:
			decided = fmt.Sprintf("released; decision %d superseded", r.Superseded)
		case r.Released:
			decided = "released"
		}
		t.Row(fmt.Sprintf("  %d", r.Index), r.RunID, r.State, r.Node, r.Error, decided, r.Message)
	}
	return t.Flush()
}

// Kind names a decision, and says if it had no effect.
func Kind(d *audit.Decision) string { return d.Decision + EffectNote(query.EffectOf(d)) }

// EffectNote says why a decision had no effect; "": it had one.
func EffectNote(e query.Effect) string {
	switch e {
	case query.InShadow:
		return " (shadow)"
	case query.Superseded:
		return " (superseded)"
	case query.Retried, query.FailedForGood:
	}
	return ""
}

// Used is how many retries by its rule a decision used.
func Used(d *audit.Decision) string {
	if d.RuleUsed == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", *d.RuleUsed, *d.RuleLimit)
}

// Superseded explains a record that had no effect.
const Superseded = "superseded: it came too late, so it had no effect"

// Story prints all runs of a job as one story.
func Story(w io.Writer, s *query.Story) error {
	fmt.Fprintf(w, "%s %s  queue %s, job set %s: %s after %s", show.Bold(w, "Job"), query.OneLine(s.Job.JobID), query.OneLine(s.Job.Queue), query.OneLine(s.Job.JobSet), s.Job.State, plural.Of(len(s.Runs), "run"))
	if s.Job.Ended != "" {
		fmt.Fprintf(w, ", at %s", show.Millis(s.Job.Ended))
	}
	fmt.Fprintln(w)
	if outcome := s.Outcome(time.Now()); outcome != "" {
		fmt.Fprintln(w, query.OneLine(outcome))
	}
	fmt.Fprintln(w)
	t := show.NewTable(w, "RUN", "NODE", "LEASED", "ENDED", "HOW", "DECISION", "RULE", "USED/LIMIT", "TOTAL", "DELAY", "NEXT")
	for i := range s.Runs {
		c := &s.Runs[i]
		how := c.State
		if c.Cause != "" {
			how += ": " + c.Cause
		}
		cells := []string{fmt.Sprint(c.Index), c.Node, show.Millis(c.Leased), show.Millis(c.Ended), how, c.Undecided(), "", "", "", "", nextIn(s, i)}
		if d := c.Decided; d != nil {
			cells[5], cells[6], cells[7] = decisionText(d), query.RuleName(d.Policy, d.Rule), Used(d)
			cells[8], cells[9] = fmt.Sprintf("%d/%d", d.GlobalUsed, d.GlobalLimit), d.Delay
		}
		t.Row(cells...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nTOTAL counts all retries of the job. `explain --run N` explains the decision on a run.")
	if s.Pruned {
		fmt.Fprintf(w, "%s the job was pruned from the job database; this was derived from the logs\n", show.Bold(w, "Pruned"))
	}
	if v := s.Job.Armada; v != nil {
		fmt.Fprintf(w, "%s failed: %s %s\n", show.Bold(w, "Armada's own verdict"), v.Reason, query.OneLine(v.Message))
	}
	return nil
}

// decisionText is what was decided, the code, and whether it had an effect.
func decisionText(d *audit.Decision) string {
	return d.Decision + " " + d.Code + EffectNote(query.EffectOf(d))
}

// nextIn says what came after a run.
func nextIn(s *query.Story, i int) string {
	c := &s.Runs[i]
	switch {
	case i+1 < len(s.Runs) && c.Waited != "":
		return fmt.Sprintf("run %d, after %s%s", s.Runs[i+1].Index, show.Rounded(c.Waited), c.NotFollowed())
	case i+1 < len(s.Runs):
		return fmt.Sprintf("run %d", s.Runs[i+1].Index)
	case s.Job.Final:
		return "the job is over"
	case c.Decided != nil && query.EffectOf(c.Decided) == query.Retried && s.Job.Due(time.Now()):
		return "queued, due since " + show.Millis(s.Job.RetryAfter)
	case c.Decided != nil && query.EffectOf(c.Decided) == query.Retried && s.Job.RetryAfter != "":
		return "queued, not before " + show.Millis(s.Job.RetryAfter)
	}
	return s.Job.State
}

// changeText says who last changed a resource, and why.
func changeText(l *query.LastChange) string {
	text := fmt.Sprintf("%s was last changed by %s at %s, in generation %d", query.OneLine(l.Resource), query.OneLine(l.Author), l.Time, l.Generation)
	if l.Reason != "" {
		text += ": " + query.OneLine(l.Reason)
	}
	return text
}
