package diff_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/authoring/diff"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

func set(t *testing.T, text string) *policyfile.Set {
	t.Helper()
	s, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const header = "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\n"

func TestRules(t *testing.T) {
	t.Parallel()
	const before = header + `spec:
  retryLimit: 5
  backoff: {initialDelay: 10s, type: Constant}
  rules:
  - {name: a, action: Retry, onConditions: [Preempted, Evicted], backoff: {maxDelay: 5m}}
  - {name: b, action: Retry, onExitCodes: {operator: In, values: [1, 2]}}
  - {name: c, action: Fail, onTerminationMessage: {pattern: '<&>'}}
  - {action: Fail, onFailureCategory: [x]}
---
{kind: Queue, name: q, retryPolicies: [p]}
---
{kind: Queue, name: gone}
`
	const same = header + `spec:
  # another order, another way to say it
  rules:
  - {onConditions: [Evicted, Preempted], backoff: {maxDelay: 300s}, name: a, action: Retry}
  - {onExitCodes: {values: [2, 1], operator: In}, name: b, action: Retry}
  - {name: c, action: Fail, onTerminationMessage: {pattern: <&>}}
  - {action: Fail, onFailureCategory: [x]}
  backoff: {multiplier: 1.0, initialDelay: 10000ms}
  retryLimit: 5
---
{kind: Queue, name: gone}
---
{kind: Queue, name: q, retryPolicies: [p]}
`
	const after = header + `spec:
  backoff: {initialDelay: 10s, type: Constant}
  defaultAction: Fail
  rules:
  - {name: c, action: Fail, onTerminationMessage: {pattern: '<&>>'}}
  - {name: a, action: Retry, onConditions: [Preempted], backoff: {maxDelay: 6m}}
  - {name: d, action: Retry, onConditions: [Evicted]}
  - {action: Retry, onFailureCategory: [x]}
---
{kind: Queue, name: q, retryPolicies: [p, p2], mode: Shadow}
---
{kind: RetrySettings, spec: {globalMaxRetries: 9}}
`
	changes, err := diff.Rules(set(t, before), set(t, same))
	if err != nil || len(changes) > 0 {
		t.Errorf("the same in other words: %v, %v", changes, err)
	}
	changes, err = diff.Rules(set(t, before), set(t, after))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, c := range changes {
		got.WriteString(c.String() + "\n")
	}
	unnamed := set(t, before).Outlines()[0].Rules[3].Key.Rule[:9]
	want := `changed  settings: globalMaxRetries: (unset) → 9
removed  queue gone
changed  queue q: mode: (unset) → "Shadow"
changed  queue q: retryPolicies: ["p"] → ["p","p2"]
changed  policy p: defaultAction: (unset) → "Fail"
changed  policy p: retryLimit: 5 → (unset)
changed  rule p/` + unnamed + `: action: "Fail" → "Retry"
changed  rule p/a: backoff.maxDelay: "5m" → "6m"
changed  rule p/a: onConditions: ["Evicted","Preempted"] → ["Preempted"]
removed  rule p/b
changed  rule p/c: onTerminationMessage.pattern: "<&>" → "<&>>"
added    rule p/d
moved    rule p/c: position 2 → 0
moved    rule p/a: position 0 → 1
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestGroupPolicies: what differs between group policies, by rule and by part.
func TestGroupPolicies(t *testing.T) {
	t.Parallel()
	const header = "apiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: g}\n"
	const before = header + `spec:
  maxRestarts: 3
  rules:
  - {name: a, action: Halt, onReasons: [FailedIndexes, MemberCancelled]}
  - {name: b, action: RestartGroup}
  - {name: c, action: Leave}
  parts:
  - {name: x, members: 2}
  - {name: y, after: [x]}
---
{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: empty}, spec: {maxRestarts: 1}}
---
{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: gone}, spec: {rules: [{name: r, action: Halt}]}}
`
	const after = header + `spec:
  rules:
  - {name: c, action: Leave}
  - {name: a, action: Halt, onReasons: [MemberCancelled], onMessage: {pattern: x}}
  unit: {restarts: {limit: 1}}
  parts:
  - {name: y}
  - {name: x, members: 3}
  - {name: z}
---
{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: empty}, spec: {maxRestarts: 1, rules: []}}
`
	for _, c := range []struct{ name, from, to, want string }{
		{"the same", before, before, ""},
		{"everything", before, after, `changed  group policy empty: rules: (unset) → []
changed  group policy g: maxRestarts: 3 → (unset)
changed  group policy g: unit.restarts.limit: (unset) → 1
removed  group policy gone
changed  part g/x: members: 2 → 3
changed  part g/y: after: ["x"] → (unset)
added    part g/z
changed  group rule g/a: onMessage.pattern: (unset) → "x"
changed  group rule g/a: onReasons: ["FailedIndexes","MemberCancelled"] → ["MemberCancelled"]
removed  group rule g/b
removed  group rule gone/r
moved    part g/y: position 1 → 0
moved    part g/x: position 0 → 1
moved    group rule g/c: position 2 → 0
moved    group rule g/a: position 0 → 1
`},
	} {
		changes, err := diff.Rules(set(t, c.from), set(t, c.to))
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, c := range changes {
			got.WriteString(c.String() + "\n")
		}
		if diff := cmp.Diff(c.want, got.String()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, diff)
		}
	}
}
