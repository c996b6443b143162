package group

import (
	"cmp"
	"slices"

	"github.com/refloat/refloat/internal/policy"
)

// Key identifies a group while it is remembered.
type Key struct{ Queue, Set, Name string }

// Group is the state of one group.
type Group struct {
	Key
	Policy string // name of its group policy; "": a gang without one
	Shape  policy.Shape

	State  policy.GroupState
	Halted bool              // an action Halt: nothing that is held is started any more
	Reason policy.UnitReason // of its end; until then, of the action Halt
	Rule   string            // of its end; until then, of the action Halt

	Generation uint32      // restarts of the whole group
	Restarts   uint32      // by rules
	Counted    uint32      // of them, those that count towards maxRestarts
	ByRule     []RuleCount // by name
	LastEvent  int64       // watermark at the last event about it
	Passed     bool        // one horizon has passed since, and it was looked at then
	Refused    bool        // something that would have happened did not: its queue was in shadow, or retries disabled

	Parts []*Part
	gangs map[string]*Unit // by id
}

// RuleCount is the number of restarts by one rule.
type RuleCount struct {
	Rule     string
	Restarts uint32
}

// Part is one part of a group.
type Part struct {
	policy.ShapePart
	Index    int
	Units    []*Unit // those that have had a member, by replica
	Restarts uint32  // of the whole part or group: the generation of a unit without members

	awaited bool // a part is AfterReady this one
	tally   tally
}

// UnitState is the state of a unit.
type UnitState uint8

// The states of a unit. Their numbers are stored.
const (
	Active UnitState = iota
	Succeeded
	Failed // and left so
)

// Unit is the state of one replica of a part.
type Unit struct {
	Part       *Part
	Replica    uint32
	State      UnitState
	GangID     string // "": no gang
	GangSize   uint32
	Generation uint32
	Restarts   uint32   // by `restarts` of the part
	Retries    uint32   // granted to its members, against retryLimit
	Changed    int64    // time of the last event by which a member was over, Unix nanoseconds
	Members    []Member // those submitted, by index
	Dirty      bool     // changed since it was stored
	Touched    bool     // by the current message
	Fresh      bool     // it succeeded in the current message

	queued    bool  // in the queue of units with members to release
	firstHeld int32 // no member at an earlier place in Members is held
	counts    counts
	byRule    []counts // of the members of each success rule
}

// Member is one job of a unit.
type Member struct {
	Index  uint32
	Status Status
	dirty  bool // changed since it was stored
	Job    string
}

// Status is what a unit knows of a member: a set of facts.
type Status uint8

// The facts. Their numbers are stored.
const (
	Held           Status = 1 << iota // it may not start yet
	HasSucceeded                      // over
	HasFailed                         // over: failed for good
	WasCancelled                      // over, and never restarted: cancelled or rejected
	WasStopped                        // over: stopped with its unit or group
	FailedInShadow                    // its latest run was decided in shadow, as failed for good
	Running                           // its latest run is; known in parts that another one is AfterReady
)

const (
	over     = HasSucceeded | HasFailed | WasCancelled | WasStopped
	statuses = 1 << 7
)

// Valid reports whether the status has no unknown fact.
func (s Status) Valid() bool { return s < statuses }

// Over reports whether the member is over.
func (s Status) Over() bool { return s&over != 0 }

// Started reports whether the member is neither held nor over.
func (s Status) Started() bool { return s&(over|Held) == 0 }

// New returns the state of a group without members.
func New(key Key, policyName string, shape policy.Shape) *Group {
	g := &Group{Key: key, Policy: policyName, Shape: shape}
	if shape.Open() {
		g.Parts = []*Part{{ShapePart: policy.ShapePart{Name: policy.MainPart, Replicas: 1}}}
		return g
	}
	for i, p := range shape.Parts {
		g.Parts = append(g.Parts, &Part{ShapePart: p, Index: i})
	}
	for _, p := range shape.Parts {
		for _, i := range p.AfterReady {
			g.Parts[i].awaited = true
		}
	}
	return g
}

// Part returns the part of that name, or nil.
func (g *Group) Part(name string) *Part {
	for _, p := range g.Parts {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Unit returns a replica, or nil if it has had no member.
func (p *Part) Unit(replica uint32) *Unit {
	if i, ok := p.find(replica); ok {
		return p.Units[i]
	}
	return nil
}

func (p *Part) find(replica uint32) (int, bool) {
	return slices.BinarySearchFunc(p.Units, replica, func(u *Unit, r uint32) int { return cmp.Compare(u.Replica, r) })
}

// Put adds a unit without members that the part of the group does not have.
func (g *Group) Put(p *Part, u *Unit) {
	if u.GangID != "" {
		if g.gangs == nil {
			g.gangs = map[string]*Unit{}
		}
		g.gangs[u.GangID] = u
	}
	i, _ := p.find(u.Replica)
	u.Part = p
	if len(p.SuccessRules) > 0 {
		u.byRule = make([]counts, len(p.SuccessRules))
	}
	p.Units = slices.Insert(p.Units, i, u)
	p.count(u, 1)
}

// Member returns the member with an index, or nil.
func (u *Unit) Member(index uint32) *Member {
	if i, ok := u.find(index); ok {
		return &u.Members[i]
	}
	return nil
}

func (u *Unit) find(index uint32) (int, bool) {
	if n := len(u.Members); n == 0 || u.Members[n-1].Index < index {
		return n, false
	}
	return slices.BinarySearchFunc(u.Members, index, func(m Member, i uint32) int { return cmp.Compare(m.Index, i) })
}

// Add adds a member that the unit does not have. It moves others.
func (u *Unit) Add(m Member) {
	u.Part.count(u, -1)
	i, _ := u.find(m.Index)
	u.Members = slices.Insert(u.Members, i, m)
	u.firstHeld = min(u.firstHeld, int32(i))
	u.Part.countMember(u, &m, 1)
	u.Part.count(u, 1)
	u.Part.mark(u, &u.Members[i])
}

// NextFree returns the smallest index that no member has.
func (u *Unit) NextFree() uint32 {
	n := len(u.Members)
	if n == 0 || u.Members[n-1].Index == uint32(n-1) {
		return uint32(n)
	}
	// Indexes are distinct and ascending, so before the first gap each equals its place.
	low, high := 0, n
	for low < high {
		if mid := (low + high) / 2; u.Members[mid].Index == uint32(mid) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return uint32(low)
}

// Set changes the status of a member.
func (u *Unit) Set(m *Member, s Status) {
	if s == m.Status {
		return
	}
	if s.held() {
		i, _ := u.find(m.Index)
		u.firstHeld = min(u.firstHeld, int32(i))
	}
	u.Part.count(u, -1)
	u.Part.countMember(u, m, -1)
	m.Status = s
	u.Part.countMember(u, m, 1)
	u.Part.count(u, 1)
	u.Part.mark(u, m)
}

// SetState changes the state of a unit.
func (u *Unit) SetState(s UnitState) {
	u.Part.count(u, -1)
	u.State = s
	u.Part.count(u, 1)
}

// Started returns how many members are neither held nor over.
func (u *Unit) Started() int { return len(u.Members) - u.Held() - u.Over() }

// NextHeld returns the held member with the smallest index, or nil.
func (u *Unit) NextHeld() *Member {
	for ; int(u.firstHeld) < len(u.Members); u.firstHeld++ {
		if m := &u.Members[u.firstHeld]; m.Status.held() {
			return m
		}
	}
	return nil
}

// Held returns how many members are held.
func (u *Unit) Held() int { return int(u.counts.held) }

func (s Status) held() bool { return s&Held != 0 && !s.Over() }

// Over returns how many members are over.
func (u *Unit) Over() int { return int(u.counts.over) }

// AllOver reports whether every member that was submitted is over.
func (u *Unit) AllOver() bool { return u.Over() == len(u.Members) }

// Succeeded returns how many members succeeded.
func (u *Unit) Succeeded() int { return int(u.counts.succeeded) }

// Failed returns how many members failed for good.
func (u *Unit) Failed() int { return int(u.counts.failed) }

// declared returns how many members the unit has in all; 0: that is open.
func (u *Unit) declared() int { return int(u.Part.Members) }

// Complete reports whether every declared member was submitted; a unit of open size never
// is.
func (u *Unit) Complete() bool { return u.declared() > 0 && len(u.Members) >= u.declared() }

// CanReach reports whether cancellations leave enough members for the unit to succeed,
// now, or after a restart that keeps members that succeeded or runs them again.
func (u *Unit) CanReach(afterRestart, keep bool) bool {
	if afterRestart && u.GangID != "" && u.HasCancelled() {
		return false // a gang restarts as a whole
	}
	lost := func(c *counts) int {
		if afterRestart && !keep {
			return int(c.cancelled)
		}
		return int(c.lost)
	}
	if u.declared()-lost(&u.counts) >= int(u.Part.MinMembers) || u.declared() == 0 {
		return true
	}
	for i := range u.byRule {
		if r := &u.Part.SuccessRules[i]; int(r.Indexes.Len())-lost(&u.byRule[i]) >= int(r.Count) {
			return true
		}
	}
	return false
}

// HasCancelled reports whether a member was cancelled or rejected.
func (u *Unit) HasCancelled() bool { return u.counts.cancelled > 0 }

// Size returns how many members are known.
func (g *Group) Size() int {
	n := 0
	for _, p := range g.Parts {
		n += p.tally.members
	}
	return n
}

// AllOver reports whether every known member is over.
func (g *Group) AllOver() bool {
	return g.all(func(t *tally) bool { return int(t.counts.over) == t.members })
}

// Quiet is AllOver, where a member whose failure was decided in shadow is over too.
func (g *Group) Quiet() bool { return g.all(func(t *tally) bool { return t.quiet == t.members }) }

// Idle reports whether no member is started, where one whose failure was decided in shadow
// is not.
func (g *Group) Idle() bool {
	return g.all(func(t *tally) bool { return t.active == 0 })
}

// AllSucceeded reports whether every known member succeeded.
func (g *Group) AllSucceeded() bool {
	return g.all(func(t *tally) bool { return int(t.counts.succeeded) == t.members })
}

// noneStarted reports whether every known member is held or over.
func (g *Group) noneStarted() bool {
	return g.all(func(t *tally) bool { return int(t.counts.over+t.counts.held) == t.members })
}

// all reports whether the tallies of all parts are like that.
func (g *Group) all(is func(*tally) bool) bool {
	for _, p := range g.Parts {
		if !is(&p.tally) {
			return false
		}
	}
	return true
}

// CanReach reports whether every unit that an action restarts could then succeed.
func (g *Group) CanReach(u *Unit, a policy.GroupAction, keep bool) bool {
	if a == policy.RestartUnit {
		return u.CanReach(true, keep)
	}
	for _, p := range g.Parts {
		if p.tally.unreachable[index(keep)] > 0 && (a == policy.RestartGroup || p == u.Part) {
			return false
		}
	}
	return true
}

// Scope returns the units that an action restarts, in order: those that may have members
// to restart.
func (g *Group) Scope(u *Unit, a policy.GroupAction, keep bool) []*Unit {
	if a == policy.RestartUnit {
		return []*Unit{u}
	}
	var scope []*Unit
	for _, p := range g.Parts {
		if a == policy.RestartPart && p != u.Part {
			continue
		}
		for _, other := range p.Units {
			if !keep || other.State != Succeeded {
				scope = append(scope, other)
			}
		}
	}
	return scope
}

// NewGeneration counts a restart in the generations of what an action restarts, and returns
// the units that it changed.
// With keep, a restart of a part leaves out units that succeeded; one of the group is for all.
func (g *Group) NewGeneration(u *Unit, a policy.GroupAction, keep bool) (changed []*Unit) {
	if a == policy.RestartUnit {
		u.Generation++
		return []*Unit{u}
	}
	if a == policy.RestartGroup {
		g.Generation++
	}
	for _, p := range g.Parts {
		if a == policy.RestartPart && p != u.Part {
			continue
		}
		p.Restarts++
		for _, other := range p.Units {
			if a == policy.RestartGroup || !keep || other.State != Succeeded {
				other.Generation++
				changed = append(changed, other)
			}
		}
	}
	return changed
}

// Restarted returns how often a rule restarted something.
func (g *Group) Restarted(rule string) uint32 {
	if i, ok := g.findRule(rule); ok {
		return g.ByRule[i].Restarts
	}
	return 0
}

// CountRestart counts a restart by a rule.
func (g *Group) CountRestart(rule string) {
	g.Restarts++
	i, ok := g.findRule(rule)
	if !ok {
		g.ByRule = slices.Insert(g.ByRule, i, RuleCount{Rule: rule})
	}
	g.ByRule[i].Restarts++
}

func (g *Group) findRule(rule string) (int, bool) {
	return slices.BinarySearchFunc(g.ByRule, rule, func(c RuleCount, r string) int { return cmp.Compare(c.Rule, r) })
}

// UnitOfGang returns the unit that a gang is, or nil.
func (g *Group) UnitOfGang(id string) *Unit { return g.gangs[id] }
