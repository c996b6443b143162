package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whynot"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

// WhyNot is what would have given another outcome.
type WhyNot struct {
	JobID   string    `json:"jobId"`
	RunID   string    `json:"runId"`
	Outcome string    `json:"outcome"` // that the run had
	Asked   string    `json:"asked"`
	Partial bool      `json:"partial,omitempty"` // not all rules of very large policies were tried
	Changes []Flipped `json:"changes"`           // the smallest first

	Found []whynot.Change `json:"-"` // the same
}

// Flipped is one change and the verdict after it.
type Flipped struct {
	Edits  []Edit `json:"edits"`
	Code   string `json:"code"`
	Policy string `json:"policy,omitempty"`
	Rule   string `json:"rule,omitempty"`
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

// Error implements error.
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
	return e.WhyNot(outcome)
}

// WhyNot finds the smallest changes under which the run had been decided otherwise. Errors: *NoAnswer, ErrNoPolicies, *Invalid.
func (e *Explanation) WhyNot(outcome string) (*WhyNot, error) {
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
	case byGroup(d.Code) || d.Code == policy.GangFail && d.Member != nil:
		return nil, &NoAnswer{fmt.Sprintf("run %d of job %s was decided by its group (%s): no change of the job's own policies is evaluated; `refloatctl explain group %s` tells its history", d.RunIndex, d.JobID, d.Code, d.Member.Group)}
	}
	asked := whynot.Outcome(outcome)
	changes, partial, err := whynot.Find(b.input(), asked)
	if errors.Is(err, whynot.ErrSame) {
		return nil, &NoAnswer{fmt.Sprintf("the outcome of run %d of job %s is %s: %s", d.RunIndex, d.JobID, asked, audit.Reason(d))}
	}
	if err != nil {
		return nil, err
	}
	out := &WhyNot{JobID: d.JobID, RunID: d.RunID, Outcome: string(whynot.OutcomeOf(&b.Verdict)), Asked: outcome, Partial: partial, Changes: []Flipped{}, Found: changes}
	for i := range changes {
		v := &changes[i].Verdict
		c := Flipped{Code: v.Code.String(), Policy: v.Policy, Rule: v.Rule}
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

// byGroup reports whether a group made the decision, or has the last word on it.
func byGroup(code policy.Code) bool {
	switch code {
	case policy.GroupRestart, policy.GroupOver, policy.UnitLimit, policy.GangRetry:
		return true
	default:
		return false
	}
}
