package model

import "slices"

var (
	groupPolicyNames = []string{"train", "flow", "array"}
	partNames        = []string{"main", "driver", "workers", "eval"}
	unitReasons      = []string{PodFailurePolicy, DeadlineExceeded, BackoffLimitExceeded, MaxFailedIndexesExceeded, FailedIndexes, MemberCancelled}
	groupPatterns    = []string{"ECC", "pod failed", "^time", "nothing like it", "."}
)

// groupPolicySet makes a policy set for a history of groups.
func (g *groupGenerator) groupPolicySet() Policies {
	p := g.policySet()
	if p.Settings == nil {
		p.Settings = &Settings{}
	}
	s := *p.Settings
	if g.chance(0.8) {
		s.HorizonMs = new(pick(g.generator, []int64{600_000, 3_600_000, 86_400_000}))
	}
	p.Settings = &s
	for i := range p.Policies {
		policy := &p.Policies[i]
		if policy.Flat {
			continue
		}
		policy.Backoff.MaxDelayMs = new(int64(30_000))
		for k := range policy.Rules {
			if r := &policy.Rules[k]; r.Action == "Fail" && g.chance(0.7) || g.chance(0.08) {
				r.Action, r.RetryLimit, r.Backoff, r.AntiAffinity, r.Replacement = "FailUnit", nil, Backoff{}, "", ""
			}
		}
	}
	for _, name := range some(g.generator, groupPolicyNames, 1+g.IntN(len(groupPolicyNames))) {
		p.Groups = append(p.Groups, g.groupPolicy(name))
	}
	return g.loudly(p)
}

// loudly decides whether queues are in shadow, killed or paused, and retries enabled.
func (g *groupGenerator) loudly(p Policies) Policies {
	s := p.settings()
	s.Enabled, s.Mode, s.PausedUntil = nil, "", 0
	if s.GlobalMaxRetries != nil && *s.GlobalMaxRetries == 0 {
		s.GlobalMaxRetries = nil
	}
	odd := func(chance float64) bool { return !g.options.Steady && g.chance(chance) }
	if odd(0.04) {
		s.Enabled = new(false)
	}
	if odd(0.03) {
		s.GlobalMaxRetries = new(0)
	}
	p.Settings = &s
	p.Queues = slices.Clone(p.Queues)
	for i := range p.Queues {
		q := &p.Queues[i]
		q.Mode, q.Killed, q.PausedUntil = "", odd(0.03), 0
		if odd(0.08) {
			q.Mode = "Shadow"
		}
		if odd(0.05) {
			q.PausedUntil = g.pause()
		}
	}
	return p
}

func (g *groupGenerator) groupPolicy(name string) GroupPolicy {
	p := GroupPolicy{Name: name, MaxRestarts: optional(g.generator, 0.7, func() int { return pick(g.generator, []int{0, 1, 2, 3, 5, 10}) })}
	if g.chance(0.4) {
		p.Backoff = g.groupBackoff()
	}
	p.Completed = pick(g.generator, []string{"", "Rerun", "Keep", "Keep"})
	if g.chance(0.25) {
		p.Restarts = g.restarts()
	}
	if g.chance(0.85) {
		parts := 1
		if g.chance(0.6) {
			parts = 2 + g.IntN(3)
		}
		for i, part := range some(g.generator, partNames, parts) {
			p.Parts = append(p.Parts, g.groupPart(part, p.Parts[:i]))
		}
		if g.options.Large || g.chance(0.04) {
			p.Parts[0].Members, p.Parts[0].Replicas = new(64), nil
			p.Parts[0].Parallelism = nil
		}
	}
	if g.chance(0.75) {
		p.Rules = []GroupRule{}
		for _, rule := range some(g.generator, ruleNames, g.IntN(4)) {
			p.Rules = append(p.Rules, g.groupRule(rule, p.Parts))
		}
	}
	return p
}

func (g *groupGenerator) groupBackoff() Backoff {
	b := Backoff{InitialDelayMs: new(pick(g.generator, []int64{0, 333, 1000, 10_000, 30_000}))}
	switch g.IntN(4) {
	case 0:
		b.Constant = true
	case 1:
		b.MultiplierMilli = new(pick(g.generator, []int64{1000, 1500, 3000}))
	case 2:
		b.MaxDelayMs = new(pick(g.generator, []int64{1500, 20_000, 300_000}))
	}
	return b
}

func (g *groupGenerator) restarts() *Restarts {
	r := &Restarts{Limit: new(pick(g.generator, []int{0, 1, 1, 2, 3}))}
	r.On = pick(g.generator, []string{"", "OnFailure", "OnFailure", "Always", "Always", "Never"})
	if g.chance(0.5) {
		r.Backoff = g.groupBackoff()
	}
	return r
}

func (g *groupGenerator) groupPart(name string, before []GroupPart) GroupPart {
	p := GroupPart{
		Name:     name,
		Replicas: optional(g.generator, 0.4, func() int { return 1 + g.IntN(3) }),
		Members:  optional(g.generator, 0.8, func() int { return 1 + g.IntN(5) }),
	}
	members := or(p.Members, 1)
	if g.chance(0.25) {
		p.MinMembers = new(1 + g.IntN(members))
	}
	for _, other := range before {
		if g.chance(0.35) {
			p.After = append(p.After, other.Name)
		}
	}
	if g.chance(0.3) {
		p.Parallelism = new(1 + g.IntN(members))
	}
	p.RetryLimit = optional(g.generator, 0.3, func() int { return g.IntN(4) })
	if g.chance(0.35) {
		p.OnMemberFailure = "Continue"
		p.MaxFailedMembers = optional(g.generator, 0.5, func() int { return g.IntN(3) })
	} else if g.chance(0.2) {
		p.OnMemberFailure = "FailUnit"
	}
	if g.chance(0.2) {
		p.Restarts = g.restarts()
	}
	return p
}

func (g *groupGenerator) groupRule(name string, parts []GroupPart) GroupRule {
	r := GroupRule{Name: name, Action: pick(g.generator, []string{
		"FailGroup", "RestartGroup", "RestartGroup", "RestartGroup", "RestartPart", "RestartPart", "RestartUnit", "RestartUnit", "Leave", "Leave", "Halt",
	})}
	if restarts := r.Action != "FailGroup" && r.Action != "Leave" && r.Action != "Halt"; restarts {
		r.CountsTowardMax = optional(g.generator, 0.4, g.truth)
		r.Limit = optional(g.generator, 0.3, func() int { return 1 + g.IntN(3) })
	}
	if g.chance(0.4) {
		r.OnReasons = some(g.generator, unitReasons, 1+g.IntN(3))
	}
	if g.chance(0.2) {
		r.OnMessage = pick(g.generator, groupPatterns)
	}
	if g.chance(0.3) && len(parts) > 0 {
		r.Parts = []string{pick(g.generator, parts).Name}
	}
	return r
}

// changedGroups is a policy set after some edits: rules, limits and parts of groups
// change, shrink or go, and queues begin or cease to be in shadow, killed or paused.
func (g *groupGenerator) changedGroups(p Policies) Policies {
	next := p
	if g.chance(0.4) {
		groups := p.Groups
		next = g.changed(p)
		if len(next.Queues) == 0 {
			next.Queues = p.Queues
		}
		next.Groups = groups
	}
	var groups []GroupPolicy
	for _, group := range next.Groups {
		switch g.IntN(8) {
		case 0, 1: // as it was
		case 2: // gone
			continue
		case 3: // all other
			group = g.groupPolicy(group.Name)
		case 4: // it shrinks
			group = shrunk(group)
		default: // other rules and limits
			other := g.groupPolicy(group.Name)
			group.MaxRestarts, group.Backoff, group.Completed = other.MaxRestarts, other.Backoff, other.Completed
			group.Rules = nil
			if g.chance(0.8) {
				group.Rules = []GroupRule{}
				for _, rule := range some(g.generator, ruleNames, g.IntN(4)) {
					group.Rules = append(group.Rules, g.groupRule(rule, group.Parts))
				}
			}
		}
		groups = append(groups, group)
	}
	next.Groups = groups
	return g.loudly(next)
}

// shrunk is a policy with one part, of one unit and one member.
func shrunk(p GroupPolicy) GroupPolicy {
	if len(p.Parts) == 0 {
		return p
	}
	p.Parts = []GroupPart{{Name: p.Parts[len(p.Parts)-1].Name}}
	rules := p.Rules
	if rules != nil {
		p.Rules = []GroupRule{}
	}
	for _, r := range rules {
		r.Parts = nil
		p.Rules = append(p.Rules, r)
	}
	return p
}
