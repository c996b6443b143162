package suite_test

import (
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// TestMutantOfDecimals: one more than a number with decimals is one more.
func TestMutantOfDecimals(t *testing.T) {
	t.Parallel()
	for now, want := range map[string]string{"1.5": "2.5", "2": "3", "9.125": "10.125"} {
		set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(`apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec:
  backoff: {initialDelay: 1s, multiplier: ` + now + `}
  rules:
  - {name: lost, action: Retry, onConditions: [Evicted]}
`)}})
		if err != nil {
			t.Fatal(err)
		}
		mutants, err := suite.Mutants(set)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(mutants, func(m suite.Mutant) bool { return m.What == "multiplier is one more" })
		if i < 0 {
			t.Fatalf("no mutant of the multiplier %s", now)
		}
		if got := mutants[i].Set.Field("policies.p.backoff.multiplier"); got != want {
			t.Errorf("one more than %s is %s, want %s", now, got, want)
		}
	}
}
