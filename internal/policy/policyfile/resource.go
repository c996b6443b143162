package policyfile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/policy"
)

// A Set is immutable; these methods derive another Set from it, resource by resource.

// The kinds of resources.
const (
	KindPolicy   = "RetryPolicy"
	KindGroup    = "GroupPolicy"
	KindQueue    = "Queue"
	KindSettings = "RetrySettings"
	KindBudget   = "RetryBudget"
)

// Kinds lists the kinds of resources, in the order of a set.
func Kinds() []string { return []string{KindSettings, KindPolicy, KindGroup, KindQueue, KindBudget} }

// ID identifies a resource of a set. The settings have the name "".
type ID struct{ Kind, Name string }

// String returns kind and name.
func (id ID) String() string {
	if id.Kind == KindSettings {
		return id.Kind
	}
	return id.Kind + " " + id.Name
}

// Resources lists the resources of the set: the settings if any are set, then policies, group policies, queues and
// retry budgets, by name.
func (s *Set) Resources() []ID {
	var ids []ID
	if s.settingsText() != "" {
		ids = append(ids, ID{Kind: KindSettings})
	}
	for _, p := range s.content.policies {
		ids = append(ids, ID{KindPolicy, string(p.Name)})
	}
	for _, g := range s.content.groups {
		ids = append(ids, ID{KindGroup, string(g.Name)})
	}
	for _, b := range s.content.bindings {
		ids = append(ids, ID{KindQueue, string(b.Name)})
	}
	for _, b := range s.content.budgets {
		ids = append(ids, ID{KindBudget, string(b.Name)})
	}
	return ids
}

func (s *Set) settingsText() string {
	if s.content.settings.isUnset() {
		return ""
	}
	return string((schema{}).encode(&s.content.settings))
}

// Body returns the canonical text of a resource: resources are equal if their texts are. It is not ok if the set
// does not have the resource.
func (s *Set) Body(id ID) (string, bool) {
	switch at, ok := s.find(id); {
	case !ok:
		return "", false
	case id.Kind == KindPolicy:
		return s.content.policies[at].text, true
	case id.Kind == KindGroup:
		return s.content.groups[at].text, true
	case id.Kind == KindQueue:
		return s.content.bindings[at].text, true
	case id.Kind == KindBudget:
		return s.content.budgets[at].text, true
	default:
		return s.settingsText(), true
	}
}

// find returns the index of a resource among those of its kind.
func (s *Set) find(id ID) (at int, ok bool) {
	switch id.Kind {
	case KindPolicy:
		return slices.BinarySearchFunc(s.content.policies, id.Name, func(p *compiled, name string) int { return strings.Compare(string(p.Name), name) })
	case KindGroup:
		return slices.BinarySearchFunc(s.content.groups, id.Name, func(g *compiledGroup, name string) int { return strings.Compare(string(g.Name), name) })
	case KindQueue:
		return slices.BinarySearchFunc(s.content.bindings, id.Name, func(b *binding, name string) int { return strings.Compare(string(b.Name), name) })
	case KindBudget:
		return slices.BinarySearchFunc(s.content.budgets, id.Name, func(b *compiledBudget, name string) int { return strings.Compare(string(b.Name), name) })
	case KindSettings:
		return 0, id.Name == "" && s.settingsText() != ""
	}
	return 0, false
}

// With returns the set with the resources of files added or replaced by name, and lists them. Its error is that of
// Parse.
func (s *Set) With(files ...File) (*Set, []ID, error) {
	docs, problems := parse(files)
	if len(problems) > 0 {
		return nil, nil, problems
	}
	c := s.content.clone()
	added := contentOf(docs)
	ids := make([]ID, len(docs))
	for i := range docs {
		switch d := &docs[i]; {
		case d.policy != nil:
			ids[i] = ID{KindPolicy, string(d.policy.Name)}
		case d.group != nil:
			ids[i] = ID{KindGroup, string(d.group.Name)}
		case d.queue != nil:
			ids[i] = ID{KindQueue, string(d.queue.Name)}
		case d.budget != nil:
			ids[i] = ID{KindBudget, string(d.budget.Name)}
		default:
			ids[i] = ID{Kind: KindSettings}
			c.settings = added.settings
		}
	}
	c.policies = put(c.policies, added.policies, func(p *compiled) string { return string(p.Name) })
	c.groups = put(c.groups, added.groups, func(g *compiledGroup) string { return string(g.Name) })
	c.bindings = put(c.bindings, added.bindings, func(b *binding) string { return string(b.Name) })
	c.budgets = put(c.budgets, added.budgets, func(b *compiledBudget) string { return string(b.Name) })
	if problems := c.tooManyBudgets(""); len(problems) > 0 {
		return nil, nil, problems
	}
	return build(c), ids, nil
}

// put returns the list with items added or replaced by name.
func put[T any](list, items []T, name func(T) string) []T {
	at := make(map[string]int, len(items))
	for i, item := range items {
		at[name(item)] = i
	}
	list = slices.DeleteFunc(list, func(item T) bool { _, replaced := at[name(item)]; return replaced })
	return append(list, items...)
}

// Without returns the set without these resources. IDs that it does not have are ignored.
func (s *Set) Without(ids ...ID) *Set {
	c := s.content.clone()
	gone := make(map[ID]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	c.policies = slices.DeleteFunc(c.policies, func(p *compiled) bool { return gone[ID{KindPolicy, string(p.Name)}] })
	c.groups = slices.DeleteFunc(c.groups, func(g *compiledGroup) bool { return gone[ID{KindGroup, string(g.Name)}] })
	c.bindings = slices.DeleteFunc(c.bindings, func(b *binding) bool { return gone[ID{KindQueue, string(b.Name)}] })
	c.budgets = slices.DeleteFunc(c.budgets, func(b *compiledBudget) bool { return gone[ID{KindBudget, string(b.Name)}] })
	if gone[ID{Kind: KindSettings}] {
		c.settings = settingsSpec{}
	}
	return build(c)
}

// Replacing returns the set with a resource as in another set, or without it if the other set does not have it.
func (s *Set) Replacing(id ID, from *Set) *Set {
	at, ok := from.find(id)
	if !ok {
		return s.Without(id)
	}
	c := s.content.clone()
	switch id.Kind {
	case KindPolicy:
		c.policies = put(c.policies, from.content.policies[at:at+1], func(p *compiled) string { return string(p.Name) })
	case KindGroup:
		c.groups = put(c.groups, from.content.groups[at:at+1], func(g *compiledGroup) string { return string(g.Name) })
	case KindQueue:
		c.bindings = put(c.bindings, from.content.bindings[at:at+1], func(b *binding) string { return string(b.Name) })
	case KindBudget:
		c.budgets = put(c.budgets, from.content.budgets[at:at+1], func(b *compiledBudget) string { return string(b.Name) })
	default:
		c.settings = from.content.settings
	}
	return build(c)
}

// Users lists the resources that name a policy: queues, and the settings if it is their default.
func (s *Set) Users(name string) []ID {
	var ids []ID
	if string(s.content.settings.DefaultPolicyName) == name {
		ids = append(ids, ID{Kind: KindSettings})
	}
	for _, b := range s.content.bindings {
		if slices.Contains(b.RetryPolicies, policyName(name)) {
			ids = append(ids, ID{KindQueue, string(b.Name)})
		}
	}
	return ids
}

// Missing lists the policies that a queue names, or the settings name as the default, and that the set does not
// have.
func (s *Set) Missing(id ID) []string {
	var named []policyName
	switch at, ok := s.find(id); {
	case ok && id.Kind == KindQueue:
		named = s.content.bindings[at].RetryPolicies
	case ok && id.Kind == KindSettings && s.content.settings.DefaultPolicyName != "":
		named = []policyName{s.content.settings.DefaultPolicyName}
	}
	var missing []string
	for _, name := range named {
		if !s.Has(string(name)) && !slices.Contains(missing, string(name)) {
			missing = append(missing, string(name))
		}
	}
	return missing
}

// HasPolicies says whether the set holds a policy.
func (s *Set) HasPolicies() bool {
	return slices.ContainsFunc(s.Resources(), func(id ID) bool { return id.Kind == KindPolicy })
}

// Detached returns the set with all references to the policy removed, from queues and from the default.
func (s *Set) Detached(name string) *Set {
	c := s.content.clone()
	if string(c.settings.DefaultPolicyName) == name {
		c.settings.DefaultPolicyName = ""
	}
	known, named := schema{}, func(n policyName) bool { return string(n) == name }
	for i, b := range c.bindings {
		if slices.ContainsFunc(b.RetryPolicies, named) {
			spec := b.queueSpec
			spec.RetryPolicies = slices.DeleteFunc(slices.Clone(spec.RetryPolicies), named)
			c.bindings[i] = newBinding(&spec, known)
		}
	}
	return build(c)
}

// Override is an operator's override: it kills retries of a queue or of all queues, delays them until a time
// (semantics.md 5 and 6), has them avoid a node (7), or opens a breaker that holds those of one cause (15). One that trusts a
// node changes no decision: it keeps the guard from having retries avoid it.
type Override struct {
	Queue        string // "": all queues, or Node is set
	Kill         bool
	PausedUntil  int64  // Unix nanoseconds, whole milliseconds; 0: not paused
	Node         string // "": the override is not about a node
	AvoidedUntil int64  // Unix nanoseconds, whole milliseconds; 0: Node is not avoided
	TrustedUntil int64  // likewise
	Category     string // "": the override opens no breaker
	Subcategory  string // "": any
	HeldUntil    int64  // Unix nanoseconds, whole milliseconds: when the breaker ends
}

// Over says whether the override has ended by a time, in Unix nanoseconds.
func (o *Override) Over(now int64) bool {
	until := max(o.PausedUntil, o.AvoidedUntil, o.TrustedUntil, o.HeldUntil)
	return !o.Kill && until <= now
}

// Cause names the category of the breaker that the override opens, and its subcategory if it has one.
func (o *Override) Cause() string { return strings.TrimSuffix(o.Category+"/"+o.Subcategory, "/") }

// Effect says what the override does: "retries of queue ml are killed".
func (o *Override) Effect() string {
	at := func(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339) }
	where := "all queues"
	if o.Queue != "" {
		where = "queue " + o.Queue
	}
	switch {
	case o.TrustedUntil != 0:
		return fmt.Sprintf("node %s is trusted until %s", o.Node, at(o.TrustedUntil))
	case o.Node != "":
		return fmt.Sprintf("retries avoid node %s until %s", o.Node, at(o.AvoidedUntil))
	case o.Category != "":
		return fmt.Sprintf("retries of %s after failures of category %s are held until %s", where, o.Cause(), at(o.HeldUntil))
	case o.Kill:
		return fmt.Sprintf("retries of %s are killed", where)
	}
	return fmt.Sprintf("retries of %s are paused until %s", where, at(o.PausedUntil))
}

// SameBreaker says whether both open a breaker of the same cause.
func (o *Override) SameBreaker(other *Override) bool {
	return o.Category != "" && o.Category == other.Category && o.Subcategory == other.Subcategory && o.Queue == other.Queue
}

// WithOverrides returns the set with overrides applied. They only add to the set's own settings: they kill and delay, and
// never enable.
func (s *Set) WithOverrides(overrides ...Override) (*Set, error) {
	c := s.content.clone()
	known := schema{}
	for _, b := range overrides {
		var until *instant
		if b.PausedUntil != 0 {
			until = new(instant)
			*until = instant(b.PausedUntil)
		}
		if b.Node != "" {
			if err := c.settings.avoid(b.Node, b.AvoidedUntil); err != nil {
				return nil, err
			}
			continue
		}
		if b.Category != "" {
			if err := c.settings.open(&b); err != nil {
				return nil, err
			}
			continue
		}
		if b.Queue == "" {
			if b.Kill {
				c.settings.GlobalMaxRetries = new(limit)
			}
			c.settings.PausedUntil = later(c.settings.PausedUntil, until)
			continue
		}
		name := new(queueName)
		if f := name.parse(b.Queue); f != (fault{}) {
			return nil, fmt.Errorf("queue %s: %s; %s", shown(b.Queue), f.message, f.fix)
		}
		at := slices.IndexFunc(c.bindings, func(q *binding) bool { return q.Name == *name })
		if at < 0 {
			at = len(c.bindings)
			c.bindings = append(c.bindings, &binding{queueSpec: queueSpec{Name: *name}})
		}
		q := c.bindings[at].queueSpec
		q.Killed = q.Killed || b.Kill
		q.PausedUntil = later(q.PausedUntil, until)
		c.bindings[at] = newBinding(&q, known)
	}
	return build(c), nil
}

// avoid has retries avoid a node until a time; 0: they need not. It copies the list, which is shared.
func (s *settingsSpec) avoid(node string, until int64) error {
	if until == 0 {
		return nil
	}
	one := avoidedNode{Until: (*instant)(&until)}
	if f := one.Name.parse(node); f != (fault{}) {
		return fmt.Errorf("node %s: %s; %s", shown(node), f.message, f.fix)
	}
	s.AvoidNodes = slices.Clone(s.AvoidNodes)
	if at := slices.IndexFunc(s.AvoidNodes, func(n avoidedNode) bool { return n.Name == one.Name }); at >= 0 {
		s.AvoidNodes[at].Until = later(s.AvoidNodes[at].Until, one.Until)
		return nil
	}
	if s.AvoidNodes = append(s.AvoidNodes, one); len(s.AvoidNodes) > policy.MaxAvoidNodes {
		return fmt.Errorf("more than %d nodes would be avoided", policy.MaxAvoidNodes)
	}
	return nil
}

// open opens a breaker until a time. It copies the list, which is shared.
func (s *settingsSpec) open(o *Override) error {
	one := openBreaker{Until: (*instant)(&o.HeldUntil)}
	for _, part := range []struct {
		name, text string
		to         leaf
	}{{"category", o.Category, &one.Category}, {"subcategory", o.Subcategory, &one.Subcategory}, {"queue", o.Queue, &one.Queue}} {
		if part.text == "" {
			continue
		}
		if f := part.to.parse(part.text); f != (fault{}) {
			return fmt.Errorf("%s %s: %s; %s", part.name, shown(part.text), f.message, f.fix)
		}
	}
	s.OpenBreakers = slices.Clone(s.OpenBreakers)
	if at := slices.IndexFunc(s.OpenBreakers, func(b openBreaker) bool { return b.cause() == one.cause() }); at >= 0 {
		s.OpenBreakers[at].Until = later(s.OpenBreakers[at].Until, one.Until)
		return nil
	}
	if s.OpenBreakers = append(s.OpenBreakers, one); len(s.OpenBreakers) > policy.MaxOpenBreakers {
		return fmt.Errorf("more than %d breakers would be open", policy.MaxOpenBreakers)
	}
	return nil
}

// InShadow returns the set with all queues in shadow mode.
func (s *Set) InShadow() *Set {
	c := s.content.clone()
	c.settings.Mode = shadow
	known := schema{}
	for i, b := range c.bindings {
		if b.Mode != noMode {
			spec := b.queueSpec
			spec.Mode = noMode
			c.bindings[i] = newBinding(&spec, known)
		}
	}
	return build(c)
}

func later(a, b *instant) *instant {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// clone copies the lists; their elements are immutable and shared.
func (c *content) clone() *content {
	out := *c
	out.policies, out.groups, out.bindings, out.budgets = slices.Clone(c.policies), slices.Clone(c.groups), slices.Clone(c.bindings), slices.Clone(c.budgets)
	return &out
}

// OwnOverride is a resource whose own fields kill or pause retries.
type OwnOverride struct {
	ID
	Text        string
	PausedUntil int64 // Unix nanoseconds; 0: it kills
}

// OwnOverrides lists the resources whose own fields kill or pause retries.
func (s *Set) OwnOverrides() []OwnOverride {
	var all []OwnOverride
	pause := func(id ID, until *instant) {
		if until != nil {
			all = append(all, OwnOverride{id, "pausedUntil: " + until.text(), int64(*until)})
		}
	}
	settings := ID{Kind: KindSettings}
	if s.GlobalMaxRetries() == 0 {
		all = append(all, OwnOverride{ID: settings, Text: "globalMaxRetries: 0"})
	}
	pause(settings, s.content.settings.PausedUntil)
	for _, q := range s.content.bindings {
		id := ID{KindQueue, string(q.Name)}
		if q.Killed {
			all = append(all, OwnOverride{ID: id, Text: "killed: true"})
		}
		pause(id, q.PausedUntil)
	}
	return all
}
