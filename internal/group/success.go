package group

import (
	"iter"
	"slices"
)

// Enough reports whether as many members succeeded as must; never in a unit of open size.
func (u *Unit) Enough() bool {
	if u.Part.MinMembers > 0 && u.Succeeded() >= int(u.Part.MinMembers) {
		return true
	}
	for i := range u.byRule {
		if u.byRule[i].succeeded >= int32(u.Part.SuccessRules[i].Count) {
			return true
		}
	}
	return false
}

// HasSucceeded reports whether every declared unit of the part succeeded.
func (p *Part) HasSucceeded() bool {
	return p.Replicas > 0 && p.tally.units[isSucceeded] == int(p.Replicas)
}

// MayStart reports whether one more member of the unit may start (semantics.md 12.7).
func (g *Group) MayStart(u *Unit) bool {
	if !g.ready(u.Part) {
		return false
	}
	return u.hasRoom()
}

// MayUnhold reports whether the part has held members and waits for no other part.
func (g *Group) MayUnhold(p *Part) bool { return p.tally.counts.held > 0 && g.ready(p) }

// waitsFor visits the parts that p waits for still.
func (g *Group) waitsFor(p *Part) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, i := range p.After {
			if !g.Parts[i].HasSucceeded() && !yield(i) {
				return
			}
		}
		for _, i := range p.AfterReady {
			if before := g.Parts[i]; before.tally.ready < int(before.Replicas) && !yield(i) {
				return
			}
		}
	}
}

// ready reports whether p waits for no part.
func (g *Group) ready(p *Part) bool {
	for range g.waitsFor(p) {
		return false
	}
	return true
}

// Awaited reports whether it makes a difference for other parts that members of this one run.
func (p *Part) Awaited() bool { return p.awaited }

// ready reports whether the unit has succeeded, or as many of its members as may run at once have or are running.
func (u *Unit) ready() bool {
	if u.State != Active {
		return u.State == Succeeded
	}
	all := u.Part.Members
	if u.Part.Parallelism > 0 {
		all = min(all, u.Part.Parallelism)
	}
	return u.counts.running+u.counts.succeeded >= int32(all)
}

// HasSucceeded reports whether what must succeed has: all declared units, unless the shape says otherwise. It never
// has in a group of open size.
func (g *Group) HasSucceeded() bool {
	success := &g.Shape.Success
	for i, p := range g.Parts {
		switch {
		case len(success.Parts) > 0 && !slices.Contains(success.Parts, uint32(i)):
		case success.Any && p.tally.units[isSucceeded] > 0:
			return true
		case !success.Any && !p.HasSucceeded():
			return false
		}
	}
	return !success.Any
}
