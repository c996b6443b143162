package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/authoring/lint"
	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/fieldtest"
)

// Rules and failures are drawn from few words, so that they meet.
var (
	conditionNames = []string{"OOMKilled", "Evicted", "DeadlineExceeded", "Preempted", "Unschedulable", "LeaseReturned", "LeaseExpired"}
	patterns       = []string{"a", "b", ".*", ".+", "^a", "^", "a*$", "[^\\x00-\\x{10FFFF}]", "^$", "(?s)."}
	containerNames = []string{"main", "side", "init"}
	labels         = []string{"c", "d"}
	messages       = []string{"", "a", "b", "\n", "\nab"}
)

func drawRule(t *rapid.T, i int) string {
	fields := []string{fmt.Sprintf("name: r%d", i), "action: " + rapid.SampledFrom([]string{"Retry", "Fail", "Ignore"}).Draw(t, "action")}
	some := func(label string, from []string) string {
		return "[" + strings.Join(rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, 2, rapid.ID[string]).Draw(t, label), ", ") + "]"
	}
	before := len(fields)
	asks := func(label string) bool { return rapid.IntRange(0, 2).Draw(t, label) == 0 }
	if asks("conditions?") {
		fields = append(fields, "onConditions: "+some("conditions", conditionNames))
	}
	if asks("codes?") {
		operator := rapid.SampledFrom([]string{"In", "NotIn"}).Draw(t, "operator")
		codes := []string{"1", "2", "3"}
		if operator == "NotIn" {
			codes = append(codes, "0")
		}
		fields = append(fields, "onExitCodes: {operator: "+operator+", values: "+some("codes", codes)+"}")
	}
	if asks("pattern?") {
		fields = append(fields, "onTerminationMessage: {pattern: '"+rapid.SampledFrom(patterns).Draw(t, "pattern")+"'}")
	}
	if asks("duration?") {
		fields = append(fields, "onRunDuration: "+rapid.SampledFrom([]string{"{lessThan: 2s}", "{lessThan: 3s}", "{atLeast: 0s}", "{atLeast: 2s}", "{atLeast: 3s}", "{atLeast: 2s, lessThan: 3s}"}).Draw(t, "duration"))
	}
	if asks("category?") || len(fields) == before {
		fields = append(fields, "onFailureCategory: "+some("category", labels))
		if asks("subcategory?") {
			fields = append(fields, "onFailureSubcategory: "+some("subcategory", labels))
		}
	}
	if asks("container?") {
		fields = append(fields, "containerName: "+rapid.SampledFrom(containerNames).Draw(t, "container"))
	}
	if asks("init?") {
		fields = append(fields, "includeInitContainers: true")
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

func drawFailure(t *rapid.T) *suite.Failure {
	f := &suite.Failure{}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(conditionNames), 0, 2, rapid.ID[string]).Draw(t, "holds") {
		c, _ := policy.ParseCondition(name)
		f.Conditions = append(f.Conditions, c)
	}
	f.PodOOM = rapid.IntRange(0, 5).Draw(t, "pod OOM") == 0
	f.Containers = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) policy.Container {
		return policy.Container{
			Name: rapid.SampledFrom(containerNames).Draw(t, "name"), ExitCode: rapid.Int32Range(0, 3).Draw(t, "code"),
			Reason: rapid.SampledFrom([]string{"", "OOMKilled", "Error"}).Draw(t, "reason"), Message: rapid.SampledFrom(messages).Draw(t, "message"),
		}
	}), 0, 3).Draw(t, "containers")
	if rapid.Bool().Draw(t, "ran") {
		f.RunDuration = new(rapid.SampledFrom([]time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, time.Hour}).Draw(t, "run duration"))
	}
	if rapid.Bool().Draw(t, "labelled") {
		f.Category = rapid.SampledFrom(append(labels, "internal")).Draw(t, "category")
		f.Sub = rapid.SampledFrom(append(labels, "active-deadline")).Draw(t, "sub")
	}
	return f
}

// TestSound: no failure is ever decided by a rule that lint says is shadowed,
// never matches, or is not seen in a queue; and no failure matches two rules that
// are said to be disjoint. Failures become events and are decided by Step.
func TestSound(t *testing.T) {
	t.Parallel()
	flagged, decided := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var first, second []string
		rules := map[string]string{}
		for i := range rapid.IntRange(1, 4).Draw(t, "rules") {
			first = append(first, drawRule(t, i))
			rules[fmt.Sprintf("p/r%d", i)] = first[i]
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "later rules") {
			second = append(second, drawRule(t, i))
			rules[fmt.Sprintf("q/r%d", i)] = second[i]
		}
		text := policyOf("p", first...) + "---\n" + policyOf("q", second...) + "---\nkind: Queue\nname: both\nretryPolicies: [p, q]\n---\nkind: Queue\nname: late\nretryPolicies: [q]\n"
		files := []policyfile.File{{Name: "p.yaml", Data: []byte(text)}}
		problems, err := lint.Lint(files, nil)
		if err != nil {
			t.Fatal(err)
		}
		set, err := policyfile.Parse(files)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		dead := map[string][]string{} // by queue
		for _, p := range problems {
			name, _ := ruleOf(set, p, text)
			switch p.Code {
			case "RP103", "RP106":
				dead["both"], dead["late"] = append(dead["both"], name), append(dead["late"], name)
			case "RP111":
				rule, _, _ := strings.Cut(p.Message, " ")
				dead["both"] = append(dead["both"], rule)
			case "RP113":
				dead["both"] = append(dead["both"], "q/")
			}
		}
		flagged += len(dead["both"])
		apart := disjoint(t, set, rules)
		for range 12 {
			f := drawFailure(t)
			if f.Check() != nil {
				continue
			}
			for _, queue := range []string{"both", "late"} {
				trial, err := suite.NewTrial(set, suite.Job{Queue: queue, InitContainers: []string{"init"}}, 0)
				if err != nil {
					t.Fatal(err)
				}
				out, err := trial.Fail(f, 1e18)
				if err != nil {
					t.Fatal(err)
				}
				by := out.Decision.Policy + "/" + out.Decision.Rule
				if slices.ContainsFunc(dead[queue], func(d string) bool { return d == by || d == "q/" && strings.HasPrefix(by, d) }) {
					t.Fatalf("%s decided %v in queue %s, and lint says it cannot:\n%v\n%s", by, f, queue, problems, text)
				}
				decided++
				for _, pair := range apart {
					if x := out.Why.Facts; matches(t, pair[0], x) && matches(t, pair[1], x) {
						t.Fatalf("%v matches rules that are said to be disjoint:\n%s\n%s", f, pair[0].Canonical(), pair[1].Canonical())
					}
				}
			}
		}
	})
	if flagged == 0 || decided == 0 {
		t.Errorf("%d rules flagged, %d failures decided: the test proves nothing", flagged, decided)
	}
	t.Logf("%d rules flagged, %d failures decided", flagged, decided)
}

// ruleOf is the rule that a problem is about.
func ruleOf(set *policyfile.Set, p policyfile.Problem, text string) (string, bool) {
	name := "p"
	if first, _, _ := strings.Cut(text, "---\n"); p.Line > strings.Count(first, "\n")+1 {
		name = "q"
	}
	var i int
	if n, _ := fmt.Sscanf(p.Path, "spec.rules[%d]", &i); n != 1 {
		return "", false
	}
	for _, o := range set.Outlines() {
		if o.Name == name {
			return name + "/" + o.Rules[i].Shown, true
		}
	}
	return "", false
}

// disjoint are pairs of one-rule sets that are said to be disjoint, made from
// the text of the rules.
func disjoint(t *rapid.T, set *policyfile.Set, rules map[string]string) [][2]*policyfile.Set {
	alone := func(r *policy.Rule) *policyfile.Set {
		text := policyOf("p", rules[r.Key.Policy+"/"+r.Shown]) + "---\nkind: Queue\nname: only\nretryPolicies: [p]\n"
		one, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	var all [][2]*policyfile.Set
	for _, o := range set.Outlines() {
		for i := range o.Rules {
			for k := range i {
				if o.Rules[i].Disjoint(&o.Rules[k].Matchers) {
					all = append(all, [2]*policyfile.Set{alone(&o.Rules[i]), alone(&o.Rules[k])})
				}
			}
		}
	}
	return all
}

// matches says whether the one rule of a set matches.
func matches(t *rapid.T, set *policyfile.Set, f policy.Failure) bool {
	f.Queue = "only"
	_, traces := set.Explain(&f, nil)
	if len(traces) != 1 {
		t.Fatalf("%d rules in a set of one", len(traces))
	}
	return traces[0].Matched
}

// TestSoundDrawsEveryMatcher: the rules of TestSound have every field of MatcherFields.
func TestSoundDrawsEveryMatcher(t *testing.T) {
	t.Parallel()
	rule := rapid.Custom(func(t *rapid.T) string { return drawRule(t, 0) })
	var drawn []string
	for seed := range 200 {
		drawn = append(drawn, policyOf("p", rule.Example(seed)))
	}
	fieldtest.Matchers(t, policyfile.MatcherFields(), drawn...)
}
