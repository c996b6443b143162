package suite_test

import (
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

const byDuration = `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec:
  defaultAction: Fail
  rules:
  - {name: bad-start, action: Fail, onRunDuration: {lessThan: 30s}}
  - {name: late, action: Retry, onRunDuration: {atLeast: 6h, lessThan: 24h}}
---
{kind: Queue, name: q, retryPolicies: [p]}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: g}
spec: {parts: [{name: main}]}
`

// TestRunDuration: a test says how long a run was running, or does not; that of a member whom the test started is known.
func TestRunDuration(t *testing.T) {
	t.Parallel()
	set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(byDuration)}})
	if err != nil {
		t.Fatal(err)
	}
	p := func([]string) (*policyfile.Set, error) { return set, nil }
	s := parsed(t, `kind: RetryPolicyTest
tests:
- name: a job
  job: {queue: q}
  events:
  - {fail: {exitCode: 1, runDuration: 6h}, expect: {rule: p/late, matcher: onRunDuration}}
  - {fail: {exitCode: 1, runDuration: 23h59m}, expect: {rule: p/late}}
  - {fail: {condition: LeaseExpired, runDuration: 6h}, expect: {rule: p/late}}
  - {fail: {exitCode: 1, runDuration: 0s}, expect: {decision: Fail, rule: p/bad-start}}
- name: it never was
  job: {queue: q}
  events:
  - {fail: {exitCode: 1}, expect: {rule: p/default}}
- name: in between
  job: {queue: q}
  events:
  - {fail: {exitCode: 1, runDuration: 30s}, expect: {rule: p/default}}
- name: a member that was started
  group: {policy: g}
  job: {queue: q}
  events:
  - {start: main}
  - {at: 7h, member: main/0/0, fail: {exitCode: 1}, expect: {rule: p/late}}
  - {member: main/0/0, fail: {exitCode: 1, runDuration: 8h}, expect: {rule: p/late}}
  - {member: main/0/0, fail: {exitCode: 1}, expect: {rule: p/bad-start}}
- name: another
  group: {policy: g}
  job: {queue: q}
  events:
  - {member: main/0/0, fail: {condition: Unschedulable}, expect: {rule: none}}
`)
	for _, r := range ran(s, p) {
		if r.Failed() {
			t.Error(r.Explain("f"))
		}
	}
	mutants, err := suite.Mutants(set)
	if err != nil {
		t.Fatal(err)
	}
	var cases []suite.Case
	for i := range s.Tests {
		cases = append(cases, suite.Case{Suite: s, Test: &s.Tests[i], Policies: p})
	}
	var alive, all []string
	for i := range mutants {
		m := &mutants[i]
		if m.Rule == "late" {
			all = append(all, m.What)
		}
		if m.Rule != "" && !m.Killed(set, cases) {
			alive = append(alive, m.Rule+" "+m.What)
		}
	}
	for _, want := range []string{"onRunDuration.lessThan is dropped", "onRunDuration.atLeast is dropped", "onRunDuration.lessThan is doubled", "onRunDuration.atLeast is doubled"} {
		if !slices.Contains(all, want) {
			t.Errorf("no mutant %q among %q", want, all)
		}
	}
	if want := []string{"late onRunDuration.lessThan is dropped", "late onRunDuration.lessThan is doubled"}; !slices.Equal(alive, want) {
		t.Errorf("not detected: %q, want %q", alive, want) // no run of 24 h is among the tests
	}
}
