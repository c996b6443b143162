package policyfile

import (
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/policy"
)

// TestInShadow: every queue, whatever it or the settings say, and else the same.
func TestInShadow(t *testing.T) {
	t.Parallel()
	s := parseOne(t, threeResources+"---\n{kind: Queue, name: q, retryPolicies: [infra], mode: Enforce}\n")
	in := s.InShadow()
	for _, queue := range []string{"1", "q", "other"} {
		f := &policy.Failure{Queue: queue}
		was, is := s.Evaluate(f, nil), in.Evaluate(f, nil)
		if !is.Shadow || was.Shadow != (queue == "1") {
			t.Errorf("queue %s: in shadow %v, before %v", queue, is.Shadow, was.Shadow)
		}
		if !slices.Equal(in.Applying(queue, ""), s.Applying(queue, "")) || !slices.Equal(is.Skipped, was.Skipped) {
			t.Errorf("queue %s has other policies", queue)
		}
	}
	if again := in.InShadow(); again.Digest() != in.Digest() || in.Digest() == s.Digest() {
		t.Error("not the same again, or the same as before")
	}
}
