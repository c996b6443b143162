package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whynot"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/test/gangtest"
	"github.com/refloat/refloat/internal/test/model"
)

// TestGroupStory: why was this gang not restarted, and what would have to change?
func TestGroupStory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, feed := filepath.Join(dir, "data"), filepath.Join(dir, "gang.jsonl.gz")
	if err := gangtest.Write(feed, 64); err != nil {
		t.Fatal(err)
	}
	ctl(t, "up", "--data", data, "--policies", writeFile(t, dir, "p.yaml", gangtest.Policies), "--feed", feed, "--quiet", "--exit-when-drained").exits(t, exitFine)
	var all string
	for _, args := range [][]string{
		{"get", "group", "gang/train"},
		{"explain", gangtest.Member(17), "--run", "1", "--why-not", "Retry"},
		{"explain", gangtest.Member(20)},
		{"explain", gangtest.Member(18)},
		{"whatif", "--set", `policies.infra.rules[+]={"action":"Retry","name":"added","onExitCodes":{"operator":"In","values":[139]}}`},
		{"get", "group", "pair"},
		{"explain", "pair-2", "--why-not", "Retry"},
		{"get", "group", "gang/lost"},
		{"get", "group", "kept"},
		{"get", "groups"},
		{"get", "jobs", "--group", "pair"},
	} {
		r := ctl(t, append(args, "--data", data)...)
		all += "$ refloatctl"
		for _, a := range args {
			all += " " + a
		}
		all += "\n" + r.out + r.err + "\n"
	}
	golden(t, "groupstory.golden.txt", strings.ReplaceAll(all, data, "DATA"))
	// What -o name prints of a list is taken for one of it.
	for list, verb := range map[string][]string{"jobs": {"get", "job"}, "groups": {"get", "group"}} {
		names := strings.Fields(ctl(t, "get", list, "--data", data, "-o", "name").exits(t, exitFine).out)
		if len(names) < 4 {
			t.Errorf("get %s -o name prints %q", list, names)
		}
		for _, name := range names {
			if list == "jobs" && strings.Contains(name, "gang0") { // as all others of their gang
				continue
			}
			ctl(t, append(verb, name, "--data", data)...).exits(t, exitFine)
		}
	}
	ctl(t, "explain", "group", "ml/run-7/gang/train", "--data", data).exits(t, exitFine).prints(t, "GroupBound")
	ctl(t, "explain", "gang", "train", "--data", data).exits(t, exitUsage).prints(t, "did you mean `refloatctl explain group train`?")
	ctl(t, "get", "group", "train", "--data", data).exits(t, exitFinding).prints(t, "did you mean gang/train? `refloatctl get groups")
	// What is printed to be copied runs.
	copied := regexp.MustCompile(`refloatctl ((?:explain|get job) .* --data \S+)`).FindAllStringSubmatch(all, -1)
	if len(copied) != 5 {
		t.Errorf("%d commands are printed to be copied, want 5: %s", len(copied), all)
	}
	for _, c := range copied {
		if r := ctl(t, strings.Fields(c[1])...); r.code != exitFine || r.out == "" {
			t.Errorf("%s: %d, %s", c[0], r.code, r.err)
		}
	}
}

// TestGroupHistories: of random histories of groups, --why-not evaluates decisions on members with their group as it was, and the
// last generation of a story has the members that the units have.
func TestGroupHistories(t *testing.T) {
	t.Parallel()
	var n groupFlips
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	t.Run("seeds", func(t *testing.T) {
		for seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				n.ask(t, seed)
			})
		}
	})
	asked, other, restarts := n.asked.Load(), n.other.Load(), n.restarts.Load()
	t.Logf("%d decisions were asked about, of which %d are decided otherwise with the group that the rows have; %d changes restart a group", asked, other, restarts)
	if other*50 > asked || !testing.Short() && (asked < 30 || restarts == 0) {
		t.Error("the group is hardly ever as it was")
	}
}

// groupFlips counts decisions on members that --why-not was asked about.
type groupFlips struct {
	asked, other atomic.Int64 // decided otherwise with the group that the rows have
	restarts     atomic.Int64 // changes that restart a group
}

func (n *groupFlips) ask(t *testing.T, seed uint64) {
	t.Helper()
	h := model.GenerateGroups(seed, model.GroupOptions{Steady: true, Clean: true, Drain: seed%2 == 0})
	var entries []recording.Entry
	for _, m := range h.Messages {
		entries = append(entries, recording.Entry{Producer: "test", Message: eventlog.Message{
			Position: eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}, Publish: m.Publish, Key: fmt.Sprint(seed), Payload: m.Payload,
		}})
	}
	dir := t.TempDir()
	feed, policies, data := filepath.Join(dir, "h.jsonl.gz"), filepath.Join(dir, "policies"), filepath.Join(dir, "data")
	writeRecording(t, feed, entries)
	writePolicies(t, policies, h.Policies)
	ctl(t, "up", "--data", data, "--policies", policies, "--feed", feed, "--quiet", "--exit-when-drained", "--allow-empty").exits(t, exitFine)
	from := withOpenPolicies(t, data)
	var decisions []audit.Decision
	_, err := from.ListDecisions(t.Context(), &query.List{}, func(d *audit.Decision) error {
		decisions = append(decisions, *d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range decisions {
		d := &decisions[i]
		if d.Replica == nil {
			continue
		}
		e, err := from.Explain(t.Context(), d.JobID, int(d.RunIndex))
		if err != nil || e.Decision.RunID != d.RunID || !audit.Asked(e.Basis.Decision) {
			continue // of another run with this index, or by another failure
		}
		want := whynot.Fail
		if !d.Requeues() {
			want = whynot.Retry
		}
		n.asked.Add(1)
		found, err := from.WhyNotOf(t.Context(), e, string(want))
		none := (*query.NoAnswer)(nil)
		switch {
		case errors.As(err, &none) && strings.Contains(none.Why, "gives another decision"):
			n.other.Add(1)
			t.Log(none)
		case errors.As(err, &none), errors.Is(err, audit.ErrDifferent):
		case err != nil:
			t.Fatal(err)
		default:
			for i := range found.Changes {
				if found.Changes[i].GroupAction == "RestartGroup" {
					n.restarts.Add(1)
				}
			}
		}
	}
	checkStories(t, from)
}

func checkStories(t *testing.T, from *query.Source) {
	t.Helper()
	var keys []query.GroupKey
	_, err := from.ListGroups(t.Context(), &query.List{}, func(g *query.Group) error {
		keys = append(keys, query.GroupKey{Queue: g.Queue, JobSet: g.JobSet, Group: g.Group})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		g, err := from.Group(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		want, got, members := query.Unit{}, map[string]int{}, 0
		for _, p := range g.Parts {
			for _, u := range p.Units {
				members += len(u.Members)
				want.Active, want.Held, want.Succeeded, want.Stopped = want.Active+u.Active, want.Held+u.Held, want.Succeeded+u.Succeeded, want.Stopped+u.Stopped
				want.Failed, want.Cancelled = want.Failed+u.Failed, want.Cancelled+u.Cancelled
			}
		}
		for _, r := range g.Story.Members {
			var last []query.Tally
			for _, n := range r.Generations {
				if len(n.States) > 0 {
					last = n.States
				}
			}
			for _, s := range last {
				got[s.Key] += s.Count
			}
			members -= int(r.Members)
		}
		if members != 0 || got["Active"] != want.Active || got["Held"] != want.Held || got["Succeeded"] != want.Succeeded || got["Stopped"] != want.Stopped ||
			got["Failed"]+got["FailedUnit"] != want.Failed || got["Cancelled"] != want.Cancelled {
			t.Errorf("group %v: the units have %+v, the story %v, and %d members more", k, want, got, members)
		}
	}
}
