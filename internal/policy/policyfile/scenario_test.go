package policyfile

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs testdata/scenarios. The verbs are documented at their case.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &scenario{set: Empty()}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	set    *Set
	counts policy.Counts
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "parse":
		// Parse the input and use it from here on. A line "== name" starts a
		// file. Prints ok, or the problems and no change.
		set, err := Parse(splitFiles(d.Input))
		if err != nil {
			return err.Error()
		}
		s.set, s.counts = set, policy.Counts{}
		return "ok"
	case "lint":
		// Lint the input, like parse.
		if problems := Lint(splitFiles(d.Input)); len(problems) > 0 {
			return problems.Error()
		}
		return "clean"
	case "canonical":
		// Print the canonical encoding of the set in use.
		return string(s.set.Canonical())
	case "parse-canonical":
		// Read the input, without its last newline, as a canonical encoding.
		if _, err := Empty().ParseCanonical([]byte(strings.TrimSuffix(d.Input, "\n"))); err != nil {
			return err.Error()
		}
		return "ok"
	case "digests":
		// Parse each of the sets, which follow lines "### name", and print
		// which of them have the same digest.
		return digests(t, d.Input)
	case "evaluate":
		// Evaluate the failure that the input describes (see parseFacts), after
		// what was kept. "keep" adds what is granted to what was granted.
		f, c := parseFacts(t, d.Input, s.counts)
		v := s.set.Evaluate(f, c)
		if d.HasArg("keep") {
			s.counts = granted(*c, f, &v)
		}
		return printVerdict(&v, f)
	case "explain":
		// Like evaluate, and print the ladder.
		f, c := parseFacts(t, d.Input, s.counts)
		v, traces := s.set.Explain(f, c)
		return printTraces(traces) + printVerdict(&v, f)
	case "forget":
		// Forget what was kept.
		s.counts = policy.Counts{}
		return "ok"
	case "delays":
		// Print the delays of the retries n=(1,2,…) of a policy with the backoff
		// in the input, for the run id run=….
		return delays(t, d)
	}
	t.Fatalf("%s: unknown verb %s", d.Pos, d.Cmd)
	return ""
}

func splitFiles(input string) []File {
	var files []File
	if !strings.HasPrefix(input, "== ") {
		input = "== p.yaml\n" + input
	}
	for _, part := range strings.Split("\n"+input, "\n== ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		files = append(files, File{Name: name, Data: []byte(strings.ReplaceAll(text, "<tab>", "\t"))})
	}
	return files
}

func digests(t *testing.T, input string) string {
	var out strings.Builder
	seen := make(map[[32]byte]string)
	for _, part := range strings.Split("\n"+input, "\n### ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		set, err := Parse(splitFiles(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if same, ok := seen[set.Digest()]; ok {
			fmt.Fprintf(&out, "%s = %s\n", name, same)
			continue
		}
		seen[set.Digest()] = name
		fmt.Fprintf(&out, "%s is new\n", name)
	}
	return out.String()
}

// parseFacts reads one fact a line:
//
//	queue NAME · run ID · at DURATION (since 1970; 1000s) · grace DURATION
//	annotation TEXT · failfast · gang · podoom · condition NAME…
//	container NAME CODE [REASON [MESSAGE…]] · init … (an init container)
//	category NAME [SUBCATEGORY] · ran DURATION
//	granted POLICY/RULE N (adds to the total) · ignored POLICY/RULE N
//	total N (all granted) · returns N (returned leases before)
func parseFacts(t *testing.T, input string, before policy.Counts) (*policy.Failure, *policy.Counts) {
	f := &policy.Failure{RunID: "run", Time: int64(1000 * time.Second), Queue: "q", Grace: time.Second}
	c := before
	c.Rules = append([]policy.RuleCount(nil), before.Rules...)
	for line := range strings.SplitSeq(strings.TrimSpace(input), "\n") {
		words := append(strings.Fields(line), "", "", "")
		key := func() policy.RuleKey {
			p, r, _ := strings.Cut(words[1], "/")
			return policy.RuleKey{Policy: p, Rule: r}
		}
		switch words[0] {
		case "":
		case "ran":
			d, err := time.ParseDuration(words[1])
			if err != nil {
				t.Fatal(err)
			}
			f.Ran, f.RunDuration = true, d
		case "queue":
			f.Queue = words[1]
		case "run":
			f.RunID = words[1]
		case "at":
			f.Time = int64(mustDuration(t, words[1]))
		case "grace":
			f.Grace = mustDuration(t, words[1])
		case "annotation":
			f.JobPolicies = strings.TrimPrefix(line, "annotation ")
		case "failfast":
			f.FailFast = true
		case "gang":
			f.Gang = true
		case "podoom":
			f.PodOOM = true
		case "condition":
			for _, name := range strings.Fields(line)[1:] {
				cond, ok := policy.ParseCondition(name)
				if !ok {
					t.Fatalf("no condition %s", name)
				}
				f.Conditions = f.Conditions.With(cond)
			}
		case "container", "init":
			f.Containers = append(f.Containers, policy.Container{
				Name: strings.Trim(words[1], `"`), ExitCode: int32(mustInt(t, words[2])), Init: words[0] == "init",
				Reason: words[3], Message: strings.TrimSpace(strings.Join(words[min(4, len(words)):], " ")),
			})
		case "category":
			f.Category, f.Subcategory = words[1], words[2]
		case "granted":
			n := uint32(mustInt(t, words[2]))
			c.Rules = append(c.Rules, policy.RuleCount{Key: key(), Granted: n})
			c.Granted += n
		case "ignored":
			c.Rules = append(c.Rules, policy.RuleCount{Key: key(), Ignored: uint32(mustInt(t, words[2]))})
		case "total":
			c.Granted = uint32(mustInt(t, words[1]))
		case "returns":
			c.LegacyReturns = uint32(mustInt(t, words[1]))
		default:
			t.Fatalf("unknown fact %q", line)
		}
	}
	return f, &c
}

// granted does the bookkeeping of a caller of Evaluate: c after the verdict on f.
func granted(c policy.Counts, f *policy.Failure, v *policy.Verdict) policy.Counts {
	if f.Conditions.Has(policy.LeaseReturned) {
		c.LegacyReturns++
	}
	if !v.Requeue || v.Key == (policy.RuleKey{}) {
		return c
	}
	i := 0
	for i < len(c.Rules) && c.Rules[i].Key != v.Key {
		i++
	}
	if i == len(c.Rules) {
		c.Rules = append(c.Rules, policy.RuleCount{Key: v.Key})
	}
	if v.Code == policy.RuleIgnore {
		c.Rules[i].Ignored++
		return c
	}
	c.Rules[i].Granted++
	c.Granted++
	return c
}

func printVerdict(v *policy.Verdict, f *policy.Failure) string {
	var b strings.Builder
	outcome := "fail"
	if v.Requeue {
		outcome = "requeue"
	}
	fmt.Fprintf(&b, "%s %s", outcome, v.Code)
	if v.Policy != "" || v.Rule != "" {
		fmt.Fprintf(&b, " %s/%s", v.Policy, v.Rule)
	}
	if v.Key != (policy.RuleKey{}) && v.Key.Rule != v.Rule {
		fmt.Fprintf(&b, " key %s/%s", v.Key.Policy, v.Key.Rule)
	}
	if v.Matcher != policy.NoMatcher {
		fmt.Fprintf(&b, "\nby %s", v.Matcher)
	}
	if v.Container != "" {
		fmt.Fprintf(&b, "\ncontainer %s", v.Container)
	}
	if v.LimitFrom != policy.FromNowhere {
		fmt.Fprintf(&b, "\nrule %d/%d from %s", v.RuleUsed, v.RuleLimit, v.LimitFrom)
	}
	fmt.Fprintf(&b, "\nglobal %d/%d\n", v.GlobalUsed, v.GlobalLimit)
	if v.Requeue {
		fmt.Fprintf(&b, "delay %s retry +%s ready +%s avoid %s\n", v.Delay, time.Duration(v.RetryAfter-f.Time), time.Duration(v.ReadyAfter-f.Time), v.Avoid)
	}
	if v.Skipped != nil {
		fmt.Fprintf(&b, "skipped %q\n", v.Skipped)
	}
	if v.Shadow {
		b.WriteString("shadow\n")
	}
	return b.String()
}

func printTraces(traces []policy.RuleTrace) string {
	var b strings.Builder
	for _, r := range traces {
		switch {
		case !r.Tried:
			fmt.Fprintf(&b, "  %s/%s not tried\n", r.Policy, r.Rule)
		case r.Matched:
			fmt.Fprintf(&b, "> %s/%s\n", r.Policy, r.Rule)
		default:
			fmt.Fprintf(&b, "  %s/%s %s: %s\n", r.Policy, r.Rule, r.Failed, r.Why)
		}
	}
	return b.String()
}

func delays(t *testing.T, d *datadriven.TestData) string {
	set, err := Parse([]File{{"p.yaml", []byte(
		"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: p}, spec: {defaultAction: Retry, retryLimit: 1000000, backoff: " + strings.TrimSpace(d.Input) +
			"}}\n---\n{kind: RetrySettings, spec: {globalMaxRetries: 1000000, defaultPolicyName: p}}")}})
	if err != nil {
		return err.Error()
	}
	run := ""
	if d.HasArg("run") {
		d.ScanArgs(t, "run", &run)
	}
	var out strings.Builder
	for _, arg := range d.CmdArgs {
		for _, n := range arg.Vals {
			if arg.Key == "n" {
				v := set.Evaluate(&policy.Failure{RunID: run}, &policy.Counts{Rules: []policy.RuleCount{{Key: policy.RuleKey{Policy: "p", Rule: "default"}, Granted: uint32(mustInt(t, n) - 1)}}})
				fmt.Fprintf(&out, "%s: %s\n", n, v.Delay)
			}
		}
	}
	return out.String()
}

func mustInt(t *testing.T, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mustDuration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
