package group

import "slices"

// Prospects says whether a group can go on.
type Prospects uint8

// The prospects of a group.
const (
	GoesOn    Prospects = iota // a member runs, waits, or is held and will be released
	Awaits                     // only members that were not submitted could start
	Exhausted                  // no unit can start or run any more
)

// Prospects reports whether some declared unit can start or run (semantics.md 12.8).
func (g *Group) Prospects() Prospects {
	if g.Shape.Open() {
		if g.AllOver() {
			return Awaits
		}
		return GoesOn
	}
	if !g.noneStarted() {
		return GoesOn
	}
	worst := make([]Prospects, len(g.Parts))
	found := Exhausted
	for _, i := range g.order() {
		p := g.Parts[i]
		var best Prospects
		best, worst[i] = g.prospectsOf(p, worst)
		found = min(found, best)
	}
	return found
}

// prospectsOf returns the prospects of the unit of a part that can do most, and of the one
// that can do least among those that have not succeeded. It needs the latter of the parts
// that p waits for.
func (g *Group) prospectsOf(p *Part, worstOf []Prospects) (best, worst Prospects) {
	unhold, arrive := GoesOn, Awaits // of members that are held, and of those that were not submitted
	for i := range g.waitsFor(p) {
		unhold = max(unhold, worstOf[i])
		if g.Halted {
			arrive = Exhausted // what is held then is not released
		}
	}
	arrive = max(arrive, unhold)
	if g.Halted {
		unhold = Exhausted
	}
	best, worst = Exhausted, GoesOn
	add := func(can Prospects) { best, worst = min(best, can), max(worst, can) }
	if len(p.Units) < int(p.Replicas) {
		add(arrive)
	}
	can := [unitKinds]Prospects{
		isRunning: GoesOn, awaitsOrHeld: min(arrive, unhold), awaits: arrive, hasHeld: unhold, isIdle: Exhausted,
	}
	for kind, units := range p.tally.units {
		if units > 0 && unitKind(kind) != isSucceeded {
			add(can[kind])
		}
	}
	return best, worst
}

// order returns the parts so that each comes after those that it waits for.
func (g *Group) order() []int {
	order := make([]int, 0, len(g.Parts))
	state := make([]uint8, len(g.Parts))
	var visit func(i int)
	visit = func(i int) {
		if state[i] != 0 {
			return
		}
		state[i] = 1
		for _, before := range slices.Concat(g.Parts[i].After, g.Parts[i].AfterReady) {
			visit(int(before))
		}
		order = append(order, i)
	}
	for i := range g.Parts {
		visit(i)
	}
	return order
}
