package suite

import (
	"reflect"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// behaviour is what a group policy does. Policies whose behaviours are equal cannot be told apart by a test in which
// nothing is restarted or retried more than manyRetries times.
type behaviour struct {
	rest     policy.GroupDefinition // the fields that the others here do not say, as they are
	parts    []partBehaviour
	cells    map[cell][]answer
	max      uint32
	delays   []time.Duration // of restarts by rules
	keep     bool
	blocking bool
	success  policy.Success
	another  bool // a restart is asked for, and another member than the one that failed may have succeeded, or may run
}

// partBehaviour is what follows from the settings of a part.
type partBehaviour struct {
	rest       policy.PartDefinition // the fields that the others here do not say; AfterReady without what follows from After
	after      []bool                // by index of the part, also through others
	retryLimit uint32
	count      bool // failed members against it
	maxFailed  uint32
	on         policy.RestartOn
	limit      uint32
	delays     []time.Duration
}

// cell is one kind of failure of a unit.
type cell struct {
	reason policy.UnitReason
	part   string
}

// answer is what a rule does in a cell. The rules of a cell end with the first one that needs no message.
type answer struct {
	rest      policy.GroupRule // the fields that the others here do not say
	rule      string
	pattern   string // of the message; "": any
	action    policy.GroupAction
	refused   bool // always
	uncounted bool
	limit     uint32
}

// noLimit is a limit that no test reaches.
const noLimit = ^uint32(0)

// reachable returns a limit, or noLimit if it is above what can happen, or in a test be made to happen.
func reachable(limit *uint32, most uint64) uint32 {
	if limit == nil || uint64(*limit) >= min(most, manyRetries) {
		return noLimit
	}
	return *limit
}

// behaviourOf returns what a group policy does among the policies of a set.
func behaviourOf(set *policyfile.Set, g *policy.GroupPolicy) *behaviour {
	b := &behaviour{rest: g.GroupDefinition, cells: map[cell][]answer{}, keep: g.Keep, blocking: g.Blocking, success: successOf(g)}
	b.rest.Name, b.rest.Digest, b.rest.MaxRestarts, b.rest.Backoff, b.rest.Keep, b.rest.Blocking = "", [32]byte{}, nil, policy.Backoff{}, false, false
	b.rest.HasRules, b.rest.Rules, b.rest.Restarts, b.rest.Parts, b.rest.Success = false, nil, policy.UnitRestarts{}, nil, policy.Success{}
	if g.MaxRestarts != nil {
		b.max = *g.MaxRestarts
	}
	retries, failUnit := abilities(set)
	members, restarts := uint64(0), false
	all := partsOf(g)
	for i := range all {
		p := partBehaviourOf(all, i, retries)
		b.parts = append(b.parts, p)
		members += uint64(p.rest.Replicas) * uint64(p.rest.Members)
		restarts = restarts || p.limit > 0
		if p.limit > manyRetries {
			continue // the rules are not asked before
		}
		for reason := policy.PodFailurePolicy; reason <= policy.MemberCancelled; reason++ {
			if p.failsBy(reason, failUnit) {
				b.cells[cell{reason, p.rest.Name}] = b.answers(g, reason, p.rest.Name, reason != policy.MemberCancelled || retries > 0)
			}
		}
	}
	n := b.granted()
	for i := range n {
		b.delays = append(b.delays, g.Backoff.RestartDelay(i+1))
	}
	b.another = (restarts || b.asksRestart()) && members != 1
	return b
}

// successOf returns when a group has succeeded: of one unit, any is all.
func successOf(g *policy.GroupPolicy) policy.Success {
	s, units := g.Success, uint32(0)
	if len(s.Parts) == len(g.Parts) {
		s.Parts = nil
	}
	for i := range g.Parts {
		if len(s.Parts) == 0 || slices.Contains(s.Parts, uint32(i)) {
			units += g.Parts[i].Replicas
		}
	}
	s.Any = s.Any && units > 1
	return s
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// abilities returns how many retries the policies of a set give one member at most, and for which reasons they fail units.
func abilities(set *policyfile.Set) (retries uint64, failUnit map[policy.UnitReason]bool) {
	failUnit = map[policy.UnitReason]bool{}
	for _, o := range set.Outlines() {
		for _, r := range append(slices.Clone(o.Rules), o.Default) {
			if r.Action == "Retry" {
				retries = max(retries, uint64(r.MaxRetries))
			}
			if r.UnitReason != policy.NoUnitReason {
				failUnit[r.UnitReason] = true
			}
		}
	}
	return retries, failUnit
}

func partBehaviourOf(all []policy.PartDefinition, i int, retries uint64) partBehaviour {
	p := &all[i]
	b := partBehaviour{
		rest: *p, after: make([]bool, len(all)),
		retryLimit: reachable(p.RetryLimit, uint64(p.Members)*(retries+uint64(oneIf(p.CountFailed)))), maxFailed: reachable(p.MaxFailedMembers, uint64(p.Members)),
	}
	b.rest.After, b.rest.RetryLimit, b.rest.CountFailed, b.rest.MaxFailedMembers, b.rest.Restarts = nil, nil, false, nil, policy.UnitRestarts{}
	b.count = p.CountFailed && p.Continue && b.retryLimit != noLimit
	if p.Parallelism >= p.Members {
		b.rest.Parallelism = 0
	}
	var visit func(k int)
	visit = func(k int) {
		for _, before := range all[k].After {
			if !b.after[before] {
				b.after[before] = true
				visit(int(before))
			}
		}
	}
	visit(i)
	b.rest.AfterReady = slices.DeleteFunc(slices.Clone(p.AfterReady), func(before uint32) bool { return b.after[before] })
	if len(b.rest.AfterReady) == 0 {
		b.rest.AfterReady = nil
	}
	if p.Restarts.On != policy.RestartNever && p.Restarts.Limit > 0 {
		b.on, b.limit = p.Restarts.On, min(p.Restarts.Limit, manyRetries+1)
		for n := range b.limit {
			b.delays = append(b.delays, p.Restarts.Backoff.RestartDelay(uint64(n)+1))
		}
	}
	return b
}

// failsBy reports whether a unit can fail for the reason.
func (p *partBehaviour) failsBy(reason policy.UnitReason, failUnit map[policy.UnitReason]bool) bool {
	if failUnit[reason] {
		return true
	}
	switch reason {
	case policy.UnitDeadlineExceeded:
		return !p.rest.Continue
	case policy.BackoffLimitExceeded:
		return !p.rest.Continue || p.retryLimit != noLimit
	case policy.MaxFailedIndexesExceeded:
		return p.rest.Continue && p.maxFailed != noLimit
	case policy.FailedIndexes:
		return p.rest.Continue
	case policy.MemberCancelled:
		return true
	case policy.NoUnitReason, policy.PodFailurePolicy, policy.ReachedMaxRestarts, policy.Exhausted:
	}
	return false
}

// answers lists what the rules do in a cell. In some, no run has failed, so that no message matches.
func (b *behaviour) answers(g *policy.GroupPolicy, reason policy.UnitReason, part string, failed bool) []answer {
	var all []answer
	for i := range g.Rules {
		r := &g.Rules[i]
		pattern := ""
		if r.OnMessage != nil {
			pattern = r.OnMessage.String()
		}
		switch {
		case len(r.OnReasons) > 0 && !slices.Contains(r.OnReasons, reason), len(r.Parts) > 0 && !slices.Contains(r.Parts, part):
		case r.OnMessage != nil && !failed:
		case slices.ContainsFunc(all, func(a answer) bool { return a.pattern == pattern }): // that one matches before
		default:
			all = append(all, b.answer(r, reason, pattern))
			if pattern == "" {
				return all
			}
		}
	}
	return append(all, b.answer(&policy.GroupRule{Action: g.DefaultAction()}, reason, ""))
}

func (b *behaviour) answer(r *policy.GroupRule, reason policy.UnitReason, pattern string) answer {
	a := answer{rest: *r, rule: r.Name, pattern: pattern, action: r.Action, limit: noLimit}
	a.rest.Name, a.rest.Action, a.rest.Uncounted, a.rest.Limit = "", 0, false, nil
	a.rest.OnReasons, a.rest.OnMessage, a.rest.Parts = nil, nil, nil
	switch {
	case !r.Action.Restarts():
	case reason == policy.MemberCancelled:
		a.action = policy.Leave // its unit could not succeed any more
	case r.Limit != nil && *r.Limit == 0, !r.Uncounted && b.max == 0:
		a.refused = true
	case r.Uncounted:
		a.uncounted, a.limit = true, reachable(r.Limit, manyRetries)
	default:
		a.limit = reachable(r.Limit, uint64(b.max))
	}
	return a
}

// asksRestart reports whether a rule restarts something, or would if it were not refused.
func (b *behaviour) asksRestart() bool {
	for _, answers := range b.cells { // in any order: whether there is one
		if slices.ContainsFunc(answers, func(a answer) bool { return a.action.Restarts() }) {
			return true
		}
	}
	return false
}

// granted returns how many restarts the rules grant at most, as far as tests go.
func (b *behaviour) granted() uint64 {
	counted, uncounted := uint64(0), map[string]uint64{}
	for _, answers := range b.cells { // in any order: sums
		for _, a := range answers {
			switch {
			case !a.action.Restarts() || a.refused:
			case a.uncounted:
				uncounted[a.rule] = uint64(a.limit)
			default:
				counted = uint64(b.max)
			}
		}
	}
	n := counted
	for _, limit := range uncounted { // in any order: a sum
		n += limit
	}
	return min(n, manyRetries)
}

// reachesDefault reports whether a unit can fail so that no rule matches.
func (b *behaviour) reachesDefault() bool {
	for _, answers := range b.cells { // in any order: whether there is one
		if answers[len(answers)-1].rule == "" {
			return true
		}
	}
	return false
}

// equal reports whether no test can tell the policies apart.
func (b *behaviour) equal(c *behaviour) bool {
	return b.max == c.max && (b.keep == c.keep && b.blocking == c.blocking || !b.another && !c.another) && slices.Equal(b.delays, c.delays) &&
		reflect.DeepEqual(b.parts, c.parts) && reflect.DeepEqual(b.success, c.success) && reflect.DeepEqual(b.cells, c.cells) && reflect.DeepEqual(b.rest, c.rest)
}
