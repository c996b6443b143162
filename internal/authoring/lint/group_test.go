package lint_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/authoring/lint"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

const groupHeader = "apiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: g}\nspec:\n"

func groupOf(spec string, rules ...string) string {
	text := groupHeader + spec
	if len(rules) > 0 {
		text += "  rules:\n  - " + strings.Join(rules, "\n  - ") + "\n"
	}
	return text
}

func TestGroupLint(t *testing.T) {
	t.Parallel()
	const parts = "  restartStrategy: Recreate\n  maxRestarts: 3\n  parts: [{name: a, members: 4}, {name: b}]\n"
	for _, c := range []struct {
		name, text string
		want       []string // CODE path, in order
	}{
		{"nothing", groupOf("  maxRestarts: 4\n", "{name: a, action: RestartGroup}"), nil},
		{"after a rule that matches everything", groupOf(parts, "{name: a, action: Halt}", "{name: b, action: Leave, parts: [a]}"), []string{"RP103 spec.rules[1]"}},
		{"after rules that match every part", groupOf(parts, "{name: a, action: Halt, parts: [a]}", "{name: b, action: Leave, parts: [b]}", "{name: c, action: Leave}"), []string{"RP103 spec.rules[2]"}},
		{"after rules that match every reason", groupOf(
			parts, "{name: a, action: Halt, onReasons: [PodFailurePolicy, DeadlineExceeded, BackoffLimitExceeded]}",
			"{name: b, action: Leave, onReasons: [MaxFailedIndexesExceeded, FailedIndexes, MemberCancelled]}", "{name: c, action: Leave, parts: [a]}",
		), []string{"RP103 spec.rules[2]"}},
		{"one reason is left", groupOf(parts, "{name: a, action: Halt, onReasons: [PodFailurePolicy]}", "{name: b, action: Halt, onReasons: [PodFailurePolicy, FailedIndexes]}"), nil},
		{"one part is left of one reason", groupOf(parts, "{name: a, action: Halt, onReasons: [FailedIndexes], parts: [a]}", "{name: b, action: Halt, onReasons: [FailedIndexes]}"), nil},
		{"the only part, without parts", groupOf("", "{name: a, action: Halt, parts: [main]}", "{name: b, action: Leave}"), []string{"RP103 spec.rules[1]"}},
		{"the same message", groupOf(parts, "{name: a, action: Halt, onMessage: {pattern: x}}", "{name: b, action: Leave, onMessage: {pattern: x}, parts: [b]}"), []string{"RP103 spec.rules[1]"}},
		{"another message", groupOf(parts, "{name: a, action: Halt, onMessage: {pattern: x}}", "{name: b, action: Leave, onMessage: {pattern: xy}}"), nil},
		{"without a message", groupOf(parts, "{name: a, action: Halt, onMessage: {pattern: '.*'}}", "{name: b, action: Leave}"), []string{"RP109 spec.rules[0].onMessage.pattern"}},
		{"a message at all", groupOf(parts, "{name: a, action: Halt, onMessage: {pattern: '.*'}}", "{name: b, action: Leave, onMessage: {pattern: x}}"), []string{"RP109 spec.rules[0].onMessage.pattern", "RP103 spec.rules[1]"}},
		{"a message that does not exist", groupOf(parts, `{name: a, action: Halt, onMessage: {pattern: '[^\x00-\x{10FFFF}]'}}`), []string{"RP106 spec.rules[0]"}},

		{"counted, and no restart is allowed", groupOf("", "{name: a, action: RestartUnit}", "{name: b, action: Leave, onReasons: [FailedIndexes]}"), []string{"RP117 spec.rules[0]", "RP103 spec.rules[1]"}},
		{"not counted", groupOf("  maxRestarts: 0\n", "{name: a, action: RestartUnit, countsTowardsMax: false}"), nil},
		{"a limit of 0", groupOf("", "{name: a, action: RestartUnit, countsTowardsMax: false, limit: 0}"), []string{"RP117 spec.rules[0].limit"}},
		{"a limit above maxRestarts", groupOf(parts, "{name: a, action: RestartPart, limit: 4}"), []string{"RP107 spec.rules[0].limit"}},
		{"a limit above maxRestarts that does not matter", groupOf(parts, "{name: a, action: RestartPart, limit: 4, countsTowardsMax: false}"), nil},
		{"fields about restarts", groupOf("", "{name: a, action: FailGroup, limit: 4, countsTowardsMax: true}"), []string{"RP120 spec.rules[0].limit", "RP120 spec.rules[0].countsTowardsMax"}},

		{"parallelism", groupOf("  parts: [{name: a, members: 4, parallelism: 5}, {name: b, members: 4, parallelism: 3}, {name: c, parallelism: 1}]\n"), []string{"RP118 spec.parts[0].parallelism", "RP118 spec.parts[2].parallelism"}},
		{"failed members, as in a Kubernetes Job", groupOf("  parts: [{name: a, members: 4, onMemberFailure: Continue, maxFailedMembers: 3}]\n"), nil},
		{"as many failed members as there are", groupOf("  parts: [{name: a, members: 4, onMemberFailure: Continue, maxFailedMembers: 4}]\n"), []string{"RP119 spec.parts[0].maxFailedMembers"}},
		{"failed members that may be spared", groupOf("  parts: [{name: a, members: 4, minMembers: 2, onMemberFailure: Continue, maxFailedMembers: 2}]\n"), nil},
		{"one that may do without minMembers", groupOf("  parts: [{name: a, members: 4, minMembers: 2, onMemberFailure: Continue, maxFailedMembers: 3, successRules: [{indexes: '0'}]}]\n"), nil},
		{"one more", groupOf("  parts: [{name: a, members: 4, minMembers: 2, onMemberFailure: Continue, maxFailedMembers: 3}]\n"), []string{"RP119 spec.parts[0].maxFailedMembers"}},

		{"restarts without a limit", groupOf("  unit: {restarts: {on: Always}}\n  parts: [{name: a, restarts: {on: Never}}, {name: b, restarts: {limit: 0}}]\n"), []string{"RP121 spec.unit.restarts", "RP121 spec.parts[1].restarts"}},
		{"few restarts of members that start one by one", groupOf("  maxRestarts: 3\n  parts: [{name: a, members: 2}]\n"), []string{"RP122 spec.maxRestarts"}},
		{"of any size", groupOf("  maxRestarts: 1\n  rules: []\n"), []string{"RP122 spec.maxRestarts"}},
		{"of a part of several units", groupOf("  maxRestarts: 3\n  parts: [{name: a, replicas: 2}, {name: b, members: 5}]\n", "{name: r, action: RestartPart, parts: [a]}", "{name: rest, action: Leave}"), []string{"RP122 spec.maxRestarts"}},
		{"many restarts", groupOf("  maxRestarts: 4\n  parts: [{name: a, members: 2}]\n"), nil},
		{"of members that wait long", groupOf("  maxRestarts: 3\n  backoff: {initialDelay: 30s}\n  parts: [{name: a, members: 2}]\n"), nil},
		{"of members that start together", groupOf("  maxRestarts: 3\n  restartStrategy: BlockingRecreate\n  parts: [{name: a, members: 2}]\n"), nil},
		{"of one member", groupOf("  maxRestarts: 3\n  parts: [{name: a}]\n"), nil},
		{"of units of one member", groupOf("  maxRestarts: 3\n  parts: [{name: a, replicas: 2}, {name: b, members: 5}]\n", "{name: r, action: RestartUnit, parts: [a]}", "{name: rest, action: Leave}"), nil},
		{"that are not counted", groupOf("  maxRestarts: 3\n  parts: [{name: a, members: 2}]\n", "{name: r, action: RestartGroup, countsTowardsMax: false}"), nil},
		{"FailUnit in a policy is no mistake", policyOf("p", "{action: FailUnit, onConditions: [Evicted]}"), nil},
	} {
		var got []string
		for _, p := range lintText(t, c.text) {
			got = append(got, p.Code+" "+p.Path)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestGroupRulesSound: no unit that can fail is matched first by a rule that lint says is never reached or never matches.
func TestGroupRulesSound(t *testing.T) {
	t.Parallel()
	reasons := []string{"PodFailurePolicy", "DeadlineExceeded", "BackoffLimitExceeded", "MaxFailedIndexesExceeded", "FailedIndexes", "MemberCancelled"}
	flagged := 0
	rapid.Check(t, func(t *rapid.T) {
		some := func(label string, most int, from ...string) string {
			return "[" + strings.Join(rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, most, rapid.ID[string]).Draw(t, label), ", ") + "]"
		}
		asks := func(label string) bool { return rapid.IntRange(0, 2).Draw(t, label) == 0 }
		var rules []string
		for i := range rapid.IntRange(1, 6).Draw(t, "rules") {
			fields := []string{fmt.Sprintf("name: r%d", i), "action: Halt"}
			if asks("reasons?") {
				fields = append(fields, "onReasons: "+some("reasons", 6, reasons...))
			}
			if asks("parts?") {
				fields = append(fields, "parts: "+some("parts", 2, "a", "b"))
			}
			if asks("message?") {
				fields = append(fields, "onMessage: {pattern: '"+rapid.SampledFrom(patterns).Draw(t, "pattern")+"'}")
			}
			rules = append(rules, "{"+strings.Join(fields, ", ")+"}")
		}
		files := []policyfile.File{{Name: "g.yaml", Data: []byte(groupOf("  parts: [{name: a}, {name: b}]\n", rules...))}}
		problems, err := lint.Lint(files, nil)
		if err != nil {
			t.Fatal(err)
		}
		set, err := policyfile.Parse(files)
		if err != nil {
			t.Fatal(err)
		}
		dead := map[int]bool{}
		for _, p := range problems {
			var i int
			if n, _ := fmt.Sscanf(p.Path, "spec.rules[%d]", &i); n == 1 && (p.Code == "RP103" || p.Code == "RP106") {
				dead[i] = true
			}
		}
		flagged += len(dead)
		for reason := policy.PodFailurePolicy; reason <= policy.MemberCancelled; reason++ {
			for _, part := range []string{"a", "b"} {
				for _, message := range append(messages, "no run failed") {
					first := slices.IndexFunc(set.GroupPolicy("g").Rules, func(r policy.GroupRule) bool {
						return matchesUnit(&r, reason, part, message)
					})
					if dead[first] {
						t.Fatalf("rule %d matches %s of part %s with %q, and lint says it cannot: %v\n%s", first, reason, part, message, problems, files[0].Data)
					}
				}
			}
		}
	})
	if flagged == 0 {
		t.Error("no rule was flagged: the test proves nothing")
	}
}

// matchesUnit is semantics.md 12.2 again: what a rule of a group asks of a unit that failed. An empty message never matches.
func matchesUnit(r *policy.GroupRule, reason policy.UnitReason, part, message string) bool {
	return (r.OnReasons == nil || slices.Contains(r.OnReasons, reason)) && (r.Parts == nil || slices.Contains(r.Parts, part)) &&
		(r.OnMessage == nil || message != "" && message != "no run failed" && regexp.MustCompile(r.OnMessage.String()).MatchString(message))
}
