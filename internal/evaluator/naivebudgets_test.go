package evaluator_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/test/model"
	"github.com/refloat/refloat/internal/test/modelrecord"
)

// TestBudgetsAgainstNaiveModel holds the engine against the reference model over histories that are about budgets, as decided,
// and as replayed with a state that is written and read back.
func TestBudgetsAgainstNaiveModel(t *testing.T) {
	t.Parallel()
	for seed := *firstSeed; seed < *firstSeed+histories(t)/2; seed++ {
		h := model.GenerateBudgets(seed)
		want, _ := h.Run()
		got, err := decideHistory(h)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range want {
			modelrecord.Normalize(want[i])
			if !reflect.DeepEqual(want[i], got[i]) {
				t.Fatalf("seed %d, message %d of %d (-model +engine):\n%s", seed, i, len(want), cmp.Diff(want[i], got[i]))
			}
		}
		if seed%10 != 0 {
			continue
		}
		live, again := &history{History: h}, &history{History: h}
		if err := live.run(nil, false, nil); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := again.run(rand.New(rand.NewPCG(seed, 1)), true, live); err != nil {
			t.Fatalf("seed %d, replayed: %v", seed, err)
		}
		if diff := cmp.Diff(stored(t, live.store), stored(t, again.store)); diff != "" {
			t.Fatalf("seed %d: the state at the end (-live +replayed):\n%s", seed, diff)
		}
	}
}
