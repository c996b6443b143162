package policyfile

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy"
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

func benchFailure(annotation string) *policy.Failure {
	return &policy.Failure{
		Queue: "q", RunID: "0197a1c2-7d3e-7000-8000-0123456789ab", Time: 1_800_000_000_000_000_000, Grace: 30 * time.Second,
		JobPolicies: annotation, Category: "infrastructure", Subcategory: "gpu",
		Containers: []policy.Container{{Name: "main", ExitCode: 137, Reason: "Error", Message: "java.io.IOException: No space left on device"}, {Name: "side"}},
	}
}

func benchmarkEvaluate(b *testing.B, s *Set, f *policy.Failure, want policy.Code) {
	c := &policy.Counts{Rules: []policy.RuleCount{{Key: policy.RuleKey{Policy: "other", Rule: "x"}, Granted: 1}, {Key: policy.RuleKey{Policy: "p", Rule: "last"}, Granted: 3}}, Granted: 4}
	if v := s.Evaluate(f, c); v.Code != want {
		b.Fatalf("code %s, want %s", v.Code, want)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Evaluate(f, c)
	}
}

func BenchmarkEvaluate(b *testing.B) {
	for _, n := range []int{1, 20, 100, 1000} {
		s := mustParse(b, benchRules(n))
		b.Run(fmt.Sprintf("rules=%d/first", n), func(b *testing.B) {
			f := benchFailure("")
			f.Conditions, f.Containers[0].ExitCode = f.Conditions.With(policy.Preempted), map[bool]int32{true: 137, false: 3}[n == 1]
			benchmarkEvaluate(b, s, f, map[bool]policy.Code{true: policy.RuleRetry, false: policy.RuleFail}[n == 1])
		})
		b.Run(fmt.Sprintf("rules=%d/last", n), func(b *testing.B) {
			benchmarkEvaluate(b, s, benchFailure(""), policy.RuleRetry)
		})
	}
	for _, n := range []int{1, 100, 10_000} {
		s, err := Empty().ParseCanonical(many(n, 20, n, 3))
		if err != nil {
			b.Fatal(err)
		}
		for _, annotation := range []string{"", "p00000"} {
			b.Run(fmt.Sprintf("policies=%d/annotation=%s", n, annotation), func(b *testing.B) {
				f := benchFailure(annotation)
				f.Queue, f.Category = fmt.Sprintf("q%05d", n/2), "none"
				benchmarkEvaluate(b, s, f, policy.DefaultRetry)
			})
		}
	}
}

// Rules that ask for nothing but a message, of which none matches: a message of
// 80 bytes, and the longest one that Kubernetes keeps.
func BenchmarkPatterns(b *testing.B) {
	for _, n := range []int{1, 20, 100, 1000} {
		var text strings.Builder
		text.WriteString("apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec:\n  defaultAction: Fail\n  rules:\n")
		for i := range n {
			fmt.Fprintf(&text, "  - {action: Retry, onTerminationMessage: {pattern: %s}}\n", []string{
				fmt.Sprintf("'disk %d is full'", i), fmt.Sprintf("'ECC error|NVLink %d'", i), fmt.Sprintf("'(?i)rank [0-9]+ of job %d lost'", i),
			}[i%3])
		}
		text.WriteString("---\n{kind: Queue, name: q, retryPolicies: [p]}\n")
		s := mustParse(b, text.String())
		for _, size := range []int{80, 4096} {
			b.Run(fmt.Sprintf("rules=%d/message=%d", n, size), func(b *testing.B) {
				f := benchFailure("")
				f.Containers[0].Message = strings.Repeat("java.io.IOException: No space left on device; at x.y.Z(Z.java:71)\n", 80)[:size]
				benchmarkEvaluate(b, s, f, policy.DefaultFail)
			})
		}
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

// many is the canonical text of policies p00000, p00001, … of n rules each, of all
// kinds, and of queues q00000, … with two policies each. The first policy's
// retryLimit is first.
func many(policies, rules, queues, first int) []byte {
	kinds := []string{
		`"onConditions":["OOMKilled","Preempted"]}`,
		`"onExitCodes":{"operator":"In","values":[1,2,%d]}}`,
		`"onTerminationMessage":{"pattern":"ECC error %d|NVLink"}}`,
		`"onFailureCategory":["c%d","user"]}`,
		`"onFailureCategory":["infrastructure%d"],"onFailureSubcategory":["gpu","network"]}`,
	}
	var b bytes.Buffer
	b.WriteString(`{"policies":[`)
	for i := range policies {
		limit := 3
		if i == 0 {
			limit = first
		}
		fmt.Fprintf(&b, `{"name":"p%05d","spec":{"backoff":{"initialDelay":"10000ms","jitter":0.1},"defaultAction":"Retry","retryLimit":%d,"rules":[`, i, limit)
		for j := range rules {
			fmt.Fprintf(&b, `{"action":"Retry","name":"r%d",`, j)
			if kind := kinds[j%len(kinds)]; strings.Contains(kind, "%") {
				fmt.Fprintf(&b, kind, 1000+i+j)
			} else {
				b.WriteString(kind)
			}
			b.WriteByte(',')
		}
		b.Truncate(b.Len() - 1)
		b.WriteString("]}},")
	}
	b.Truncate(b.Len() - 1)
	b.WriteString(`],"queues":[`)
	for i := range queues {
		fmt.Fprintf(&b, `{"name":"q%05d","retryPolicies":["p%05d","p%05d"]},`, i, i%policies, (i+1)%policies)
	}
	b.Truncate(b.Len() - 1)
	b.WriteString(`],"version":1}`)
	return b.Bytes()
}

// The first load of a large set.
func BenchmarkParseCanonical(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		data := many(n, 20, n, 0)
		b.Run(fmt.Sprintf("policies=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Empty().ParseCanonical(data); err != nil {
					b.Fatal(err)
				}
			}
		})
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
