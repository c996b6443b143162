package policy

import "testing"

// TestInShadow: every queue, whatever it or the settings say, and else the same.
func TestInShadow(t *testing.T) {
	t.Parallel()
	s := parseOne(t, threeResources+"---\n{kind: Queue, name: q, retryPolicies: [infra], mode: Enforce}\n")
	in := s.InShadow()
	for _, queue := range []string{"1", "q", "other"} {
		was, is := s.queue(queue), in.queue(queue)
		if !is.shadow || was.shadow != (queue == "1") {
			t.Errorf("queue %s: in shadow %v, before %v", queue, is.shadow, was.shadow)
		}
		if len(is.policies) != len(was.policies) || len(is.skipped) != len(was.skipped) {
			t.Errorf("queue %s has other policies", queue)
		}
	}
	if again := in.InShadow(); again.Digest() != in.Digest() || in.Digest() == s.Digest() {
		t.Error("not the same again, or the same as before")
	}
}
