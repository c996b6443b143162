package suite_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

const policies = `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec:
  retryLimit: 2
  backoff: {initialDelay: 10s, maxDelay: 1m}
  rules:
  - {name: oom, action: Retry, onConditions: [OOMKilled], retryLimit: 1, antiAffinity: {mode: node}}
  - {action: Ignore, onConditions: [Preempted], backoff: {type: Constant}}
  - {name: signal, action: Retry, onExitCodes: {operator: In, values: [137, 143]}}
---
{kind: Queue, name: q, retryPolicies: [p]}
`

// given are the policies of every path.
func given(t *testing.T) suite.Policies {
	t.Helper()
	set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(policies)}})
	if err != nil {
		t.Fatal(err)
	}
	return func([]string) (*policyfile.Set, error) { return set, nil }
}

func parsed(t *testing.T, text string) *suite.Suite {
	t.Helper()
	s, err := suite.Parse(policyfile.File{Name: "p_test.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ran(s *suite.Suite, p suite.Policies) []suite.Result {
	var all []suite.Result
	for i := range s.Tests {
		all = append(all, s.Run(&s.Tests[i], p))
	}
	return all
}

const head = "kind: RetryPolicyTest\ntests:\n- name: a\n  job: {queue: q}\n  events:\n"

// TestExpect tries each field that can be expected, right and wrong.
func TestExpect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ event, right, wrong string }{
		{"{condition: OOMKilled, node: n}", "decision: Retry", "decision: Fail"},
		{"{condition: OOMKilled, node: n}", "code: RuleRetry", "code: RuleFail"},
		{"{condition: OOMKilled, node: n}", "rule: p/oom", "rule: p/signal"},
		{"{condition: OOMKilled, node: n}", "delay: 10s", "delay: 11s"},
		{"{condition: OOMKilled, node: n}", "delay: 9s..11s", "delay: 11s..12s"},
		{"{condition: OOMKilled, node: n}", "retryAfter: 15s", "retryAfter: 10s"},
		{"{condition: OOMKilled, node: n}", "retryAfter: 2026-01-01T00:00:15Z", "retryAfter: 2026-01-01T00:00:16Z"},
		{"{condition: OOMKilled, node: n}", "left: {rule: 0}", "left: {rule: 1}"},
		{"{condition: OOMKilled, node: n}", "left: {global: 19}", "left: {global: 20}"},
		{"{condition: OOMKilled, node: n}", "avoidNodes: [n]", "avoidNodes: []"},
		{"{condition: OOMKilled}", "container: main", "container: none"},
		{"{condition: OOMKilled}", "matcher: onConditions", "matcher: none"},
		{"{condition: OOMKilled}", "skippedPolicies: []", "skippedPolicies: [x]"},
		{"{condition: OOMKilled}", "shadow: false", "shadow: true"},
		{"{condition: OOMKilled}", "why: 1 of 1", "why: 2 of 1"},
		{"{condition: Preempted}", "rule: 'p/#1'", "rule: 'p/#0'"},
		{"{condition: Preempted}", "left: {rule: none}", "left: {rule: 0}"},
		{"{exitCode: 1}", "delay: none", "delay: 0s"},
		{"{exitCode: 1}", "retryAfter: none", "retryAfter: 5s"},
		{"{exitCode: 1}", "rule: none", "rule: p/default"},
		{"{exitCode: 1}", "container: none", "container: main"},
		{"{podOOM: true}", "rule: p/oom", "rule: none"},
		{"{condition: Unschedulable}", "code: LeaseReturned", "code: DefaultFail"},
	} {
		for expect, failed := range map[string]bool{c.right: false, c.wrong: true} {
			s := parsed(t, head+"  - {at: 5s, fail: "+c.event+", expect: {"+expect+"}}\n")
			if r := s.Run(&s.Tests[0], given(t)); r.Failed() != failed || r.Err != nil {
				t.Errorf("%s expecting %s: failed %v, want %v: %v\n%s", c.event, expect, r.Failed(), failed, r.Err, r.Explain("f"))
			}
		}
	}
}

// TestProblems: what is wrong with a file has its place, its code and a fix.
func TestProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", "1:1: RP038"},
		{"kind: [", ":1:"},
		{"kind: RetryPolicyTest", "RP013 tests: missing"},
		{"kind: RetryPolicy\ntests: []", "1:7: RP005 kind"},
		{"kind: RetryPolicyTest\ntests: []", "2:8: RP038 tests"},
		{"kind: RetryPolicyTest\ntets: []", "2:1: RP010 tets: unknown field. fix: did you mean tests?"},
		{"kind: RetryPolicyTest\ntests: {}", "2:8: RP012 tests"},
		{"kind: RetryPolicyTest\ntests:\n- &a {name: x}", "3:3: RP003"},
		{"kind: RetryPolicyTest\ntests:\n- {name: a, events: [{fail: {}}]}\n- {name: a, events: [{fail: {}}]}", "4:3: RP022 tests[1].name"},
		{"kind: RetryPolicyTest\ntests: [{name: a, events: [{fail: {}}]}]\n---\nkind: x", "RP012"},
		{head + "  - {at: soon, fail: {}}", "6:10: RP034 tests[0].events[0].at"},
		{head + "  - {at: -5s, fail: {}}", "6:10: RP034"},
		{head + "  - {at: 5s}", "6:5: RP013 tests[0].events[0]"},
		{head + "  - {fail: {}, policies: [x]}", "6:5: RP013"},
		{head + "  - {policies: [x], expect: {decision: Retry}}", "6:29: RP010"},
		{head + "  - {fail: {condition: OOM}}", "6:24: RP030 tests[0].events[0].fail.condition"},
		{head + "  - {fail: {condition: Evictd}}", "did you mean Evicted?"},
		{head + "  - {fail: {exitCode: one}}", "6:23: RP012"},
		{head + "  - {fail: {exitCode: 3000000000}}", "RP032"},
		{head + "  - {fail: {exitCode: 1, containers: []}}", "RP042"},
		{head + "  - {fail: {containers: [{name: a}]}}", "RP013"},
		{head + "  - {fail: {condition: LeaseExpired, exitCode: 1}}", "RP050"},
		{head + "  - {fail: {condition: [Evicted, DeadlineExceeded]}}", "RP050"},
		{head + "  - {fail: {condition: [Unschedulable, OOMKilled]}}", "RP050"},
		{head + "  - {fail: {podOOM: true, exitCode: 1}}", "RP050"},
		{head + "  - {fail: {subcategory: gpu}}", "RP041"},
		{head + "  - {fail: {}, expect: {decision: Requeue}}", "6:35: RP030"},
		{head + "  - {fail: {}, expect: {code: Bad}}", "RP030"},
		{head + "  - {fail: {}, expect: {rule: oom}}", "write POLICY/RULE"},
		{head + "  - {fail: {}, expect: {delay: 10}}", "RP030"},
		{head + "  - {fail: {}, expect: {delay: 20s..10s}}", "RP030"},
		{head + "  - {fail: {}, expect: {left: {rule: many}}}", "RP030"},
		{head + "  - {fail: {}, expect: {left: {global: none}}}", "RP030"},
		{head + "  - {fail: {}, expect: {avoidNodes: n}}", "RP012"},
		{head + "  - {fail: {}, expect: {shadow: maybe}}", "RP030"},
		{strings.Replace(head, "name: a", "name: \"\\e[31m\"", 1) + "  - {fail: {}}", "a control character"},
	} {
		_, err := suite.Parse(policyfile.File{Name: "p_test.yaml", Data: []byte(c.text)})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "p_test.yaml:") || !strings.Contains(err.Error(), "fix: ") {
			t.Errorf("%s\n gives %v\n want  %s", c.text, err, c.want)
		}
	}
}

// TestExplain holds what a red test says.
func TestExplain(t *testing.T) {
	t.Parallel()
	s := parsed(t, head+"  - {fail: {condition: OOMKilled}, expect: {decision: Retry}}\n  - {fail: {exitCode: 137}, expect: {rule: p/oom, delay: 30s}}\n")
	r := s.Run(&s.Tests[0], given(t))
	const want = `p_test.yaml:3:3: a
  line 7, failure 1 at 10s: main exited with 137
    rule         want p/oom
                 got  p/signal
    delay        want 30s
                 got  10s
    because rule signal of policy p retries the job: 1 of 2 (policy limit), 2 of 20 in total, not before 2026-01-01T00:00:20Z (10s after the failure)
      ✗ p/oom onConditions: no condition, so none of [OOMKilled]
      ✗ p/#1 onConditions: no condition, so none of [Preempted]
      ✓ p/signal matches: first match wins
`
	if diff := cmp.Diff(want, r.Explain(s.File)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestUpdate: only what was expected otherwise changes; comments and layout stay.
func TestUpdate(t *testing.T) {
	t.Parallel()
	const before = `# A comment.
kind:   RetryPolicyTest   # spaces
tests:
- name: "ü: all forms" # wide characters before
  job: {queue: q}
  events:
  # one
  - {"at": 0s, fail: {condition: OOMKilled, node: "nü"}, expect: {decision: 'Fail', rule: "p/signal", delay: 1s, left: {rule: 7, global: 8}, avoidNodes: [a, b], why: nope}} # end
  - at: 5m
    fail: {exitCode: 137} # nothing expected yet
  - {fail: {exitCode: 1}}
  - fail: {exitCode: 1}
    expect:
      decision: Retry   # wrong
      shadow: true
      delay: 1s..2s
      avoidNodes: [
        x, # why
      ]
  - fail: {exitCode: 1}
    expect: {}
`
	const want = `# A comment.
kind:   RetryPolicyTest   # spaces
tests:
- name: "ü: all forms" # wide characters before
  job: {queue: q}
  events:
  # one
  - {"at": 0s, fail: {condition: OOMKilled, node: "nü"}, expect: {decision: Retry, rule: p/oom, delay: 10s, left: {rule: 0, global: 19}, avoidNodes: ["nü"], why: "rule oom of policy p retries the job: 1 of 1 (rule limit), 1 of 20 in total, not before 2026-01-01T00:00:10Z (10s after the failure), not on nü"}} # end
  - at: 5m
    fail: {exitCode: 137} # nothing expected yet
    expect: {decision: Retry, code: RuleRetry, rule: p/signal, delay: 10s, retryAfter: 5m10s, left: {rule: 1, global: 18}}
  - {fail: {exitCode: 1}, expect: {decision: Fail, code: DefaultFail, left: {global: 18}}}
  - fail: {exitCode: 1}
    expect:
      decision: NotDecided   # wrong
      shadow: none
      delay: none
      avoidNodes: [none]
  - fail: {exitCode: 1}
    expect: {decision: NotDecided, code: Ended}
`
	s := parsed(t, before)
	got, err := s.Update(ran(s, given(t)), given(t))
	if err == nil {
		t.Fatalf("shadow: none was taken:\n%s", got)
	}
	s = parsed(t, strings.Replace(before, "      shadow: true\n", "", 1))
	got, err = s.Update(ran(s, given(t)), given(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Replace(want, "      shadow: none\n", "", 1), string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	again := parsed(t, string(got))
	if twice, err := again.Update(ran(again, given(t)), given(t)); err != nil || string(twice) != string(got) {
		t.Errorf("updated again: %v\n%s", err, twice)
	}
	for _, odd := range []string{"why: >\n        nope\n", "why: nope\n        way\n", "avoidNodes:\n      - x\n"} {
		s := parsed(t, head+"  - fail: {exitCode: 1}\n    expect:\n      "+odd)
		if got, err := s.Update(ran(s, given(t)), given(t)); err == nil || !strings.Contains(err.Error(), "cannot be replaced in this layout") {
			t.Errorf("%q: %v\n%s", odd, err, got)
		}
	}
}

// TestMutants: a suite that says everything kills all; an idle one none.
func TestMutants(t *testing.T) {
	t.Parallel()
	p := given(t)
	set, err := p(nil)
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := suite.Mutants(set)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range mutants {
		m := &mutants[i]
		if m.Set.Digest() == set.Digest() {
			t.Errorf("%s/%s: %s: no change", m.Policy, m.Rule, m.What)
		}
		seen[m.Rule+" "+m.What] = true
	}
	for _, want := range []string{
		"oom is dropped", "oom is swapped with #1", "oom has action Fail", "oom retryLimit is one more", "oom antiAffinity is changed",
		"#1 is dropped", "#1 has action Retry", "signal onExitCodes.values lacks 137", "signal operator of onExitCodes is inverted", " retryLimit is one more", " initialDelay is doubled",
	} {
		if !seen[want] {
			t.Errorf("no mutant %q among %v", want, seen)
		}
	}
	if seen[" maxDelay is doubled"] {
		t.Error("a mutant that acts no differently") // no delay reaches 1m
	}
	idle := parsed(t, head+"  - {fail: {exitCode: 1}, expect: {decision: Fail}}\n")
	cases := []suite.Case{{Suite: idle, Test: &idle.Tests[0], Policies: p}}
	killed := 0
	for i := range mutants {
		if mutants[i].Killed(set, cases) {
			killed++
		}
	}
	if killed == 0 || killed > 2 { // NotIn takes exit code 1
		t.Errorf("an idle suite kills %d of %d", killed, len(mutants))
	}
	covered := suite.Covered(ran(idle, p))
	if len(covered) != 1 || len(covered[0].Missed()) != 3 {
		t.Errorf("coverage of an idle suite: %+v", covered)
	}
}

// TestPolicyChange: events can put other policies into force.
func TestPolicyChange(t *testing.T) {
	t.Parallel()
	s := parsed(t, head+"  - {fail: {condition: OOMKilled}, expect: {decision: Retry}}\n  - policies: [other]\n  - {fail: {condition: OOMKilled}, expect: {decision: Fail, code: NoPolicy}}\n")
	p := given(t)
	r := s.Run(&s.Tests[0], func(paths []string) (*policyfile.Set, error) {
		if len(paths) > 0 {
			return policyfile.Empty(), nil
		}
		return p(paths)
	})
	if r.Failed() {
		t.Error(r.Explain("f"))
	}
}

// FuzzSuite: no file of tests stops the program, and what is updated is read again.
func FuzzSuite(f *testing.F) {
	b, err := os.ReadFile("../../../cmd/refloatctl/starter/starter_test.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(head + "  - {at: 5s, fail: {run: r, condition: [OOMKilled, Evicted], exitCode: 9, message: \"\\\"\", category: c, subcategory: s}, expect: {delay: 1s..2s, why: 'it''s'}}\n  - {policies: []}\n"))
	set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(policies)}})
	if err != nil {
		f.Fatal(err)
	}
	p := func([]string) (*policyfile.Set, error) { return set, nil }
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := suite.Parse(policyfile.File{Name: "f_test.yaml", Data: data})
		if err != nil {
			return
		}
		results := ran(s, p)
		for i := range results {
			_ = results[i].Explain("f")
		}
		got, err := s.Update(results, p)
		if err == nil {
			again := parsed(t, string(got))
			for _, r := range ran(again, p) {
				if r.Failed() {
					t.Errorf("updated, and still red:\n%s\n%s", got, r.Explain("f"))
				}
			}
		}
	})
}

// TestFailUnit: tests of one job decide FailUnit as Fail, those of groups do not; and mutants of a set keep its group policies.
func TestFailUnit(t *testing.T) {
	t.Parallel()
	set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(`apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec:
  defaultAction: FailUnit
  rules:
  - {name: bad, action: FailUnit, onExitCodes: {operator: In, values: [3]}}
  - {name: lost, action: Retry, onConditions: [Preempted]}
---
{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: g}, spec: {rules: []}}
---
{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: none}, spec: {}}
---
{kind: Queue, name: q, retryPolicies: [p]}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	p := func([]string) (*policyfile.Set, error) { return set, nil }
	s := parsed(t, head+"  - {fail: {exitCode: 3}, expect: {decision: Fail, code: RuleFail, rule: p/bad}}\n- name: b\n  job: {queue: q}\n  events:\n  - {fail: {exitCode: 4}, expect: {decision: Fail, code: DefaultFail}}\n")
	var cases []suite.Case
	for i, r := range ran(s, p) {
		if r.Failed() {
			t.Error(r.Explain("f"))
		}
		cases = append(cases, suite.Case{Suite: s, Test: &s.Tests[i], Policies: p})
	}

	files, err := suite.Files(set)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := policyfile.Parse(files); err != nil || again.Digest() != set.Digest() {
		t.Errorf("the files of the set are another set: %v", err)
	}
	mutants, err := suite.Mutants(set)
	if err != nil {
		t.Fatal(err)
	}
	killed := map[string]bool{}
	for i := range mutants {
		m := &mutants[i]
		if m.Set.GroupPolicy("g") == nil || !m.Set.GroupPolicy("g").HasRules || m.Set.GroupPolicy("none") == nil {
			t.Errorf("%s: %s: the group policies are lost", m.Rule, m.What)
		}
		killed[m.Rule+" "+m.What] = m.Killed(set, cases)
	}
	for what, want := range map[string]bool{"bad has action Retry": true, " defaultAction is the opposite": true, "lost has action Fail": false, "bad has action Fail": false} {
		if got, is := killed[what]; !is || got != want {
			t.Errorf("mutant %q: exists %v, killed %v, want %v", what, is, got, want)
		}
	}
	group := parsed(t, "kind: RetryPolicyTest\ntests:\n- name: c\n  group: {policy: none}\n  job: {queue: q}\n  events:\n  - {submit: main/0/0}\n  - {member: main/0/0, fail: {exitCode: 3}, expect: {unitReason: PodFailurePolicy}}\n")
	cases = append(cases, suite.Case{Suite: group, Test: &group.Tests[0], Policies: p})
	for i := range mutants {
		if m := &mutants[i]; m.Rule == "bad" && m.What == "has action Fail" && !m.Killed(set, cases) {
			t.Error("a test of a group does not tell FailUnit from Fail")
		}
	}
	alone, err := policyfile.Parse(files[:1])
	if err != nil {
		t.Fatal(err)
	}
	if mutants, err = suite.Mutants(alone); err != nil || slices.ContainsFunc(mutants, func(m suite.Mutant) bool { return m.What == "has action Fail" && m.Rule == "bad" }) {
		t.Errorf("without group policies, FailUnit becomes Fail, which no test can tell apart: %v", err)
	}
}

// TestJobOfGang: a job that names a gang, and no group, is decided with the gang that nobody else submitted.
func TestJobOfGang(t *testing.T) {
	t.Parallel()
	s := parsed(t, strings.Replace(head, "queue: q", "queue: q, gangCardinality: 4", 1)+`
  - {fail: {condition: OOMKilled}, expect: {code: GangRetry, rule: p/oom}}
  - {fail: {exitCode: 1}, expect: {decision: Fail}}
  - {fail: {exitCode: 1}, expect: {code: Ended}}
`)
	for _, r := range ran(s, given(t)) {
		if r.Failed() {
			t.Error(r.Explain("f"))
		}
	}
}

// TestNode: a test says on which node a run failed, whatever ended it, also of a member that it started.
func TestNode(t *testing.T) {
	t.Parallel()
	set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(`apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec:
  defaultAction: Retry
  antiAffinity: {mode: node}
---
{kind: Queue, name: q, retryPolicies: [p]}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: g}
spec: {parts: [{name: main, members: 2}]}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	s := parsed(t, `kind: RetryPolicyTest
tests:
- name: a job
  job: {queue: q}
  events:
  - {fail: {exitCode: 1, node: gpu-1}, expect: {avoidNodes: [gpu-1]}}
  - {fail: {condition: LeaseExpired, node: gpu-2}, expect: {avoidNodes: [gpu-2]}}
- name: a member that was started
  group: {policy: g}
  job: {queue: q}
  events:
  - {start: main}
  - {member: main/0/0, fail: {exitCode: 1, node: gpu-1}, expect: {avoidNodes: [gpu-1]}}
  - {member: main/0/1, fail: {condition: LeaseExpired, node: gpu-1}, expect: {avoidNodes: [gpu-1]}}
`)
	for _, r := range ran(s, func([]string) (*policyfile.Set, error) { return set, nil }) {
		if r.Failed() {
			t.Error(r.Explain("f"))
		}
	}
}
