package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

// report prints the results of the tests, and their coverage.
func (b *bench) report(cmd *cobra.Command, f testFlags) error {
	out := cmd.OutOrStdout()
	red, err := 0, error(nil)
	for i := range b.results {
		for k := range b.results[i] {
			if b.results[i][k].Failed() {
				red++
			}
		}
	}
	switch f.output {
	case show.FormJSON:
		err = b.json(out)
	case outputJUnit:
		err = b.junit(out)
	default:
		b.text(out, f.verbose, red)
	}
	if err != nil {
		return err
	}
	notes := out
	if f.output != outputText {
		notes = cmd.ErrOrStderr() // stdout is machine-readable
	}
	found := red > 0
	if f.coverage && b.coverage(notes) {
		found = true
	}
	if f.mutate && red > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no mutants: all tests must pass first")
	} else if f.mutate {
		survived, err := b.mutate(notes)
		if err != nil {
			return err
		}
		found = found || survived
	}
	if found {
		return errFinding
	}
	return nil
}

func (b *bench) text(w io.Writer, verbose bool, red int) {
	total := 0
	for i, s := range b.suites {
		for k := range b.results[i] {
			r := &b.results[i][k]
			total++
			switch {
			case r.Failed():
				fmt.Fprintf(w, "%s  %s\n", show.Bold(w, "FAIL"), r.Explain(s.File))
			case verbose:
				fmt.Fprintf(w, "ok    %s:%d:%d: %s\n", s.File, r.Test.Line, r.Test.Column, query.OneLine(r.Test.Name))
			}
		}
	}
	fmt.Fprintf(w, "%s in %s, %d failed\n", plural.Of(total, "test"), plural.Of(len(b.suites), "file"), red)
}

func (b *bench) json(w io.Writer) error {
	type step struct {
		Line    int          `json:"line"`
		At      string       `json:"at"`
		Failure string       `json:"failure,omitempty"` // of a test of one job
		Event   string       `json:"event,omitempty"`   // of a test of a group
		Outcome outcomeOut   `json:"outcome"`
		Diffs   []suite.Diff `json:"diffs"`
	}
	type line struct {
		File   string `json:"file"`
		Line   int    `json:"line"`
		Name   string `json:"name"`
		Passed bool   `json:"passed"`
		Error  string `json:"error,omitempty"`
		Steps  []step `json:"steps"`
	}
	enc := show.JSONLines(w)
	for i, s := range b.suites {
		for k := range b.results[i] {
			r := &b.results[i][k]
			l := line{File: s.File, Line: r.Test.Line, Name: r.Test.Name, Passed: !r.Failed(), Steps: []step{}}
			if r.Err != nil {
				l.Error = r.Err.Error()
			}
			for n := range r.Steps {
				from := &r.Steps[n]
				to := step{Line: from.Event.Line, At: from.At.String(), Outcome: outcomeJSON(&from.Outcome), Diffs: append([]suite.Diff{}, from.Diffs...)}
				if r.Test.Group != nil {
					to.Event = from.Event.String()
				} else {
					to.Failure = from.Event.String()
				}
				l.Steps = append(l.Steps, to)
			}
			if err := enc.Encode(l); err != nil {
				return err
			}
		}
	}
	return nil
}

type junitCase struct {
	Name    string `xml:"name,attr"`
	Class   string `xml:"classname,attr"`
	File    string `xml:"file,attr"`
	Line    int    `xml:"line,attr"`
	Time    string `xml:"time,attr"`
	Failure *struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	} `xml:"failure"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

func (b *bench) junit(w io.Writer) error {
	all := struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}{}
	for i, s := range b.suites {
		suite := junitSuite{Name: s.File, Tests: len(b.results[i]), Time: "0"}
		for k := range b.results[i] {
			r := &b.results[i][k]
			c := junitCase{Name: r.Test.Name, Class: s.File, File: s.File, Line: r.Test.Line, Time: "0"}
			if r.Failed() {
				suite.Failures++
				c.Failure = &struct {
					Message string `xml:"message,attr"`
					Text    string `xml:",chardata"`
				}{"not as expected", r.Explain(s.File)}
			}
			suite.Cases = append(suite.Cases, c)
		}
		all.Suites = append(all.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// coverage lists rules that no test reached, and reports whether there are any.
func (b *bench) coverage(w io.Writer) (missed bool) {
	for _, c := range suite.Covered(slices.Concat(b.results...)) {
		digest := c.Set.Digest()
		fmt.Fprintf(w, "\ncoverage of policy set %x: %d of %d rules and default actions\n", digest[:6], len(c.Items)-len(c.Missed()), len(c.Items))
		for _, i := range c.Missed() {
			missed = true
			fmt.Fprintf(w, "  %s %s/%s is not reached by any test\n", b.place(digest, i.Kind, i.Policy, i.Shown, ""), i.Policy, i.Shown)
		}
	}
	return missed
}

// place returns the file and line of a rule, or of a field of a policy.
func (b *bench) place(digest [32]byte, kind, name, rule, field string) string {
	docs, err := policyfile.Documents(b.files[digest])
	if err != nil {
		return name
	}
	for i := range docs {
		d := &docs[i]
		if d.Kind != kind || d.Name != name {
			continue
		}
		switch {
		case rule == "default" && kind == policyfile.KindGroup:
			field = "rules"
		case rule == "default":
			field = "defaultAction"
		default:
			for n := 0; rule != "" && d.States("rules["+strconv.Itoa(n)+"]"); n++ {
				path := "rules[" + strconv.Itoa(n) + "]"
				if "#"+strconv.Itoa(n) == rule || d.Problem(path+".name", policyfile.Problem{}).Value == rule {
					field = path
				}
			}
		}
		p := d.Problem(field, policyfile.Problem{})
		return fmt.Sprintf("%s:%d:%d:", p.File, p.Line, p.Column)
	}
	return "settings:"
}

// mutate lists the mutants that no test detected, and reports whether there are any.
func (b *bench) mutate(w io.Writer) (survived bool, err error) {
	bar := show.NewProgress()
	defer bar.Done()
	for _, c := range suite.Covered(slices.Concat(b.results...)) {
		mutants, err := suite.Mutants(c.Set)
		if err != nil {
			return survived, err
		}
		digest := c.Set.Digest()
		var left []suite.Mutant
		cases := b.casesOf(c.Set)
		for i := range mutants {
			bar.Update("mutants: %d of %d", i, len(mutants))
			if !mutants[i].Killed(c.Set, cases) {
				left = append(left, mutants[i])
			}
		}
		bar.Done()
		fmt.Fprintf(w, "\nmutants of policy set %x: %d of %d detected by a test\n", digest[:6], len(mutants)-len(left), len(mutants))
		for _, m := range left {
			survived = true
			what := "the settings"
			switch {
			case m.Rule != "":
				what = m.Policy + "/" + m.Rule
			case m.Policy != "":
				what = m.Kind + " " + m.Policy
			}
			fmt.Fprintf(w, "  %s no test fails when %s: %s\n", b.place(digest, m.Kind, m.Policy, m.Rule, m.Field), what, m.What)
		}
	}
	return survived, nil
}

// casesOf returns the tests that a policy set decided.
func (b *bench) casesOf(set *policyfile.Set) []suite.Case {
	var cases []suite.Case
	for i, s := range b.suites {
		for k := range b.results[i] {
			r := &b.results[i][k]
			if slices.ContainsFunc(r.Steps, func(step suite.Step) bool { return step.Set.Digest() == set.Digest() }) {
				cases = append(cases, suite.Case{Suite: s, Test: r.Test, Policies: b.policies(s)})
			}
		}
	}
	return cases
}
