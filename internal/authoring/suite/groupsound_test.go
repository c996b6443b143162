package suite

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/fieldtest"
)

// randomGroup draws the fields of a group policy, each on a line of its own so that one can be exchanged.
func randomGroup(r *rand.Rand) []string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	backoff := func() string {
		return pick("", ", backoff: {initialDelay: 10s}", ", backoff: {initialDelay: 10s, maxDelay: 15s}", ", backoff: {initialDelay: 10s, maxDelay: 20s}", ", backoff: {initialDelay: 10s, maxDelay: 40s}", ", backoff: {initialDelay: 10s, multiplier: 3}", ", backoff: {initialDelay: 10s, type: Constant, jitter: 0.5}")
	}
	restarts := func() string {
		return pick("", "", fmt.Sprintf(", restarts: {on: %s, limit: %d%s}", pick("OnFailure", "Always", "Never"), r.IntN(3), backoff()))
	}
	lines := []string{
		pick("", "  maxRestarts: 0", "  maxRestarts: 1", "  maxRestarts: 2"),
		pick("", "  completed: Keep"),
		strings.Replace(backoff(), ", ", "  ", 1),
		pick("", "  restartStrategy: BlockingRecreate"),
		strings.Replace(restarts(), ", restarts", "  unit: {restarts", 1),
		pick("", "  success: {operator: Any}", "  success: {operator: Any, parts: [a]}", "  success: {parts: [b]}", "  success: {parts: [a, b]}"),
		pick("", "  rules: []", "  rules:"),
	}
	if lines[4] != "" {
		lines[4] += "}"
	}
	if lines[6] == "  rules:" {
		for i := range 1 + r.IntN(3) {
			rule := fmt.Sprintf("  - {name: r%d, action: %s", i, pick("FailGroup", "RestartGroup", "RestartGroup", "RestartPart", "RestartUnit", "Leave", "Halt"))
			rule += pick("", "", ", countsTowardsMax: false") + pick("", "", ", limit: 0", ", limit: 1", ", limit: 2")
			rule += pick("", ", onReasons: [PodFailurePolicy]", ", onReasons: [BackoffLimitExceeded, FailedIndexes]", ", onReasons: [MemberCancelled, DeadlineExceeded]")
			lines = append(lines, rule+pick("", "", ", onMessage: {pattern: a}", ", onMessage: {pattern: b}")+pick("", "", ", parts: [a]", ", parts: [b]")+"}")
		}
	}
	part := func(name, after string) string {
		return fmt.Sprintf("  - {name: %s, members: %d%s%s%s%s%s%s%s}", name, 1+r.IntN(2), pick("", ", minMembers: 1"), pick("", "", ", parallelism: 1", ", replicas: 2"), pick("", after, strings.Replace(after, "after", "afterReady", 1), after+strings.Replace(after, "after", "afterReady", 1)),
			pick("", "", `, successRules: [{indexes: "0"}]`, `, successRules: [{indexes: 0-1, count: 2}]`), pick("", ", retryLimit: 1", ", retryLimit: 3", ", retryLimit: 1, countFailed: true"),
			pick("", ", onMemberFailure: Continue", ", onMemberFailure: Continue, maxFailedMembers: 1", ", onMemberFailure: Continue, maxFailedMembers: 3"), restarts())
	}
	return append(lines, "  parts:", part("a", ""), part("b", ", after: [a]"))
}

func groupText(lines []string) string {
	return "apiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: g}\nspec:\n" + strings.Join(lines, "\n") + "\n"
}

func parsedGroup(lines []string, others string) *policyfile.Set {
	text := groupText(lines) + others
	set, err := policyfile.Parse([]policyfile.File{{Name: "g.yaml", Data: []byte(text)}})
	if err != nil {
		return nil // such as maxFailedMembers without Continue
	}
	return set
}

// randomEvents draws what happens to a group, possible or not.
func randomEvents(r *rand.Rand) []string {
	var events []string
	for range 4 + r.IntN(12) {
		m := fmt.Sprintf("%s/0/%d", []string{"a", "b"}[r.IntN(2)], r.IntN(2))
		events = append(events, []string{
			"{member: " + m + ", fail: {exitCode: 1}}", "{member: " + m + ", fail: {exitCode: 1, message: ab}}", "{member: " + m + ", fail: {exitCode: 1, message: b}}",
			"{member: " + m + ", fail: {exitCode: 42, message: a}}", "{member: " + m + ", fail: {condition: LeaseExpired}}", "{member: " + m + ", fail: {condition: DeadlineExceeded}}",
			"{cancel: " + m + "}", "{succeed: " + m + "}", "{succeed: a}", "{succeed: all}", "{start: " + m + "}", "{member: " + m + ", late: true, fail: {exitCode: 143}}",
		}[r.IntN(12)])
	}
	return events
}

// history runs events, leaving out those that cannot happen, and returns all that a test could see.
func history(t *testing.T, set *policyfile.Set, gang bool, events []string) string {
	t.Helper()
	head := "kind: RetryPolicyTest\ntests:\n- name: t\n  job: {queue: q}\n  group: {policy: g}\n  events:\n"
	if gang {
		head = strings.Replace(head, "policy: g", "policy: g, gangs: [a]", 1)
	}
	s, err := Parse(policyfile.File{Name: "t", Data: []byte(head + "  - " + strings.Join(events, "\n  - ") + "\n")})
	if err != nil {
		t.Fatal(err)
	}
	trial, err := newTrial(set, &s.Tests[0])
	if err != nil {
		return err.Error()
	}
	var all strings.Builder
	at := s.Tests[0].Start
	for i := range s.Tests[0].Events {
		out, err := trial.happen(&s.Tests[0].Events[i], &at)
		if err != nil {
			fmt.Fprintln(&all, err)
			continue
		}
		fmt.Fprint(&all, events[i])
		for _, field := range append(append([]string{}, expectable[:]...), append(groupExpectable[:], "units.a", "units.b", "generations.a", "generations.b")...) {
			if out.Decision != nil || out.NotDecided != nil || field == "why" || !strings.Contains(strings.Join(expectable[:], " "), field) {
				fmt.Fprintf(&all, " %s: %s", field, out.value(field, 0))
			}
		}
		fmt.Fprintln(&all)
	}
	return all.String()
}

// TestBehaviourIsSound: policies of which Mutants says that no test can tell them apart do the same, whatever happens.
func TestBehaviourIsSound(t *testing.T) {
	t.Parallel()
	const plain = `---
{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: p}, spec: {retryLimit: 2, rules: [{name: lost, action: Retry, onConditions: [LeaseExpired]}]}}
---
{kind: Queue, name: q, retryPolicies: [p]}
`
	withFailUnit := strings.Replace(plain, "}]}}", "}, {name: no, action: FailUnit, onExitCodes: {operator: In, values: [42]}}]}}", 1)
	alike, apart := 0, 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 7))
		others := plain
		if r.IntN(3) > 0 {
			others = withFailUnit
		}
		lines, again := randomGroup(r), randomGroup(r)
		changed := append([]string{}, lines...)
		switch i := r.IntN(len(lines)); {
		case i >= 6 && strings.HasPrefix(lines[i], "  - {name: r") && r.IntN(2) == 0: // dropped, or swapped with the next
			changed[i] = ""
			if next := i + 1; r.IntN(2) == 0 && strings.HasPrefix(lines[next], "  - {name: r") {
				changed[i], changed[next] = lines[next], lines[i]
			}
		case i < len(again):
			changed[i] = again[i]
		}
		a, b := parsedGroup(lines, others), parsedGroup(changed, others)
		if a == nil || b == nil || a.Digest() == b.Digest() {
			continue
		}
		if !equivalent(a, b) {
			apart++
			continue
		}
		alike++
		for range 6 {
			events, gang := randomEvents(r), r.IntN(4) == 0
			if x, y := history(t, a, gang, events), history(t, b, gang, events); x != y {
				t.Fatalf("seed %d: these are not alike:\n%s\n%s\n%s\n%s", seed, strings.Join(lines, "\n"), strings.Join(changed, "\n"), x, y)
			}
		}
	}
	if alike < 30 || apart < 100 {
		t.Errorf("compared only %d policies that are alike; %d are not", alike, apart)
	}
	t.Logf("%d alike, %d apart", alike, apart)
}

// groupPaths are the fields of group policies.
func groupPaths() (paths []string) {
	for _, f := range policyfile.Fields() {
		if f.Kind == policyfile.KindGroup && f.Path != "" {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// TestBehaviourOfEveryField: the policies of TestBehaviourIsSound have every field.
func TestBehaviourOfEveryField(t *testing.T) {
	t.Parallel()
	var drawn []string
	for seed := range uint64(400) {
		drawn = append(drawn, groupText(randomGroup(rand.New(rand.NewPCG(seed, 7)))))
	}
	fieldtest.Groups(t, groupPaths(), drawn...)
}

// TestMutantsOfEveryField: some mutant changes each field of a group policy, other than what names and counts jobs.
func TestMutantsOfEveryField(t *testing.T) {
	t.Parallel()
	texts := []string{groupText([]string{`  maxRestarts: 3
  restartStrategy: BlockingRecreate
  backoff: {initialDelay: 10s, maxDelay: 40s, multiplier: 3, jitter: 0.5}
  completed: Keep
  unit: {restarts: {on: Always, limit: 3, backoff: {initialDelay: 10s, maxDelay: 40s, multiplier: 3, jitter: 0.5}}}
  success: {operator: Any, parts: [b, c]}
  rules:
  - {name: r, action: RestartGroup, countsTowardsMax: false, limit: 1, onReasons: [BackoffLimitExceeded], onMessage: {pattern: a}, parts: [a, b, c]}
  - {name: s, action: RestartPart}
  parts:
  - {name: a, replicas: 2, members: 4, minMembers: 3, parallelism: 2, retryLimit: 2, countFailed: true, onMemberFailure: Continue, maxFailedMembers: 1, successRules: [{indexes: 0-2, count: 2}]}
  - {name: b, after: [a], restarts: {on: Always, limit: 3, backoff: {initialDelay: 10s, maxDelay: 40s, multiplier: 3, jitter: 0.5}}}
  - {name: c, afterReady: [a], restarts: {backoff: {type: Constant}}}`}), groupText([]string{"  backoff: {type: Constant}\n  unit: {restarts: {backoff: {type: Constant}}}"})}
	fieldtest.Groups(t, groupPaths(), texts...)
	set, err := policyfile.Parse([]policyfile.File{{Name: "g.yaml", Data: []byte(texts[0])}, {Name: "p.yaml", Data: []byte("{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: p}, spec: {retryLimit: 9, rules: [{action: Retry, onConditions: [LeaseExpired]}]}}")}})
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := Mutants(set)
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]bool{}
	for i := range mutants {
		if mutants[i].Kind == policyfile.KindGroup {
			differing(changed, "spec", specOf(t, set), specOf(t, mutants[i].Set))
		}
	}
	for _, path := range groupPaths() {
		name := path[strings.LastIndex(path, ".")+1:]
		exempt := []string{"apiVersion", "kind", "metadata", "name", "replicas", "members", "type", "jitter", "indexes", "pattern"}
		if !changed[path] && !slices.Contains(exempt, name) {
			t.Errorf("no mutant changes %s", path)
		}
	}
}

func specOf(t *testing.T, set *policyfile.Set) any {
	t.Helper()
	c, err := (&mutator{set: set}).fresh()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any(c.group(0))
}

// differing adds the paths of fields that two values have in different ways.
func differing(paths map[string]bool, path string, a, b any) {
	if reflect.DeepEqual(a, b) {
		return
	}
	paths[path] = true
	switch a := a.(type) {
	case map[string]any:
		b, _ := b.(map[string]any)
		for name := range a { // in any order: it makes a set
			differing(paths, path+"."+name, a[name], b[name])
		}
		for name := range b {
			differing(paths, path+"."+name, a[name], b[name])
		}
	case []any:
		if b, _ := b.([]any); len(a) == len(b) {
			for i := range a {
				differing(paths, path, a[i], b[i])
			}
		}
	}
}
