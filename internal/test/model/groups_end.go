package model

import "slices"

// due says whether the horizon of a group has passed that nobody keeps busy (R1).
func (m *Model) due(g *group) bool {
	return !g.inspected && m.overdue(g)
}

// overdue says whether it was due already, or is.
func (m *Model) overdue(g *group) bool {
	return !slices.ContainsFunc(g.members(), func(mem *member) bool { return mem.started() && !mem.quiet }) && m.passed(g.lastEvent)
}

// forgetMute forgets the groups that end in nobody's records: those of queues in shadow. (R1).
func (m *Model) forgetMute() {
	m.groups = slices.DeleteFunc(m.groups, func(g *group) bool {
		due := m.due(g) || g.touched && m.overdue(g)
		g.touched = false
		for _, u := range g.units() { // what a record after step 3 is about is none of the next message's
			u.touched = false
		}
		g.inspected = g.inspected || due
		if g.ended || !due || slices.ContainsFunc(g.members(), func(mem *member) bool { return mem.held && !mem.quiet }) {
			return false
		}
		for _, mem := range g.members() {
			delete(m.jobs, mem.job.id)
		}
		return true
	})
}

// forgetGroups: semantics.md 12.9, a group is "forgotten when all members are over and the
// horizon has passed": R12.
func (m *Model) forgetGroups(passed func(since int64) bool) {
	m.groups = slices.DeleteFunc(m.groups, func(g *group) bool {
		over := !slices.ContainsFunc(g.members(), func(mem *member) bool { return mem.started() && !mem.quiet })
		if !over || !g.ended || !passed(g.lastEvent) {
			return false
		}
		m.Seen["forgotten: group"]++
		for _, mem := range g.members() {
			delete(m.jobs, mem.job.id)
		}
		return true
	})
}
