package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/debug"
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
	// Optional are expected fields, in no list, of which it matters whether they are there.
	Optional []string

	name string // of the test
}

// Check is one row at work.
type Check struct {
	row      *Row
	name     string
	forced   bool // reasons to leave the row out are ignored
	written  bool
	probed   bool // the row has every field of the schema: only whether it can be read is of interest
	out      string
	adapted  []string
	findings []string
}

// Reason is a reason to leave a row out, where it holds: what our semantics do otherwise.
type Reason struct {
	Holds bool
	Why   string
}

// Result is what became of a row.
type Result struct {
	LeftOut  string   // why; "" if it was compared
	Despite  string   // the reason to leave it out that is not true of it: it passes
	Adapted  []string // what was changed about it to fit our words, and why
	Findings []string // where we differ from it
}

// Failed says whether the row shows that we differ.
func (r *Result) Failed() bool { return len(r.Findings) > 0 }

// Inputs reads the parts of the row that are not expected: pairs of a part's
// name and a pointer. It reports false, and the suite differs from the row, where the row
// has a part, a field or a shape that the pointers do not have.
func (c *Check) Inputs(parts map[string]any) bool {
	if c.CannotRun(Reason{Unexpanded(c.row.without("expected")) != "", "built by a Go expression that is not known here"}) {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if err := c.row.read(name, parts[name], true); err != nil {
			c.Errorf("the suite does not read %v", err)
		}
	}
	for _, name := range c.row.parts() {
		if name != "expected" && parts[name] == nil {
			c.Errorf("the suite does not read %s", name)
		}
	}
	return len(c.findings) == 0 && !c.probed
}

// Read reads what v has of the whole row, inputs and expectations.
func (c *Check) Read(v any) bool {
	if c.CannotRun(Reason{Unexpanded(c.row.without("expected")) != "", "built by a Go expression that is not known here"}) {
		return false
	}
	data, err := json.Marshal(c.row.fields)
	if err == nil {
		err = decode(data, v, false)
	}
	if err != nil {
		c.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return err == nil && !c.probed
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

// Name is the row's name among all of all suites.
func (c *Check) Name() string { return c.name }

// AsWritten says whether the row runs as it is in its file: nothing that it expects was changed, and no reason to leave
// it out is ignored.
func (c *Check) AsWritten() bool { return c.written }

// LeaveOut leaves the row out for the first reason that holds. Afterwards the row runs as if none did, to see that the
// reason is true: a row that passes then is not left out.
func (c *Check) LeaveOut(reasons ...Reason) bool {
	return !c.forced && c.CannotRun(reasons...)
}

// CannotRun leaves the row out for a reason without which it cannot run at all.
func (c *Check) CannotRun(reasons ...Reason) bool {
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

// stopped is what Fatalf panics with.
type stopped struct{}

// Fatalf reports that we differ from the row, and ends its run.
func (c *Check) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	panic(stopped{})
}

// Helper does nothing: it makes a Check look like a testing.TB to those who report by either.
func (c *Check) Helper() {}

// Equal reports a field that we answer otherwise than the row.
func Equal[T comparable](c *Check, field string, got, want T) {
	if got != want {
		c.Errorf("%s: got %v, the row says %v", field, got, want)
	}
}

// EqualIf is Equal of a field that a row may lack.
func EqualIf[T comparable](c *Check, field string, got T, want *T) {
	if want != nil {
		Equal(c, field, got, *want)
	}
}

// run runs one row. A panic is a finding, so that the other rows run.
func (s *Suite) run(c *Check) (ran *Check) {
	c.name, ran = s.name+"/"+c.row.ID, c
	defer func() {
		p := recover()
		if _, stop := p.(stopped); p != nil && !stop {
			c.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	s.Run(c)
	return ran
}

// Try runs one row.
func (s *Suite) Try(r *Row) Result { return s.try(r, nil) }

// try runs one row. seen is what other rows of the file expect.
func (s *Suite) try(r *Row, seen map[string][]any) Result {
	c := s.run(&Check{row: r, written: true})
	if c.out == "" || len(c.findings) > 0 {
		return Result{Adapted: c.adapted, Findings: c.findings}
	}
	forced := s.run(&Check{row: r, forced: true})
	if forced.out != "" || len(forced.findings) > 0 {
		return Result{LeftOut: c.out}
	}
	mutations := s.Mutations(r, seen)
	if len(mutations) == 0 || slices.ContainsFunc(mutations, func(m Mutation) bool { return !s.noticed(&m, true) }) {
		return Result{LeftOut: c.out}
	}
	return Result{Adapted: forced.adapted, Despite: c.out}
}

// noticed says whether the suite reports a changed row.
func (s *Suite) noticed(m *Mutation, forced bool) bool {
	return len(s.run(&Check{row: &m.Row, forced: forced}).findings) > 0
}

// Test runs all rows of the file, then their mutations, and logs a summary.
func (s *Suite) Test(t *testing.T) {
	t.Helper()
	own := *s
	own.name = t.Name()
	schema, err := ReadSchema()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Load(s.File)
	if err != nil {
		t.Fatal(err)
	}
	own.declared(t, schema)
	seen := seenIn(rows)
	left, adapted, despite := map[string][]string{}, map[string][]string{}, map[string][]string{}
	passed, changed := 0, 0
	for i := range rows {
		r := &rows[i]
		t.Run(r.ID, func(t *testing.T) {
			for _, wrong := range r.Wrong {
				t.Errorf("%s: row %s: %s", s.File, r.ID, wrong)
			}
			if len(r.Wrong) > 0 {
				return
			}
			result := own.try(r, seen)
			for _, finding := range result.Findings {
				t.Errorf("%s: row %s: %s", s.File, r.ID, finding)
			}
			if result.LeftOut != "" {
				left[result.LeftOut] = append(left[result.LeftOut], r.ID)
			}
			if result.LeftOut != "" || result.Failed() {
				return
			}
			passed++
			if result.Despite != "" {
				despite[result.Despite] = append(despite[result.Despite], r.ID)
			}
			for _, why := range result.Adapted {
				adapted[why] = append(adapted[why], r.ID)
			}
			changed += own.mutate(t, r, seen, result.Despite != "")
		})
	}
	for why, ids := range despite {
		if len(left[why]) == 0 && len(ids) > 1 { // one row may pass by chance
			t.Errorf("%s: leaves out %d rows that pass, and no other; the reason is not true: %s (%s)", s.File, len(ids), why, strings.Join(ids, ", "))
		}
	}
	t.Logf("%s: %d rows, %d passed, %d left out", s.File, len(rows), passed, count(left))
	list(t, "left out", left)
	list(t, "passed, though a reason to leave it out holds", despite)
	list(t, "adapted", adapted)
	t.Logf("  mutations: %d expected values changed", changed)
	if passed == 0 {
		t.Errorf("%s: no row passed", s.File)
	}
}

// declared holds that schema.yaml names the package of the suite, and that the suite reads every field of the schema.
func (s *Suite) declared(t *testing.T, schema *Schema) {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Rel(root, here)
	if err != nil || !slices.Contains(schema.Files[s.File].ReadBy, filepath.ToSlash(dir)) {
		t.Errorf("schema.yaml does not say that %s reads %s (%v)", dir, s.File, err)
	}
	for _, last := range []bool{false, true} {
		fields := schema.whole(s.File, last)
		r := NewRow(fields)
		for _, finding := range s.run(&Check{row: &r, probed: true}).findings {
			t.Errorf("%s: a row of the schema: %s", s.File, finding)
		}
	}
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
