package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// tellStory shows all runs of a job as one story.
func tellStory(cmd *cobra.Command, f *explainFlags) error {
	bar := newProgress()
	defer bar.done()
	stories, err := f.answers(bar).Stories(cmd.Context(), f.job)
	bar.done()
	if err != nil {
		return f.asked(cmd, err)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	for i, s := range stories {
		if f.output == outputJSON {
			err = jsonLines(out).Encode(s)
		} else {
			if i > 0 {
				fmt.Fprintln(out)
			}
			err = printStory(out, s)
		}
		if err = errors.Join(err, out.Flush()); err != nil {
			return err
		}
		if f.output != outputJSON {
			printChanges(cmd.OutOrStdout(), s.ByGroup)
		}
	}
	return nil
}

func printStory(w io.Writer, s *query.Story) error {
	fmt.Fprintf(w, "%s %s  queue %s, job set %s: %s after %s", bold(w, "Job"), oneLine(s.Job.JobID), oneLine(s.Job.Queue), oneLine(s.Job.JobSet), s.Job.State, plural.Of(len(s.Runs), "run"))
	if s.Job.Ended != "" {
		fmt.Fprintf(w, ", at %s", toMillis(s.Job.Ended))
	}
	fmt.Fprintln(w)
	if outcome := s.Outcome(time.Now()); outcome != "" {
		fmt.Fprintln(w, oneLine(outcome))
	}
	fmt.Fprintln(w)
	t := newTable(w, "RUN", "NODE", "LEASED", "ENDED", "HOW", "DECISION", "RULE", "USED/LIMIT", "TOTAL", "DELAY", "NEXT")
	for i := range s.Runs {
		c := &s.Runs[i]
		how := c.State
		if c.Cause != "" {
			how += ": " + c.Cause
		}
		cells := []string{fmt.Sprint(c.Index), c.Node, toMillis(c.Leased), toMillis(c.Ended), how, c.Undecided(), "", "", "", "", nextIn(s, i)}
		if d := c.Decided; d != nil {
			cells[5], cells[6], cells[7] = decisionText(d), query.RuleName(d.Policy, d.Rule), usedText(d)
			cells[8], cells[9] = fmt.Sprintf("%d/%d", d.GlobalUsed, d.GlobalLimit), d.Delay
		}
		t.row(cells...)
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nTOTAL counts all retries of the job. `explain --run N` explains the decision on a run.")
	if s.Pruned {
		fmt.Fprintf(w, "%s the job was pruned from the job database; this was derived from the logs\n", bold(w, "Pruned"))
	}
	if v := s.Job.Armada; v != nil {
		fmt.Fprintf(w, "%s failed: %s %s\n", bold(w, "Armada's own verdict"), v.Reason, oneLine(v.Message))
	}
	return nil
}

// decisionText is what was decided, the code, and whether it had an effect.
func decisionText(d *audit.Decision) string {
	return d.Decision + " " + d.Code + effectNote(query.EffectOf(d))
}

// rounded is a duration for people: to a second from a minute on, to a millisecond below.
func rounded(text string) string {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return oneLine(text)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// nextIn says what came after a run.
func nextIn(s *query.Story, i int) string {
	c := &s.Runs[i]
	switch {
	case i+1 < len(s.Runs) && c.Waited != "":
		return fmt.Sprintf("run %d, after %s%s", s.Runs[i+1].Index, rounded(c.Waited), c.NotFollowed())
	case i+1 < len(s.Runs):
		return fmt.Sprintf("run %d", s.Runs[i+1].Index)
	case s.Job.Final:
		return "the job is over"
	case c.Decided != nil && query.EffectOf(c.Decided) == query.Retried && s.Job.Due(time.Now()):
		return "queued, due since " + toMillis(s.Job.RetryAfter)
	case c.Decided != nil && query.EffectOf(c.Decided) == query.Retried && s.Job.RetryAfter != "":
		return "queued, not before " + toMillis(s.Job.RetryAfter)
	}
	return s.Job.State
}

// changeText says who last changed a resource, and why.
func changeText(l *query.LastChange) string {
	text := fmt.Sprintf("%s was last changed by %s at %s, in generation %d", oneLine(l.Resource), oneLine(l.Author), l.Time, l.Generation)
	if l.Reason != "" {
		text += ": " + oneLine(l.Reason)
	}
	return text
}
