package policy

import (
	"fmt"
	"slices"
)

// GroupRuleTrace is one rule of a group policy, as UnitEnded tried it.
type GroupRuleTrace struct {
	Rule    string // its name, RestartsRule, or "" of the default
	Action  GroupAction
	Tried   bool
	Matched bool   // the first one that did
	Failed  string // the field that did not hold
	Why     string // it did not
}

// UnitLadder returns what UnitEnded tries, in order: the restarts of the unit's part, the rules of the group policy,
// and its default.
func (s *Set) UnitLadder(u *UnitFailure) []GroupRuleTrace {
	g := s.groups[u.Policy]
	if g == nil {
		g = &GroupPolicy{}
	}
	var traces []GroupRuleTrace
	found := u.Halted || u.Barred // nothing is tried
	add := func(r GroupRuleTrace) {
		r.Tried = !found
		r.Matched = r.Tried && r.Failed == ""
		if !r.Tried {
			r.Failed, r.Why = "", ""
		}
		found = found || r.Matched
		traces = append(traces, r)
	}
	if restarts := s.UnitSettings(u.Policy, u.Part).Restarts; restarts.On != RestartNever {
		r := GroupRuleTrace{Rule: RestartsRule, Action: RestartUnit}
		switch {
		case u.UnitRestarts >= restarts.Limit:
			r.Failed, r.Why = "limit", fmt.Sprintf("used up: %d of %d", u.UnitRestarts, restarts.Limit)
		case u.Succeeded && restarts.On != RestartAlways:
			r.Failed, r.Why = "on", "the unit succeeded, and on is not Always"
		}
		add(r)
	}
	if u.Succeeded {
		return traces
	}
	for i := range g.Rules {
		rule := &g.Rules[i]
		r := GroupRuleTrace{Rule: rule.Name, Action: rule.Action}
		r.Failed, r.Why = rule.why(u)
		add(r)
	}
	add(GroupRuleTrace{Action: g.DefaultAction()})
	return traces
}

// DefaultAction is what happens when no rule matches.
func (g *GroupPolicy) DefaultAction() GroupAction {
	if !g.HasRules && g.MaxRestarts == nil {
		return FailGroup
	}
	return RestartGroup
}

// why names the first field that does not hold for the unit, and explains it; "" if the rule matches.
func (r *GroupRule) why(u *UnitFailure) (field, why string) {
	switch {
	case !listed(r.OnReasons, u.Reason):
		return "onReasons", fmt.Sprintf("reason %s not among %s", u.Reason, reasonNames(r.OnReasons))
	case !listed(r.Parts, u.Part):
		return "parts", fmt.Sprintf("part %s not among %s", u.Part, r.Parts)
	case r.OnMessage == nil:
		return "", ""
	case u.Run == nil:
		return "onMessage", "no run failed"
	case !u.Run.hasMessage(r.OnMessage) && !u.Run.speaks():
		return "onMessage", "the failure has no message"
	case !u.Run.hasMessage(r.OnMessage):
		return "onMessage", fmt.Sprintf("no message matches %q", r.OnMessage.re)
	}
	return "", ""
}

func reasonNames(reasons []UnitReason) []string { // as bytes, they would print as text
	var names []string
	for _, r := range reasons {
		names = append(names, r.String())
	}
	return names
}

// speaks reports whether a failure has a message that rules of groups see.
func (f *Failure) speaks() bool {
	return f.Message != "" || slices.ContainsFunc(f.Containers, func(c Container) bool { return !c.Init && c.Message != "" })
}
