package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// level is one of the levels that set how retries are granted.
type level struct {
	*overrides
	from LimitFrom
}

// compile makes a policy and its rules, with all that they inherit.
func (s *Set) compile(named *namedPolicy, g *settingsSpec) *policy {
	name, spec := string(named.Name), &named.Spec
	global := limit(s.globalMax)
	levels := []level{
		{&overrides{RetryLimit: &global, Backoff: g.DefaultBackoff}, FromGlobal},
		{&spec.overrides, FromPolicy},
	}
	p := &policy{
		name:       name,
		selectable: or(spec.SelectableByJobs, or(g.JobsMaySelect, true)),
		byDefault: target{
			key: RuleKey{name, defaultRule}, shown: defaultRule, isDefault: true,
			action: spec.DefaultAction, grant: inherit(levels...),
		},
		rules: make([]rule, len(spec.Rules)),
	}
	for i := range spec.Rules {
		r := &spec.Rules[i]
		t := target{
			key: RuleKey{name, string(r.Name)}, shown: string(r.Name),
			action: r.Action, grant: inherit(append(slices.Clip(levels), level{&r.overrides, FromRule})...),
		}
		if r.Name == "" {
			t.key.Rule, t.shown = r.identity(), "#"+strconv.Itoa(i)
		}
		p.rules[i] = rule{newMatchers(&r.matcherSpec), t}
	}
	return p
}

// identity is what an unnamed rule counts under: a digest of its matchers.
func (r *ruleSpec) identity() string {
	sum := sha256.Sum256(encode(&r.matcherSpec))
	return "#" + hex.EncodeToString(sum[:16])
}

// inherit goes from the most general level to the most specific.
func inherit(levels ...level) grant {
	initial, longest, growth, jitter := duration(0), duration(10*time.Minute/time.Millisecond), factor(2000), fraction(0)
	var g grant
	for _, l := range levels {
		if l.RetryLimit != nil {
			g.limit, g.limitFrom = uint32(*l.RetryLimit), l.from
		}
		initial = or(l.Backoff.InitialDelay, initial)
		longest = or(l.Backoff.MaxDelay, longest)
		growth = or(l.Backoff.Multiplier, growth)
		jitter = or(l.Backoff.Jitter, jitter)
		g.avoid = or(l.AntiAffinity.Mode, g.avoid)
		if l.Replacement != noReplacement {
			g.whenTerminated = l.Replacement == whenTerminated
		}
	}
	multiplier := big.NewRat(int64(growth), 1000) // in lowest terms
	g.backoff = backoff{
		initial: uint64(initial), max: uint64(longest),
		num: multiplier.Num().Uint64(), den: multiplier.Denom().Uint64(),
		jitter: uint64(jitter),
	}
	return g
}

// newMatchers compiles the matchers of a rule without faults.
func newMatchers(r *matcherSpec) matchers {
	m := matchers{
		operator:              r.OnExitCodes.Operator,
		containerName:         string(r.ContainerName),
		includeInitContainers: r.IncludeInitContainers,
	}
	for _, c := range r.OnConditions {
		m.conditions = m.conditions.With(c)
	}
	for _, v := range r.OnExitCodes.Values {
		m.codes = append(m.codes, int32(v))
	}
	for _, v := range r.OnFailureCategory {
		m.categories = append(m.categories, string(v))
	}
	for _, v := range r.OnFailureSubcategory {
		m.subcategories = append(m.subcategories, string(v))
	}
	if p := r.OnTerminationMessage.Pattern; p != "" {
		m.pattern = regexp.MustCompile(string(p))
	}
	m.last = r.last()
	return m
}

// last returns the last matcher that the rule has, in the order of Matcher.
func (r *matcherSpec) last() Matcher {
	switch {
	case len(r.OnFailureSubcategory) > 0:
		return OnFailureSubcategory
	case len(r.OnFailureCategory) > 0:
		return OnFailureCategory
	case r.OnTerminationMessage.Pattern != "":
		return OnTerminationMessage
	case r.OnExitCodes.Operator != noOperator:
		return OnExitCodes
	case len(r.OnConditions) > 0:
		return OnConditions
	}
	return NoMatcher
}
