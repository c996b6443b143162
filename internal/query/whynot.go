package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whynot"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/suggest"
)

// WhyNot is what would have given another outcome.
type WhyNot struct {
	JobID   string    `json:"jobId"`
	RunID   string    `json:"runId"`
	Outcome string    `json:"outcome"` // that the run had
	Asked   string    `json:"asked"`
	Partial bool      `json:"partial,omitempty"` // not all rules of very large policies were tried
	Group   string    `json:"group,omitempty"`   // of which the job is a member
	Changes []Flipped `json:"changes"`           // the smallest first

	Found []whynot.Change `json:"-"` // the same
}

// Flipped is one change and the verdict after it.
type Flipped struct {
	Edits  []Edit `json:"edits"`
	Code   string `json:"code"`
	Policy string `json:"policy,omitempty"`
	Rule   string `json:"rule,omitempty"`
	// GroupAction is what the group would have done about it, by GroupRule; "": its unit would have gone on, or there is none.
	GroupAction string `json:"groupAction,omitempty"`
	GroupRule   string `json:"groupRule,omitempty"`
}

// Gives says what the change gives, in a few words.
func (f *Flipped) Gives() string {
	s := strings.TrimSpace(f.Code + " " + RuleName(f.Policy, f.Rule))
	switch {
	case f.GroupAction == policy.Leave.String() && f.GroupRule == "": // no default does that
		s += ", " + f.GroupAction
	case f.GroupAction != "":
		s += ", " + f.GroupAction + " by " + cmp.Or(f.GroupRule, "default")
	}
	return s
}

// Notes say what to know about the changes.
func (w *WhyNot) Notes() (notes []string) {
	if len(w.Changes) > 0 {
		notes = append(notes, "Changes of policies are in the form of `refloatctl whatif --set`, which shows what else they change.")
	}
	if slices.ContainsFunc(w.Found, func(c whynot.Change) bool { return c.OfBudget() }) {
		notes = append(notes, "A decision does not record how many retries first runs had paid for, nor what other budgets said: a ratio is the least that may do.")
	}
	if w.Partial {
		notes = append(notes, "The policies are so large that not all rules were tried.")
	}
	if w.Group != "" {
		notes = append(notes, "What group "+w.Group+" would have done was evaluated too, with its members as its records and their jobs show them. It may have ended otherwise later.")
	}
	return notes
}

// String says what changes, in one line.
func (f *Flipped) String() string {
	var parts []string
	for _, e := range f.Edits {
		text := e.Text
		if e.Now != "" {
			text += fmt.Sprintf(" (is %s)", e.Now)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", and ")
}

// Edit is one part of a change.
type Edit struct {
	Kind string `json:"kind"`
	Text string `json:"text"` // of kind policies: what whatif --set takes
	Now  string `json:"now,omitempty"`
}

// NoAnswer reports that a question about a decision has no answer, and why.
type NoAnswer struct{ Why string }

func (e *NoAnswer) Error() string { return e.Why }

// CheckOutcome returns an *Invalid unless a run can have this outcome.
func CheckOutcome(outcome string) error {
	if !slices.Contains(whynot.Outcomes(), outcome) {
		return &Invalid{"outcome", suggest.Unknown("outcome", outcome, whynot.Outcomes()...)}
	}
	return nil
}

// WhyNot finds the smallest changes under which a run of a job, given by its index or LastRun, had been decided otherwise.
// Errors: those of Explain and Explanation.WhyNot.
func (s *Source) WhyNot(ctx context.Context, job string, run int, outcome string) (*WhyNot, error) {
	if err := CheckOutcome(outcome); err != nil {
		return nil, err
	}
	e, err := s.Explain(ctx, job, run)
	if err != nil {
		return nil, err
	}
	return s.WhyNotOf(ctx, e, outcome)
}

// WhyNotOf finds the smallest changes under which the run had been decided otherwise. Errors: *NoAnswer, ErrNoPolicies, *Invalid.
func (s *Source) WhyNotOf(ctx context.Context, e *Explanation, outcome string) (*WhyNot, error) {
	if err := CheckOutcome(outcome); err != nil {
		return nil, err
	}
	b := &e.Basis
	d := b.Decision
	switch {
	case !b.Evaluated:
		return nil, ErrNoPolicies
	case b.Diverged != nil:
		return nil, b.Diverged
	case d.Member != nil && !audit.Asked(d):
		why := "another failure decided about it"
		if n := len(e.ByGroup); n > 0 {
			why = e.ByGroup[n-1].Text
		}
		return nil, &NoAnswer{fmt.Sprintf("the policies were not asked about run %d of job %s (%s): %s; `refloatctl get group %s` says about which run to ask instead", d.RunIndex, d.JobID, d.Code, why, d.Member.Group)}
	}
	in := b.input()
	if d.Budget != nil {
		var err error
		if in.Budget, err = s.budgetOf(ctx, b); err != nil {
			return nil, err
		}
	}
	if d.Member != nil {
		var err error
		if in.Member, err = s.memberBefore(ctx, b); err != nil {
			return nil, err
		}
		v, unit, err := in.Evaluate()
		if err != nil || v.Code != d.Code || (unit == nil) != (d.Group == nil) || unit != nil && (unit.Action != d.Group.Action || unit.Rule != d.Group.Rule) {
			return nil, &NoAnswer{fmt.Sprintf("evaluating run %d of job %s again, with the members of group %s as its rows have them, gives another decision (%s): what it would have been is not known", d.RunIndex, d.JobID, d.Member.Group, v.Code)}
		}
	}
	asked := whynot.Outcome(outcome)
	v, _, err := in.Evaluate()
	if err != nil {
		return nil, err
	}
	changes, partial, err := whynot.Find(in, asked)
	if errors.Is(err, whynot.ErrSame) {
		return nil, &NoAnswer{fmt.Sprintf("the outcome of run %d of job %s is %s: %s", d.RunIndex, d.JobID, asked, audit.Reason(d))}
	}
	if err != nil {
		return nil, err
	}
	out := &WhyNot{JobID: d.JobID, RunID: d.RunID, Outcome: string(whynot.OutcomeOf(&v)), Asked: outcome, Partial: partial, Changes: []Flipped{}, Found: changes}
	if d.Member != nil {
		out.Group = d.Member.Group
	}
	for i := range changes {
		v := &changes[i].Verdict
		c := Flipped{Code: v.Code.String(), Policy: v.Policy, Rule: v.Rule}
		if unit := changes[i].Group; unit != nil {
			c.GroupAction, c.GroupRule = unit.Action.String(), unit.Rule
		}
		for _, edit := range changes[i].Edits {
			c.Edits = append(c.Edits, Edit{string(edit.Kind), edit.Text, edit.Now})
		}
		out.Changes = append(out.Changes, c)
	}
	return out, nil
}

// input gathers what a decision followed from.
func (b *Basis) input() *whynot.Input {
	in := &whynot.Input{Base: b.Policies.Base, Failure: b.Facts, Counts: b.Before}
	for _, o := range b.Policies.ActiveOverrides() {
		in.Overrides = append(in.Overrides, o.Override)
	}
	return in
}

// budgetOf returns what the budget said that held a retry back, and what it was.
func (s *Source) budgetOf(ctx context.Context, b *Basis) (*whynot.Budget, error) {
	use := &whynot.Budget{BudgetUse: *b.Decision.Budget}
	for _, have := range b.Policies.Base.Budgets() {
		if have.Name == use.Budget {
			use.Was = have
		}
	}
	var err error
	use.Partitions, err = s.CountPartitions(ctx)
	return use, err
}

// CountPartitions counts the partitions of the log that decisions are from. Without the logs, these are the ones of which something was
// applied to the job database.
func (s *Source) CountPartitions(ctx context.Context) (n uint32, err error) {
	if s.Logs != nil {
		err = s.Logs(ctx, func(logs audit.Logs) error {
			n = uint32(logs.Decisions.Partitions())
			return nil
		})
		return n, err
	}
	err = s.Jobs(ctx, func(q jobdb.Queries) error { // of partitions of which nothing was applied yet, there is no position
		positions, err := q.Positions()
		n = uint32(len(positions))
		return err
	})
	return n, err
}

// memberBefore returns the failed member with its unit and its group as they were before a decision: as the records before it
// say, and with the members that had ended by then.
func (s *Source) memberBefore(ctx context.Context, b *Basis) (m *projection.MemberFailure, err error) {
	d := b.Decision
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		row, err := (&GroupKey{Queue: d.Queue, JobSet: d.JobSet, Group: d.Member.Group}).Row(q)
		if err != nil {
			return err
		}
		g, err := groupOf(q, row)
		if err != nil {
			return err
		}
		records, err := groupRecords(q, row, 0)
		p := pastOf(row, g.Parts)
		for i := range records {
			if r, ok := records[i].Record.(*chain.Decision); ok && r.Number == d.Number {
				break
			}
			p.add(&records[i])
		}
		p.endedBy(g.Parts, d.Time)
		u := p.unit(d.Member.Part, d.Member.Replica)
		m = &projection.MemberFailure{Group: p.Group, Unit: u, Gang: (&projection.Job{GangID: b.Job.Submit.GangID, GangSize: b.Job.Submit.GangCardinality}).IsGang()}
		return err
	})
	return m, err
}
