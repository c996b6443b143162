package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// story is the JSON form of all runs of a job, in order. Fields keep their meaning; new ones may be added.
type story struct {
	Job    job          `json:"job"`
	Pruned bool         `json:"pruned,omitempty"` // the job was pruned from the job database; this was derived from the logs
	Runs   []storyOfRun `json:"runs"`
}

// storyOfRun is one run, the decision on it, and what followed.
type storyOfRun struct {
	attempt
	Cause      string          `json:"cause,omitempty"`      // of the failure, in a few words
	Decided    *audit.Decision `json:"decided,omitempty"`    // absent: no decision on the run
	NotDecided string          `json:"notDecided,omitempty"` // why there is none
	Waited     string          `json:"waited,omitempty"`     // from the failure to the next run's lease
	NextRunID  string          `json:"nextRunId,omitempty"`

	waited time.Duration
}

// tellStory shows all runs of a job as one story.
func tellStory(cmd *cobra.Command, f *explainFlags) error {
	found, err := findHistories(cmd, *f)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	for i := range found {
		s, err := found[i].story()
		if err != nil {
			return err
		}
		if f.output == outputJSON {
			err = jsonLines(out).Encode(s)
		} else {
			if i > 0 {
				fmt.Fprintln(out)
			}
			err = s.print(out, found[i].job)
		}
		if err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if f.output != outputJSON && !found[i].fromLogs {
			if err := printChanges(cmd, cmd.OutOrStdout(), &f.deployment, found[i].job); err != nil {
				return err
			}
		}
	}
	return nil
}

// story puts the runs of a job, the decisions on them and what followed in the order of the runs.
func (h *jobHistory) story() (*story, error) {
	s := &story{Job: jobJSON(h.job, nil), Pruned: h.fromLogs, Runs: []storyOfRun{}}
	on := map[string]*jobdb.Decision{}
	for _, d := range h.decisions {
		on[d.RunID] = d
	}
	why := map[string]string{}
	for _, n := range h.notDecided {
		why[n.RunID] = n.Reason.String()
	}
	runs := h.inOrder()
	for i := range runs {
		r := &runs[i]
		c := storyOfRun{attempt: attemptJSON(r), NotDecided: why[r.RunID]}
		if d := on[r.RunID]; d != nil {
			shown := keptDecision(d)
			c.Decided = &shown
			x, err := audit.Recall(audit.Case{Job: h.job, Run: r, Decision: &d.Decision})
			if err != nil {
				return nil, err
			}
			c.Cause = audit.Cause(&x.Facts)
			if d.Superseded {
				c.Superseded = d.Number
			}
			if i+1 < len(runs) {
				next := &runs[i+1]
				c.NextRunID = next.RunID
				if next.Times.Leased > 0 {
					c.waited = time.Duration(next.Times.Leased - d.Time)
					c.Waited = c.waited.String()
				}
			}
		}
		s.Runs = append(s.Runs, c)
	}
	return s, nil
}

// inOrder returns the runs in the order in which they became known.
func (h *jobHistory) inOrder() (runs []jobdb.Run) {
	for _, r := range h.runs {
		runs = append(runs, *r)
	}
	slices.SortStableFunc(runs, func(a, b jobdb.Run) int { return cmp.Compare(a.Index, b.Index) })
	return runs
}

func (s *story) print(w io.Writer, j *jobdb.Job) error {
	fmt.Fprintf(w, "%s %s  queue %s, job set %s: %s after %s", bold(w, "Job"), oneLine(s.Job.JobID), oneLine(s.Job.Queue), oneLine(s.Job.JobSet), s.Job.State, plural.Of(len(s.Runs), "run"))
	if s.Job.Ended != "" {
		fmt.Fprintf(w, ", at %s", s.Job.Ended)
	}
	fmt.Fprint(w, "\n\n")
	t := newTable(w, "RUN", "NODE", "LEASED", "ENDED", "HOW", "DECISION", "RULE", "USED/LIMIT", "TOTAL", "DELAY", "NEXT")
	for i := range s.Runs {
		c := &s.Runs[i]
		how := c.State
		if c.Cause != "" {
			how += ": " + c.Cause
		}
		cells := []string{fmt.Sprint(c.Index), c.Node, c.Leased, c.Ended, how, c.undecided(), "", "", "", "", s.next(i, j)}
		if d := c.Decided; d != nil {
			cells[5], cells[6], cells[7] = decisionText(d), ruleName(d.Policy, d.Rule), usedText(*d)
			cells[8], cells[9] = fmt.Sprintf("%d/%d", d.GlobalUsed, d.GlobalLimit), d.Delay
		}
		t.row(cells...)
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nTOTAL counts all retries of the job. `explain --run N` shows why a run was decided so.")
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
	text := d.Decision + " " + d.Code
	switch {
	case d.Superseded:
		text += " (superseded)"
	case d.Shadow:
		text += " (shadow)"
	}
	return text
}

// undecided says why there is no decision on a run; "" if none is needed.
func (c *storyOfRun) undecided() string {
	switch {
	case c.NotDecided != "":
		return "not decided: " + c.NotDecided
	case c.Released:
		return "released without a decision"
	}
	return ""
}

// rounded is a duration for people: to a second from a minute on, to a millisecond below.
func rounded(d time.Duration) string {
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// next says what came after a run.
func (s *story) next(i int, j *jobdb.Job) string {
	c := &s.Runs[i]
	switch {
	case i+1 < len(s.Runs) && c.Waited != "":
		return fmt.Sprintf("run %d, after %s", s.Runs[i+1].Index, rounded(c.waited))
	case i+1 < len(s.Runs):
		return fmt.Sprintf("run %d", s.Runs[i+1].Index)
	case j.Final:
		return "the job is over"
	case c.Decided != nil && c.Decided.Decision == "JobRequeued" && s.Job.RetryAfter != "":
		return "queued, not before " + s.Job.RetryAfter
	}
	return s.Job.State
}

// lastChange is who last changed, and why, a resource that took part in a decision.
type lastChange struct {
	Resource   string `json:"resource"`
	Generation uint64 `json:"generation"`
	Time       string `json:"time"`
	Author     string `json:"author"`
	Reason     string `json:"reason,omitempty"`
}

func (l *lastChange) String() string {
	text := fmt.Sprintf("%s was last changed by %s at %s, in generation %d", oneLine(l.Resource), oneLine(l.Author), l.Time, l.Generation)
	if l.Reason != "" {
		text += ": " + oneLine(l.Reason)
	}
	return text
}

// lastChanges finds who last changed, up to the generation that decided, the policy of a decision and, if a limit of
// the settings decided, the settings.
func (p *policiesAt) lastChanges(d *chain.Decision) []lastChange {
	var ids []policyfile.ID
	if d.Policy != "" {
		ids = append(ids, policyfile.ID{Kind: policyfile.KindPolicy, Name: d.Policy})
	}
	if d.Code == policy.GlobalLimit || d.LimitFrom == policy.FromGlobal {
		ids = append(ids, policyfile.ID{Kind: policyfile.KindSettings})
	}
	return p.changesOf(ids...)
}

// changesOf finds who last changed resources, those that were ever changed.
func (p *policiesAt) changesOf(ids ...policyfile.ID) (changes []lastChange) {
	for _, id := range ids {
		for _, v := range p.history {
			if v.Number == p.Since[id] {
				changes = append(changes, lastChange{id.String(), v.Number, timeText(v.Time), v.Author, v.Reason})
			}
		}
	}
	return changes
}
