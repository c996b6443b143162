package suite_test

import (
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

const withBudgets = `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec: {defaultAction: Retry, retryLimit: 9}
---
{kind: Queue, name: q, retryPolicies: [p]}
---
apiVersion: refloat.github.io/v1
kind: RetryBudget
metadata: {name: delays}
spec: {queue: q, ratio: 0.2, floor: 1, window: 10m}
---
apiVersion: refloat.github.io/v1
kind: RetryBudget
metadata: {name: refuses}
spec: {queue: r, ratio: 0, floor: 1, window: 1m, whenExhausted: Refuse}
---
{kind: Queue, name: r, retryPolicies: [p]}
`

// budgetTests detect every mutant of the budgets.
const budgetTests = `kind: RetryPolicyTest
tests:
- name: the floor, then first runs of other jobs, pay for retries
  job: {queue: q}
  events:
  - {at: 0s, fail: {exitCode: 1}, expect: {decision: Retry, budget: delays/BudgetGranted, retryAfter: 0s}}
  - {at: 1s, fail: {exitCode: 1}, expect: {decision: Retry, budget: delays/BudgetDelayed, retryAfter: 10m}}
  - {at: 10m, firstRuns: 4} # the window has them, and not the job's own
  - {at: 10m30s, fail: {exitCode: 1}, expect: {decision: Retry, budget: delays/BudgetDelayed, retryAfter: 20m}}
  - {at: 10m40s, firstRuns: 1} # the fifth pays
  - {at: 10m50s, fail: {exitCode: 1}, expect: {decision: Retry, budget: delays/BudgetGranted, retryAfter: 10m50s}}
- name: beyond the floor the job fails
  job: {queue: r}
  events:
  - {at: 0s, firstRuns: 100}
  - {at: 1s, fail: {exitCode: 1}, expect: {decision: Retry, budget: refuses/BudgetGranted}}
  - {at: 2s, fail: {exitCode: 1}, expect: {decision: Fail, code: BudgetRefused, budget: refuses/BudgetExhausted, why: 101 first runs}}
- name: a minute later it has room again
  job: {queue: r}
  events:
  - {at: 1s, fail: {exitCode: 1}, expect: {decision: Retry}}
  - {at: 61s, fail: {exitCode: 1}, expect: {decision: Retry, budget: refuses/BudgetGranted}}
- name: nobody asks for what fails
  job: {queue: elsewhere}
  events:
  - {fail: {exitCode: 1}, expect: {decision: Fail, budget: none}}
`

// TestBudgets: tests can say what other jobs do and what budgets say; each mutant of a budget is detected by some test, and
// mutants of policies keep the budgets.
func TestBudgets(t *testing.T) {
	t.Parallel()
	set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(withBudgets)}})
	if err != nil {
		t.Fatal(err)
	}
	p := func([]string) (*policyfile.Set, error) { return set, nil }
	s := parsed(t, budgetTests)
	results := ran(s, p)
	var cases []suite.Case
	for i := range results {
		if results[i].Failed() {
			t.Error(results[i].Explain("f"))
		}
		cases = append(cases, suite.Case{Suite: s, Test: &s.Tests[i], Policies: p})
	}
	mutants, err := suite.Mutants(set)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range mutants {
		m := &mutants[i]
		if m.Kind != policyfile.KindBudget {
			if len(m.Set.Budgets()) != 2 {
				t.Errorf("%s: %s: the budgets are lost", m.Policy, m.What)
			}
			continue
		}
		seen[m.Policy+" "+m.What] = true
		if !m.Killed(set, cases) {
			t.Errorf("no test fails when %s: %s", m.Policy, m.What)
		}
	}
	for _, want := range []string{
		"delays is dropped", "delays ratio is 0.1", "delays floor is one more", "delays window is doubled", "delays whenExhausted is Refuse", "delays mode is Shadow",
		"refuses is dropped", "refuses ratio is 0.5", "refuses floor is one more", "refuses floor is one less", "refuses window is doubled", "refuses whenExhausted is Delay", "refuses mode is Shadow",
	} {
		if !seen[want] {
			t.Errorf("no mutant %q among %v", want, seen)
		}
	}
	if len(seen) != 13 { // delays with a floor of 0 is no budget
		t.Errorf("mutants of budgets: %v", seen)
	}
	updated, err := s.Update(results, p)
	if err != nil || string(updated) != budgetTests {
		t.Errorf("an update changes tests that pass: %v\n%s", err, updated)
	}
	bare := parsed(t, head+"  - {at: 0s, fail: {exitCode: 1}, expect: {decision: Retry}}\n  - {firstRuns: 3}\n  - {at: 1s, fail: {exitCode: 1}}\n")
	if updated, err = bare.Update(ran(bare, p), p); err != nil || !strings.Contains(string(updated), "budget: delays/BudgetDelayed") || !strings.Contains(string(updated), "- {firstRuns: 3}\n") {
		t.Errorf("an update does not say what the budget said: %v\n%s", err, updated)
	}
}

// TestBudgetProblems: what is wrong about budgets in a test file.
func TestBudgetProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"  - {fail: {}, expect: {budget: delays}}":                       "RP030 tests[0].events[0].expect.budget",
		"  - {fail: {}, expect: {budget: delays/BudgetDelyed}}":          "did you mean BudgetDelayed?",
		"  - {firstRuns: 0}":                                             "RP032",
		"  - {firstRuns: 10001}":                                         "RP032",
		"  - {firstRuns: many}":                                          "RP012",
		"  - {firstRuns: 3, expect: {decision: Retry}}":                  "nothing is decided here",
		"  - {firstRuns: 3, fail: {}}":                                   "several of fail, firstRuns and policies",
		"  - {firstRuns: 3, policies: [x]}":                              "several of fail, firstRuns and policies",
		"  - {at: 1s, fail: {}, expect: {budgets: delays/BudgetGranted}": "",
	} {
		_, err := suite.Parse(policyfile.File{Name: "p_test.yaml", Data: []byte(head + text)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n gives %v\n want  %s", text, err, want)
		}
	}
}

// TestRecordHeldBack: what a budget held back follows from other jobs, so no recorded test claims it.
func TestRecordHeldBack(t *testing.T) {
	t.Parallel()
	h := &suite.History{
		Members:   []suite.MemberHistory{{Job: &jobdb.Job{JobID: "j", Queue: "q"}}},
		Decisions: []*chain.Decision{{JobID: "j", RunID: "run-7", Budget: &policy.BudgetUse{Budget: "b", Effect: policy.BudgetDelayed}}},
	}
	if _, err := suite.Record(h); err == nil || !strings.Contains(err.Error(), "retry budget b held back the retry after run run-7") {
		t.Errorf("recorded: %v", err)
	}
}
