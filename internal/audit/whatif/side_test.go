package whatif_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/test/model"
)

// TestSidesByHand: two candidates and what happened, in one table. What the history has is known of every side, and the rest is
// estimated by what the history has.
func TestSidesByHand(t *testing.T) {
	t.Parallel()
	held := func(runs, ofJob1 int64) audit.Spent { // a minute each, on two cores
		return audit.SpentOf(&jobdb.Spent{Runs: uint64(runs), Unknown: uint64(ofJob1), CPU: (runs - ofJob1) * 60 * 2000})
	}
	// By limit 5: job0 and job3 succeed after 1 and 3 failures, job1 after 4, job2 fails for good at its sixth.
	events := story(t, 1, 4, 6, 3)
	for _, history := range []struct {
		name string
		logs audit.Logs
	}{{"decided", decided(t, events, limited(t, 5), 2, "")}, {"events alone", audit.Logs{Events: &events}}} {
		end := events[len(events)-1].Publish
		alone := history.logs.Decisions == nil
		if alone { // without decisions, the history says itself that it failed the job
			all := append(append(topic{}, events...), jobErrors(t, "job2", end), jobErrors(t, "other", end+3600e9))
			all[len(all)-1].Position.Entry++
			history.logs.Events = &all
		} else { // and the decision of job2 is long ago
			history.logs = decided(t, append(append(topic{}, events...), jobErrors(t, "other", end+3600e9)), limited(t, 5), 2, "")
		}
		results, err := whatif.Run(t.Context(), history.logs, whatif.Options{
			Candidates: []whatif.Candidate{{Name: "2", Set: limited(t, 2)}, {Name: "9", Set: limited(t, 9)}}, Against: &whatif.Candidate{Name: "3", Set: limited(t, 3)}, Semantics: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		happened := whatif.Side{Name: whatif.Happened, Jobs: 4, Retries: 13, Runs: 13, RunSeconds: 13 * 60, Held: held(13, 4), Succeeded: 3, Failed: 1}
		basis := "no 6th retry by infra/oom took place, its 5th succeeded in 0 of 1 cases"
		if alone {
			happened.Retries, happened.Runs, happened.RunSeconds, happened.Held = 0, 0, 0, held(0, 0) // nobody decided
			basis = "no retry by infra/oom took place, any retry after OOMKilled succeeded in 3 of 13 cases"
		}
		for i, want := range []whatif.Side{
			{Name: "2", Jobs: 4, Retries: 7, Runs: 7, RunSeconds: 7 * 60, Held: held(7, 2), Succeeded: 1, Failed: 3},
			{Name: "9", Jobs: 4, Retries: 14, Runs: 13, RunSeconds: 13 * 60, Held: held(13, 4), Succeeded: 3, Estimated: 1},
		} {
			against := whatif.Side{Name: "3", Jobs: 4, Retries: 10, Runs: 10, RunSeconds: 10 * 60, Held: held(10, 3), Succeeded: 2, Failed: 2}
			got := results[i].Sides
			estimates := got[0].Estimates
			for j := range got {
				got[j].Estimates = nil
			}
			if !reflect.DeepEqual(got, []whatif.Side{want, against, happened}) {
				t.Errorf("%s:\n%+v, want\n%+v", history.name, got, []whatif.Side{want, against, happened})
			}
			if i == 1 && (len(estimates) != 1 || estimates[0].Basis != basis || estimates[0].Jobs != 1 || estimates[0].Retry != 6) {
				t.Errorf("%s: %+v, want %s", history.name, estimates, basis)
			}
		}
		if r := results[1]; len(r.RunOnUnknown) != 1 || r.RunOnUnknown[0].Jobs != r.RunOn.Unknown || r.RunOnUnknown[0].Basis != basis {
			t.Errorf("%s: %+v", history.name, r.RunOnUnknown)
		}
	}
}

// TestSidesAddUp: over any history, every side has the same jobs, and each job one outcome; the policies that decided the history are
// the history; and which side is the baseline changes no number of a side.
func TestSidesAddUp(t *testing.T) {
	t.Parallel()
	histories, jobs, estimated := 40, uint64(0), uint64(0)
	if testing.Short() {
		histories = 10
	}
	for seed := range uint64(histories) {
		h, killed := model.Generate(seed, model.Options{}), ""
		if seed%2 == 0 {
			killed = "batch"
		}
		set, other := setOf(t, h), setOf(t, model.Generate(seed+1000, model.Options{}))
		logs := decided(t, eventsOf(h), set, evaluator.SemanticsVersion, killed)
		sides := func(a, b whatif.Candidate) map[string]whatif.Side {
			results, err := whatif.Run(t.Context(), logs, whatif.Options{Candidates: []whatif.Candidate{a}, Against: &b})
			if err != nil {
				t.Fatal(err)
			}
			if r := results[0]; r.Sides[1].Retries+r.RetriesMore != r.Sides[0].Retries+r.RetriesFewer {
				t.Errorf("seed %d: %d more retries and %d fewer, from %d to %d", seed, r.RetriesMore, r.RetriesFewer, r.Sides[1].Retries, r.Sides[0].Retries)
			}
			all := map[string]whatif.Side{}
			for _, s := range results[0].Sides {
				all[s.Name] = s
			}
			return all
		}
		a, b := whatif.Candidate{Name: "same", Set: set}, whatif.Candidate{Name: "other", Set: other}
		one, way := sides(a, b), sides(b, a)
		if !reflect.DeepEqual(one, way) {
			t.Errorf("seed %d: %+v, the other way round %+v", seed, one, way)
		}
		happened, same := one[whatif.Happened], one["same"]
		same.Name = happened.Name
		if !reflect.DeepEqual(happened, same) {
			t.Errorf("seed %d: happened %+v, the policies that decided it %+v", seed, happened, same)
		}
		for name, s := range one {
			if s.Jobs != happened.Jobs || s.Succeeded+s.Failed+s.Cancelled+s.Open+s.Estimated != s.Jobs || s.Runs > s.Retries {
				t.Errorf("seed %d, %s: %+v, happened %+v", seed, name, s, happened)
			}
			in := uint64(0)
			for _, e := range s.Estimates {
				if in += e.Jobs; e.Basis == "" || e.Succeeded > e.Of || strings.Contains(e.Basis, "0th") {
					t.Errorf("seed %d, %s: %+v", seed, name, e)
				}
			}
			if in != s.Estimated {
				t.Errorf("seed %d, %s: %d jobs in the estimates of %d", seed, name, in, s.Estimated)
			}
			estimated += in
		}
		jobs += happened.Jobs
	}
	if jobs < uint64(histories)*2 || estimated == 0 {
		t.Error(fmt.Sprint("too little happened: ", jobs, estimated))
	}
}
