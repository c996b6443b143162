package policyfile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/policy"
)

// Set is a complete set of policies, group policies, queues and settings: the engine's set, and the text from which it
// was made. It is immutable and safe for concurrent use.
type Set struct {
	*policy.Set
	content *content // immutable
}

// content is what a Set is built from: everything that affects decisions.
type content struct {
	settings settingsSpec
	policies []*compiled       // by name
	groups   []*compiledGroup  // by name
	bindings []*binding        // by name
	budgets  []*compiledBudget // by name
}

// compiled is one RetryPolicy. It depends only on its text, so sets share equal policies. It is immutable.
type compiled struct {
	namedPolicy        // normalised by settle
	text        string // canonical
	engine      *policy.Policy
}

// binding is the binding of a queue. Sets share equal bindings.
type binding struct {
	queueSpec
	text string // canonical
}

// Empty returns the set of no files: defaults only, and no policy.
func Empty() *Set { return build(&content{}) }

// Canonical returns the unique encoding of this set: everything that was set explicitly, independent of files,
// comments and order.
func (s *Set) Canonical() []byte { return s.content.canonical() }

// Unnamed reports whether the set has policies, and no queue or default names one: only jobs that select one have it.
func (s *Set) Unnamed() bool {
	return len(s.content.policies) > 0 && s.content.settings.DefaultPolicyName == "" &&
		!slices.ContainsFunc(s.content.bindings, func(b *binding) bool { return len(b.RetryPolicies) > 0 })
}

// build makes a Set of content without faults.
func build(c *content) *Set {
	slices.SortFunc(c.policies, func(a, b *compiled) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.groups, func(a, b *compiledGroup) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.bindings, func(a, b *binding) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.budgets, func(a, b *compiledBudget) int { return cmp.Compare(a.Name, b.Name) })
	c.settings.settle()
	policies := make([]*policy.Policy, len(c.policies))
	for i, p := range c.policies {
		policies[i] = p.engine
	}
	groups := make([]*policy.GroupPolicy, len(c.groups))
	for i, g := range c.groups {
		groups[i] = g.engine
	}
	queues := make([]policy.Queue, len(c.bindings))
	for i, b := range c.bindings {
		queues[i] = b.definition()
	}
	settings := c.settings.definition()
	for _, b := range c.budgets {
		settings.Budgets = append(settings.Budgets, b.engine)
	}
	return &Set{policy.New(settings, policies, groups, queues, sha256.Sum256(c.canonical())), c}
}

// newPolicy compiles a policy without faults.
func newPolicy(named *namedPolicy, known schema) *compiled {
	named.Spec.settle()
	return &compiled{*named, string(known.encode(named)), policy.Compile(named.definition(known))}
}

// newBinding makes a binding without faults.
func newBinding(spec *queueSpec, known schema) *binding {
	spec.RetryPolicies = unset(spec.RetryPolicies)
	return &binding{*spec, string(known.encode(spec))}
}

// definition converts the settings for the engine.
func (g *settingsSpec) definition() *policy.Settings {
	s := policy.DefaultSettings()
	s.Enabled = or(g.Enabled, s.Enabled)
	s.GlobalMaxRetries = uint32(or(g.GlobalMaxRetries, limit(s.GlobalMaxRetries)))
	s.PolicyMaxRetries = uint32(or(g.PolicyMaxRetries, limit(s.PolicyMaxRetries)))
	s.DefaultPolicy = string(g.DefaultPolicyName)
	s.DefaultBackoff = g.DefaultBackoff.definition()
	s.LegacyMaxAttempts = uint32(or(g.LegacyMaxAttempts, limit(s.LegacyMaxAttempts)))
	s.TerminationSlack = or(g.TerminationSlack, 0).duration()
	s.Horizon = or(g.Horizon, duration(s.Horizon/time.Millisecond)).duration()
	s.Shadow = g.Mode == shadow
	s.PausedUntil = (*int64)(g.PausedUntil)
	s.JobsMaySelect = or(g.JobsMaySelect, s.JobsMaySelect)
	if g.Protection != nil {
		s.Protection = g.Protection.definition()
	}
	if g.Breakers != nil {
		s.Breakers = g.Breakers.definition()
	}
	for i := range g.AvoidNodes {
		s.AvoidNodes = append(s.AvoidNodes, policy.AvoidedNode{Name: string(g.AvoidNodes[i].Name), Until: int64(*g.AvoidNodes[i].Until)})
	}
	for i := range g.OpenBreakers {
		b := &g.OpenBreakers[i]
		s.OpenBreakers = append(s.OpenBreakers, policy.Breaker{
			Category: string(b.Category), Subcategory: string(b.Subcategory), Queue: string(b.Queue), Until: int64(*b.Until),
		})
	}
	return &s
}

func (q *queueSpec) definition() policy.Queue {
	out := policy.Queue{Name: string(q.Name), Policies: textsOf(q.RetryPolicies), Killed: q.Killed, PausedUntil: (*int64)(q.PausedUntil)}
	if q.Mode != noMode {
		inShadow := q.Mode == shadow
		out.Shadow = &inShadow
	}
	return out
}

func (p *namedPolicy) definition(known schema) *policy.Definition {
	d := &policy.Definition{
		Name:             string(p.Name),
		DefaultAction:    policy.Action(p.Spec.DefaultAction),
		SelectableByJobs: p.Spec.SelectableByJobs,
		MaxRetries:       (*uint32)(p.Spec.MaxRetries),
		Rules:            make([]policy.RuleDefinition, len(p.Spec.Rules)),
		Overrides:        p.Spec.definition(),
	}
	for i := range p.Spec.Rules {
		r := &p.Spec.Rules[i]
		d.Rules[i] = policy.RuleDefinition{
			Name: string(r.Name), Action: policy.Action(r.Action), UnitReason: policy.UnitReason(r.UnitReason),
			Matchers: r.matcherSpec.definition(), Overrides: r.overrides.definition(),
		}
		if r.Name == "" {
			d.Rules[i].Identity = r.identity(known)
		}
	}
	return d
}

func (o *overrides) definition() policy.Overrides {
	return policy.Overrides{
		RetryLimit:  (*uint32)(o.RetryLimit),
		Backoff:     o.Backoff.definition(),
		Avoid:       (*policy.AvoidMode)(o.AntiAffinity.Mode),
		Replacement: policy.Replacement(o.Replacement),
	}
}

func (b *backoffSpec) definition() policy.Backoff {
	return policy.Backoff{
		InitialDelay: b.InitialDelay.time(), MaxDelay: b.MaxDelay.time(),
		Multiplier: (*uint32)(b.Multiplier), Jitter: (*uint32)(b.Jitter),
	}
}

func (r *matcherSpec) definition() policy.Matchers {
	return policy.Matchers{
		Scope:        policy.Scope{ContainerName: string(r.ContainerName), IncludeInitContainers: r.IncludeInitContainers},
		Requirements: r.requirements(),
	}
}

// identity returns the key under which an unnamed rule is counted: a digest of its matchers.
func (r *ruleSpec) identity(known schema) string {
	sum := sha256.Sum256(known.encode(&r.matcherSpec))
	return "#" + hex.EncodeToString(sum[:16])
}

// textsOf converts a list of names to plain strings, nil for an empty list.
func textsOf[T ~string](list []T) []string {
	var out []string
	for _, s := range list {
		out = append(out, string(s))
	}
	return out
}

// or returns what p points to, or the default if p is nil.
func or[T any](p *T, unset T) T {
	if p == nil {
		return unset
	}
	return *p
}
