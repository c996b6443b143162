package suite

import (
	"fmt"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"

	"github.com/refloat/refloat/internal/policy"
)

// Result is how a test went.
type Result struct {
	Test  *Test
	Steps []Step // one for each failure, up to where it could not go on
	Err   error  // it could not be tried
}

// Step is one failure of a test.
type Step struct {
	Event   *Event
	At      time.Duration   // after the start
	Set     *policyfile.Set // that decided
	Outcome Outcome
	Diffs   []Diff
}

// Diff is one field that came otherwise than expected.
type Diff struct{ Field, Want, Got string }

// Failed says whether the test is red.
func (r *Result) Failed() bool {
	if r.Err != nil {
		return true
	}
	for i := range r.Steps {
		if len(r.Steps[i].Diffs) > 0 {
			return true
		}
	}
	return false
}

// Run tries a test of the suite.
func (s *Suite) Run(t *Test, policies Policies) Result {
	r := Result{Test: t}
	set, err := policies(s.Policies)
	if err != nil {
		r.Err = err
		return r
	}
	trial, err := NewTrial(set, t.Job, t.Start)
	if err != nil {
		r.Err = err
		return r
	}
	at := time.Duration(0)
	for i := range t.Events {
		e := &t.Events[i]
		if e.At != nil {
			at = *e.At
		}
		if e.Fail == nil {
			if set, r.Err = policies(e.Policies); r.Err != nil {
				return r
			}
			trial.Use(set)
			continue
		}
		step := Step{Event: e, At: at, Set: set}
		step.Outcome, err = trial.Fail(e.Fail, t.Start+int64(at))
		if err != nil {
			r.Err = fmt.Errorf("line %d: %w", e.Line, err)
			return r
		}
		for _, w := range e.Expect {
			if !w.accepts(&step.Outcome, t.Start) {
				step.Diffs = append(step.Diffs, Diff{w.Field, w.Value, step.Outcome.value(w.Field, t.Start)})
			}
		}
		r.Steps = append(r.Steps, step)
		if d := step.Outcome.Decision; d != nil && d.Requeue {
			at = time.Duration(d.RetryAfter - t.Start)
		}
	}
	return r
}

// Explain tells what came otherwise in a red test, with the ladder of why.
func (r *Result) Explain(file string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s\n", file, r.Test.Line, r.Test.Column, r.Test.Name)
	for i := range r.Steps {
		s := &r.Steps[i]
		if len(s.Diffs) == 0 {
			continue
		}
		fmt.Fprintf(&b, "  line %d, failure %d at %s: %s\n", s.Event.Line, i, short(s.At), s.Event.Fail)
		for _, d := range s.Diffs {
			fmt.Fprintf(&b, "    %-12s want %s\n    %-12s got  %s\n", d.Field, orEmpty(d.Want), "", orEmpty(d.Got))
		}
		fmt.Fprintf(&b, "    because %s\n", s.Outcome.value("why", r.Test.Start))
		for _, rung := range s.Outcome.Why.Rungs {
			fmt.Fprintf(&b, "      %s\n", RungText(rung))
		}
	}
	if r.Err != nil {
		fmt.Fprintf(&b, "  could not be tried: %v\n", r.Err)
	}
	return b.String()
}

func orEmpty(s string) string {
	if s == "" {
		return "[]"
	}
	return s
}

// RungText is one rule of a ladder in one line.
func RungText(r policy.Rung) string {
	switch {
	case r.Matched:
		return fmt.Sprintf("✓ %s/%s matches: first match wins", r.Policy, r.Rule)
	case !r.Tried:
		return fmt.Sprintf("· %s/%s not tried", r.Policy, r.Rule)
	}
	return fmt.Sprintf("✗ %s/%s %s: %s", r.Policy, r.Rule, r.Failed, r.Why)
}
