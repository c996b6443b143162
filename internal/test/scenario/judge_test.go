package scenario_test

import (
	"testing"
	"time"

	"github.com/refloat/refloat/internal/test/scenario"
)

func at(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 0) }

// retried is a job whose first run failed, and whose second succeeded on another node.
func retried() *scenario.Seen {
	return &scenario.Seen{
		ID: "a", State: "succeeded", Priority: 5,
		Runs: []scenario.Run{
			{ID: "1", Node: "n1", Executor: "main", State: "failed", Leased: at(0), Ended: at(2)},
			{ID: "2", Node: "n2", Executor: "main", State: "succeeded", Leased: at(8), Ended: at(9)},
		},
		Decisions: []scenario.Decision{{Run: "1", Code: "RuleRetry", RetryAfter: at(7), Acted: true}},
	}
}

// TestJudge: what is as expected passes, and each single difference is found.
func TestJudge(t *testing.T) {
	t.Parallel()
	priority, requested := int64(5), false
	row := scenario.Scenario{Expect: map[string]scenario.Expectation{"a": {
		Is: "succeeded", Runs: []string{"failed", "succeeded"}, Some: "failed", MinRuns: 2, Decisions: []string{"RuleRetry"}, OtherNode: true,
		Gap: scenario.Duration(5 * time.Second), Priority: &priority, Requested: &requested, Executors: []string{"main", "main"},
	}}}
	if err := row.Judge(scenario.Jobs{"a": {retried()}}); err != nil {
		t.Errorf("what is expected: %v", err)
	}
	for name, change := range map[string]func(j *scenario.Seen){
		"state":     func(j *scenario.Seen) { j.State = "failed" },
		"run":       func(j *scenario.Seen) { j.Runs[1].State = "running" },
		"runs":      func(j *scenario.Seen) { j.Runs = j.Runs[:1] },
		"decision":  func(j *scenario.Seen) { j.Decisions[0].Code = "DefaultRetry" },
		"decisions": func(j *scenario.Seen) { j.Decisions = nil },
		"node":      func(j *scenario.Seen) { j.Runs[1].Node = "n1" },
		"gap":       func(j *scenario.Seen) { j.Runs[1].Leased = at(6) },
		"priority":  func(j *scenario.Seen) { j.Priority = 0 },
		"requested": func(j *scenario.Seen) { j.Runs[0].Requested = true },
		"executor":  func(j *scenario.Seen) { j.Runs[0].Executor = "other" },
	} {
		j := retried()
		change(j)
		if row.Judge(scenario.Jobs{"a": {j}}) == nil {
			t.Errorf("another %s was not noticed", name)
		}
	}
	for _, e := range []scenario.Expectation{{Is: "succeeded", Undecided: true}, {Is: "succeeded", Some: "preempted"}, {Is: "succeeded", MinRuns: 3}} {
		row := scenario.Scenario{Expect: map[string]scenario.Expectation{"a": e}}
		if row.Judge(scenario.Jobs{"a": {retried()}}) == nil {
			t.Errorf("%+v was taken to hold", e)
		}
	}
}

// TestAlways: what must hold of every job, whatever a row expects.
func TestAlways(t *testing.T) {
	t.Parallel()
	if err := (scenario.Jobs{"a": {retried()}}).Always(); err != nil {
		t.Errorf("what is right: %v", err)
	}
	for name, change := range map[string]func(j *scenario.Seen){
		"overlap":       func(j *scenario.Seen) { j.Runs[0].Ended = at(20) },
		"no end":        func(j *scenario.Seen) { j.Runs[0].Ended = time.Unix(0, 0) },
		"too early":     func(j *scenario.Seen) { j.Runs[1].Leased = at(6) },
		"lost lease":    func(j *scenario.Seen) { j.Queued = true },
		"two decisions": func(j *scenario.Seen) { j.Decisions = append(j.Decisions, j.Decisions[0]) },
	} {
		j := retried()
		change(j)
		if (scenario.Jobs{"a": {j}}).Always() == nil {
			t.Errorf("%s was not noticed", name)
		}
	}
	// The success of a run that was preempted may come after our decision on it.
	late := retried()
	late.Queued, late.Runs, late.Runs[0].State = true, late.Runs[:1], "succeeded"
	if err := (scenario.Jobs{"a": {late}}).Always(); err != nil {
		t.Errorf("a success after the decision: %v", err)
	}
	// A decision that nobody acts on, of a queue in shadow, binds nobody.
	j := retried()
	j.Decisions[0].Acted, j.Runs[1].Leased = false, at(6)
	if err := (scenario.Jobs{"a": {j}}).Always(); err != nil {
		t.Errorf("in shadow: %v", err)
	}
}

// TestAnytime: a job that has a run is not queued.
func TestAnytime(t *testing.T) {
	t.Parallel()
	running := func(queued bool) error {
		j := retried()
		j.State, j.Queued, j.Runs[1].State, j.Runs[1].Ended = "queued", queued, "running", time.Unix(0, 0)
		return scenario.Jobs{"a": {j}}.Anytime()
	}
	if err := running(false); err != nil {
		t.Error(err)
	}
	if running(true) == nil {
		t.Error("a queued job with a run was not noticed")
	}
}
