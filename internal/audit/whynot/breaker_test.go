package whynot_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/audit/whynot"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// TestBreaker: what a breaker holds does not count, and without the breaker it would have. A job that fails for good would have been held,
// had it had a retry left.
func TestBreaker(t *testing.T) {
	t.Parallel()
	const text = `{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: p}, spec: {defaultAction: Retry, retryLimit: 2}}
---
kind: RetrySettings
spec: {defaultPolicyName: p, openBreakers: [{category: base, until: "2026-12-01T00:00:00Z"}]}
`
	base, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	override := policyfile.Override{Category: "pull", Queue: "q", HeldUntil: 2e9}
	for _, c := range []struct {
		category string
		used     uint32
		want     whynot.Outcome
		change   string // "": the outcome is already that
		code     policy.Code
	}{
		{"pull", 0, whynot.Retry, "no breaker was open for its category by an override", policy.DefaultRetry},
		{"base", 0, whynot.Retry, "settings.openBreakers=[] (is 1 breaker)", policy.DefaultRetry},
		{"pull", 0, whynot.Ignore, "", 0},
		{"pull", 2, whynot.Ignore, "retries used of rule default of policy p: 1 (is 2)", policy.BreakerHeld},
	} {
		in := &whynot.Input{Base: base, Overrides: []policyfile.Override{override}}
		in.Failure = policy.Failure{Queue: "q", Category: c.category, Time: 1e9, RunID: "r"}
		in.Counts = policy.Counts{Granted: c.used, Rules: []policy.RuleCount{{Key: policy.RuleKey{Policy: "p", Rule: policy.DefaultRule}, Granted: c.used}}}
		changes, _, err := whynot.Find(in, c.want)
		if c.change == "" {
			if !errors.Is(err, whynot.ErrSame) {
				t.Errorf("%+v: %v, %v", c, changes, err)
			}
			continue
		}
		if err != nil || !slices.ContainsFunc(changes, func(f whynot.Change) bool { return f.String() == c.change && f.Verdict.Code == c.code }) {
			t.Errorf("%+v: %v, %v", c, changes, err)
			for i := range changes {
				t.Log(changes[i].String(), changes[i].Verdict.Code)
			}
		}
	}
}
