package query

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policylog"
)

// Explanation is a decision with everything that led to it.
type Explanation struct {
	Decision audit.Decision `json:"decision"`
	Job      Job            `json:"job"`
	Ladder   []RuleTrace    `json:"ladder"`
	NextPod  string         `json:"nextPod,omitempty"`       // name of the retry's pod; decision.podName is the name in the record
	Unknown  bool           `json:"ladderUnknown,omitempty"` // the policies log was not read
	Before   uint32         `json:"globalUsedBefore"`
	Release  *Release       `json:"release,omitempty"`     // that superseded the decision
	Pruned   bool           `json:"pruned,omitempty"`      // the job was pruned from the job database; this was derived from the logs
	Changes  []LastChange   `json:"lastChanges,omitempty"` // of the policy, and of the settings if their limit decided
	// Failure is what a rule could match, a fact each.
	Failure []string `json:"failure"`
	// DelayFrom is how the delay was computed; "": it was not, or the policies log was not read.
	DelayFrom   string    `json:"delayComputed,omitempty"`
	NotActedOn  bool      `json:"notActedOn,omitempty"`  // the next run would have been: in shadow, or Armada decides itself
	GroupEffect string    `json:"groupEffect,omitempty"` // what the decision did to the unit and the group of a member
	Overrides   []string  `json:"brakes,omitempty"`      // on the queue, and by which it avoids nodes
	Differs     string    `json:"differs,omitempty"`     // how deciding again gives another decision; the recorded one is authoritative
	ByGroup     []ByGroup `json:"doneByGroup,omitempty"` // what the group of a member did to it

	Basis Basis `json:"-"`
}

// RuleTrace is a rule that was, or would have been, tried.
type RuleTrace struct {
	Policy  string `json:"policy"`
	Rule    string `json:"rule"`
	Tried   bool   `json:"tried"`
	Matched bool   `json:"matched"`
	Failed  string `json:"failed,omitempty"`
	Why     string `json:"why,omitempty"`
}

// Basis is what an explanation was made from.
type Basis struct {
	Decided
	evaluator.Explanation
	Evaluated bool // by the policies in force then; otherwise only facts and counts are known
	Policies  *PoliciesAt
	Overrides []policylog.Override // on the queue, and by which the decision avoids nodes
	Diverged  error                // evaluating again gives another decision
}

// Decided is a decided run.
type Decided struct {
	audit.Case
	Superseded bool
	Mode       string         // mode in which Armada's tables are written; empty: they are not
	Release    *jobdb.Release // that contained its failure; nil: it was not released
	FromLogs   bool           // the job was pruned
}

// The modes of an ingester that writes for an unmodified Armada.
const (
	Holdback    = "holdback"
	Passthrough = "passthrough"
)

// NextPod returns the name of the retry's pod: by the decision, or by the scheme of an unmodified Armada.
func (c *Decided) NextPod() string {
	switch d := c.Decision; {
	case !d.Requeue:
		return ""
	case c.Mode == Holdback || c.Mode == Passthrough:
		return policy.PodName(d.JobID, 0, false)
	default:
		return d.PodName
	}
}

// Pod returns the name of the pod of a run by its index; "": it is unknown, since no decision that had an effect led to it.
func (h *History) Pod(run uint32) string {
	if run == 0 || h.Mode == Holdback || h.Mode == Passthrough {
		return policy.PodName(h.Job.JobID, 0, false)
	}
	for _, d := range h.Decisions {
		if d.Acted && d.Requeue && d.RunIndex+1 == run {
			return d.PodName
		}
	}
	return ""
}

// LastRun asks for the last decided run of a job.
const LastRun = -1

// NotDecided reports that there is no decision to explain.
type NotDecided struct {
	JobID string // as asked for
	Run   int    // as asked for, or LastRun
	Why   []string
	Found []History // of the job
	// ByGroup is what the group of a member did to it.
	ByGroup []ByGroup
}

func (e *NotDecided) Error() string {
	text := "no run of job " + e.JobID + " was decided"
	runs := 0
	for _, l := range e.Found {
		runs = max(runs, len(l.Runs))
	}
	switch {
	case e.Run >= runs && runs > 0:
		text = fmt.Sprintf("there is no run %d of job %s, which has %s, numbered from 0", e.Run, e.JobID, plural.Of(runs, "run"))
	case e.Run >= 0:
		text = fmt.Sprintf("run %d of job %s was not decided", e.Run, e.JobID)
	}
	for _, line := range e.Why {
		text += "\n  " + line
	}
	return text
}

// caseOf puts together what a decision was made from.
func (h *History) caseOf(d *jobdb.Decision) audit.Case {
	byID := map[string]*jobdb.Run{}
	for _, r := range h.Runs {
		byID[r.RunID] = r
	}
	c := audit.Case{Job: h.Job, Run: byID[d.RunID], Decision: &d.Decision}
	for _, e := range h.Decisions {
		if e == d {
			break
		}
		c.Earlier = append(c.Earlier, audit.Earlier{Decision: &e.Decision, Run: byID[e.RunID]})
	}
	return c
}

// decided returns a decided run, by its index, or LastRun; nil: it was not decided.
func (h *History) decided(run int) *Decided {
	for _, d := range slices.Backward(h.Decisions) {
		if run >= 0 && uint32(run) != d.RunIndex {
			continue
		}
		c := &Decided{Case: h.caseOf(d), Mode: h.Mode, FromLogs: h.FromLogs, Superseded: d.Late()}
		if d.Superseded {
			c.Release = releaseIn(h.Releases, d.Log)
		}
		if c.Run == nil {
			return nil
		}
		return c
	}
	return nil
}

func notDecided(job string, run int, found []History) *NotDecided {
	e := &NotDecided{JobID: job, Run: run, Found: found}
	for _, l := range found {
		for _, r := range l.Runs {
			if r.Outcome == jobdb.Released {
				e.Why = append(e.Why, fmt.Sprintf("run %s failed and was released to the job database without a decision, because none came in time (see refloatctl get releases)", r.RunID))
			}
		}
	}
	for _, l := range found {
		for _, r := range l.NotDecided {
			e.Why = append(e.Why, fmt.Sprintf("run %s failed at %s and was not decided: %s", r.RunID, TimeText(r.Time), r.Reason))
		}
	}
	for _, l := range found {
		failed := slices.ContainsFunc(l.Runs, func(r *jobdb.Run) bool { return r.State == jobdb.RunFailed })
		if len(e.Why) == 0 && !failed {
			why := fmt.Sprintf("none of its runs failed; the job is %s", l.Job.State)
			if at := l.Job.Queueing.RetryAfter; at != 0 && l.Job.State == jobdb.JobQueued {
				why += ", for a retry not before " + TimeText(at)
			}
			e.Why = append(e.Why, why)
		}
	}
	return e
}

// Explain explains the decision on a run of a job, given by its index, or LastRun. Without the policies log, the rules are
// left out. Errors: *NotFound, *NotDecided, *Invalid.
func (s *Source) Explain(ctx context.Context, job string, run int) (*Explanation, error) {
	found, err := s.Histories(ctx, job)
	if err != nil {
		return nil, err
	}
	return s.ExplainRun(ctx, job, found, run)
}

// ExplainRun explains the decision on a run, given by its index, or LastRun, of the first of these histories of a job that
// has one. Errors: *NotDecided.
func (s *Source) ExplainRun(ctx context.Context, job string, found []History, run int) (*Explanation, error) {
	var c *Decided
	for i := range found {
		if c = found[i].decided(run); c != nil {
			break
		}
	}
	if c == nil {
		none := notDecided(job, run, found)
		for i := range found {
			done, err := s.doneByGroup(ctx, found[i].Job, found[i].FromLogs)
			if err != nil {
				return nil, err
			}
			none.ByGroup = append(none.ByGroup, done...)
		}
		return nil, none
	}
	e := &Explanation{Basis: Basis{Decided: *c}}
	b := &e.Basis
	var err error
	if s.Policies == nil {
		if b.Explanation, err = audit.Recall(c.Case); err != nil {
			return nil, err
		}
		e.fill()
		e.ByGroup, err = s.doneByGroup(ctx, c.Job, c.FromLogs)
		return e, err
	}
	if b.Policies, err = s.Generation(ctx, c.Decision.Generation); err != nil {
		return nil, err
	}
	b.Evaluated, b.Overrides, e.Changes = true, overridesOf(b.Policies.ActiveOverrides(), c.Decision), b.Policies.lastChanges(c.Decision)
	x, diverged := audit.Explain(b.Policies.Set.Set, c.Case)
	if diverged != nil && !errors.Is(diverged, audit.ErrDifferent) {
		return nil, diverged
	}
	b.Explanation, b.Diverged = x, diverged
	e.fill()
	e.ByGroup, err = s.doneByGroup(ctx, c.Job, c.FromLogs)
	return e, err
}

// fill fills the JSON form from the basis.
func (e *Explanation) fill() {
	c := &e.Basis.Decided
	e.Decision = audit.DecisionOf(c.Job.Partition, c.Decision)
	e.Job = JobOf(c.Job, []jobdb.Run{*c.Run})
	e.NextPod, e.Unknown, e.Before, e.Pruned = c.NextPod(), !e.Basis.Evaluated, e.Basis.Before.Granted, c.FromLogs
	if e.Decision.Superseded = c.Superseded; c.Release != nil {
		e.Release = ReleaseOf(c.Release)
	}
	e.Ladder = LadderOf(e.Basis.Traces)
	d := c.Decision
	e.Failure, e.NotActedOn, e.GroupEffect = FactsOf(&e.Basis.Facts), d.Shadow || c.Mode == Passthrough, groupEffect(d, e.Basis.Policies)
	if d.Requeue && e.Basis.Evaluated && d.Group == nil && d.Code != policy.GroupRestart {
		e.DelayFrom = Arithmetic(e.Basis.Delay)
	}
	for _, o := range e.Basis.Overrides {
		e.Overrides = append(e.Overrides, OverrideText(o))
	}
	if e.Basis.Diverged != nil {
		e.Differs = e.Basis.Diverged.Error()
	}
}

// doneByGroup is DoneByGroup, but none of a job that only the logs have.
func (s *Source) doneByGroup(ctx context.Context, j *jobdb.Job, fromLogs bool) ([]ByGroup, error) {
	if fromLogs {
		return nil, nil
	}
	return s.DoneByGroup(ctx, j)
}

// DoneByGroup tells what a job's group did to the job, one sentence each, or why the job is in no group although it names
// one; none: it names none.
func (s *Source) DoneByGroup(ctx context.Context, j *jobdb.Job) (done []ByGroup, err error) {
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		var stop *jobdb.GroupRecord
		err := q.GroupRecords(jobdb.RecordFilter{JobID: j.JobID, Partition: &j.Partition}, func(r *jobdb.GroupRecord) error {
			rec, err := r.Record()
			if err == nil {
				done = append(done, ByGroup{OriginOf(rec), audit.Describe(rec)})
			}
			if r.Name == chain.MemberStopped.String() {
				stop = r
			}
			return err
		})
		if err != nil || j.Member.State != jobdb.MemberStopped {
			return err
		}
		why, err := stopped(q, j, stop)
		done = append(done, ByGroup{Text: why})
		return err
	})
	return done, err
}

// ByGroup is something that a group did to a member.
type ByGroup struct {
	At   string `json:"at,omitempty"` // position of the event that it followed from; "": none
	Text string `json:"text"`
}

// OriginOf is the position of the event that a record follows from, as decisions print it.
func OriginOf(r chain.Record) string {
	at, _ := chain.PositionOf(r)
	return at.String()
}
