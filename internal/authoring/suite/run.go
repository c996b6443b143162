package suite

import (
	"fmt"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"

	"github.com/refloat/refloat/internal/policy"
)

// Result is the result of a test.
type Result struct {
	Test  *Test
	Steps []Step // one for each failure, until an error
	Err   error  // it could not be run
}

// Step is one failure of a test.
type Step struct {
	Event   *Event
	At      time.Duration   // after the start
	Set     *policyfile.Set // that decided
	Outcome Outcome
	Diffs   []Diff
}

// Diff is one field that differs from the expectation.
type Diff struct {
	Field string `json:"field"`
	Want  string `json:"want"`
	Got   string `json:"got"`
}

// Failed reports whether the test failed.
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

// Run runs a test of the suite.
func (s *Suite) Run(t *Test, policies Policies) Result {
	r := Result{Test: t}
	r.Err = s.run(&r, policies)
	return r
}

func (s *Suite) run(r *Result, policies Policies) error {
	t := r.Test
	set, err := policies(s.Policies)
	if err != nil {
		return err
	}
	trial, err := newTrial(set, t)
	if err != nil {
		return err
	}
	at := t.Start
	for i := range t.Events {
		e := &t.Events[i]
		if e.At != nil {
			at = t.Start + int64(*e.At)
		}
		if e.Do == UsePolicies {
			if set, err = policies(e.Policies); err != nil {
				return err
			}
			trial.Use(set)
			continue
		}
		step := Step{Event: e, Set: set}
		if step.Outcome, err = trial.happen(e, &at); err != nil {
			return fmt.Errorf("line %d: %w", e.Line, err)
		}
		if e.Do == FirstRuns {
			continue
		}
		step.At = time.Duration(at - t.Start)
		step.compare(t.Start)
		r.Steps = append(r.Steps, step)
	}
	return nil
}

// compare collects what differs from the expectation.
func (s *Step) compare(start int64) {
	for _, w := range s.Event.Expect {
		if !w.accepts(&s.Outcome, start) {
			s.Diffs = append(s.Diffs, Diff{w.Field, w.Value, s.Outcome.value(w.Field, start)})
		}
	}
}

// Explain describes the differences in a failed test, with the rules as they were tried.
func (r *Result) Explain(file string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s\n", file, r.Test.Line, r.Test.Column, r.Test.Name)
	for i := range r.Steps {
		s := &r.Steps[i]
		if len(s.Diffs) == 0 {
			continue
		}
		what := "failure"
		if r.Test.Group != nil {
			what = "event"
		}
		fmt.Fprintf(&b, "  line %d, %s %d at %s: %s\n", s.Event.Line, what, i, policyfile.Short(s.At), s.Event)
		for _, d := range s.Diffs {
			fmt.Fprintf(&b, "    %-12s want %s\n    %-12s got  %s\n", d.Field, orEmpty(d.Want), "", orEmpty(d.Got))
		}
		if why := s.Outcome.value("why", r.Test.Start); why != none {
			fmt.Fprintf(&b, "    because %s\n", why)
		}
		for _, trace := range s.Outcome.Why.Traces {
			fmt.Fprintf(&b, "      %s\n", RuleTraceText(trace))
		}
		if g := s.Outcome.Group; g != nil {
			for _, trace := range g.Ladder {
				fmt.Fprintf(&b, "      %s\n", GroupRuleTraceText(g.Policy, trace))
			}
		}
	}
	if r.Err != nil {
		fmt.Fprintf(&b, "  could not be run: %v\n", r.Err)
	}
	return plain(b.String())
}

// plain replaces control characters other than the ends of lines: what failed may be called anything.
func plain(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = oneLine(lines[i])
	}
	return strings.Join(lines, "\n")
}

func orEmpty(s string) string {
	if s == "" {
		return "[]"
	}
	return s
}

// RuleTraceText formats one rule of a ladder in one line.
func RuleTraceText(r policy.RuleTrace) string {
	switch {
	case r.Matched:
		return fmt.Sprintf("✓ %s/%s matches: first match wins", r.Policy, r.Rule)
	case !r.Tried:
		return fmt.Sprintf("· %s/%s not tried", r.Policy, r.Rule)
	}
	return fmt.Sprintf("✗ %s/%s %s: %s", r.Policy, r.Rule, r.Failed, r.Why)
}
