package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// benchPolicies is n policies p0, p1, … of one rule each.
func benchPolicies(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\n{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: p%d}, spec: {defaultAction: Fail, rules: [{name: r, action: Retry, onFailureCategory: [c%d]}]}}\n", i, i)
	}
	return b.String()
}

// benchRules is a policy p of n rules of all kinds, of which the last matches
// benchFailure.
func benchRules(n int) string {
	kinds := []string{
		"onConditions: [Preempted, OOMKilled]",
		"onExitCodes: {operator: In, values: [1, 2, 139]}",
		"onTerminationMessage: {pattern: 'ECC error|NVLink'}",
		"onFailureCategory: [oom, user]",
		"onFailureCategory: [infrastructure], onFailureSubcategory: [network]",
	}
	var b strings.Builder
	b.WriteString("apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec:\n  backoff: {initialDelay: 10s, jitter: 0.1}\n  rules:\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "  - {name: r%d, action: Fail, %s}\n", i, kinds[i%len(kinds)])
	}
	b.WriteString("  - {name: last, action: Retry, onExitCodes: {operator: In, values: [137]}}\n---\n{kind: Queue, name: q, retryPolicies: [p]}\n")
	return b.String()
}

func benchFailure(annotation string) *Failure {
	return &Failure{
		Queue: "q", RunID: "0197a1c2-7d3e-7000-8000-0123456789ab", Time: 1_800_000_000_000_000_000, Grace: 30 * time.Second,
		JobPolicies: annotation, Category: "infrastructure", Subcategory: "gpu",
		Containers: []Container{{Name: "main", ExitCode: 137, Reason: "Error", Message: "java.io.IOException: No space left on device"}, {Name: "side"}},
	}
}

func benchmarkEvaluate(b *testing.B, s *Set, f *Failure, want Code) {
	c := &Counts{Rules: []RuleCount{{Key: RuleKey{"other", "x"}, Granted: 1}, {Key: RuleKey{"p", "last"}, Granted: 3}}, Granted: 4}
	if v := s.Evaluate(f, c); v.Code != want {
		b.Fatalf("code %s, want %s", v.Code, want)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Evaluate(f, c)
	}
}

func BenchmarkEvaluate(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			benchmarkEvaluate(b, mustParse(b, benchRules(n)), benchFailure(""), RuleRetry)
		})
	}
	for _, n := range []int{1, 10_000} {
		files := []File{{"rules.yaml", []byte(benchRules(10))}}
		for i, text := range strings.SplitAfter(benchPolicies(n), "\n---") {
			files = append(files, File{fmt.Sprintf("p%d.yaml", i), []byte(strings.TrimSuffix(text, "---"))})
		}
		s, err := Parse(files)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("policies=%d", n), func(b *testing.B) {
			benchmarkEvaluate(b, s, benchFailure(""), RuleRetry)
		})
		b.Run(fmt.Sprintf("policies=%d/annotation", n), func(b *testing.B) {
			benchmarkEvaluate(b, s, benchFailure("p0"), RuleRetry)
		})
	}
}

func BenchmarkExplain(b *testing.B) {
	s, f := mustParse(b, benchRules(10)), benchFailure("")
	b.ReportAllocs()
	for b.Loop() {
		s.Explain(f, nil)
	}
}

func BenchmarkParse(b *testing.B) {
	files := []File{{"p.yaml", []byte(benchRules(100))}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(files); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseCanonical(b *testing.B) {
	data := mustParse(b, benchPolicies(1000)).Canonical()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseCanonical(data); err != nil {
			b.Fatal(err)
		}
	}
}

// Evaluate must not allocate where no name is skipped. (Regular expressions are
// left out: they keep their memory in pools, which the race detector empties.)
func TestEvaluateDoesNotAllocate(t *testing.T) {
	s := mustParse(t, benchRules(3)+benchPolicies(3))
	for _, annotation := range []string{"", "p1, p2"} {
		f := benchFailure(annotation)
		if n := testing.AllocsPerRun(100, func() { s.Evaluate(f, nil) }); n > 0 {
			t.Errorf("annotation %q: %v allocations, want none", annotation, n)
		}
	}
}
