package query

import (
	"context"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
)

// Story is all runs of a job, in order.
type Story struct {
	Job    Job          `json:"job"`
	Pruned bool         `json:"pruned,omitempty"` // the job was pruned from the job database; this was derived from the logs
	Runs   []StoryOfRun `json:"runs"`

	Row *jobdb.Job `json:"-"`
}

// StoryOfRun is one run, the decision on it, and what followed.
type StoryOfRun struct {
	Attempt
	Cause      string          `json:"cause,omitempty"`      // of the failure, in a few words
	Decided    *audit.Decision `json:"decided,omitempty"`    // absent: no decision on the run
	NotDecided string          `json:"notDecided,omitempty"` // why there is none
	Waited     string          `json:"waited,omitempty"`     // from the failure to the next run's lease
	NextRunID  string          `json:"nextRunId,omitempty"`

	Wait time.Duration `json:"-"` // as Waited
}

// Stories tell all runs of a job, in each partition that has a job of this id. Errors: *NotFound, *Invalid.
func (s *Source) Stories(ctx context.Context, job string) ([]*Story, error) {
	found, err := s.Histories(ctx, job)
	if err != nil {
		return nil, err
	}
	var all []*Story
	for i := range found {
		one, err := found[i].story()
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// story puts the runs of a job, the decisions on them and what followed in the order of the runs.
func (h *History) story() (*Story, error) {
	s := &Story{Job: JobOf(h.Job, nil), Pruned: h.FromLogs, Runs: []StoryOfRun{}, Row: h.Job}
	on := map[string]*jobdb.Decision{}
	for _, d := range h.Decisions {
		on[d.RunID] = d
	}
	why := map[string]string{}
	for _, n := range h.NotDecided {
		why[n.RunID] = n.Reason.String()
	}
	runs := h.InOrder()
	for i := range runs {
		r := &runs[i]
		c := StoryOfRun{Attempt: attemptOf(r), NotDecided: why[r.RunID]}
		if d := on[r.RunID]; d != nil {
			shown := DecisionOf(d)
			c.Decided = &shown
			x, err := audit.Recall(audit.Case{Job: h.Job, Run: r, Decision: &d.Decision})
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
					c.Wait = time.Duration(next.Times.Leased - d.Time)
					c.Waited = c.Wait.String()
				}
			}
		}
		s.Runs = append(s.Runs, c)
	}
	return s, nil
}
