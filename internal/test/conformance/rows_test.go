package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/convert"
	"github.com/refloat/refloat/internal/test/conformance"
)

// score counts the rows of one system.
type score struct {
	system       string
	rows, passed int
	leftOut      []string
}

func (s *score) String() string {
	text := fmt.Sprintf("%s: %d rows, %d passed, %d left out", s.system, s.rows, s.passed, len(s.leftOut))
	for _, why := range s.leftOut {
		text += "\n    " + why
	}
	return text
}

// leftOut says why a row is not run; "": it is.
type leftOut func(id string, raw json.RawMessage) string

// runRows runs the rows of a file of testdata/oracles: a manifest is made of each, it is
// converted, and its policies decide what the row lets happen.
func runRows[T any](t *testing.T, s *score, file string, out leftOut, run func(t *testing.T, row T)) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "oracles", file))
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Rows []json.RawMessage }
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, raw := range all.Rows {
		var id struct{ ID string }
		var row T
		if err := json.Unmarshal(raw, &id); err != nil {
			t.Fatal(err)
		}
		s.rows++
		if why := out(id.ID, raw); why != "" {
			s.leftOut = append(s.leftOut, id.ID+": "+why)
			continue
		}
		if err := json.Unmarshal(raw, &row); err != nil {
			t.Fatalf("%s: %v", id.ID, err)
		}
		if t.Run(id.ID, func(t *testing.T) { run(t, row) }) {
			s.passed++
		}
	}
}

// because leaves rows out by id, or by a prefix that ends in *.
func because(reasons map[string]string) leftOut {
	return func(id string, _ json.RawMessage) string {
		for pattern, why := range reasons {
			if prefix, ok := strings.CutSuffix(pattern, "*"); pattern == id || ok && strings.HasPrefix(id, prefix) {
				return why
			}
		}
		return ""
	}
}

// workload is a converted manifest that runs.
type workload struct {
	*testing.T
	*conformance.Driver
	group string
}

// start converts a manifest and submits its jobs.
func start(t *testing.T, manifest map[string]any) *workload {
	t.Helper()
	text, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	d, r, err := conformance.FromManifests(convert.File{Name: "manifest.json", Data: text})
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return &workload{T: t, Driver: d, group: r.Submits[0].Jobs[0].Annotations[events.AnnotationGroup]}
}

func (w *workload) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%v, after\n%s", err, strings.Join(w.AllRecords(), "\n"))
	}
}

// run starts a job as soon as it may.
func (w *workload) run(id string) {
	w.Helper()
	if j := w.Job(id); j.State == conformance.Queued {
		w.Advance(max(0, j.RetryAfter.Sub(w.Now)))
		w.must(w.Start(id))
	}
}

// fail runs a job, if it does not run, and fails it.
func (w *workload) fail(id string, f conformance.Failure) {
	w.Helper()
	w.run(id)
	w.Advance(time.Minute)
	w.must(w.Fail(f, id))
}

func (w *workload) succeed(id string) {
	w.Helper()
	w.run(id)
	w.must(w.Succeed(id))
}

// count counts the jobs in some states.
func (w *workload) count(states ...conformance.State) (n int) {
	for _, j := range w.Jobs() {
		if slices.Contains(states, j.State) {
			n++
		}
	}
	return n
}

// active counts the members that are started and not over.
func (w *workload) active() int { return w.count(conformance.Queued, conformance.Running) }

// TestConformance runs the rows of other systems' own tests through conversion and engine, and prints what
// became of them.
func TestConformance(t *testing.T) {
	t.Parallel()
	var all []*score
	for system, run := range map[string]func(*testing.T, *score){"Job": jobRows, "JobSet": jobSetRows, "Volcano Job": volcanoRows} {
		s := &score{system: system}
		all = append(all, s)
		t.Run(system, func(t *testing.T) { run(t, s) })
	}
	slices.SortFunc(all, func(a, b *score) int { return strings.Compare(a.system, b.system) })
	for _, s := range all {
		t.Log(s)
		if s.passed == 0 && s.system != "Volcano Job" {
			t.Errorf("%s: no row ran", s.system)
		}
	}
}

// volcanoRows leaves all rows out: see the reason.
func volcanoRows(t *testing.T, s *score) {
	why := func(string, json.RawMessage) string {
		return "which policy of a task or a job answers an event: conversion says that policies are lost (GROUPS 12)"
	}
	runRows(t, s, "volcano_apply_policies.json", why, func(*testing.T, struct{}) {})
}
