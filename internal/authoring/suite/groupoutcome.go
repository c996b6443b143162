package suite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
)

// GroupOutcome is what an event did to a group, and what the group is after it.
type GroupOutcome struct {
	// Ended is what followed for the units that ended: of the decision, if it failed its unit, and of units that ended
	// without a failed run.
	Ended []chain.GroupVerdict
	// Ladder is how the first of them was found.
	Ladder []policy.GroupRuleTrace
	// What the event did to which members, as a test names them.
	Restarted, Held, Unheld, Stopped []string

	Policy       string
	State        policy.GroupState
	Reason       policy.UnitReason
	Used, Max    uint32 // counted restarts
	Units        []UnitOutcome
	UnitsChanged []UnitOutcome // those of which the event changed the state

	roster  *roster
	reached []string // of the group policy, for coverage
}

// UnitOutcome is a unit after an event.
type UnitOutcome struct {
	Part       string
	Replica    uint32
	State      group.UnitState
	Generation uint32
}

// Name is the unit's name in a test.
func (u *UnitOutcome) Name() string { return fmt.Sprintf("%s/%d", u.Part, u.Replica) }

// StateName is the name of the unit's state in a test.
func (u *UnitOutcome) StateName() string { return unitStates[u.State] }

var unitStates = [...]string{group.Active: "Active", group.Succeeded: "Succeeded", group.Failed: "Failed"}

// value formats a field as a test would write it; a list joined by ", ".
func (g *GroupOutcome) value(field string) string {
	of := func(name func(*chain.GroupVerdict) string) string {
		var all []string
		for i := range g.Ended {
			if s := name(&g.Ended[i]); !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
		if s := list(all); s != "" {
			return s
		}
		return none
	}
	switch field {
	case "unitReason":
		return of(func(v *chain.GroupVerdict) string { return orNone(v.Reason.String()) })
	case "groupAction":
		return of(func(v *chain.GroupVerdict) string { return orNone(v.Action.String()) })
	case "groupRule":
		return of(func(v *chain.GroupVerdict) string { return orNone(v.Rule) })
	case "restarts":
		return fmt.Sprintf("%d/%d", g.Used, g.Max)
	case "restarted", "held", "released", "stopped":
		return list(g.changed(field))
	case "group":
		return g.State.String()
	case "groupReason":
		return orNone(g.Reason.String())
	case "why":
		return of(func(v *chain.GroupVerdict) string { return audit.GroupSentence(v, "") })
	}
	kind, name, _ := strings.Cut(field, ".")
	s, _ := parseSelection(name)
	var all []string
	for i := range g.Units {
		u := &g.Units[i]
		if u.Part != s.part || !s.replicas.has(u.Replica) {
			continue
		}
		is := u.StateName()
		if kind == "generations" {
			is = strconv.FormatUint(uint64(u.Generation), 10)
		}
		if !slices.Contains(all, is) {
			all = append(all, is)
		}
	}
	return orNone(list(all))
}

func (g *GroupOutcome) changed(field string) []string {
	switch field {
	case "restarted":
		return g.Restarted
	case "held":
		return g.Held
	case "released":
		return g.Unheld
	}
	return g.Stopped
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

// expectation lists the fields that a test of the event would expect.
func (g *GroupOutcome) expectation() []string {
	var fields []string
	add := func(field string) { fields = append(fields, field+": "+written(field, g.value(field))) }
	if len(g.Ended) > 0 {
		for _, field := range []string{"unitReason", "groupAction", "groupRule", "restarts"} {
			add(field)
		}
	}
	for _, field := range []string{"restarted", "held", "released", "stopped"} {
		if len(g.changed(field)) > 0 {
			add(field)
		}
	}
	add("group")
	if g.Reason != policy.NoUnitReason {
		add("groupReason")
	}
	var units []string
	for i := range g.UnitsChanged {
		u := &g.UnitsChanged[i]
		units = append(units, u.Name()+": "+u.StateName())
	}
	if units != nil {
		fields = append(fields, "units: {"+list(units)+"}")
	}
	return fields
}

// isMembers reports whether the value of a field is a list of members.
func isMembers(field string) bool {
	return field == "restarted" || field == "held" || field == "released" || field == "stopped"
}

// acceptsMembers compares sets of members, however they are written.
func acceptsMembers(field string, items Members) func(o *Outcome, _ int64) bool {
	return func(o *Outcome, _ int64) bool {
		found, err := o.Group.roster.find(items, false)
		return err == nil && slices.Equal(o.Group.roster.names(found), o.Group.changed(field))
	}
}

// acceptsGroup returns what is wrong with the written value of a field of a group, and the fix.
func acceptsGroup(field, written string) (message, fix string) {
	switch field {
	case "unitReason":
		if _, ok := policy.ParseUnitReason(written); !ok && written != none {
			return oneOf(written, UnitReasons()...), "use none or a reason such as BackoffLimitExceeded"
		}
	case "groupAction":
		if _, ok := policy.ParseGroupAction(written); !ok && written != none {
			return oneOf(written, GroupActions()...), "use none, FailGroup, RestartGroup, RestartPart, RestartUnit, Leave or Halt"
		}
	case "restarts":
		used, most, both := strings.Cut(written, "/")
		_, err := strconv.ParseUint(used, 10, 32)
		_, err2 := strconv.ParseUint(most, 10, 32)
		if !both || err != nil || err2 != nil {
			return "not the restarts of a group", "write USED/MAX, such as 1/10"
		}
	case "group":
		return oneOf(written, "Active", "Succeeded", "Failed", "Halted"), "use Active, Succeeded, Failed or Halted"
	case "groupReason":
		if _, ok := policy.ParseUnitReason(written); !ok && written != none {
			known := append(UnitReasons(), policy.ReachedMaxRestarts.String(), policy.Exhausted.String())
			return oneOf(written, known...), "use none or a reason such as ReachedMaxRestarts"
		}
	}
	return "", ""
}

// checkUnit returns what is wrong with what is expected of a unit.
func checkUnit(field, written string) (message, fix string) {
	if field == "units" {
		return oneOf(written, unitStates[:]...), "use Active, Succeeded or Failed"
	}
	if _, err := strconv.ParseUint(written, 10, 32); err != nil {
		return "not a number of restarts", "write a number, such as 1"
	}
	return "", ""
}

// UnitReasons lists the reasons for which units fail.
func UnitReasons() []string { return policy.Names(policy.PodFailurePolicy, policy.MemberCancelled) }

// GroupActions lists what can happen to a group when a unit has failed.
func GroupActions() []string { return policy.Names(policy.FailGroup, policy.Halt) }

// GroupRuleTraceText formats one rule of a group's ladder in one line.
func GroupRuleTraceText(policyName string, r policy.GroupRuleTrace) string {
	name := policyName + "/" + r.Rule
	switch r.Rule {
	case "":
		name = policyName + ": no rule matches"
	case policy.RestartsRule:
		name = policyName + ": restarts of the unit"
	}
	switch {
	case r.Matched:
		return fmt.Sprintf("✓ %s: %s", name, r.Action)
	case !r.Tried:
		return fmt.Sprintf("· %s not tried", name)
	}
	return fmt.Sprintf("✗ %s %s: %s", name, r.Failed, r.Why)
}

func unitName(m *chain.Member) string { return fmt.Sprintf("%s/%d", m.Part, m.Replica) }

// outcome collects what the records of an event say about the group.
func (t *Trial) outcome(records []chain.Record, decided *Outcome) *GroupOutcome {
	out := &GroupOutcome{Policy: t.last.Policy, State: t.last.State, Reason: t.last.Reason, roster: t.roster}
	var restarted, held, unheld, stopped []place
	anew := decided.Decision == nil || decided.Decision.Code != policy.GangRetry // else a gang was restarted, and counts go on
	ended := func(m *chain.Member, v *chain.GroupVerdict, run *policy.Failure, succeeded bool) {
		u := &policy.UnitFailure{
			Policy: t.group.Policy, Part: m.Part, Reason: v.Reason, Succeeded: succeeded, Run: run, Halted: t.halted,
			Barred: !t.set.Restarts(t.queue), UnitRestarts: t.byUnits[unitName(m)],
		}
		if len(out.Ended) == 0 && u.Policy != "" {
			out.Ladder = t.set.UnitLadder(u)
		}
		out.Ended = append(out.Ended, *v)
		switch {
		case v.Rule == policy.RestartsRule:
			out.reached = append(out.reached, restartsOf(m.Part))
		case v.Rule != "":
			out.reached = append(out.reached, v.Rule)
		case !u.Halted && !u.Barred:
			out.reached = append(out.reached, byDefault)
		}
		if v.Rule == policy.RestartsRule && v.Action.Restarts() && !v.Noted {
			t.byUnits[unitName(m)]++
		}
		t.halted = t.halted || v.Action == policy.Halt && !v.Noted
	}
	for _, r := range records {
		switch r := r.(type) {
		case *chain.Decision:
			if r.Group != nil {
				ended(r.Member, r.Group, &decided.Why.Facts, false)
			}
		case *chain.UnitEnded:
			ended(&r.Member, &r.Verdict, nil, r.Succeeded)
		case *chain.MemberChange:
			p := place{r.Member.Part, r.Member.Replica, r.Member.Index}
			m := t.members[p]
			switch r.Change {
			case chain.MemberJoined: // it follows from the test
			case chain.MemberHeld:
				held = append(held, p)
			case chain.MemberReleased:
				unheld, m.ready = append(unheld, p), max(m.ready, decided.Time)
			case chain.MemberRestart:
				restarted, m.ready = append(restarted, p), r.RetryAfter
				m.noteStopped()
				if n := len(m.earlier); n > 0 && anew {
					m.earlier[n-1].Anew = true
				}
			case chain.MemberStopped:
				stopped = append(stopped, p)
				m.noteStopped()
			}
		}
	}
	out.Restarted, out.Held = t.roster.names(restarted), t.roster.names(held)
	out.Unheld, out.Stopped = t.roster.names(unheld), t.roster.names(stopped)
	t.snapshot(out)
	before := t.last.Units
	for _, u := range out.Units {
		i := slices.IndexFunc(before, func(b UnitOutcome) bool { return b.Part == u.Part && b.Replica == u.Replica })
		if was := group.Active; i >= 0 && before[i].State != u.State || i < 0 && was != u.State {
			out.UnitsChanged = append(out.UnitsChanged, u)
		}
	}
	t.last = *out
	return out
}

// snapshot sets what the group is; once it is forgotten, what it was.
func (t *Trial) snapshot(out *GroupOutcome) {
	out.Used, out.Max, out.Units = t.last.Used, t.last.Max, t.last.Units
	if p := t.set.GroupPolicy(t.group.Policy); p != nil && p.MaxRestarts != nil {
		out.Max = *p.MaxRestarts
	}
	state := t.p.State.Group(t.key)
	if state == nil {
		return
	}
	out.State, out.Used, out.Units = state.State, state.Counted, nil
	if out.Reason = policy.NoUnitReason; state.State != policy.GroupActive {
		out.Reason = state.Reason
	}
	for _, p := range state.Parts {
		for _, u := range p.Units {
			out.Units = append(out.Units, UnitOutcome{Part: p.Name, Replica: u.Replica, State: u.State, Generation: u.Generation})
		}
	}
}
