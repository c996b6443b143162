package policyfile

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/policy"
)

const groupExample = `apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: training}
spec:
  maxRestarts: 10
  restartStrategy: BlockingRecreate
  completed: Keep
  rules:
  - {name: maintenance, action: RestartPart, countsTowardsMax: false, limit: 5, onReasons: [MemberCancelled, PodFailurePolicy], onMessage: {pattern: 'host'}, parts: [workers, driver]}
  - {name: rest, action: Leave}
  unit: {restarts: {limit: 1, backoff: {type: Constant}}}
  success: {operator: Any, parts: [init, workers]}
  parts:
  - {name: workers, replicas: 4, members: 8, minMembers: 7, after: [init, driver], parallelism: 2, retryLimit: 6, onMemberFailure: Continue, maxFailedMembers: 0, restarts: {limit: 3, on: Always}}
  - {name: driver, members: 3, afterReady: [init], successRules: [{indexes: "0,2", count: 1}, {indexes: "0-1"}]}
  - {name: init, restarts: {on: Never, limit: 2}}
`

// TestGroupDefinition: what the engine gets of a group policy, with defaults and inheritance.
func TestGroupDefinition(t *testing.T) {
	t.Parallel()
	ptr := func(n uint32) *uint32 { return &n }
	pattern, err := policy.ParsePattern("host")
	if err != nil {
		t.Fatal(err)
	}
	unit := policy.UnitRestarts{On: policy.RestartOnFailure, Limit: 1, Backoff: policy.Backoff{Multiplier: ptr(1000)}}
	want := policy.GroupDefinition{
		Name: "training", MaxRestarts: ptr(10), Keep: true, Blocking: true, HasRules: true,
		Rules: []policy.GroupRule{
			{
				Name: "maintenance", Action: policy.RestartPart, Uncounted: true, Limit: ptr(5),
				OnReasons: []policy.UnitReason{policy.MemberCancelled, policy.PodFailurePolicy}, OnMessage: pattern, Parts: []string{"driver", "workers"},
			},
			{Name: "rest", Action: policy.Leave},
		},
		Restarts: unit, Success: policy.Success{Any: true, Parts: []uint32{0, 2}},
		Parts: []policy.PartDefinition{
			{
				ShapePart:  policy.ShapePart{Name: "workers", Replicas: 4, Members: 8, MinMembers: 7, After: []uint32{1, 2}, Parallelism: 2},
				RetryLimit: ptr(6), Continue: true, MaxFailedMembers: ptr(0),
				Restarts: policy.UnitRestarts{On: policy.RestartAlways, Limit: 3},
			},
			{ShapePart: policy.ShapePart{
				Name: "driver", Replicas: 1, Members: 3, MinMembers: 3, AfterReady: []uint32{2}, SuccessRules: []policy.SuccessRule{
					{Indexes: policy.ParseIndexes("0,2"), Count: 1}, {Indexes: policy.ParseIndexes("0-1"), Count: 2},
				},
			}, Restarts: unit},
			{ShapePart: policy.ShapePart{Name: "init", Replicas: 1, Members: 1, MinMembers: 1}, Restarts: policy.UnitRestarts{On: policy.RestartNever, Limit: 2}},
		},
	}
	set := mustParse(t, groupExample)
	text, ok := set.Body(ID{KindGroup, "training"})
	if !ok {
		t.Fatal("the set has no group policy")
	}
	want.Digest = sha256.Sum256([]byte(text))
	if diff := cmp.Diff(want, set.GroupPolicy("training").GroupDefinition, comparePatterns); diff != "" {
		t.Error(diff)
	}
	if set.GroupPolicy("train") != nil || set.HasPolicies() {
		t.Error("the set has more than it was given")
	}

	for spec, want := range map[string]policy.GroupDefinition{
		"{}":                                  {},
		"{rules: []}":                         {HasRules: true},
		"{completed: Rerun, unit: {}}":        {},
		"{restartStrategy: Recreate}":         {},
		"{unit: {restarts: {on: OnFailure}}}": {Restarts: policy.UnitRestarts{On: policy.RestartOnFailure}},
		"{maxRestarts: 0, unit: {restarts: {limit: 2}}}": {MaxRestarts: ptr(0), Restarts: policy.UnitRestarts{On: policy.RestartOnFailure, Limit: 2}},
	} {
		set := mustParse(t, "{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: g}, spec: "+spec+"}")
		got := set.GroupPolicy("g").GroupDefinition
		want.Name, want.Digest = "g", got.Digest
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", spec, diff)
		}
	}
}

// TestGroupLimits: what is as large as allowed is read at once; one more is refused, and a chain of parts is no cycle.
func TestGroupLimits(t *testing.T) {
	t.Parallel()
	parts := func(n int, first string) string {
		var b strings.Builder
		b.WriteString("apiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: g}\nspec:\n  parts:\n  - {name: p0" + first + "}\n")
		for i := 1; i < n; i++ {
			fmt.Fprintf(&b, "  - {name: p%d, after: [p%d]}\n", i, i-1)
		}
		return b.String()
	}
	rules := func(n int, matcher string) string {
		var b strings.Builder
		b.WriteString("apiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: g}\nspec:\n  rules:\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {name: r%d, action: Halt%s}\n", i, matcher)
		}
		return b.String()
	}
	for _, c := range []struct{ name, text, want string }{
		{"as many parts as there may be", parts(policy.MaxGroupParts, ""), ""},
		{"one more", parts(policy.MaxGroupParts+1, ""), "RP043 spec.parts: 1001 parts, at most 1000"},
		{"a long cycle", parts(policy.MaxGroupParts, ", after: [p999]"), "p0 after p999 after p998"},
		{"as many rules as there may be", rules(policy.MaxRules, ""), ""},
		{"one rule more", rules(policy.MaxRules+1, ""), "RP043 spec.rules: 1001 rules, at most 1000"},
		{"patterns within the limit", rules(10, ", onMessage: {pattern: '(abcde){700}'}"), ""},
		{"patterns beyond it", rules(11, ", onMessage: {pattern: '(abcde){700}'}"), "RP043 spec.rules: patterns of"},
	} {
		_, err := Parse([]File{{"f.yaml", []byte(c.text)}})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}
