package model

import "slices"

// byRules is asked before the i-th failure of a message is decided. If it fails a unit by the rules of its group, as the first of
// the message, then those that are left of the group and do so as well, as things stand, are put in the order of these rules: R40.
func (m *Model) byRules(i int) {
	mem := m.failed[i].job.member
	if !m.has(rulesFirst) || mem == nil || mem.unit.part.group.inOrder == m.messages {
		return
	}
	if _, asked := m.asksRules(m.failed[i]); !asked {
		return
	}
	g := mem.unit.part.group
	g.inOrder = m.messages
	place := map[*run]int{}
	var at []int
	var ordered []*run
	for k, r := range m.failed[i:] {
		if r.job.member == nil || r.job.member.unit.part.group != g {
			continue
		}
		if n, asked := m.asksRules(r); asked {
			place[r], at, ordered = n, append(at, i+k), append(ordered, r)
		}
	}
	slices.SortStableFunc(ordered, func(a, b *run) int { return place[a] - place[b] })
	for k, r := range ordered {
		if m.failed[at[k]] != r {
			m.Seen["group: a failure decided before an earlier one"]++
		}
		m.failed[at[k]] = r
	}
}

// asksRules says whether a failure, if it was decided now, would fail its unit by the rules of its group, and by which.
func (m *Model) asksRules(r *run) (place int, asked bool) {
	mem := r.job.member
	if notDecided(r) != "" || mem.isOver() || mem.restarts(r) {
		return 0, false
	}
	v, reason := m.judge(r)
	if v.retry || reason == "" {
		return 0, false
	}
	o := m.ask(mem.unit, reason, r)
	return o.place, o.asked
}
