package evaluator_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/model"
)

// TestQuietFleet: version 5 decides recordings as version 4 does, and budgets that are never used up change nothing but what
// decisions say of them.
func TestQuietFleet(t *testing.T) {
	t.Parallel()
	const policies = `
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: retry}
spec: {defaultAction: Retry, retryLimit: 3, backoff: {initialDelay: 10s}}
---
kind: RetrySettings
spec: {defaultPolicyName: retry}
`
	const budget = policies + `---
apiVersion: refloat.github.io/v1
kind: RetryBudget
metadata: {name: all}
spec: {ratio: 1, floor: 1000, window: 24h}
`
	for _, name := range []string{"plain", "retried", "preempted", "chaos"} {
		four := recorded(t, name, policies, 4)
		if len(four) == 0 {
			t.Errorf("%s: no decisions", name)
		}
		if diff := cmp.Diff(four, recorded(t, name, policies, 5)); diff != "" {
			t.Errorf("%s, by version 5:\n%s", name, diff)
		}
		asked, with := 0, recorded(t, name, budget, 5)
		for i := range with {
			if with[i].Budget != nil {
				asked++
			}
			with[i].Budget, with[i].PolicySet = nil, four[0].PolicySet
		}
		if diff := cmp.Diff(four, with); diff != "" || asked == 0 {
			t.Errorf("%s, with a budget that was asked %d times:\n%s", name, asked, diff)
		}
	}
}

// recorded decides a recording.
func recorded(t *testing.T, name, policies string, version uint32) (all []chain.Decision) {
	t.Helper()
	entries, err := recording.ReadFile("../../testdata/recordings/" + name + ".jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	set, err := parse([]model.File{{Name: "p.yaml", Data: []byte(policies)}})
	if err != nil {
		t.Fatal(err)
	}
	partitions := map[int]*evaluator.Processor{}
	for _, e := range entries {
		p := partitions[e.Partition]
		if p == nil {
			state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, evaluator.DefaultHorizon)
			if err != nil {
				t.Fatal(err)
			}
			p = &evaluator.Processor{State: state, Rules: evaluator.Rules{Generation: 1, Set: set.Set}}
			p.Activate([]chain.Record{&chain.SemanticsActivated{Version: version}, evaluator.Activation(1, set.Set, version)})
			partitions[e.Partition] = p
		}
		out, err := p.Step(&e.Message)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.Records {
			if d, ok := r.(*chain.Decision); ok {
				all = append(all, *d)
			}
		}
	}
	return all
}
