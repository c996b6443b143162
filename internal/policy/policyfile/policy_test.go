package policyfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/refloat/refloat/internal/policy"

	"github.com/google/go-cmp/cmp"
)

func mustParse(t testing.TB, text string) *Set {
	t.Helper()
	s, err := Parse([]File{{Name: "p.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The names of codes are metric labels and stand in logs.
func TestEmpty(t *testing.T) {
	s := Empty()
	if !s.Enabled() || s.Horizon() != 24*time.Hour {
		t.Errorf("enabled %v, horizon %s", s.Enabled(), s.Horizon())
	}
	none, err := Parse(nil)
	if err != nil || none.Digest() != s.Digest() {
		t.Errorf("Parse(nil) = %x, %v, want %x", none.Digest(), err, s.Digest())
	}
	if v := s.Evaluate(&policy.Failure{}, nil); v.Code != policy.NoPolicy || v.GlobalLimit != 20 {
		t.Errorf("Evaluate = %+v", v)
	}
	other := mustParse(t, "{kind: RetrySettings, spec: {enabled: false, horizon: 90s}}")
	if other.Enabled() || other.Horizon() != 90*time.Second {
		t.Errorf("enabled %v, horizon %s", other.Enabled(), other.Horizon())
	}
}

// The problems of Parse can be taken apart by errors.As, in order.
func TestProblem(t *testing.T) {
	_, err := Parse([]File{
		{"b.yaml", []byte("kind: Queue\nname: b\nmode: Sometimes\n")},
		{"a.yaml", []byte("# comment\n\nkind: Queue\nname: a\nkilled: 7\n")},
	})
	want := Problems{
		{File: "a.yaml", Line: 5, Column: 9, Path: "killed", Value: "7", Code: "RP012", Message: "YAML reads 7 as int", Fix: "write true or false"},
		{File: "b.yaml", Line: 3, Column: 7, Path: "mode", Value: "Sometimes", Code: "RP030", Message: "unknown mode Sometimes", Fix: "use Enforce or Shadow"},
	}
	if diff := cmp.Diff(error(want), err); diff != "" {
		t.Error(diff)
	}
}

func TestFileTooBig(t *testing.T) {
	big := append([]byte("{kind: Queue, name: q} #"), make([]byte, maxFile)...)
	_, err := Parse([]File{{"big.yaml", big}})
	if err == nil || !strings.Contains(err.Error(), "RP002") {
		t.Errorf("Parse = %v, want RP002", err)
	}
}

func TestLoadDir(t *testing.T) {
	dir := fstest.MapFS{
		"b.yml":       {Data: []byte("b")},
		"a.yaml":      {Data: []byte("a")},
		"c.json":      {Data: []byte("c")},
		"README.md":   {Data: []byte("no")},
		".hidden.yml": {Data: []byte("no")},
		"sub/d.yaml":  {Data: []byte("no")},
		"e.yaml/x":    {Data: []byte("no")},
	}
	got, err := LoadDir(dir)
	want := []File{{"a.yaml", []byte("a")}, {"b.yml", []byte("b")}, {"c.json", []byte("c")}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("LoadDir: %v\n%s", err, diff)
	}
	if _, err := LoadFiles(dir, "gone.yaml"); err == nil {
		t.Error("LoadFiles(gone.yaml) found something")
	}
	if files, err := LoadFiles(dir, "sub/d.yaml"); err != nil || files[0].Name != "sub/d.yaml" {
		t.Errorf("LoadFiles(sub/d.yaml) = %v, %v", files, err)
	}
}

// Policies are mounted by Kubernetes as links to files in hidden directories.
func TestLoadDirFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "..data", "a.yaml"), []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	files, err := LoadDir(os.DirFS(dir))
	if err != nil || len(files) != 1 || string(files[0].Data) != "a" {
		t.Errorf("LoadDir = %v, %v", files, err)
	}
}

// The examples are there to be copied: they must be without blame, and do what
// their comments say.
func TestExamples(t *testing.T) {
	files, err := LoadDir(os.DirFS("../../../examples/policies"))
	if err != nil || len(files) == 0 {
		t.Fatalf("LoadDir = %d files, %v", len(files), err)
	}
	if problems := Lint(files); len(problems) > 0 {
		t.Error(problems)
	}
	s, err := Parse(files)
	if err != nil {
		t.Fatal(err)
	}
	has := func(c policy.Condition) policy.Failure {
		return policy.Failure{Conditions: policy.Conditions(0).With(c)}
	}
	exit := func(code int32, message string) policy.Failure {
		return policy.Failure{Containers: []policy.Container{{Name: "main", ExitCode: code, Message: message}}}
	}
	category := func(name, sub string) policy.Failure { return policy.Failure{Category: name, Subcategory: sub} }
	oom := exit(137, "")
	oom.Containers[0].Reason = "OOMKilled"
	fetch := policy.Failure{Containers: []policy.Container{{Name: "main"}, {Name: "init-fetch", ExitCode: 3, Init: true}}}
	for _, c := range []struct {
		queue, annotation string
		f                 policy.Failure
		granted           policy.RuleCount
		want              string
	}{
		{"genomics", "", has(policy.Preempted), policy.RuleCount{}, "RuleIgnore infra/preempted 11s none"},
		{"vision-train", "", has(policy.Preempted), policy.RuleCount{}, "RuleIgnore infra/preempted 11s none"},
		{"genomics", "", has(policy.Evicted), policy.RuleCount{}, "RuleRetry infra/evicted 10s node"},
		{"genomics", "", has(policy.LeaseReturned), policy.RuleCount{}, "RuleRetry infra/lost 10s node"},
		{"genomics", "", has(policy.Unschedulable), policy.RuleCount{}, "LeaseReturned / 0s allNodes"},
		{"genomics", "", has(policy.DeadlineExceeded), policy.RuleCount{}, "RuleFail infra/deadline 0s none"},
		{"genomics", "", category("infrastructure", "gpu"), policy.RuleCount{Key: policy.RuleKey{Policy: "infra", Rule: "gpu"}, Granted: 3, Ignored: 0}, "RuleLimit infra/gpu 0s none"},
		{"genomics", "", category("infrastructure", "network"), policy.RuleCount{Key: policy.RuleKey{Policy: "infra", Rule: "network"}, Granted: 1, Ignored: 0}, "RuleRetry infra/network 1m30s none"},
		{"genomics", "", category("infrastructure", "storage"), policy.RuleCount{Key: policy.RuleKey{Policy: "infra", Rule: "other-infrastructure"}, Granted: 5, Ignored: 0}, "PolicyLimit infra/other-infrastructure 0s none"},
		{"genomics", "", category("infrastructure", "storage"), policy.RuleCount{Key: policy.RuleKey{Policy: "old", Rule: "x"}, Granted: 8, Ignored: 0}, "GlobalLimit infra/other-infrastructure 0s none"},
		{"genomics", "", exit(1, ""), policy.RuleCount{}, "DefaultFail / 0s none"},
		{"genomics", "extra", exit(1, ""), policy.RuleCount{Key: policy.RuleKey{Policy: "extra", Rule: "flaky"}, Granted: 2, Ignored: 0}, "RuleRetry extra/flaky 20s none"},
		{"genomics", "extra, training", exit(2, ""), policy.RuleCount{}, "DefaultFail training/default 0s none"},
		{"vision-train", "", oom, policy.RuleCount{}, "RuleRetry training/oom 15s none"},
		{"vision-train", "", exit(139, ""), policy.RuleCount{}, "RuleRetry training/signalled 15s node"},
		{"vision-train", "", exit(1, "NCCL WARN Timeout waiting for peer rank 7"), policy.RuleCount{}, "RuleRetry training/collective-timeout 15s none"},
		{"vision-train", "", exit(1, "RuntimeError: DataLoader worker (pid 213) is killed by signal"), policy.RuleCount{}, "RuleRetry training/collective-timeout 15s none"},
		{"vision-train", "", fetch, policy.RuleCount{Key: policy.RuleKey{Policy: "training", Rule: "fetch"}, Granted: 2, Ignored: 0}, "RuleRetry training/fetch 1m0s none"},
		{"risk-batch", "", category("user", "bad-input"), policy.RuleCount{}, "RuleFail infra/bad-input 0s none"},
		{"risk-batch", "", exit(42, ""), policy.RuleCount{}, "RuleFail batch/gave-up 0s none"},
		{"risk-batch", "", exit(255, ""), policy.RuleCount{}, "DefaultRetry batch/default 5s none"},
		{"risk-batch", "", exit(255, ""), policy.RuleCount{Key: policy.RuleKey{Policy: "batch", Rule: "default"}, Granted: 1, Ignored: 0}, "PolicyLimit batch/default 0s none"},
		{"unheard-of", "infra", has(policy.Evicted), policy.RuleCount{}, "RuleRetry infra/evicted 10s node"},
	} {
		c.f.Queue, c.f.JobPolicies = c.queue, c.annotation
		v := s.Evaluate(&c.f, &policy.Counts{Rules: []policy.RuleCount{c.granted}, Granted: c.granted.Granted})
		delay := v.Delay
		if v.Policy == "infra" && v.Code == policy.RuleRetry {
			delay = delay.Truncate(10 * time.Second) // without the jitter
		}
		got := fmt.Sprintf("%s %s/%s %s %s", v.Code, v.Policy, v.Rule, delay, v.Avoid)
		if got != c.want {
			t.Errorf("%s %+v: %s, want %s", c.queue, c.f, got, c.want)
		}
	}
}

// The names that a queue skips are shared by its verdicts; those that a job's
// annotation adds are not.
func TestSkippedIsNotOverwritten(t *testing.T) {
	s := mustParse(t, "{kind: Queue, name: q, retryPolicies: [x, y, z]}")
	a := s.Evaluate(&policy.Failure{Queue: "q", JobPolicies: "a"}, nil)
	b := s.Evaluate(&policy.Failure{Queue: "q", JobPolicies: "b"}, nil)
	if got := fmt.Sprint(a.Skipped, b.Skipped); got != "[x y z a] [x y z b]" {
		t.Error(got)
	}
}

// A Set has no state: many goroutines may ask it at once.
func TestConcurrentUse(t *testing.T) {
	s := mustParse(t, benchPolicies(10)+"---\n{kind: Queue, name: q, retryPolicies: [p0, gone]}")
	want := s.Evaluate(benchFailure("p1,x,p2"), nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				got, _ := s.Explain(benchFailure("p1,x,p2"), nil)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A hostile file costs little time and says little.
func TestManyProblems(t *testing.T) {
	for name, text := range map[string]string{
		"zeros":    "{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {rules: [{action: Retry, onExitCodes: {operator: In, values: [" + strings.Repeat("0,", 40_000) + "]}}]}}",
		"unknown":  "{kind: Queue, name: a," + strings.Repeat("x: 1,", 16_000) + "}",
		"rules":    "{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {rules: [" + strings.Repeat("{},", 30_000) + "]}}",
		"nesting":  strings.Repeat("[", 400_000),
		"files":    strings.Repeat("---\nx\n", 16_000),
		"policies": strings.Repeat("---\n{kind: Queue, name: a}\n", 4_000),
	} {
		start := time.Now()
		_, err := Parse([]File{{name, []byte(text)}})
		var problems Problems
		errors.As(err, &problems)
		if len(problems) == 0 || len(problems) > maxProblems+1 {
			t.Errorf("%s: %d problems", name, len(problems))
		}
		t.Logf("%s: %d problems in %s", name, len(problems), time.Since(start))
	}
}

// TestArithmetic: what is shown for people adds up to what was decided.
func TestArithmetic(t *testing.T) {
	t.Parallel()
	set, err := Parse([]File{{"f.yaml", []byte(`
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec:
  rules:
  - {name: lost, action: Retry, onConditions: [Preempted], backoff: {initialDelay: 2s, multiplier: 3, jitter: 0.5}}
---
kind: RetrySettings
spec: {defaultPolicyName: p, terminationSlack: 1s}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	f := &policy.Failure{RunID: "r", Conditions: policy.Conditions(0).With(policy.Preempted), Grace: 30 * time.Second}
	c := &policy.Counts{Rules: []policy.RuleCount{{Key: policy.RuleKey{Policy: "p", Rule: "lost"}, Granted: 1}}, Granted: 1}
	a, ok := set.Arithmetic(f, c)
	v := set.Evaluate(f, c)
	switch {
	case !ok:
		t.Fatal("no arithmetic for a granted retry")
	case a.N != 2 || a.Plain != 6*time.Second || a.Grace != 30*time.Second || a.Slack != time.Second:
		t.Fatalf("Arithmetic = %+v", a)
	case max(a.Plain+a.Jitter, a.Grace+a.Slack) != v.Delay || v.ReadyAfter != int64(a.Plain+a.Jitter):
		t.Fatalf("Arithmetic = %+v, but the verdict is %+v", a, v)
	}
	if _, ok := set.Arithmetic(&policy.Failure{}, nil); ok {
		t.Fatal("arithmetic for a failure that is not retried")
	}
}

// With as many rules as there may be, each is found by what it asks for.
func TestManyRules(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec:\n  rules:\n")
	for i := range policy.MaxRules {
		fmt.Fprintf(&text, "  - {name: r%d, action: Retry, %s}\n", i, []string{
			fmt.Sprintf("onExitCodes: {operator: In, values: [%d, 255]}, onConditions: [Preempted]", i+1000),
			fmt.Sprintf("onTerminationMessage: {pattern: 'Disk %d is|rank %d '}, onFailureCategory: [infra]", i, i),
			fmt.Sprintf("onFailureCategory: [c%d], onFailureSubcategory: [a, b]", i),
			fmt.Sprintf("onExitCodes: {operator: NotIn, values: [1, 2]}, onTerminationMessage: {pattern: '^x%dx$'}", i),
		}[i%4])
	}
	text.WriteString("---\n{kind: Queue, name: q, retryPolicies: [p]}\n")
	s := mustParse(t, text.String())
	for i := range policy.MaxRules {
		f := &policy.Failure{Queue: "q", Containers: []policy.Container{{ExitCode: 3, Message: "a message"}, {ExitCode: 4}}}
		switch i % 4 {
		case 0:
			f.Containers[0].ExitCode, f.Conditions = int32(i+1000), f.Conditions.With(policy.Preempted)
		case 1:
			f.Containers[1].Message, f.Category = fmt.Sprintf("the Disk %d is full", i), "infra"
		case 2:
			f.Category, f.Subcategory = fmt.Sprintf("c%d", i), "b"
		case 3:
			f.Containers[0].Message = fmt.Sprintf("x%dx", i)
		}
		v := s.Evaluate(f, nil)
		if explained, _ := s.Explain(f, nil); v.Rule != fmt.Sprintf("r%d", i) || !cmp.Equal(v, explained) {
			t.Fatalf("rule %d: %+v, explained %+v", i, v, explained)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	policyOf := func(rules int, rule string) string {
		return "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec:\n  rules:\n" + strings.Repeat("  - "+rule+"\n", rules)
	}
	flatOf := func(rules int) string {
		return "apiVersion: armadaproject.io/v1beta1\nkind: RetryPolicy\nname: p\ndefaultAction: Fail\nrules:\n" + strings.Repeat("- {action: Retry, onCategory: c}\n", rules)
	}
	matching := func(pattern string) string {
		return "{action: Retry, onTerminationMessage: {pattern: '" + pattern + "'}}"
	}
	const plain = "{action: Retry, onFailureCategory: [c]}"
	for _, test := range []struct{ name, text, want string }{
		{"as many rules as there may be", policyOf(1000, plain), ""},
		{"one more", policyOf(1001, plain), "f.yaml:6:3: RP043 spec.rules: 1001 rules, at most 1000. fix: split the policy: a queue may name several"},
		{"flat, as many", flatOf(1000), ""},
		{"flat, one more", flatOf(1001), "f.yaml:6:1: RP043 rules: 1001 rules, at most 1000. fix: split the policy: a queue may name several"},
		{"the longest pattern", policyOf(1, matching(strings.Repeat("a", 4096))), ""},
		{"a longer one", policyOf(1, matching(strings.Repeat("a", 4097))), "f.yaml:6:53: RP032 spec.rules[0].onTerminationMessage.pattern: longer than 4096 bytes. fix: shorten it"},
		{"a big pattern", policyOf(1, matching("(abcd){800}")), ""},
		{
			"a bigger one", policyOf(1, matching("(abcdefgh){1000}")),
			"f.yaml:6:53: RP043 spec.rules[0].onTerminationMessage.pattern: 10000 nodes with repetitions expanded, at most 5000. fix: use fewer repetitions: x{1000} expands to a thousand x",
		},
		{"many patterns", policyOf(10, matching(strings.Repeat("a", 4096))), ""},
		{
			"more of them", policyOf(13, matching(strings.Repeat("a", 4096))),
			"f.yaml:6:3: RP043 spec.rules: patterns of 53248 nodes in total with repetitions expanded, at most 50000. fix: use fewer repetitions, or split the policy: a queue may name several",
		},
	} {
		_, err := Parse([]File{{"f.yaml", []byte(test.text)}})
		if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
