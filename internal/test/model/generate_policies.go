package model

import (
	"fmt"
	"slices"
	"time"
)

// The words of histories and policy sets: few, so that they meet.
var (
	queueNames    = []string{"ml", "batch", "infra", "nodoc"}
	setNames      = []string{"set-a", "set-b"}
	policyNames   = []string{"infra", "training", "user", "gpu"}
	ruleNames     = []string{"lost", "oom", "flaky", "bad-input"}
	conditions    = []string{"OOMKilled", "Evicted", "DeadlineExceeded", "Preempted", "Unschedulable", "LeaseReturned", "LeaseExpired"}
	exitCodes     = []int32{1, 2, 42, 137, -1}
	patterns      = []string{"ECC error", "^time", "(?i)ecc", "out$", ".", "^$|a", "[0-9]+ bad"}
	categories    = []string{"infrastructure", "user", "internal"}
	subcategories = []string{"gpu", "net", "active-deadline"}
	containerName = []string{"main", "sidecar", "init-a", "shared"}
	nodes         = []string{"node-1", "node-2", "node-3", "node-\xff", ""}
)

func optional[T any](g *generator, p float64, value func() T) *T {
	if !g.chance(p) {
		return nil
	}
	return new(value())
}

func (g *generator) limit() int { return pick(g, []int{0, 1, 1, 2, 2, 2, 3, 3, 5}) }

func (g *generator) truth() bool { return g.chance(0.5) }

// policySet makes a policy set.
func (g *generator) policySet() Policies {
	var p Policies
	names := some(g, policyNames, 1+g.IntN(len(policyNames)))
	if g.odd(0.06) {
		names = nil
	}
	for _, name := range names {
		p.Policies = append(p.Policies, g.policy(name))
	}
	for _, name := range queueNames {
		if name != "nodoc" && g.chance(0.85) {
			p.Queues = append(p.Queues, g.queue(name, names))
		}
	}
	if g.chance(0.9) {
		p.Settings = g.settings(names)
	}
	return p
}

func (g *generator) settings(names []string) *Settings {
	s := &Settings{
		Enabled:            optional(g, 0.35, func() bool { return g.chance(0.8) }),
		GlobalMaxRetries:   optional(g, 0.45, func() int { return pick(g, []int{0, 1, 2, 3, 4, 6, 100}) }),
		PolicyMaxRetries:   optional(g.later, 0.3, func() int { return pick(g.later, []int{0, 1, 3, 5, 30}) }),
		DefaultBackoff:     g.backoff(0.5),
		LegacyMaxAttempts:  optional(g, 0.4, func() int { return 1 + g.IntN(5) }),
		TerminationSlackMs: optional(g, 0.5, func() int64 { return pick(g, []int64{0, 500, 1250, 10_000}) }),
		HorizonMs: optional(g, 0.6, func() int64 {
			return pick(g, []int64{1000, 5000, 30_500, 120_000, 600_000, 600_000, 3_600_000, 3_600_000})
		}),
		JobsMaySelect: optional(g, 0.5, g.truth),
	}
	switch {
	case g.chance(0.5) && len(names) > 0:
		s.DefaultPolicyName = pick(g, names)
	case g.chance(0.3):
		s.DefaultPolicyName = "absent"
	}
	if g.chance(0.25) {
		s.Mode = pick(g, []string{"Enforce", "Shadow"})
	}
	if g.chance(0.12) {
		s.PausedUntil = g.pause()
	}
	s.AvoidNodes = g.later.avoidNodes()
	s.OpenBreakers = g.later.breakers()
	return s
}

// avoidNodes are nodes of the history, and rarely more than a decision names.
func (g *generator) avoidNodes() (list []AvoidedNode) {
	names := some(g, []string{"node-1", "node-2", "node-3", "elsewhere"}, g.IntN(4)*g.IntN(2))
	if len(names) > 0 && g.chance(0.1) {
		for i := range 52 {
			names = append(names, fmt.Sprintf("many-%d", i))
		}
	}
	for _, name := range names {
		list = append(list, AvoidedNode{name, g.pause()})
	}
	return list
}

// pause is a time that may be before, during or after the history.
func (g *generator) pause() int64 {
	until := base + g.Int64N(int64(6*time.Hour)) - int64(time.Hour)
	return until - until%int64(time.Second)
}

func (g *generator) queue(name string, policies []string) Queue {
	q := Queue{Name: name, RetryPolicies: some(g, policies, 1+g.IntN(3))}
	if g.chance(0.15) {
		q.RetryPolicies = nil
	}
	if g.chance(0.12) {
		q.RetryPolicies = append(q.RetryPolicies, pick(g, []string{"ghost", "infra", "gone"}))
	}
	if g.chance(0.1) && len(q.RetryPolicies) > 0 {
		q.RetryPolicies = append(q.RetryPolicies, q.RetryPolicies[0])
	}
	if g.chance(0.35) {
		q.Mode = pick(g, []string{"Enforce", "Shadow"})
	}
	q.Killed = g.chance(0.06)
	if g.chance(0.1) {
		q.PausedUntil = g.pause()
	}
	return q
}

// backoff states each of its fields with probability p.
func (g *generator) backoff(p float64) Backoff {
	b := Backoff{
		InitialDelayMs: optional(g, p, func() int64 { return pick(g, []int64{0, 1, 333, 1000, 10_000, 61_000, 3_600_000}) }),
		MaxDelayMs:     optional(g, p/2, func() int64 { return pick(g, []int64{0, 1500, 20_000, 600_000, 36_000_000_000}) }),
		JitterMilli:    optional(g, p/2, func() int64 { return pick(g, []int64{0, 1, 100, 333, 500, 1000}) }),
	}
	switch {
	case g.chance(p / 3):
		b.Constant = true
	case g.chance(p / 2):
		b.MultiplierMilli = new(pick(g, []int64{1000, 1001, 1333, 1500, 2000, 3000, 10_000, 1_000_000}))
	}
	if g.o.Extremes && g.chance(0.3) {
		b.InitialDelayMs = new(pick(g, []int64{86_400_000, 9_000_000_000_000}))
		b.MaxDelayMs = new(int64(9_223_372_036_854))
	}
	return b
}

func (g *generator) policy(name string) Policy {
	p := Policy{Name: name, RetryLimit: optional(g, 0.5, g.limit)}
	p.Flat = g.chance(0.12)
	if p.Flat {
		p.DefaultAction = pick(g, []string{"Retry", "Fail"})
		for range g.IntN(4) {
			r := Rule{Action: pick(g, []string{"Retry", "Fail"}), OnFailureCategory: []string{pick(g, categories)}}
			if g.chance(0.4) {
				r.OnFailureSubcategory = []string{pick(g, subcategories)}
			}
			p.Rules = append(p.Rules, r)
		}
		return p
	}
	p.DefaultAction = pick(g, []string{"", "", "Retry", "Retry", "Retry", "Fail"})
	p.Backoff = g.backoff(0.4)
	p.AntiAffinity = g.mode()
	p.Replacement = g.replacement()
	p.SelectableByJobs = optional(g, 0.3, g.truth)
	p.MaxRetries = optional(g.later, 0.25, func() int { return pick(g.later, []int{0, 1, 2, 4, 25}) })
	names := some(g, ruleNames, len(ruleNames))
	for i := range g.IntN(len(names) + 1) {
		r := g.rule()
		if g.chance(0.6) {
			r.Name = names[i]
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

func (g *generator) mode() string { return pick(g, []string{"", "", "none", "node", "allNodes"}) }

func (g *generator) replacement() string {
	return pick(g, []string{"", "", "WhenFailed", "WhenTerminated"})
}

func (g *generator) rule() Rule {
	r := Rule{
		Action:       pick(g, []string{"Retry", "Retry", "Retry", "Retry", "Retry", "Fail", "Ignore"}),
		RetryLimit:   optional(g, 0.4, g.limit),
		Backoff:      g.backoff(0.3),
		AntiAffinity: g.mode(),
		Replacement:  g.replacement(),
	}
	for len(r.OnConditions) == 0 && r.OnExitCodes == nil && r.OnTerminationMessage == "" && len(r.OnFailureCategory) == 0 {
		if g.chance(0.5) {
			r.OnConditions = some(g, conditions, 1+g.IntN(4))
		}
		if g.chance(0.25) {
			r.OnExitCodes = &ExitCodes{Operator: pick(g, []string{"In", "NotIn"}), Values: some(g, exitCodes, 1+g.IntN(3))}
		}
		if g.chance(0.2) {
			r.OnTerminationMessage = pick(g, patterns)
		}
		if g.chance(0.2) {
			r.OnFailureCategory = some(g, categories, 1+g.IntN(2))
			if g.chance(0.4) {
				r.OnFailureSubcategory = some(g, subcategories, 1+g.IntN(2))
			}
		}
	}
	if g.chance(0.18) {
		r.ContainerName = pick(g, containerName)
		if len(r.OnConditions) > 0 && !g.o.Lint {
			r.OnConditions = []string{"OOMKilled"}
		}
	}
	r.IncludeInitContainers = g.chance(0.25)
	if g.later.chance(0.12) {
		r.OnRunDuration = g.later.runDuration()
		if g.later.chance(0.4) { // nothing else
			r.OnConditions, r.OnExitCodes, r.OnTerminationMessage, r.OnFailureCategory, r.OnFailureSubcategory = nil, nil, "", nil, nil
		}
	}
	return r
}

// runDuration states one bound or both.
func (g *generator) runDuration() *RunDuration {
	bounds := []int64{1, 500, 2000, 10_000, 60_000, 600_000}
	least, less := g.IntN(len(bounds)), g.IntN(len(bounds))
	d := &RunDuration{AtLeastMs: &bounds[least]}
	switch {
	case less > least:
		d.LessThanMs = &bounds[less]
	case g.chance(0.5):
		d.AtLeastMs, d.LessThanMs = nil, &bounds[less]
	case g.chance(0.2):
		d.AtLeastMs = new(int64(0))
	}
	return d
}

// changed is a policy set after some edits.
func (g *generator) changed(p Policies) Policies {
	if g.chance(0.3) {
		return g.policySet()
	}
	next := Policies{Queues: slices.Clone(p.Queues), Settings: new(p.settings())}
	var names []string
	for _, policy := range p.Policies {
		names = append(names, policy.Name)
		policy.Rules = slices.Clone(policy.Rules)
		if !policy.Flat {
			for i := range policy.Rules {
				if g.chance(0.4) { // edited, but still the rule of that name
					name := policy.Rules[i].Name
					policy.Rules[i] = g.rule()
					policy.Rules[i].Name = name
				}
			}
			g.Shuffle(len(policy.Rules), func(i, j int) { policy.Rules[i], policy.Rules[j] = policy.Rules[j], policy.Rules[i] })
		}
		policy.RetryLimit = optional(g, 0.5, g.limit)
		next.Policies = append(next.Policies, policy)
	}
	if g.chance(0.5) {
		next.Settings = g.settings(names)
	}
	for i := range next.Queues {
		if g.chance(0.3) {
			next.Queues[i] = g.queue(next.Queues[i].Name, names)
		}
	}
	return next
}
