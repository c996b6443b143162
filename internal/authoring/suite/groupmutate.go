package suite

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/policy"
)

// group returns the spec of a group policy, which may be empty.
func (o content) group(i int) content {
	g := content(o.list("groupPolicies")[i].(map[string]any))
	if g["spec"] == nil {
		g["spec"] = map[string]any{}
	}
	return g.mapping("spec")
}

func (o content) item(field string, i int) content { return o.list(field)[i].(map[string]any) }

// groupPolicy adds the mutants of a group policy.
func (m *mutator) groupPolicy(g *policy.GroupPolicy, gi int) {
	at := func(c content) content { return c.group(gi) }
	change := func(field, what string, change func(spec content)) {
		m.field = field
		m.try(g.Name, "", what, func(c content) { change(at(c)) })
	}
	change("maxRestarts", "maxRestarts is one more", func(spec content) { spec.more("maxRestarts") })
	change("completed", "completed is the opposite", func(spec content) {
		if g.Keep {
			delete(spec, "completed")
		} else {
			spec["completed"] = "Keep"
		}
	})
	change("restartStrategy", "restartStrategy is the opposite", func(spec content) {
		if g.Blocking {
			delete(spec, "restartStrategy")
		} else {
			spec["restartStrategy"] = "BlockingRecreate"
		}
	})
	change("success", "success is dropped", func(spec content) { delete(spec, "success") })
	change("success.operator", "success.operator is the opposite", func(spec content) {
		if s := spec.mapping("success"); g.Success.Any {
			delete(s, "operator")
		} else if s != nil {
			s["operator"] = "Any"
		}
	})
	m.field = "success.parts"
	if len(g.Success.Parts) > 1 {
		m.without(g.Name, "", "parts", func(c content) content { return at(c).mapping("success") })
	}
	m.backoff(g.Name, "", "backoff", at)
	m.restarts(g.Name, "unit.restarts", g.Restarts, func(c content) content { return at(c).mapping("unit").mapping("restarts") })
	for i := range g.Rules {
		m.groupRule(g, i, at)
	}
	for i := range g.Parts {
		m.part(g, i, at)
	}
	m.field = ""
}

func (m *mutator) backoff(name, rule, field string, holder func(content) content) {
	m.field = field
	m.try(name, rule, field+".initialDelay is doubled", func(c content) { holder(c).mapping("backoff").double("initialDelay") })
	m.try(name, rule, field+".maxDelay is doubled", func(c content) { holder(c).mapping("backoff").double("maxDelay") })
	m.try(name, rule, field+".multiplier is one more", func(c content) { holder(c).mapping("backoff").more("multiplier") })
}

// restarts mutates how units restart by themselves, if the field is there.
func (m *mutator) restarts(name, field string, is policy.UnitRestarts, at func(content) content) {
	set := func(what, key string, value any) {
		m.field = field
		m.try(name, "", field+"."+what, func(c content) {
			if r := at(c); r != nil {
				r[key] = value
			}
		})
	}
	set("limit is one more", "limit", json.Number(fmt.Sprint(is.Limit+1)))
	set("on is Never", "on", "Never")
	switch is.On {
	case policy.RestartOnFailure:
		set("on is Always", "on", "Always")
	case policy.RestartAlways:
		set("on is OnFailure", "on", "OnFailure")
	case policy.RestartNever:
	}
	m.backoff(name, "", field+".backoff", at)
}

// otherActions are those that a mutant has in place of an action.
var otherActions = [...][]string{
	policy.FailGroup:    {"RestartGroup", "Leave"},
	policy.RestartGroup: {"RestartPart", "FailGroup"},
	policy.RestartPart:  {"RestartUnit", "FailGroup"},
	policy.RestartUnit:  {"RestartGroup", "FailGroup"},
	policy.Leave:        {"Halt", "FailGroup"},
	policy.Halt:         {"Leave", "FailGroup"},
}

func (m *mutator) groupRule(g *policy.GroupPolicy, i int, at func(content) content) {
	r := &g.Rules[i]
	rule := func(c content) content { return at(c).item("rules", i) }
	m.field = fmt.Sprintf("rules[%d]", i)
	m.try(g.Name, r.Name, "is dropped", func(c content) {
		spec := at(c)
		spec["rules"] = slices.Delete(spec.list("rules"), i, i+1)
	})
	if i+1 < len(g.Rules) {
		m.try(g.Name, r.Name, "is swapped with "+g.Rules[i+1].Name, func(c content) {
			list := at(c).list("rules")
			list[i], list[i+1] = list[i+1], list[i]
		})
	}
	for _, action := range otherActions[r.Action] {
		m.try(g.Name, r.Name, "has action "+action, func(c content) { rule(c)["action"] = action })
	}
	m.try(g.Name, r.Name, "limit is one more", func(c content) { rule(c).more("limit") })
	m.try(g.Name, r.Name, "limit is dropped", func(c content) { delete(rule(c), "limit") })
	m.try(g.Name, r.Name, "countsTowardsMax is inverted", func(c content) { rule(c)["countsTowardsMax"] = r.Uncounted })
	for _, field := range []string{"onReasons", "onMessage", "parts"} {
		m.try(g.Name, r.Name, field+" is dropped", func(c content) { delete(rule(c), field) })
	}
	m.without(g.Name, r.Name, "onReasons", rule)
	m.without(g.Name, r.Name, "parts", rule)
}

// without drops each item of a list.
func (m *mutator) without(name, rule, field string, holder func(content) content) {
	now, err := m.fresh()
	if err != nil {
		return // try reports the error
	}
	for i, item := range holder(now).list(field) {
		m.try(name, rule, fmt.Sprintf("%s lacks %v", field, item), func(c content) {
			h := holder(c)
			if h[field] = slices.Delete(h.list(field), i, i+1); len(h.list(field)) == 0 {
				delete(h, field)
			}
		})
	}
}

func (m *mutator) part(g *policy.GroupPolicy, i int, at func(content) content) {
	p := &g.Parts[i]
	part := func(c content) content { return at(c).item("parts", i) }
	field := fmt.Sprintf("parts[%d]", i)
	try := func(what string, change func(part content)) {
		m.field = field
		m.try(g.Name, "", "part "+p.Name+": "+what, func(c content) { change(part(c)) })
	}
	try("minMembers is one less", func(part content) { part["minMembers"] = json.Number(fmt.Sprint(p.MinMembers - 1)) })
	for _, limit := range []string{"parallelism", "retryLimit", "maxFailedMembers"} {
		try(limit+" is one more", func(part content) { part.more(limit) })
		try(limit+" is dropped", func(part content) {
			if delete(part, limit); limit == "retryLimit" {
				delete(part, "countFailed")
			}
		})
	}
	try("countFailed is the opposite", func(part content) {
		if delete(part, "countFailed"); !p.CountFailed && p.RetryLimit != nil {
			part["countFailed"] = true
		}
	})
	try("onMemberFailure is the opposite", func(part content) {
		if delete(part, "onMemberFailure"); !p.Continue {
			part["onMemberFailure"] = "Continue"
		}
	})
	for _, list := range []string{"after", "afterReady"} {
		m.field = field + "." + list
		m.without(g.Name, "", list, part)
	}
	for n, r := range p.SuccessRules {
		try(fmt.Sprintf("successRules[%d].count is one less", n), func(part content) {
			part.item("successRules", n)["count"] = json.Number(fmt.Sprint(r.Count - 1))
		})
		try(fmt.Sprintf("successRules[%d] is dropped", n), func(part content) {
			if part["successRules"] = slices.Delete(part.list("successRules"), n, n+1); len(p.SuccessRules) == 1 {
				delete(part, "successRules")
			}
		})
	}
	m.restarts(g.Name, field+".restarts", p.Restarts, func(c content) content { return part(c).mapping("restarts") })
}
