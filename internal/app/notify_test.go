package app

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/notify"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// TestAnnouncer: every change of policies and overrides is an event once, in order, also an end that nobody wrote; who does not
// decide partition 0 passes over what it sees.
func TestAnnouncer(t *testing.T) {
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
	write := func(author, reason, settings string, change func([]policylog.Override) []policylog.Override) {
		t.Helper()
		now = now.Add(time.Second)
		if _, err := store.Do(t.Context(), policylog.Edit{Author: author, Reason: reason, Make: func(s policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
			set := s.Base
			if settings != "" {
				var err error
				if set, _, err = s.Base.With(policyfile.File{Name: "f", Data: []byte("{kind: RetrySettings, spec: {" + settings + "}}")}); err != nil {
					return nil, nil, err
				}
			}
			return set, change(slices.Clone(s.ActiveOverrides())), nil
		}}); err != nil {
			t.Fatal(err)
		}
	}
	keep := func(on []policylog.Override) []policylog.Override { return on }
	add := func(author, reason string, o policyfile.Override) func([]policylog.Override) []policylog.Override {
		return func(on []policylog.Override) []policylog.Override {
			return append(on, policylog.Override{Override: o, Author: author, Reason: reason, Time: now.UnixNano()})
		}
	}
	none := func([]policylog.Override) []policylog.Override { return nil }
	var events []notify.Event
	mine := true
	fresh := func() *announcer {
		a := &announcer{policies: store, decides: func() bool { return mine }, notify: func(e notify.Event) { events = append(events, e) }, log: slog.New(slog.DiscardHandler), now: func() time.Time { return now }}
		if err := a.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		return a
	}
	ids := map[string]bool{}
	expect := func(a *announcer, want ...string) {
		t.Helper()
		events = nil
		for range 2 { // the second look finds nothing
			if err := a.look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, e := range events {
			got = append(got, e.Type+" | "+e.Text)
			if ids[e.ID] {
				t.Errorf("%s: the id of another event", e.Text)
			}
			ids[e.ID] = true
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	write("ann", "before", "globalMaxRetries: 1", keep)
	a := fresh()
	expect(a)
	minute := now.Add(time.Minute).UnixNano()
	write("ann", "more", "globalMaxRetries: 2", keep)
	write("ann", "INC-1", "", add("ann", "INC-1", policyfile.Override{Queue: "ml", Kill: true}))
	write("guard", "", "", add("guard", "4 jobs of 2 queues", policyfile.Override{Node: "n1", AvoidedUntil: minute}))
	write("bob", "registry is down", "", add("bob", "registry is down", policyfile.Override{Category: "image-pull", HeldUntil: minute}))
	expect(a,
		"policies.changed | Refloat: policy generation 2: RetrySettings updated; by ann: more. A partition decides by it from its next failure on",
		"retries.killed | Refloat: retries of queue ml are killed; by ann: INC-1",
		"node.suspected | Refloat: retries avoid node n1 until 2026-12-01T06:01:01Z; by guard: 4 jobs of 2 queues",
		"breaker.opened | Refloat: retries of all queues after failures of category image-pull are held until 2026-12-01T06:01:01Z; by bob: registry is down")
	other := fresh()
	now = now.Add(2 * time.Minute)
	over := []string{
		"node.cleared | Refloat: the time is over: retries avoid node n1 until 2026-12-01T06:01:01Z",
		"breaker.closed | Refloat: the time is over: retries of all queues after failures of category image-pull are held until 2026-12-01T06:01:01Z",
	}
	write("cy", "noise", "globalMaxRetries: 3", keep) // with overrides that are over
	changed := "policies.changed | Refloat: policy generation 6: RetrySettings updated; by cy: noise. A partition decides by it from its next failure on"
	expect(a, append(over, changed)...)
	mine = false
	expect(other)
	mine = true
	write("ann", "fixed", "", none)
	expect(a, "retries.resumed | Refloat: no longer: retries of queue ml are killed; by ann: fixed")
	seen := ids
	ids = map[string]bool{}
	expect(other, "retries.resumed | Refloat: no longer: retries of queue ml are killed; by ann: fixed")
	for id := range ids {
		if !seen[id] {
			t.Error("two processes give one event two ids")
		}
	}
}
