package suite

import (
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Coverage is what tests reached of one policy set.
type Coverage struct {
	Set     *policyfile.Set
	Reached map[policy.RuleKey]bool // by the names in decisions: unnamed rules by index
	Rules   []policy.Rule           // all rules and default actions, in order
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
				c.Reached[policy.RuleKey{Policy: d.Policy, Rule: d.Rule}] = true
			}
		}
	}
	return all
}

func newCoverage(set *policyfile.Set) *Coverage {
	c := &Coverage{Set: set, Reached: map[policy.RuleKey]bool{}}
	for _, o := range set.Outlines() {
		c.Rules = append(c.Rules, o.Rules...)
		if o.Default.Action != "" {
			c.Rules = append(c.Rules, o.Default)
		}
	}
	return c
}

// Missed returns the rules and default actions that no test reached.
func (c *Coverage) Missed() []policy.Rule {
	var missed []policy.Rule
	for _, r := range c.Rules {
		if !c.Reached[policy.RuleKey{Policy: r.Key.Policy, Rule: r.Shown}] {
			missed = append(missed, r)
		}
	}
	return missed
}
