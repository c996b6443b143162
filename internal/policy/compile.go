package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// newPolicy makes a policy of one without faults.
func newPolicy(named *namedPolicy, known schema) *policy {
	named.Spec.settle()
	name, spec := string(named.Name), &named.Spec
	p := &policy{
		namedPolicy: *named,
		text:        string(known.encode(named)),
		byDefault: target{
			key: RuleKey{name, defaultRule}, shown: defaultRule, isDefault: true,
			action: spec.DefaultAction, policy: &spec.overrides,
		},
		rules: make([]rule, len(spec.Rules)),
	}
	for i := range spec.Rules {
		r := &spec.Rules[i]
		t := target{
			key: RuleKey{name, string(r.Name)}, shown: string(r.Name),
			action: r.Action, policy: &spec.overrides, rule: &r.overrides,
		}
		if r.Name == "" {
			t.key.Rule, t.shown = r.identity(known), "#"+strconv.Itoa(i)
		}
		p.rules[i] = rule{newMatchers(&r.matcherSpec), t}
	}
	p.index = newIndex(p.rules)
	return p
}

// newBinding makes a binding of one without faults.
func newBinding(spec *queueSpec, known schema) *binding {
	spec.RetryPolicies = unset(spec.RetryPolicies)
	return &binding{*spec, string(known.encode(spec))}
}

// identity is what an unnamed rule counts under: a digest of its matchers.
func (r *ruleSpec) identity(known schema) string {
	sum := sha256.Sum256(known.encode(&r.matcherSpec))
	return "#" + hex.EncodeToString(sum[:16])
}

// level is one of the levels that set how retries are granted.
type level struct {
	*overrides
	from LimitFrom
}

// grantOf returns how the target grants retries, with all that it inherits.
func (s *Set) grantOf(t *target) grant {
	levels := [...]level{{&s.inherited, FromGlobal}, {t.policy, FromPolicy}, {t.rule, FromRule}}
	if t.rule == nil {
		return inherit(levels[:2]...)
	}
	return inherit(levels[:]...)
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
	common := commonDivisor(uint64(growth), 1000)
	g.backoff = backoff{
		initial: uint64(initial), max: uint64(longest),
		num: uint64(growth) / common, den: 1000 / common,
		jitter: uint64(jitter),
	}
	return g
}

func commonDivisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// newMatchers compiles the matchers of a rule without faults.
func newMatchers(r *matcherSpec) matchers {
	m := matchers{
		last:                  r.last(),
		operator:              r.OnExitCodes.Operator,
		codes:                 r.OnExitCodes.Values,
		pattern:               r.OnTerminationMessage.Pattern.compiled,
		pieces:                r.OnTerminationMessage.Pattern.pieces,
		categories:            r.OnFailureCategory,
		subcategories:         r.OnFailureSubcategory,
		containerName:         string(r.ContainerName),
		includeInitContainers: r.IncludeInitContainers,
	}
	for _, c := range r.OnConditions {
		m.conditions = m.conditions.With(c)
	}
	return m
}

// last returns the last matcher that the rule has, in the order of Matcher.
func (r *matcherSpec) last() Matcher {
	switch {
	case len(r.OnFailureSubcategory) > 0:
		return OnFailureSubcategory
	case len(r.OnFailureCategory) > 0:
		return OnFailureCategory
	case r.OnTerminationMessage.Pattern.compiled != nil:
		return OnTerminationMessage
	case r.OnExitCodes.Operator != noOperator:
		return OnExitCodes
	case len(r.OnConditions) > 0:
		return OnConditions
	}
	return NoMatcher
}
