package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit/whynot"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/query"
)

// TestExplainAll: evaluating any decision of the recordings again, from what
// the job database keeps, gives that decision, and the ladder says which rule. The text
// of each, read back, is the record.
func TestExplainAll(t *testing.T) {
	t.Parallel()
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile(name), "--quiet", "--exit-when-drained").exits(t, exitFine)
			from := withOpenPolicies(t, data)
			var all []*jobdb.Decision
			for p := range partitions {
				all = append(all, contents(t, data, p).Decisions...)
			}
			flips := flips{asked: map[whynot.Outcome]int{}, found: map[whynot.Outcome]int{}}
			back := newReadingBack()
			for i, d := range all {
				if i%3 > 0 && testing.Short() {
					continue
				}
				x, err := from.Explain(t.Context(), d.JobID, int(d.RunIndex))
				if err != nil {
					t.Fatalf("run %d of %s: %v", d.RunIndex, d.JobID, err)
				}
				back.check(t, x, i%8 == 0)
				if i%3 > 0 && d.RunIndex == 0 {
					continue // the first run of a job is the easy one
				}
				if x.Basis.Diverged != nil {
					t.Errorf("run %d of %s: %v", d.RunIndex, d.JobID, x.Basis.Diverged)
				}
				matched := ""
				for _, r := range x.Basis.Traces {
					if r.Matched {
						matched = r.Policy + "/" + r.Rule
					}
				}
				asked := d.Code != policy.GroupRestart || d.Group != nil // of a run that was told to stop, the rule is that of the restart
				if want := d.Policy + "/" + d.Rule; asked && d.Rule != "" && d.Rule != "default" && matched != want {
					t.Errorf("run %d of %s: the ladder says %q, decided by %q", d.RunIndex, d.JobID, matched, want)
				}
				if i%20 == 0 || os.Getenv("REFLOAT_WHY_NOT_ALL") != "" {
					flips.check(t, from, x)
				}
				var out bytes.Buffer
				text.Case(&out, x)
				for _, want := range []string{d.Code.String(), fmt.Sprintf("job:  %d before, %d after", x.Basis.Before.Granted, d.GlobalUsed), d.RunID} {
					if !strings.Contains(out.String(), want) {
						t.Errorf("explain of run %d of %s lacks %q:\n%s", d.RunIndex, d.JobID, want, &out)
					}
				}
			}
			t.Logf("%d decisions", len(all))
			back.report(t)
			flips.report(t)
		})
	}
}

// withOpenPolicies is the source of a data directory whose policies log is opened once.
func withOpenPolicies(t *testing.T, data string) *query.Source {
	t.Helper()
	d := deployment{data: data}
	logs, err := app.Dir(data).OpenLogs(0, app.Access{})
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := logs.Recorded()
	if err != nil {
		t.Fatal(err)
	}
	store, err := policylog.OpenStore(recorded.Policies, nil, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(store.Close(), logs.Close()); err != nil {
			t.Error(err)
		}
	})
	from := d.source(nil)
	from.Policies = func(_ context.Context, use func(*policylog.Store) error) error { return use(store) }
	return from
}

// flips counts for how many decisions a change was found that gives another outcome.
type flips struct{ asked, found map[whynot.Outcome]int }

// check holds every claimed change to be true: made again by its text and evaluated, it gives the asked outcome, and
// a limit that moves less does not.
func (f *flips) check(t *testing.T, from *query.Source, e *query.Explanation) {
	t.Helper()
	for _, name := range whynot.Outcomes() {
		want := whynot.Outcome(name)
		answer, err := from.WhyNotOf(t.Context(), e, name)
		if none, ok := errors.AsType[*query.NoAnswer](err); ok {
			if strings.Contains(none.Why, "gives another decision") {
				t.Errorf("run %s: %v", e.Decision.RunID, none)
			}
			continue
		}
		if err != nil || answer.Partial {
			t.Fatalf("run %s: %v", e.Decision.RunID, err)
		}
		changes := answer.Found
		f.asked[want]++
		if len(changes) == 0 {
			t.Logf("run %s (%s): nothing gives %s", e.Decision.RunID, e.Decision.Code, want)
			continue
		}
		f.found[want]++
		for i := range changes {
			c := &changes[i]
			if v, _, err := c.Input.Evaluate(); err != nil || whynot.OutcomeOf(&v) != want {
				t.Errorf("run %s: %s gives %s: %v", e.Decision.RunID, c, v.Code, err)
			}
			if i < 3 { // the smallest are what people read
				f.again(t, e, c, want)
			}
		}
	}
}

// again makes a change of the policies by its text alone, and one that moves a limit one less.
func (f *flips) again(t *testing.T, e *query.Explanation, c *whynot.Change, want whynot.Outcome) {
	t.Helper()
	edit := c.Edits[0]
	if len(c.Edits) > 1 || edit.Kind != whynot.Policies {
		return
	}
	outcome := func(text string) whynot.Outcome {
		set, err := e.Basis.Policies.Base.Assign(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		in := whynot.Input{Base: set, Failure: e.Basis.Facts, Counts: e.Basis.Before, Budget: c.Input.Budget, Member: c.Input.Member}
		v, _, err := in.Evaluate()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return whynot.OutcomeOf(&v)
	}
	if got := outcome(edit.Text); got != want {
		t.Errorf("run %s: %s gives %s, want %s", e.Decision.RunID, edit.Text, got, want)
	}
	var now, to int
	field, value, _ := strings.Cut(edit.Text, "=")
	if _, err := fmt.Sscan(edit.Now+" "+value, &now, &to); edit.Size != whynot.Number || err != nil || now == to {
		return
	}
	less := to - 1
	if to < now {
		less = to + 1
	}
	if got := outcome(fmt.Sprintf("%s=%d", field, less)); got == want {
		t.Errorf("run %s: %s would do, %d is claimed", e.Decision.RunID, field, to)
	}
}

func (f *flips) report(t *testing.T) {
	t.Helper()
	asked, found := 0, 0
	for _, name := range whynot.Outcomes() {
		o := whynot.Outcome(name)
		asked, found = asked+f.asked[o], found+f.found[o]
		t.Logf("--why-not %s: a change is found for %d of %d", o, f.found[o], f.asked[o])
	}
	if found*100 < asked*95 {
		t.Errorf("a change is found for %d of %d", found, asked)
	}
}

// TestExplainQueue: what it counts is what the lists have.
func TestExplainQueue(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	of := func(args ...string) []string {
		return slices.Collect(strings.Lines(ctl(t, append(args, "--data", data, "-o", "json")...).exits(t, exitFine).out))
	}
	first := jsonLine(t, of("get", "decisions", "--limit", "1")[0])
	queue, set := first.text("queue"), first.text("jobSet")
	for _, c := range []struct{ what, filter []string }{
		{[]string{"queue", queue}, []string{"--queue", queue}},
		{[]string{"job-set", queue + "/" + set}, []string{"--queue", queue, "--job-set", set}},
	} {
		var got query.QueueStory
		if err := json.Unmarshal([]byte(of(append([]string{"explain", "--limit", "0"}, c.what...)...)[0]), &got); err != nil {
			t.Fatal(err)
		}
		list := func(args ...string) []string { return of(append(append([]string{"get"}, args...), c.filter...)...) }
		codes, rules := map[string]int{}, map[string]int{}
		decisions := list("decisions")
		for _, line := range decisions {
			d := jsonLine(t, line)
			codes[d.text("code")]++
			if d.text("rule") != "" {
				rules[d.text("policy")+"/"+d.text("rule")]++
			}
		}
		if len(decisions) == 0 || got.Decisions != len(decisions) || got.Retries+got.Failures != got.Decisions {
			t.Errorf("%v: %d decisions, %d retries and %d failures, want %d", c.what, got.Decisions, got.Retries, got.Failures, len(decisions))
		}
		if !slices.Equal(got.Codes, query.Ranked(codes)) || !slices.Equal(got.Rules, query.Ranked(rules)) {
			t.Errorf("%v: codes %v, rules %v; want %v, %v", c.what, got.Codes, got.Rules, codes, rules)
		}
		for _, l := range []struct {
			got  query.Outcomes
			want []string
		}{{got.Failed, list("jobs", "--state", "Failed")}, {got.Pending, list("jobs", "--waiting")}} {
			if l.got.Count != len(l.want) || len(l.got.Jobs) != len(l.want) {
				t.Errorf("%v: %d jobs, %d listed, want %d", c.what, l.got.Count, len(l.got.Jobs), len(l.want))
			}
		}
		if p := got.Policies; p == nil || p.Generation != 1 || len(p.Applying) == 0 || len(p.Changes) == 0 {
			t.Errorf("%v: policies %+v", c.what, p)
		}
		ctl(t, append(append([]string{"explain"}, c.what...), "--data", data)...).exits(t, exitFine).prints(t, "Policies in force, generation 1, for jobs that name none: ")
	}
	ctl(t, "explain", "queue", "nowhere", "--data", data).exits(t, exitFinding).prints(t, "no queue is called \"nowhere\"")
	ctl(t, "explain", "job-set", "nowhere", "--data", data).exits(t, exitUsage).prints(t, "want QUEUE/SET")
}
