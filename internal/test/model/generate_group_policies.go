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
	if g.chance(0.8) {
		p = g.otherHorizon(p)
	}
	for i := range p.Policies {
		policy := &p.Policies[i]
		if policy.Flat {
			continue
		}
		policy.Backoff.MaxDelayMs = new(int64(30_000))
		for k := range policy.Rules {
			if r := &policy.Rules[k]; r.Action == "Fail" && g.chance(0.7) || g.chance(0.08) {
				r.Action, r.RetryLimit, r.Backoff, r.AntiAffinity, r.Replacement = "FailUnit", nil, Backoff{}, "", ""
				r.UnitReason = pick(g.later, []string{"", "", PodFailurePolicy, DeadlineExceeded, FailedIndexes})
			}
		}
	}
	for _, name := range some(g.generator, groupPolicyNames, 1+g.IntN(len(groupPolicyNames))) {
		p.Groups = append(p.Groups, g.groupPolicy(name))
	}
	return g.loudly(p)
}

func (g *groupGenerator) otherHorizon(p Policies) Policies {
	s := p.settings()
	s.HorizonMs = new(pick(g.generator, []int64{600_000, 3_600_000, 86_400_000}))
	p.Settings = &s
	return p
}

func (g *groupGenerator) groupPolicy(name string) GroupPolicy {
	p := GroupPolicy{Name: name, MaxRestarts: optional(g.generator, 0.7, func() int { return pick(g.generator, []int{0, 1, 2, 3, 5, 10}) })}
	if g.chance(0.4) {
		p.Backoff = g.groupBackoff()
	}
	p.Completed = pick(g.generator, []string{"", "Rerun", "Keep", "Keep"})
	if g.options.Newest >= SuccessorsVersion {
		p.RestartStrategy = pick(g.generator, []string{"", "", "Recreate", "BlockingRecreate", "BlockingRecreate"})
	}
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
		if g.options.Newest >= SuccessorsVersion {
			g.success(&p)
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

// success draws what version 4 adds to the shape of a group.
func (g *groupGenerator) success(p *GroupPolicy) {
	var names []string
	for i := range p.Parts {
		part := &p.Parts[i]
		for _, other := range names {
			if g.later.chance(0.2) {
				part.AfterReady = append(part.AfterReady, other)
			}
		}
		if all := or(part.Members, 1); g.later.chance(0.2) {
			for range 1 + g.later.IntN(2) {
				r := SuccessRule{Indexes: g.later.Perm(all)[:1+g.later.IntN(all)]}
				slices.Sort(r.Indexes)
				r.Count = optional(g.later, 0.5, func() int { return 1 + g.later.IntN(len(r.Indexes)) })
				part.SuccessRules = append(part.SuccessRules, r)
			}
		}
		names = append(names, part.Name)
	}
	if g.later.chance(0.2) {
		p.Success = &Success{Any: g.later.chance(0.5)}
		if g.later.chance(0.7) {
			p.Success.Parts = []string{pick(g.later, names)}
		}
	}
}

func (g *groupGenerator) groupBackoff() Backoff {
	b := Backoff{
		InitialDelayMs: new(pick(g.generator, []int64{0, 333, 1000, 10_000, 30_000})),
		JitterMilli:    optional(g.generator, 0.4, func() int64 { return pick(g.generator, []int64{0, 1, 333, 500, 1000}) }),
	}
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
	g.partSettings(&p)
	return p
}

// partSettings decides what binding does not fix of a part.
func (g *groupGenerator) partSettings(p *GroupPart) {
	p.RetryLimit = optional(g.generator, 0.3, func() int { return g.IntN(4) })
	p.CountFailed = p.RetryLimit != nil && g.later.chance(0.5)
	p.OnMemberFailure, p.MaxFailedMembers, p.Restarts = "", nil, nil
	if g.chance(0.35) {
		p.OnMemberFailure = "Continue"
		p.MaxFailedMembers = optional(g.generator, 0.5, func() int { return g.IntN(3) })
	} else if g.chance(0.2) {
		p.OnMemberFailure = "FailUnit"
	}
	if g.chance(0.2) {
		p.Restarts = g.restarts()
	}
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
