package app

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/protection"
)

// ended is a job database of run ends, each of a job of its own.
type ended struct {
	t      *testing.T
	db     *sqlite.DB
	reader *sqlite.Reader
	runs   int
}

func newEnded(t *testing.T) *ended {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := sqlite.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = db.Close(), reader.Close() })
	return &ended{t: t, db: db, reader: reader}
}

// fail adds a run of a job of one of two queues, which failed on a node at a time, changed by some.
func (e *ended) fail(at time.Time, node string, change ...func(*jobdb.Run)) {
	e.t.Helper()
	id := fmt.Sprintf("job-%d", e.runs)
	r := &jobdb.Run{
		JobID: id, RunID: "run-" + id, State: jobdb.RunFailed, Node: node, Flags: jobdb.RunFlags{Attempted: true},
		Times: jobdb.RunTimes{Leased: at.UnixNano(), Ended: at.UnixNano()},
	}
	for _, c := range change {
		c(r)
	}
	j := &jobdb.Job{JobID: id, Queue: fmt.Sprintf("q%d", e.runs%2), Known: true, Times: jobdb.JobTimes{Submitted: at.UnixNano()}}
	e.runs++
	e.write(&jobdb.Changes{Jobs: []*jobdb.Job{j}, Runs: []*jobdb.Run{r}})
}

// write writes rows.
func (e *ended) write(rows *jobdb.Changes) {
	e.t.Helper()
	tx, err := e.db.Begin(e.t.Context(), 0)
	if err != nil {
		e.t.Fatal(err)
	}
	from := tx.Positions()
	to := from
	to.Chain.Seq++
	if err := errors.Join(tx.Write(e.t.Context(), rows), tx.Commit(e.t.Context(), from, to)); err != nil {
		e.t.Fatal(err)
	}
}

// TestGuard: a guard has retries avoid a node, a second one does it not again, one that begins anew remembers, and what
// a person said of a node stays.
func TestGuard(t *testing.T) {
	t.Parallel()
	logs, err := Dir(t.TempDir()).OpenLogs(1, Access{Events: true, Decisions: true, Policies: true})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)
	store, err := policylog.OpenStore(logs.Backend().Policies, logs.Backend().AppendPolicies, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close(); _ = logs.Close() })
	put := func(mode string, on ...policylog.Override) {
		t.Helper()
		if _, err := store.Do(t.Context(), policylog.Edit{Make: func(s policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
			set, _, err := s.Base.With(policyfile.File{Name: "f", Data: []byte("{kind: RetrySettings, spec: {protection: {mode: " + mode + ", share: 0.5}}}")})
			return set, append(slices.Clone(s.ActiveOverrides()), on...), err
		}}); err != nil {
			t.Fatal(err)
		}
	}
	db := newEnded(t)
	metrics := NewMetrics(time.Now, 0)
	fresh := func() *guard {
		return &guard{policies: store, jobs: db.reader.View, log: slog.New(slog.DiscardHandler), now: func() time.Time { return now }, metrics: &metrics.guard}
	}
	looks := func(g *guard, want ...string) {
		t.Helper()
		if err := g.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, err := store.Newest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range s.ActiveOverrides() {
			got = append(got, fmt.Sprintf("%s %s %v", o.Author, o.Node, time.Duration(max(o.AvoidedUntil, o.TrustedUntil)-now.UnixNano())))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	hole := func(node string, change ...func(*jobdb.Run)) {
		for i := range 4 {
			db.fail(now.Add(time.Duration(i-4)*time.Second), node, change...)
		}
	}
	for i := range 8 {
		db.fail(now.Add(-time.Minute), fmt.Sprintf("healthy-%d", i/2), func(r *jobdb.Run) { r.State = jobdb.RunSucceeded })
	}
	one, two := fresh(), fresh()
	hole("bad")
	db.fail(now, "bad", func(r *jobdb.Run) { r.State, r.Times.Leased = jobdb.RunSucceeded, now.Add(-time.Hour).UnixNano() }) // began before the node broke
	hole("lost", func(r *jobdb.Run) { r.Error.Reason = "LeaseExpired" })
	hole("preempting", func(r *jobdb.Run) { r.Flags.Preempted = true })
	hole("well", func(r *jobdb.Run) { r.Times.Leased -= int64(time.Minute) })
	db.fail(now, "well", func(r *jobdb.Run) { r.State, r.Times.Leased = jobdb.RunSucceeded, now.Add(-30*time.Second).UnixNano() })
	hole("full", func(r *jobdb.Run) { r.Flags.Returned, r.Flags.Attempted = true, false })
	looks(one) // no settings
	put("Shadow")
	looks(one)
	if len(one.noted) != 1 || one.noted[0].Node != "bad" {
		t.Errorf("in shadow %v", one.noted)
	}
	put("Enforce")
	two.window, one = one.window, fresh()
	looks(one, "guard bad 5m0s")
	s, _ := store.Newest(t.Context())
	if nodes := s.Set.AvoidNodes(); len(nodes) != 1 || nodes[0].Name != "bad" || !strings.Contains(s.ActiveOverrides()[0].Reason, "4 jobs of 2 queues") || s.Author != policylog.Guard {
		t.Errorf("%v, %+v", nodes, s.Entry)
	}
	looks(two, "guard bad 5m0s")
	if again, _ := store.Newest(t.Context()); again.Generation() != s.Generation() {
		t.Error("two guards made two generations")
	}
	now = now.Add(6 * time.Minute)
	hole("bad")
	hole("good")
	put("Enforce", policylog.Override{Override: policyfile.Override{Node: "good", TrustedUntil: now.Add(time.Hour).UnixNano()}, Author: "ann"})
	looks(fresh(), "ann good 1h0m0s", "guard bad 10m0s")
	// A guard that read the policies before a person decided changes nothing.
	late := fresh()
	if err := late.issue(t.Context(), suspicionsOf("good", now), now.UnixNano()); err != nil {
		t.Fatal(err)
	}
	looks(late, "ann good 1h0m0s", "guard bad 10m0s")
}

func suspicionsOf(node string, now time.Time) []protection.Suspicion {
	return []protection.Suspicion{{Node: node, Since: now.UnixNano(), Until: now.Add(time.Hour).UnixNano()}}
}
