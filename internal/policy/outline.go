package policy

import (
	"maps"
	"slices"
	"time"
)

// Outline is a policy as it takes effect.
type Outline struct {
	Name    string
	Default Rule // the default action; its Action is "" if there is none
	Rules   []Rule
}

// Rule is a rule with everything that it inherits.
type Rule struct {
	Key       RuleKey // what it is counted under
	Shown     string  // its name, "#index" or "default"
	Action    string  // Retry, Fail or Ignore
	Limit     uint32
	LimitFrom LimitFrom
	// UnitReason is for what FailUnit fails a unit; else NoUnitReason.
	UnitReason UnitReason
	// MaxRetries limits all retries of a job, of which this rule grants the next one.
	MaxRetries uint32
	// AskedRetries is MaxRetries without the settings' PolicyMaxRetries.
	AskedRetries uint32
	MaxDelay     time.Duration
	Avoid        AvoidMode
	// WhenTerminated: retries always wait until the old pod is gone.
	WhenTerminated bool

	Matchers

	backoff backoff
}

// Delay is the delay of the rule's n-th retry, n ≥ 1, without jitter and grace.
func (r *Rule) Delay(n uint64) time.Duration { return r.backoff.delay(n) }

// Outlines lists the policies by name. Its slices are shared: do not change them.
func (s *Set) Outlines() []Outline {
	var all []Outline
	for _, name := range slices.Sorted(maps.Keys(s.policies)) {
		all = append(all, s.Outline(name))
	}
	return all
}

// Outline returns one policy; zero: there is none of that name.
func (s *Set) Outline(name string) Outline {
	p := s.policies[name]
	if p == nil {
		return Outline{}
	}
	o := Outline{Name: name, Default: s.outlineOf(&rule{target: p.byDefault})}
	for i := range p.rules {
		o.Rules = append(o.Rules, s.outlineOf(&p.rules[i]))
	}
	return o
}

func (s *Set) outlineOf(r *rule) Rule {
	g := s.grantOf(&r.target)
	return Rule{
		Key: r.key, Shown: r.shown, Action: r.action.String(), UnitReason: r.unitReason(),
		Limit: g.limit, LimitFrom: g.limitFrom, MaxRetries: s.maxRetries(&r.target), AskedRetries: or(r.maxRetries, s.globalMax), MaxDelay: toDuration(g.backoff.max), backoff: g.backoff,
		Avoid: g.avoid, WhenTerminated: g.whenTerminated,
		Matchers: r.Matchers,
	}
}
