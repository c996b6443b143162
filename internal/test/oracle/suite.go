package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Suite is what one file of rows proves.
type Suite struct {
	File string
	// Run reads a row, leaves it out, or compares it.
	Run func(c *Check)
	// Silent are the expected fields that Run does not compare, with the reason:
	// paths like expected.status.conditions[].message, each with all below it.
	Silent map[string]string
	// Same says that two values of an expected field mean the same to us; nil:
	// only equal ones do.
	Same func(path string, a, b any) bool
	// Optional are texts of which it matters whether they are there.
	Optional []string
	// MayRunNone says that the file may hold no row that is compared.
	MayRunNone bool
}

// Check is one row at work.
type Check struct {
	row      *Row
	out      string
	adapted  []string
	findings []string
}

// Reason is a reason to leave a row out, where it holds.
type Reason struct {
	Holds bool
	Why   string
}

// Result is what became of a row.
type Result struct {
	LeftOut  string   // why; "" if it was compared
	Adapted  []string // what was changed about it to fit our words, and why
	Findings []string // where we differ from it
}

// Failed says whether the row shows that we differ.
func (r *Result) Failed() bool { return len(r.Findings) > 0 }

// Inputs reads the parts of the row that are not expected: pairs of a part's
// name and a pointer. It reports false, and leaves the row out, where the row
// has a part, a field or a shape that the pointers do not have.
func (c *Check) Inputs(parts map[string]any) bool {
	if e := Unexpanded(c.row.without("expected")); e != "" {
		c.out = "built by a Go expression that is not known here"
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if err := c.row.read(name, parts[name], true); err != nil {
			c.out = fmt.Sprintf("not read here: %v", err)
			return false
		}
	}
	for _, name := range c.row.parts() {
		if name != "expected" && parts[name] == nil {
			c.out = "not read here: " + name
			return false
		}
	}
	return true
}

// Expected reads what the row expects. It skips fields that v does not have: Suite.Silent must list them, or the
// mutations fail.
func (c *Check) Expected(v any) bool { return c.Part("expected", v) }

// Part reads a part of the row; a mismatch in type is a finding.
func (c *Check) Part(name string, v any) bool {
	err := c.row.read(name, v, false)
	if err != nil {
		c.Errorf("%v", err)
	}
	return err == nil
}

// ID is that of the row.
func (c *Check) ID() string { return c.row.ID }

// LeaveOut leaves the row out for the first reason that holds.
func (c *Check) LeaveOut(reasons ...Reason) bool {
	for _, r := range reasons {
		if r.Holds {
			c.out = r.Why
			return true
		}
	}
	return false
}

// Adapt notes that the row was changed to fit our words.
func (c *Check) Adapt(why string) {
	if !slices.Contains(c.adapted, why) {
		c.adapted = append(c.adapted, why)
	}
}

// Errorf reports that we differ from the row.
func (c *Check) Errorf(format string, args ...any) {
	c.findings = append(c.findings, fmt.Sprintf(format, args...))
}

// Equal reports a field that we answer otherwise than the row.
func Equal[T comparable](c *Check, field string, got, want T) {
	if got != want {
		c.Errorf("%s: got %v, the row says %v", field, got, want)
	}
}

// Try runs one row.
func (s *Suite) Try(r *Row) Result {
	c := &Check{row: r}
	s.Run(c)
	if c.out != "" && len(c.findings) == 0 {
		return Result{LeftOut: c.out}
	}
	return Result{Adapted: c.adapted, Findings: c.findings}
}

// Test runs all rows of the file, then their mutations, and logs a summary.
func (s *Suite) Test(t *testing.T) {
	t.Helper()
	rows, err := Load(s.File)
	if err != nil {
		t.Fatal(err)
	}
	left, adapted := map[string][]string{}, map[string][]string{}
	var ran []Row
	for i := range rows {
		r := &rows[i]
		result := s.Try(r)
		switch {
		case result.Failed():
			t.Errorf("%s: %s", r.ID, strings.Join(result.Findings, "\n\t"))
		case result.LeftOut != "":
			left[result.LeftOut] = append(left[result.LeftOut], r.ID)
		default:
			ran = append(ran, *r)
			for _, why := range result.Adapted {
				adapted[why] = append(adapted[why], r.ID)
			}
		}
	}
	t.Logf("%s: %d rows, %d passed, %d left out", s.File, len(rows), len(ran), count(left))
	list(t, "left out", left)
	list(t, "adapted", adapted)
	if len(ran) == 0 && !s.MayRunNone {
		t.Errorf("%s: no row passed", s.File)
	}
	s.mutate(t, rows, ran)
}

func count(by map[string][]string) (n int) {
	for _, ids := range by {
		n += len(ids)
	}
	return n
}

func list(t *testing.T, what string, by map[string][]string) {
	t.Helper()
	for _, why := range slices.Sorted(maps.Keys(by)) {
		t.Logf("  %s: %d: %s (%s)", what, len(by[why]), why, strings.Join(by[why], ", "))
	}
}

// without is the row's parts but one.
func (r *Row) without(part string) map[string]any {
	out := map[string]any{}
	for _, name := range r.parts() {
		if name != part {
			out[name] = r.fields[name]
		}
	}
	return out
}

// String is the row as JSON.
func (r *Row) String() string {
	b, err := json.Marshal(r.fields)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
