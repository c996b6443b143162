package suite

import (
	"encoding/json"
	"slices"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// budget mutates a retry budget, unless no policy grants a retry that counts: then no test could tell.
func (m *mutator) budget(b *policy.Budget) {
	if retries, _ := abilities(m.set); retries == 0 {
		return
	}
	spec := func(c content) content {
		for _, other := range c.list("retryBudgets") {
			if other := content(other.(map[string]any)); other["name"] == b.Name {
				return other.mapping("spec")
			}
		}
		return content{}
	}
	set := func(what, field string, to any) {
		m.try(b.Name, "", what, func(c content) { spec(c)[field] = to })
	}
	ratio := (b.Ratio + 1) / 2
	if b.Ratio <= 1 {
		ratio = 500
	}
	m.try(b.Name, "", "is dropped", func(c content) {
		c["retryBudgets"] = slices.DeleteFunc(c.list("retryBudgets"), func(o any) bool { return o.(map[string]any)["name"] == b.Name })
	})
	set("ratio is "+policyfile.Thousandths(ratio), "ratio", json.Number(policyfile.Thousandths(ratio)))
	set("floor is one more", "floor", b.Floor+1)
	if b.Floor > 0 {
		set("floor is one less", "floor", b.Floor-1)
	}
	set("window is doubled", "window", (2 * b.Window).String())
	if b.Refuse {
		set("whenExhausted is Delay", "whenExhausted", "Delay")
	} else {
		set("whenExhausted is Refuse", "whenExhausted", "Refuse")
	}
	if b.Shadow {
		set("mode is Enforce", "mode", "Enforce")
	} else {
		set("mode is Shadow", "mode", "Shadow")
	}
}
