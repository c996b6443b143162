package policy

import (
	"slices"
	"time"
)

// Acts reports whether groups act on a queue: neither is it in shadow, nor are retries
// disabled (semantics.md 12.9).
func (s *Set) Acts(queue string) bool { return s.enabled && !s.queue(queue).shadow }

// Restarts reports whether groups of a queue may restart anything: not while retries are
// disabled or killed (semantics.md 12.4.3).
func (s *Set) Restarts(queue string) bool {
	return s.enabled && s.globalMax > 0 && !s.queue(queue).killed
}

// PausedUntil returns when a queue's retries are no longer paused, in Unix nanoseconds.
func (s *Set) PausedUntil(queue string) int64 { return s.queue(queue).pausedUntil }

// TerminationSlack returns what is added to every grace period (semantics.md 6).
func (s *Set) TerminationSlack() time.Duration { return s.terminationSlack }

// UnitSettings returns what the group policy in force says about the units of a part; without
// one, nothing.
func (s *Set) UnitSettings(policy, part string) PartDefinition {
	g := s.groups[policy]
	if g == nil {
		return PartDefinition{}
	}
	for i := range g.Parts {
		if g.Parts[i].Name == part {
			return g.Parts[i]
		}
	}
	return PartDefinition{Restarts: g.Restarts}
}

// UnitFailure is a unit that failed, or that succeeded although it runs again.
type UnitFailure struct {
	Policy, Part string
	Succeeded    bool
	Reason       UnitReason
	Run          *Failure // the run that failed it; nil: no run failed it
	UnitRestarts uint32   // of the unit, by its restarts
	Counted      uint32   // of the group
	Restarted    func(rule string) uint32
	AllRestarts  uint32 // of the group, by rules
	Halted       bool
	Barred       bool // nothing may be restarted: retries are disabled or killed; before version 4 of the semantics, also while they are paused
	// CanReach reports whether every unit that an action restarts could still succeed.
	CanReach func(a GroupAction, keep bool) bool
}

// UnitVerdict is what a group policy does about it (semantics.md 12.5).
type UnitVerdict struct {
	Action GroupAction // NoGroupAction: nothing
	Rule   string
	Used   uint32 // restarts that count, after this
	Max    uint32
	Keep   bool
	// Blocking: all members that Action restarts start at the same time, the latest of theirs.
	Blocking bool
	Refused  bool          // Action is FailGroup, because the restart of Rule was over a limit
	Delay    time.Duration // of a restart
}

// UnitEnded returns what the group policy in force does about a unit.
func (s *Set) UnitEnded(u *UnitFailure) UnitVerdict {
	g := s.groups[u.Policy]
	if g == nil {
		g = &GroupPolicy{}
	}
	v := UnitVerdict{Used: u.Counted, Max: or(g.MaxRestarts, 0), Keep: g.Keep, Blocking: g.Blocking}
	restarts := s.UnitSettings(u.Policy, u.Part).Restarts
	if u.Succeeded {
		if restarts.On == RestartAlways && u.UnitRestarts < restarts.Limit && !u.Halted && !u.Barred && u.CanReach(RestartUnit, false) {
			v.restartUnit(u, &restarts)
			v.Keep = false // all of its members succeeded, and run again
		}
		return v
	}
	switch {
	case u.Halted || u.Barred:
		v.Action = Leave
	case restarts.remain(u):
		if v.restartUnit(u, &restarts); !u.CanReach(RestartUnit, v.Keep) {
			v.Action, v.Delay = Leave, 0
		}
	default:
		v.byRules(g, u)
	}
	return v
}

// restartUnit restarts the unit by its own restarts.
func (v *UnitVerdict) restartUnit(u *UnitFailure, r *UnitRestarts) {
	v.Action, v.Rule = RestartUnit, RestartsRule
	v.Delay = r.Backoff.delay(uint64(u.UnitRestarts)+1, u.Run)
}

// RuleOf returns the place of the rule by which UnitEnded decides about a unit that failed: after the last one,
// that of the default. false: it does not ask the rules.
func (s *Set) RuleOf(u *UnitFailure) (place int, asked bool) {
	restarts := s.UnitSettings(u.Policy, u.Part).Restarts
	if u.Halted || u.Barred || restarts.remain(u) {
		return 0, false
	}
	if g := s.groups[u.Policy]; g != nil {
		place = g.firstRule(u)
	}
	return place, true
}

// remain reports whether some are for a unit that failed.
func (r *UnitRestarts) remain(u *UnitFailure) bool {
	return r.On != RestartNever && u.UnitRestarts < r.Limit
}

// firstRule returns the place of the first rule that matches, or how many there are.
func (g *GroupPolicy) firstRule(u *UnitFailure) int {
	for i := range g.Rules {
		if g.Rules[i].matches(u) {
			return i
		}
	}
	return len(g.Rules)
}

// byRules asks the rules of the group policy.
func (v *UnitVerdict) byRules(g *GroupPolicy, u *UnitFailure) {
	rule := GroupRule{Action: g.DefaultAction()}
	if i := g.firstRule(u); i < len(g.Rules) {
		rule = g.Rules[i]
	}
	v.Action, v.Rule = rule.Action, rule.Name
	if !rule.Action.Restarts() {
		return
	}
	switch {
	case !u.CanReach(rule.Action, v.Keep):
		v.Action = Leave
	case !rule.Uncounted && u.Counted >= v.Max, rule.Limit != nil && u.Restarted(rule.Name) >= *rule.Limit:
		v.Action, v.Refused = FailGroup, true
	default:
		if !rule.Uncounted {
			v.Used++
		}
		v.Delay = g.Backoff.delay(uint64(u.AllRestarts)+1, u.Run)
	}
}

// matches reports whether the rule applies to a unit that failed.
func (r *GroupRule) matches(u *UnitFailure) bool {
	return listed(r.OnReasons, u.Reason) && listed(r.Parts, u.Part) && (r.OnMessage == nil || u.Run != nil && u.Run.hasMessage(r.OnMessage))
}

// listed reports whether a list is empty or has the value.
func listed[T comparable](list []T, v T) bool {
	return len(list) == 0 || slices.Contains(list, v)
}

// hasMessage reports whether a message of a failure matches: one that onTerminationMessage sees,
// or the pod error's.
func (f *Failure) hasMessage(p *Pattern) bool {
	for i := range f.Containers {
		if c := &f.Containers[i]; !c.Init && c.Message != "" && p.re.MatchString(c.Message) {
			return true
		}
	}
	return f.Message != "" && p.re.MatchString(f.Message)
}

// RestartDelay returns the delay of the n-th restart, n ≥ 1, without jitter and grace.
func (b *Backoff) RestartDelay(n uint64) time.Duration { return b.delay(n, nil) }

// delay returns the delay of the n-th restart. Nothing is inherited: unset, the initial delay
// is 0 s, and the others are as in the settings.
func (b *Backoff) delay(n uint64, run *Failure) time.Duration {
	g := inherit(level{&Overrides{Backoff: *b}, FromRule})
	plain := g.backoff.delay(n)
	if run == nil {
		return plain
	}
	return toDuration(uint64(plain/time.Millisecond) + g.backoff.jitterOf(plain, run.RunID))
}
