package suite

import (
	"cmp"
	"slices"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Coverage is what tests reached of one policy set.
type Coverage struct {
	Set   *policyfile.Set
	Items []Item // in order

	reached map[Item]bool
}

// Item is what a test can reach of a policy.
type Item struct {
	Kind   string // policyfile.KindPolicy or KindGroup
	Policy string
	Shown  string // a rule as decisions show it, "default", or, of a group policy, the restarts of a part
}

// Covered collects what results reached, one Coverage for each policy set, in order of first use.
func Covered(results []Result) []*Coverage {
	var all []*Coverage
	found := map[[32]byte]*Coverage{}
	for i := range results {
		for k := range results[i].Steps {
			step := &results[i].Steps[k]
			c := found[step.Set.Digest()]
			if c == nil {
				c = newCoverage(step.Set)
				found[step.Set.Digest()] = c
				all = append(all, c)
			}
			if d := step.Outcome.Decision; d != nil && d.Policy != "" {
				c.reached[Item{policyfile.KindPolicy, d.Policy, d.Rule}] = true
			}
			if g := step.Outcome.Group; g != nil {
				for _, shown := range g.reached {
					c.reached[Item{policyfile.KindGroup, g.Policy, shown}] = true
				}
			}
		}
	}
	return all
}

func newCoverage(set *policyfile.Set) *Coverage {
	c := &Coverage{Set: set, reached: map[Item]bool{}}
	for _, o := range set.Outlines() {
		for i := range o.Rules {
			c.Items = append(c.Items, Item{policyfile.KindPolicy, o.Name, o.Rules[i].Shown})
		}
		if o.Default.Action != "" {
			c.Items = append(c.Items, Item{policyfile.KindPolicy, o.Name, o.Default.Shown})
		}
	}
	for _, g := range groupPoliciesOf(set) {
		for i := range g.Rules {
			c.Items = append(c.Items, Item{policyfile.KindGroup, g.Name, g.Rules[i].Name})
		}
		if behaviourOf(set, g).reachesDefault() {
			c.Items = append(c.Items, Item{policyfile.KindGroup, g.Name, byDefault})
		}
		for _, p := range partsOf(g) {
			if p.Restarts.On != policy.RestartNever && p.Restarts.Limit > 0 {
				c.Items = append(c.Items, Item{policyfile.KindGroup, g.Name, restartsOf(p.Name)})
			}
		}
	}
	return c
}

// byDefault is what no rule of a policy matched.
const byDefault = "default"

// restartsOf names the restarts of a part: no rule has such a name.
func restartsOf(part string) string { return "restarts of part " + part }

// partsOf returns the parts of a group policy; of one of open size, the one that it has.
func partsOf(g *policy.GroupPolicy) []policy.PartDefinition {
	if len(g.Parts) > 0 {
		return g.Parts
	}
	return []policy.PartDefinition{{ShapePart: policy.ShapePart{Name: policy.MainPart}, Restarts: g.Restarts}}
}

// groupPoliciesOf lists the group policies of a set by name.
func groupPoliciesOf(set *policyfile.Set) []*policy.GroupPolicy {
	var all []*policy.GroupPolicy
	for _, id := range set.Resources() {
		if id.Kind == policyfile.KindGroup {
			all = append(all, set.GroupPolicy(id.Name))
		}
	}
	slices.SortFunc(all, func(a, b *policy.GroupPolicy) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Missed returns the items that no test reached.
func (c *Coverage) Missed() []Item {
	return slices.DeleteFunc(slices.Clone(c.Items), func(i Item) bool { return c.reached[i] })
}
