package query_test

import (
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// TestEffects: a decision in a list and the same one in a count have the same effect, and exactly one.
func TestEffects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		requeue, shadow, acted, superseded bool
		want                               query.Effect
	}{
		{true, false, true, false, query.Retried},
		{false, false, true, false, query.FailedForGood},
		{true, true, false, false, query.InShadow},
		{false, true, false, true, query.InShadow}, // in shadow it would have had no effect in time either
		{true, false, false, true, query.Superseded},
		{false, false, false, false, query.Superseded}, // its job had been ended in a release
	} {
		d := &jobdb.Decision{Where: jobdb.Where{Superseded: c.superseded}, Acted: c.acted, Decision: chain.Decision{Requeue: c.requeue, Shadow: c.shadow}}
		shown := query.DecisionOf(d)
		count := jobdb.DecisionCount{Requeue: c.requeue, Shadow: c.shadow, Acted: c.acted, Count: 3}
		if one, many := query.EffectOf(&shown), query.EffectOfCount(&count); one != c.want || many != c.want {
			t.Errorf("%+v: in a list %s, in a count %s", c, one, many)
		}
		n := query.CountEffects([]jobdb.DecisionCount{count})
		if n.All() != 3 || n.WithoutEffect() > 0 == c.want.Took() {
			t.Errorf("%+v counts as %+v", c, n)
		}
	}
}
