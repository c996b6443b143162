package model

import "slices"

// This file: when a unit or a group has succeeded before all has, and parts that start when others run (R37 to R39).

// SuccessRule is a rule of a part by which a unit succeeds.
type SuccessRule struct {
	Indexes []int
	Count   *int // nil: all of them
}

// Success is when a group has succeeded.
type Success struct {
	Any   bool
	Parts []string // nil: all
}

// enough says whether a unit has succeeded: minMembers of its members have, or as many of those of a rule as it says.
func (u *unit) enough() bool {
	return u.part.Members > 0 && u.reaches(func(mem *member) bool { return mem.over == succeededWell })
}

// reaches says whether members like that are enough for the unit to succeed.
func (u *unit) reaches(which func(*member) bool) bool {
	return u.count(which) >= u.part.MinMembers || slices.ContainsFunc(u.part.SuccessRules, func(r SuccessRule) bool {
		return u.count(func(mem *member) bool { return slices.Contains(r.Indexes, mem.index) && which(mem) }) >= *r.Count
	})
}

// couldReach says whether a unit could succeed without the members that are lost; those that are to come could.
func (u *unit) couldReach(lost func(*member) bool) bool {
	if u.part.Members == 0 || u.part.Members-u.count(lost) >= u.part.MinMembers {
		return true
	}
	return slices.ContainsFunc(u.part.SuccessRules, func(r SuccessRule) bool {
		gone := u.count(func(mem *member) bool { return slices.Contains(r.Indexes, mem.index) && lost(mem) })
		return len(r.Indexes)-gone >= *r.Count
	})
}

// runs says whether the latest run of a member was reported as running and is the one that the group wants.
func (mem *member) runs() bool {
	n := len(mem.job.runs)
	if n == 0 || !mem.started() {
		return false
	}
	last := mem.job.runs[n-1]
	return last.running && !last.ended && (mem.pending == nil || mem.pending.run != last.id)
}

// ready says whether a part is, all units of it.
func (p *part) ready() bool {
	return !slices.ContainsFunc(p.units, func(u *unit) bool {
		if u.state != "" {
			return u.state != StateSucceeded
		}
		all := p.Members
		if p.Parallelism > 0 {
			all = min(all, p.Parallelism)
		}
		return u.count(func(mem *member) bool { return mem.over == succeededWell || mem.runs() }) < all
	})
}

// waitsFor are the parts that a part waits for still.
func (p *part) waitsFor() []*part {
	var waits []*part
	for _, name := range p.After {
		if before := p.group.part(name); slices.ContainsFunc(before.units, func(u *unit) bool { return u.state != StateSucceeded }) {
			waits = append(waits, before)
		}
	}
	for _, name := range p.AfterReady {
		if before := p.group.part(name); !before.ready() {
			waits = append(waits, before)
		}
	}
	return waits
}

// succeeded says whether what must succeed in a group has.
func (g *group) succeeded() bool {
	var units []*unit
	for _, u := range g.units() {
		if len(g.success.Parts) == 0 || slices.Contains(g.success.Parts, u.part.Name) {
			units = append(units, u)
		}
	}
	if g.success.Any {
		return slices.ContainsFunc(units, func(u *unit) bool { return u.state == StateSucceeded })
	}
	return !slices.ContainsFunc(units, func(u *unit) bool { return u.state != StateSucceeded })
}

// plain is a policy without what version 4 added to the shape of a group.
func (p GroupPolicy) plain() *GroupPolicy {
	p.Success = nil
	p.Parts = slices.Clone(p.Parts)
	for i := range p.Parts {
		p.Parts[i].AfterReady, p.Parts[i].SuccessRules = nil, nil
	}
	return &p
}
