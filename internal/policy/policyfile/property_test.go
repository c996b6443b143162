package policyfile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawSet draws policy files in which most things happen to match.
func drawSet(t *rapid.T) []File {
	flow := func(label string, from ...string) string {
		return "[" + strings.Join(rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, len(from), rapid.ID[string]).Draw(t, label), ", ") + "]"
	}
	maybe := func(fields []string, field string) []string {
		if rapid.Bool().Draw(t, "has "+field) {
			return append(fields, field)
		}
		return fields
	}
	override := func(fields []string) []string {
		fields = maybe(fields, fmt.Sprintf("retryLimit: %d", rapid.IntRange(0, 4).Draw(t, "limit")))
		fields = maybe(fields, fmt.Sprintf("backoff: {initialDelay: %dms, multiplier: %d.%03d, jitter: 0.%d}", rapid.IntRange(0, 5000).Draw(t, "initial"), rapid.IntRange(1, 3).Draw(t, "whole"), rapid.IntRange(0, 999).Draw(t, "thousandths"), rapid.IntRange(0, 9).Draw(t, "jitter")))
		fields = maybe(fields, "antiAffinity: {mode: "+rapid.SampledFrom([]string{"none", "node", "allNodes"}).Draw(t, "avoid")+"}")
		return maybe(fields, "replacement: "+rapid.SampledFrom([]string{"WhenFailed", "WhenTerminated"}).Draw(t, "replacement"))
	}
	var files []File
	for i := range rapid.IntRange(0, 4).Draw(t, "policies") {
		spec := override(nil)
		spec = maybe(spec, "defaultAction: "+rapid.SampledFrom([]string{"Fail", "Retry", "FailUnit"}).Draw(t, "default"))
		spec = maybe(spec, "selectableByJobs: false")
		var rules []string
		for j := range rapid.IntRange(0, 4).Draw(t, "rules") {
			rule := maybe([]string{"action: " + rapid.SampledFrom([]string{"Fail", "Retry", "Ignore", "FailUnit"}).Draw(t, "action")}, fmt.Sprintf("name: r%d", j))
			matchers := []string{
				"onConditions: " + flow("conditions", "OOMKilled", "Evicted", "Preempted", "LeaseReturned", "LeaseExpired"),
				"onExitCodes: {operator: " + rapid.SampledFrom([]string{"In", "NotIn"}).Draw(t, "operator") + ", values: " + flow("codes", "1", "137", "-3") + "}",
				"onTerminationMessage: {pattern: '" + rapid.SampledFrom([]string{"a", "^b", "[ab]c", "full|(?i)no SPACE", "(disk )+(is )?full", "(?i)kaPUT"}).Draw(t, "pattern") + "'}",
				"onFailureCategory: " + flow("categories", "a", "b"),
				"onFailureCategory: [a, b], onFailureSubcategory: " + flow("subcategories", "c", "d"),
				"onRunDuration: " + rapid.SampledFrom([]string{"{lessThan: 30s}", "{atLeast: 0s}", "{atLeast: 90s, lessThan: 2m}"}).Draw(t, "duration"),
			}
			rule = append(rule, matchers[rapid.IntRange(0, len(matchers)-1).Draw(t, "first")])
			field, _, _ := strings.Cut(rule[len(rule)-1], ":")
			if second := matchers[rapid.IntRange(0, len(matchers)-1).Draw(t, "second")]; !strings.HasPrefix(second, field) {
				rule = maybe(rule, second)
			}
			rule = maybe(maybe(override(rule), "containerName: main"), "includeInitContainers: true")
			rules = append(rules, "{"+strings.Join(rule, ", ")+"}")
		}
		spec = append(spec, "rules: ["+strings.Join(rules, ", ")+"]")
		files = append(files, File{fmt.Sprintf("p%d.yaml", i), fmt.Appendf(nil, "{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: p%d}, spec: {%s}}", i, strings.Join(spec, ", "))})
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "group policies") {
		files = append(files, File{fmt.Sprintf("g%d.yaml", i), []byte(drawGroup(t, i))})
	}
	queue := []string{"kind: Queue", "name: q"}
	queue = maybe(queue, "retryPolicies: "+flow("bound", "p0", "p1", "p2", "p9"))
	queue = maybe(queue, "mode: Shadow")
	queue = maybe(queue, "pausedUntil: 1970-01-01T00:00:30Z")
	settings := maybe(nil, fmt.Sprintf("globalMaxRetries: %d", rapid.IntRange(0, 6).Draw(t, "global")))
	settings = maybe(settings, "defaultPolicyName: p1")
	settings = maybe(settings, "jobsMaySelect: false")
	settings = maybe(settings, "terminationSlack: 250ms")
	settings = maybe(settings, "avoidNodes: [{name: n2, until: 2026-12-01T06:00:00Z}, {name: n1, until: 1970-01-01T00:00:00Z}]")
	return append(files,
		File{"queue.yaml", []byte("{" + strings.Join(queue, ", ") + "}")},
		File{"settings.yaml", []byte("{kind: RetrySettings, spec: {" + strings.Join(settings, ", ") + "}}")})
}

// drawGroup draws a group policy that may state any field.
func drawGroup(t *rapid.T, i int) string {
	maybe := func(fields []string, field string) []string {
		if rapid.Bool().Draw(t, "has "+field) {
			return append(fields, field)
		}
		return fields
	}
	number := func(field string, least, most int) string {
		return fmt.Sprintf("%s: %d", field, rapid.IntRange(least, most).Draw(t, field))
	}
	one := func(field string, of ...string) string { return field + ": " + rapid.SampledFrom(of).Draw(t, field) }
	some := func(field string, of ...string) string {
		return field + ": [" + strings.Join(rapid.SliceOfNDistinct(rapid.SampledFrom(of), 1, len(of), rapid.ID[string]).Draw(t, field), ", ") + "]"
	}
	flow := func(fields []string) string { return "{" + strings.Join(fields, ", ") + "}" }
	backoff := func() string {
		growth := rapid.SampledFrom([]string{"type: Constant", "type: Exponential", "multiplier: 1.5"}).Draw(t, "growth")
		return "backoff: " + flow(maybe(maybe(maybe(nil, number("jitter", 0, 1)), one("initialDelay", "0s", "1s", "1m")+", "+growth), one("maxDelay", "2s", "10m")))
	}
	restarts := func() string {
		return "restarts: " + flow(maybe(maybe(maybe(nil, number("limit", 0, 3)), one("on", "OnFailure", "Always", "Never")), backoff()))
	}
	spec := maybe(maybe(maybe(nil, number("maxRestarts", 0, 3)), backoff()), one("completed", "Rerun", "Keep"))
	spec = maybe(spec, one("restartStrategy", "Recreate", "BlockingRecreate"))
	spec = maybe(spec, "unit: "+flow(maybe(nil, restarts())))
	names := []string{"main"}
	if n := rapid.IntRange(0, 4).Draw(t, "parts"); n > 0 {
		names = nil
		var parts []string
		for _, name := range rapid.Permutation([]string{"a", "b", "c", "d"}).Draw(t, "order")[:n] {
			members := rapid.IntRange(1, 9).Draw(t, "members")
			part := maybe([]string{"name: " + name, fmt.Sprintf("members: %d", members)}, number("replicas", 1, 3))
			part = maybe(maybe(maybe(part, number("minMembers", 1, members)), number("parallelism", 1, 9)), number("retryLimit", 0, 5)+", countFailed: true")
			if len(names) > 0 {
				part = maybe(maybe(part, some("after", names...)), some("afterReady", names...))
			}
			part = maybe(part, fmt.Sprintf("successRules: [{indexes: '0', count: 1}, {indexes: '0-%d'}]", members-1))
			part = maybe(maybe(part, restarts()), "onMemberFailure: Continue, "+number("maxFailedMembers", 0, 3))
			parts, names = append(parts, flow(part)), append(names, name)
		}
		spec = append(spec, "parts: ["+strings.Join(parts, ", ")+"]")
		spec = maybe(spec, "success: "+flow(maybe(maybe(nil, one("operator", "All", "Any")), some("parts", names...))))
	}
	var rules []string
	for j := range rapid.IntRange(0, 3).Draw(t, "rules") {
		rule := []string{fmt.Sprintf("name: r%d", j), one("action", "FailGroup", "RestartGroup", "RestartPart", "RestartUnit", "Leave", "Halt")}
		rule = maybe(maybe(rule, one("countsTowardsMax", "true", "false")), number("limit", 0, 3))
		rule = maybe(rule, some("onReasons", "PodFailurePolicy", "DeadlineExceeded", "MemberCancelled"))
		rule = maybe(maybe(rule, "onMessage: {pattern: 'a|b'}"), some("parts", names...))
		rules = append(rules, flow(rule))
	}
	spec = maybe(spec, "rules: ["+strings.Join(rules, ", ")+"]")
	return fmt.Sprintf("{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: g%d}, spec: %s}", i, flow(spec))
}

func drawFailure(t *rapid.T) *policy.Failure {
	f := &policy.Failure{
		Queue:       rapid.SampledFrom([]string{"q", "other"}).Draw(t, "queue"),
		RunID:       rapid.StringN(0, 40, -1).Draw(t, "run"),
		Time:        rapid.Int64Range(0, int64(time.Minute)).Draw(t, "t"),
		JobPolicies: rapid.SampledFrom([]string{"", "p0", "p3, p1", "nope,p2,nope", ","}).Draw(t, "annotation"),
		FailFast:    rapid.IntRange(0, 9).Draw(t, "failFast") == 0,
		Gang:        rapid.IntRange(0, 9).Draw(t, "gang") == 0,
		Grace:       time.Duration(rapid.IntRange(0, 400).Draw(t, "grace")) * time.Second,
		Conditions:  policy.Conditions(rapid.Uint16Range(0, 1<<(policy.LeaseExpired+1)-1).Draw(t, "conditions")),
		PodOOM:      rapid.Bool().Draw(t, "podOOM"),
		Category:    rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "category"),
		Subcategory: rapid.SampledFrom([]string{"", "c", "d"}).Draw(t, "subcategory"),
	}
	if f.Ran = rapid.Bool().Draw(t, "ran"); f.Ran {
		f.RunDuration = rapid.SampledFrom([]time.Duration{0, 29 * time.Second, 30 * time.Second, 90 * time.Second, 2 * time.Minute}).Draw(t, "run duration")
	}
	for range rapid.IntRange(0, 3).Draw(t, "containers") {
		f.Containers = append(f.Containers, policy.Container{
			Name:     rapid.SampledFrom([]string{"main", "side"}).Draw(t, "name"),
			ExitCode: rapid.SampledFrom([]int32{0, 1, 137, -3, 9}).Draw(t, "code"),
			Reason:   rapid.SampledFrom([]string{"", "Error", "OOMKilled"}).Draw(t, "reason"),
			Message:  rapid.SampledFrom([]string{"", "a", "bc", "ac", "x", "the disk is full", "No space left", "\u212aAPUT"}).Draw(t, "message"),
			Init:     rapid.Bool().Draw(t, "init"),
		})
	}
	return f
}

// TestLaws checks that Explain gives the verdict of Evaluate, with a consistent ladder, and that any history of
// failures stays within the limits and the time.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		files := drawSet(t)
		s, err := Parse(files)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Empty().ParseCanonical(s.Canonical())
		if err != nil {
			t.Fatal(err)
		}
		var c policy.Counts
		for range rapid.IntRange(1, 12).Draw(t, "failures") {
			f := drawFailure(t)
			v := s.Evaluate(f, &c)
			explained, traces := s.Explain(f, &c)
			if diff := cmp.Diff(v, explained); diff != "" {
				t.Fatalf("Explain differs from Evaluate: %s", diff)
			}
			if diff := cmp.Diff(v, again.Evaluate(f, &c)); diff != "" {
				t.Fatalf("after a round trip: %s", diff)
			}
			checkLadder(t, &v, traces)
			checkVerdict(t, &v, f, &c)
			c = granted(c, f, &v)
		}
	})
}

// checkLadder: the trace that matched is the last tried one and is the verdict's.
func checkLadder(t *rapid.T, v *policy.Verdict, traces []policy.RuleTrace) {
	matched := -1
	for i, r := range traces {
		if r.Tried != (matched < 0) || r.Matched && !r.Tried || (r.Why != "") != (r.Failed != policy.NoMatcher) || (r.Failed != policy.NoMatcher) != (r.Tried && !r.Matched) {
			t.Fatalf("trace %d of %+v", i, traces)
		}
		if r.Matched {
			matched = i
			if v.Policy != r.Policy || v.Rule != r.Rule {
				t.Fatalf("verdict by %s/%s, ladder by %s/%s", v.Policy, v.Rule, r.Policy, r.Rule)
			}
		}
	}
	if (v.Matcher != policy.NoMatcher) != (matched >= 0) {
		t.Fatalf("matcher %s, ladder %+v", v.Matcher, traces)
	}
}

// checkVerdict: what holds of every verdict.
func checkVerdict(t *rapid.T, v *policy.Verdict, f *policy.Failure, c *policy.Counts) {
	retries := slices.Contains([]policy.Code{policy.RuleRetry, policy.RuleIgnore, policy.DefaultRetry, policy.LegacyReturn}, v.Code)
	counted := v.Code == policy.RuleRetry || v.Code == policy.DefaultRetry
	switch {
	case v.Code == policy.UnknownCode || v.Requeue != retries:
		t.Fatalf("requeue %v by code %s", v.Requeue, v.Code)
	case v.GlobalUsed-c.Granted != map[bool]uint32{true: 1}[counted]:
		t.Fatalf("%s: global count from %d to %d", v.Code, c.Granted, v.GlobalUsed)
	case counted && (v.GlobalUsed > v.GlobalLimit || v.RuleUsed > v.RuleLimit || v.LimitFrom == policy.FromNowhere):
		t.Fatalf("granted beyond a limit: %+v", v)
	case !v.Requeue && (v.Delay != 0 || v.RetryAfter != 0 || v.ReadyAfter != 0 || v.Avoid != policy.AvoidNone || v.Key != policy.RuleKey{}):
		t.Fatalf("a failed job that comes back: %+v", v)
	case v.Requeue && (v.ReadyAfter < f.Time || v.RetryAfter < v.ReadyAfter || v.RetryAfter < f.Time+int64(v.Delay)):
		t.Fatalf("out of time at %d: %+v", f.Time, v)
	}
}

// The digest does not depend on the order of files, and canonical bytes are
// their own canonical form.
func TestDigestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		files := drawSet(t)
		s, err := Parse(files)
		if err != nil {
			t.Fatal(err)
		}
		shuffled, err := Parse(rapid.Permutation(files).Draw(t, "order"))
		if err != nil || shuffled.Digest() != s.Digest() {
			t.Fatalf("another order of files: %v\n%s\n%s", err, s.Canonical(), shuffled.Canonical())
		}
		again, err := Empty().ParseCanonical(s.Canonical())
		if err != nil || string(again.Canonical()) != string(s.Canonical()) || again.Digest() != s.Digest() {
			t.Fatalf("round trip: %v", err)
		}
		if len(again.Outlines()) != len(s.Outlines()) || !slices.Equal(again.Queues(), s.Queues()) {
			t.Fatal("policies or queues are lost")
		}
		if diff := cmp.Diff(groupsOf(s), groupsOf(again), comparePatterns); diff != "" {
			t.Fatalf("group policies differ after a round trip: %s", diff)
		}
		text, err := s.YAML(s.Resources()...)
		if err != nil {
			t.Fatal(err)
		}
		written, err := Parse([]File{{"written.yaml", text}})
		if err != nil || written.Digest() != s.Digest() {
			t.Fatalf("written as YAML: %v\n%s", err, text)
		}
		without := s
		for _, id := range s.Resources() {
			if id.Kind == KindGroup {
				without = without.Without(id)
			}
		}
		rest, err := Parse(slices.DeleteFunc(slices.Clone(files), func(f File) bool { return strings.HasPrefix(f.Name, "g") }))
		if err != nil || string(rest.Canonical()) != string(without.Canonical()) || strings.Contains(string(without.Canonical()), "groupPolicies") {
			t.Fatalf("without group policies: %v\n%s", err, without.Canonical())
		}
	})
}

// groupsOf are the group policies of a set, as the engine has them, in order.
func groupsOf(s *Set) (all []policy.GroupDefinition) {
	for _, id := range s.Resources() {
		if id.Kind == KindGroup {
			all = append(all, s.GroupPolicy(id.Name).GroupDefinition)
		}
	}
	return all
}

var comparePatterns = cmp.Comparer(func(a, b *policy.Pattern) bool {
	return a == nil && b == nil || a != nil && b != nil && a.String() == b.String()
})

// What a set takes over from another changes nothing: not what is accepted, not
// what is decided, and the other one least of all.
func TestParseCanonicalHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := func() *Set {
			s, err := Parse(drawSet(t))
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		held, other := set(), set()
		mixed := held
		for _, id := range append(held.Resources(), other.Resources()...) {
			if rapid.Bool().Draw(t, "take "+id.String()) {
				mixed = mixed.Replacing(id, other)
			}
		}
		data, before := mixed.Canonical(), held.Canonical()
		if rapid.IntRange(0, 3).Draw(t, "damage") == 0 {
			data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] = rapid.SampledFrom([]byte(`{}[],:"\0a `)).Draw(t, "by")
		}
		sameWithHeld(t, held, data)
		if string(held.Canonical()) != string(before) {
			t.Fatalf("%s became %s", before, held.Canonical())
		}
	})
}

// sameWithHeld parses with and without a set that is held.
func sameWithHeld(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, held *Set, data []byte,
) {
	t.Helper()
	alone, err := Empty().ParseCanonical(data)
	both, errBoth := held.ParseCanonical(data)
	if fmt.Sprint(err) != fmt.Sprint(errBoth) {
		t.Fatalf("%v, and with a set that is held %v\n%s", err, errBoth, data)
	}
	if err != nil {
		return
	}
	if string(both.Canonical()) != string(data) || string(alone.Canonical()) != string(data) || both.Digest() != alone.Digest() {
		t.Fatalf("took\n%s and\n%s for\n%s", alone.Canonical(), both.Canonical(), data)
	}
	if diff := cmp.Diff(alone.Outlines(), both.Outlines(), cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Fatalf("policies differ: %s", diff)
	}
	if diff := cmp.Diff(groupsOf(alone), groupsOf(both), comparePatterns); diff != "" {
		t.Fatalf("group policies differ: %s", diff)
	}
	for _, id := range alone.Resources() {
		a, _ := alone.Body(id)
		if b, ok := both.Body(id); !ok || a != b {
			t.Fatalf("%s is %s, and with a set that is held %s", id, a, b)
		}
	}
	for _, queue := range []string{"q", "other"} {
		for _, annotation := range []string{"", "p0, p3"} {
			f := benchFailure(annotation)
			f.Queue = queue
			v, traces := alone.Explain(f, nil)
			w, tracesBoth := both.Explain(f, nil)
			if diff := cmp.Diff(v, w) + cmp.Diff(traces, tracesBoth); diff != "" {
				t.Fatalf("decided otherwise: %s", diff)
			}
		}
	}
}

// FuzzParse: no panic, no endless work, and what Parse accepts it can write.
func FuzzParse(f *testing.F) {
	f.Add([]byte(benchRules(6)))
	f.Add([]byte("{apiVersion: armadaproject.io/v1beta1, kind: RetryPolicy, name: a, defaultAction: 1, rules: [{action: retry, onCategory: x}]}"))
	f.Add([]byte("{kind: Queue, name: \"a\\u2028b\", pausedUntil: 2026-12-01T06:00:00.5+01:00}\n---\n{kind: RetrySettings, spec: {horizon: 1h0.5s}}"))
	f.Add([]byte(groupExample))
	f.Add([]byte("{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: g}, spec: {rules: [], parts: [{name: a, after: [b]}, {name: b, after: [a, a]}]}}"))
	f.Add([]byte("a: &a [*a, *a]\n<<: *a\n? {}\n: !!binary x\n--- >-\n\tx"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return
		}
		s, err := Parse([]File{{"f.yaml", data}})
		if problems := Problems(nil); errors.As(err, &problems) {
			for _, p := range problems {
				if p.File == "" || p.Line < 1 || p.Column < 1 || p.Code == "" || p.Message == "" || p.Fix == "" || strings.ContainsAny(p.String(), "\n\x1b") {
					t.Fatalf("problem %+v", p)
				}
			}
			return
		}
		if _, err := Empty().ParseCanonical(s.Canonical()); err != nil {
			t.Fatalf("%v\n%s", err, s.Canonical())
		}
		s.Explain(benchFailure("p, a"), nil)
		_ = Lint([]File{{"f.yaml", data}})
	})
}

// FuzzCanonical: what ParseCanonical accepts are canonical bytes, whatever is held.
func FuzzCanonical(f *testing.F) {
	f.Add(Empty().Canonical())
	for _, text := range []string{benchRules(6), groupExample, "{kind: RetrySettings, spec: {defaultBackoff: {type: Constant, jitter: 0.5}, horizon: 1h}}"} {
		s, err := Parse([]File{{"p.yaml", []byte(text)}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s.Canonical())
	}
	held := mustParse(f, benchRules(6))
	f.Fuzz(func(t *testing.T, data []byte) { sameWithHeld(t, held, data) })
}
