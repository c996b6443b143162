package model

import (
	"reflect"
	"slices"
	"strings"
)

// without is a feature that histories of groups have: the history without it, or nil if it has none.
type without struct {
	name    string
	history func(h History) *History
	model   []feature // left out of the model instead
}

// withPolicies is a history with other policy sets; nil if change changes none. The one before and the
// changed one before are those of the messages before, if any.
func withPolicies(h History, change func(p, before, changedBefore *Policies) Policies) *History {
	out := h
	out.Changes = nil
	p := h.Policies
	out.Policies = change(&p, nil, nil)
	before, changed := p, out.Policies
	for _, c := range h.Changes {
		now := c.Policies
		c.Policies = change(&now, &before, &changed)
		out.Changes = append(out.Changes, c)
		before, changed = now, c.Policies
	}
	if reflect.DeepEqual(h.Policies, out.Policies) && reflect.DeepEqual(h.Changes, out.Changes) {
		return nil
	}
	return &out
}

// everywhere edits every policy set.
func everywhere(edit func(p Policies) Policies) func(h History) *History {
	return func(h History) *History {
		return withPolicies(h, func(p, _, _ *Policies) Policies { return edit(*p) })
	}
}

// neverSet is a history in which an override that is not in force is never put in force.
func neverSet(o override) func(h History) *History {
	return func(h History) *History {
		return withPolicies(h, func(p, before, changed *Policies) Policies {
			if before != nil && o.get(*p) > 0 && o.get(*p) != o.get(*before) || before != nil && o.get(*changed) == 0 {
				return o.set(*p, 0)
			}
			return *p
		})
	}
}

// neverLifted is a history in which an override that is in force stays.
func neverLifted(o override) func(h History) *History {
	return func(h History) *History {
		return withPolicies(h, func(p, _, changed *Policies) Policies {
			if changed != nil && o.get(*p) == 0 {
				return o.set(*p, o.get(*changed))
			}
			return *p
		})
	}
}

func noJitter(p Policies) Policies {
	p.Groups = slices.Clone(p.Groups)
	for i := range p.Groups {
		g := &p.Groups[i]
		g.Backoff.JitterMilli = nil
		if g.Restarts != nil {
			g.Restarts = new(*g.Restarts)
			g.Restarts.Backoff.JitterMilli = nil
		}
		g.Parts = slices.Clone(g.Parts)
		for k := range g.Parts {
			if r := g.Parts[k].Restarts; r != nil {
				g.Parts[k].Restarts = new(*r)
				g.Parts[k].Restarts.Backoff.JitterMilli = nil
			}
		}
	}
	return p
}

func noReplacementOfRules(p Policies) Policies {
	p.Policies = slices.Clone(p.Policies)
	for i := range p.Policies {
		p.Policies[i].Rules = slices.Clone(p.Policies[i].Rules)
		for k := range p.Policies[i].Rules {
			p.Policies[i].Rules[k].Replacement = ""
		}
	}
	return p
}

func noReplacementOfPolicies(p Policies) Policies {
	p.Policies = slices.Clone(p.Policies)
	for i := range p.Policies {
		p.Policies[i].Replacement = ""
	}
	return p
}

// activation is a history in which a version is activated otherwise.
func activation(number int, other func(versions []Version) []Version) func(h History) *History {
	return func(h History) *History {
		if !slices.ContainsFunc(h.Versions, func(v Version) bool { return v.Number == number && v.Before > 0 }) {
			return nil
		}
		h.Versions = other(slices.Clone(h.Versions))
		return &h
	}
}

func never(number int) func(h History) *History {
	return activation(number, func(all []Version) []Version {
		return slices.DeleteFunc(all, func(v Version) bool { return v.Number >= number })
	})
}

func fromTheStart(number int) func(h History) *History {
	return activation(number, func(all []Version) []Version {
		for i := range all {
			if all[i].Number <= number {
				all[i] = Version{Before: 0, Number: number}
			}
		}
		return all
	})
}

// featuresOfGroups are the features that the histories must hit, each by itself.
func featuresOfGroups() []without {
	all := []without{
		{name: "group policies change", history: func(h History) *History {
			return withPolicies(h, func(p, _, _ *Policies) Policies { q := *p; q.Groups = h.Policies.Groups; return q })
		}},
		{name: "retry policies change", history: func(h History) *History {
			return withPolicies(h, func(p, _, _ *Policies) Policies { q := *p; q.Policies = h.Policies.Policies; return q })
		}},
		{name: "jitter of a group", history: everywhere(noJitter)},
		{name: "WhenTerminated of a rule", history: everywhere(noReplacementOfRules)},
		{name: "WhenTerminated of a policy", history: everywhere(noReplacementOfPolicies)},
		{name: "version 3 is activated", history: never(GroupsVersion)},
		{name: "version 3 is activated late", history: fromTheStart(GroupsVersion)},
		{name: "version 4 is activated", history: never(SuccessorsVersion)},
		{name: "version 4 is activated late", history: fromTheStart(SuccessorsVersion)},
		{name: "section 5 is asked under a pause", model: []feature{askPaused}},
		{name: "restartStrategy", model: []feature{blocking}},
		{name: "successors", model: []feature{successors}},
		{name: "a gang's members start together", model: []feature{gangReady}},
		{name: "success and afterReady", model: []feature{successRules}},
		{name: "rules decide which failure of a message comes first", model: []feature{rulesFirst}},
	}
	for _, o := range overrides {
		if !strings.HasPrefix(o.name, "pause") { // which may be over before it is lifted
			all = append(all, without{name: o.name + ", lifted", history: neverLifted(o)})
		}
		all = append(all, without{name: o.name + ", set", history: neverSet(o)})
		if strings.HasPrefix(o.name, "pause") {
			all = append(all, without{name: o.name + ", lifted", history: neverLifted(o)})
		}
	}
	return all
}

// enough is how many histories a feature must make a difference in.
const enough = 5

// features counts the histories that a feature made a difference in, until they are enough.
type features map[string]int

// try asks of each feature whether the records of groups and their members would be others without it.
func (f features) try(h History, records [][]Record) {
	full := ofGroups(records)
	for _, w := range featuresOfGroups() {
		if f[w.name] >= enough {
			continue
		}
		other := h
		if w.history != nil {
			changed := w.history(h)
			if changed == nil {
				continue
			}
			other = *changed
		}
		if records, _ := other.run(w.model); !reflect.DeepEqual(full, ofGroups(records)) {
			f[w.name]++
		}
	}
}

// ofGroups are the records of groups and of their members, without the numbers that those of others shift. A RetryReady does not
// name the group of its job.
func ofGroups(records [][]Record) [][]Record {
	out := make([][]Record, len(records))
	for i := range records {
		for _, r := range records[i] {
			if r.Group != "" || r.Kind == RetryReady {
				r.Number = 0
				out[i] = append(out[i], r)
			}
		}
	}
	return out
}
