package query

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
)

// Story is all runs of a job, in order.
type Story struct {
	Job    Job          `json:"job"`
	Pruned bool         `json:"pruned,omitempty"` // the job was pruned from the job database; this was derived from the logs
	Runs   []StoryOfRun `json:"runs"`
	// ByGroup is what the group of a member did to it.
	ByGroup []ByGroup `json:"doneByGroup,omitempty"`

	History *History `json:"-"` // that it was made from
}

// StoryOfRun is one run, the decision on it, and what followed.
type StoryOfRun struct {
	Attempt
	Cause      string          `json:"cause,omitempty"`      // of the failure, or of an end that was not reported, in a few words
	Decided    *audit.Decision `json:"decided,omitempty"`    // absent: no decision on the run
	NotDecided string          `json:"notDecided,omitempty"` // why there is none
	Waited     string          `json:"waited,omitempty"`     // from the failure to the next run's lease
	NextRunID  string          `json:"nextRunId,omitempty"`

	Wait time.Duration `json:"-"` // as Waited

	Rules *RulesTried `json:"-"` // nil: not asked for (WithRules), or no decision on the run
}

// RulesTried are the rules that were tried on a failed run, in order.
type RulesTried struct {
	Ladder []RuleTrace
	Lost   string // why they are unknown; "": they are known
}

// Outcome says in a sentence where the job stands at a time, and why; "": its state says it all.
func (s *Story) Outcome(now time.Time) string {
	var last *StoryOfRun // whose decision had an effect
	shadow := false
	for i := range s.Runs {
		d := s.Runs[i].Decided
		if d != nil && EffectOf(d).Took() {
			last = &s.Runs[i]
		}
		shadow = d != nil && d.Shadow
	}
	switch {
	case s.Job.State == jobdb.JobFailed.String() && last != nil && !last.Decided.Requeues():
		return fmt.Sprintf("It failed for good after run %d: %s", last.Index, last.Decided.Reason)
	case s.Job.State == jobdb.JobFailed.String() && shadow:
		return "It failed for good by Armada's verdict: Refloat decided in shadow, without effect."
	case s.Job.State == jobdb.JobFailed.String():
		return "It failed for good by Armada's verdict: no decision of Refloat ended it."
	}
	waiting := s.Job.Waiting(now)
	if waiting == "" {
		return ""
	}
	why := "."
	switch {
	case last != nil && last.Decided.RetryAfter == s.Job.RetryAfter:
		why = ": " + last.Decided.Reason
	case s.Job.Group != "":
		why = ": group " + s.Job.Group + " starts it again."
	}
	return strings.ToUpper(waiting[:1]) + waiting[1:] + why
}

// Undecided says in a few words why there is no decision on a run; "": there is one, or none is needed.
func (r *StoryOfRun) Undecided() string {
	switch {
	case r.NotDecided == chain.Ended.String():
		return "not decided: the job was already over"
	case r.NotDecided == chain.Cancelled.String():
		return "not decided: the job was cancelled"
	case r.NotDecided != "":
		return "not decided: " + r.NotDecided
	case r.Released:
		return "released without a decision, because none came in time"
	}
	return ""
}

// NotFollowed says that Armada did not do what was decided on a run, as where the history is from before Refloat; "": it did,
// as far as the history shows.
func (r *StoryOfRun) NotFollowed() string {
	d := r.Decided
	if d == nil || !EffectOf(d).Took() || r.NextRunID == "" {
		return ""
	}
	if !d.Requeues() {
		return ", although the job had failed: Armada did not follow"
	}
	delay, err := time.ParseDuration(d.Delay)
	waited, err2 := time.ParseDuration(r.Waited)
	if err == nil && err2 == nil && waited < delay {
		return ", earlier than decided: Armada did not wait"
	}
	return ""
}

// Stories tell all runs of a job, in each partition that has a job of this id. Errors: *NotFound, *Invalid.
func (s *Source) Stories(ctx context.Context, job string) ([]*Story, error) {
	found, err := s.Histories(ctx, job)
	if err != nil {
		return nil, err
	}
	var all []*Story
	for i := range found {
		one, err := found[i].Story()
		if err != nil {
			return nil, err
		}
		if one.ByGroup, err = s.doneByGroup(ctx, found[i].Job, found[i].FromLogs); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// Story puts the runs of a job, the decisions on them and what followed in the order of the runs.
func (h *History) Story() (*Story, error) {
	s := &Story{Job: JobOf(h.Job, nil), Pruned: h.FromLogs, Runs: []StoryOfRun{}, History: h}
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
		if endUnknown(r, runs) {
			c.Cause = "told to stop; its end was not reported"
		}
		if d := on[r.RunID]; d != nil {
			shown := DecisionOf(d)
			c.Decided = &shown
			x, err := audit.Recall(audit.Case{Job: h.Job, Run: r, Decision: &d.Decision})
			if err != nil {
				return nil, err
			}
			c.Cause = audit.Cause(&x.Facts)
			if d.Late() {
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

// WithRules adds the rules that were tried, by the policies in force then, to the runs of a story from index first on.
func (s *Source) WithRules(ctx context.Context, story *Story, first int) {
	on := map[string]*jobdb.Decision{}
	for _, d := range story.History.Decisions {
		on[d.RunID] = d
	}
	policies := map[uint64]*PoliciesAt{}
	unread := map[uint64]error{}
	for i := first; i < len(story.Runs); i++ {
		r := &story.Runs[i]
		d := on[r.RunID]
		if d == nil {
			continue
		}
		g := d.Generation
		if policies[g] == nil && unread[g] == nil {
			policies[g], unread[g] = s.Generation(ctx, g)
		}
		r.Rules = rulesTried(story.History.caseOf(d), policies[g], unread[g])
	}
}

func rulesTried(c audit.Case, at *PoliciesAt, unread error) *RulesTried {
	switch {
	case unread != nil:
		return &RulesTried{Lost: unread.Error()}
	case !audit.Asked(c.Decision):
		return &RulesTried{Lost: "the job's policies were not asked: its group decided"}
	}
	x, err := audit.Explain(at.Set.Set, c)
	if err != nil && !errors.Is(err, audit.ErrDifferent) {
		return &RulesTried{Lost: err.Error()}
	}
	return &RulesTried{Ladder: LadderOf(x.Traces)}
}
