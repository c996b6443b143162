package model

import (
	"slices"
	"strings"
	"time"
)

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
	if odd(0.03) {
		s.PausedUntil = g.pauseSoon()
	}
	if odd(0.03) {
		s.Mode = "Shadow"
	}
	p.Settings = &s
	p.Queues = slices.Clone(p.Queues)
	for i := range p.Queues {
		q := &p.Queues[i]
		q.Mode, q.Killed, q.PausedUntil = pick(g.generator, []string{"", "", "Enforce"}), odd(0.03), 0
		if odd(0.08) {
			q.Mode = "Shadow"
		}
		if odd(0.05) {
			q.PausedUntil = g.pauseSoon()
		}
	}
	return p
}

// pauseSoon is the end of a pause: one that concerns much of the history, or little.
func (g *groupGenerator) pauseSoon() int64 {
	if g.chance(0.2) {
		return g.pause()
	}
	until := g.now + int64(pick(g.generator, []time.Duration{-5, 5, 30, 120, 600, 7200})*time.Second)
	return until - until%int64(time.Second)
}

// override is one of the ways to stop, delay or only watch retries: it has a value, 0 where it is not in
// force; the end of a pause; else 1.
type override struct {
	name string
	get  func(p Policies) int64
	set  func(p Policies, to int64) Policies
}

var overrides = []override{
	ofSettings("enabled", func(s *Settings) int64 { return oneIf(!or(s.Enabled, true)) }, func(s *Settings, to int64) {
		s.Enabled = nil
		if to > 0 {
			s.Enabled = new(false)
		}
	}),
	ofSettings("kill", func(s *Settings) int64 { return oneIf(or(s.GlobalMaxRetries, 1) == 0) }, func(s *Settings, to int64) {
		switch {
		case to > 0:
			s.GlobalMaxRetries = new(0)
		case s.GlobalMaxRetries != nil && *s.GlobalMaxRetries == 0:
			s.GlobalMaxRetries = nil
		}
	}),
	ofSettings("pause", func(s *Settings) int64 { return s.PausedUntil }, func(s *Settings, to int64) { s.PausedUntil = to }),
	ofSettings("shadow", func(s *Settings) int64 { return oneIf(s.Mode == "Shadow") }, func(s *Settings, to int64) { s.Mode = mode(to) }),
	ofQueue("ml", "kill", queueKilled, setQueueKilled), ofQueue("batch", "kill", queueKilled, setQueueKilled),
	ofQueue("ml", "pause", queuePaused, setQueuePaused), ofQueue("batch", "pause", queuePaused, setQueuePaused),
	ofQueue("ml", "shadow", queueShadow, setQueueShadow), ofQueue("batch", "shadow", queueShadow, setQueueShadow),
}

func queueKilled(q *Queue) int64        { return oneIf(q.Killed) }
func setQueueKilled(q *Queue, to int64) { q.Killed = to > 0 }
func queuePaused(q *Queue) int64        { return q.PausedUntil }
func setQueuePaused(q *Queue, to int64) { q.PausedUntil = to }
func queueShadow(q *Queue) int64        { return oneIf(q.Mode == "Shadow") }
func setQueueShadow(q *Queue, to int64) { q.Mode = mode(to) }

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

func mode(shadow int64) string {
	if shadow > 0 {
		return "Shadow"
	}
	return ""
}

func ofSettings(name string, get func(*Settings) int64, set func(*Settings, int64)) override {
	return override{
		name: name + " of the settings",
		get:  func(p Policies) int64 { s := p.settings(); return get(&s) },
		set: func(p Policies, to int64) Policies {
			s := p.settings()
			set(&s, to)
			p.Settings = &s
			return p
		},
	}
}

func ofQueue(queue, name string, get func(*Queue) int64, set func(*Queue, int64)) override {
	return override{
		name: name + " of a queue",
		get:  func(p Policies) int64 { q := p.queue(queue); return get(&q) },
		set: func(p Policies, to int64) Policies {
			p.Queues = slices.Clone(p.Queues)
			at := slices.IndexFunc(p.Queues, func(q Queue) bool { return q.Name == queue })
			if at < 0 && to == 0 {
				return p
			}
			if at < 0 {
				at = len(p.Queues)
				p.Queues = append(p.Queues, Queue{Name: queue})
			}
			set(&p.Queues[at], to)
			return p
		},
	}
}

// overridden is a policy set in which an override is lifted that was in force, or put in force.
func (g *groupGenerator) overridden(p Policies) Policies {
	var inForce []override
	for _, o := range overrides {
		if o.get(p) > 0 {
			inForce = append(inForce, o)
		}
	}
	if len(inForce) > 0 && g.chance(0.7) {
		return pick(g.generator, inForce).set(p, 0)
	}
	if g.options.Steady {
		return p
	}
	o := pick(g.generator, overrides)
	to := int64(1)
	if strings.HasPrefix(o.name, "pause") {
		to = g.pauseSoon()
	}
	return o.set(p, to)
}

// changedGroups is a policy set after some edits: rules, limits and parts of groups change, shrink or
// go; or somebody overrides what the policies say, or no longer. The horizon changes, too.
func (g *groupGenerator) changedGroups(p Policies) Policies {
	if g.chance(0.15) {
		p = g.otherHorizon(p)
	}
	if g.chance(0.5) {
		return g.overridden(p)
	}
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
		switch g.IntN(12) {
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
			group.Restarts, group.RestartStrategy = other.Restarts, other.RestartStrategy
			group.Parts = slices.Clone(group.Parts)
			for i := range group.Parts {
				g.partSettings(&group.Parts[i])
			}
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
	if g.chance(0.2) {
		return g.loudly(next)
	}
	for _, o := range overrides {
		next = o.set(next, o.get(p))
	}
	return next
}

// shrunk is a policy with one part, of one unit and one member.
func shrunk(p GroupPolicy) GroupPolicy {
	if len(p.Parts) == 0 {
		return p
	}
	p.Parts = []GroupPart{{Name: p.Parts[len(p.Parts)-1].Name}}
	p.Success = nil
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
