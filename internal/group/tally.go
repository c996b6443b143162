package group

import "container/heap"

// tally is what follows from the units of a part. It is kept up to date with each change,
// so that no message costs as much as the part is large.
type tally struct {
	members     int
	quiet       int // over, or failed in shadow
	active      int // started, and did not fail in shadow
	counts      counts
	units       [unitKinds]int
	ready       int        // units that are; only if the part is awaited
	unreachable [2]int     // units that a restart could not make succeed: one that reruns all members, and one that keeps
	releasable  unitHeap   // may have members to release
	changed     []memberAt // since they were stored
}

// counts is the number of members of some kinds. (Unit has one: it must be small.)
type counts struct {
	held, over, succeeded, failed, cancelled int32
	lost                                     int32 // cancelled, and had not succeeded
	running                                  int32
}

func (c *counts) add(s Status, n int32) {
	if s.held() {
		c.held += n
	}
	if s.Over() {
		c.over += n
	}
	if s&HasSucceeded != 0 {
		c.succeeded += n
	}
	if s.Started() && s&Running != 0 {
		c.running += n
	}
	if s&HasFailed != 0 {
		c.failed += n
	}
	if s&WasCancelled != 0 {
		c.cancelled += n
		if s&HasSucceeded == 0 {
			c.lost += n
		}
	}
}

type memberAt struct {
	unit  *Unit
	index uint32
}

// unitKind is what a unit can do next.
type unitKind uint8

const (
	isSucceeded  unitKind = iota
	isRunning             // a member is started
	awaitsOrHeld          // lacks members, and others are held
	awaits                // lacks members
	hasHeld               // members are held
	isIdle                // nothing
	unitKinds
)

func (u *Unit) kind() unitKind {
	switch {
	case u.State == Succeeded:
		return isSucceeded
	case u.State == Failed:
		return isIdle
	case u.Started() > 0:
		return isRunning
	case !u.Complete() && u.Held() > 0:
		return awaitsOrHeld
	case !u.Complete():
		return awaits
	case u.Held() > 0:
		return hasHeld
	}
	return isIdle
}

// index is that of a restart in tally.unreachable.
func index(keep bool) int {
	if keep {
		return 1
	}
	return 0
}

// count adds a unit to the tally, or removes it before it changes.
func (p *Part) count(u *Unit, n int) {
	t := &p.tally
	t.units[u.kind()] += n
	if p.awaited && u.ready() {
		t.ready += n
	}
	if u.counts.cancelled > 0 {
		if !u.CanReach(true, false) {
			t.unreachable[index(false)] += n
		}
		if u.State != Succeeded && !u.CanReach(true, true) {
			t.unreachable[index(true)] += n
		}
	}
	if n > 0 && !u.queued && u.CanUnhold() {
		u.queued = true
		heap.Push(&t.releasable, u)
	}
}

// countMember counts a member's status in its unit and part, or discounts it.
func (p *Part) countMember(u *Unit, m *Member, n int32) {
	t, s := &p.tally, m.Status
	u.counts.add(s, n)
	for i := range u.byRule {
		if p.SuccessRules[i].Indexes.Has(m.Index) {
			u.byRule[i].add(s, n)
		}
	}
	t.counts.add(s, n)
	t.members += int(n)
	if s.Over() || s&FailedInShadow != 0 {
		t.quiet += int(n)
	}
	if s.Started() && s&FailedInShadow == 0 {
		t.active += int(n)
	}
}

// mark notes that a member changed.
func (p *Part) mark(u *Unit, m *Member) {
	if !m.dirty {
		m.dirty = true
		p.tally.changed = append(p.tally.changed, memberAt{u, m.Index})
	}
}

// Stored visits the members that changed since the last call.
func (p *Part) Stored(visit func(*Unit, *Member) error) error {
	for _, at := range p.tally.changed {
		m := at.unit.Member(at.index)
		m.dirty = false
		if err := visit(at.unit, m); err != nil {
			return err
		}
	}
	p.tally.changed = nil
	return nil
}

func (u *Unit) hasRoom() bool {
	return u.Part.Parallelism == 0 || u.Started() < int(u.Part.Parallelism)
}

// CanUnhold reports whether the unit has a member that may start once its part may.
func (u *Unit) CanUnhold() bool { return u.State == Active && u.Held() > 0 && u.hasRoom() }

// NextToUnhold returns the first unit that CanUnhold, or nil.
func (p *Part) NextToUnhold() *Unit {
	for h := &p.tally.releasable; len(*h) > 0; {
		u := (*h)[0]
		if u.CanUnhold() {
			return u
		}
		u.queued = false
		heap.Pop(h)
	}
	return nil
}

// unitHeap has the unit with the smallest replica on top.
type unitHeap []*Unit

func (h unitHeap) Len() int           { return len(h) }
func (h unitHeap) Less(i, j int) bool { return h[i].Replica < h[j].Replica }
func (h unitHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

func (h *unitHeap) Push(x any) { *h = append(*h, x.(*Unit)) }

func (h *unitHeap) Pop() any {
	old := *h
	u := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return u
}
