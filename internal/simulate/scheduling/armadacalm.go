package scheduling

import (
	"slices"
	"sort"
)

// calmAsArmada is calmCycle as Armada does it. Why that is enough:
//
//   - All jobs that run come before the queued ones of their queue, and return in their turns, which depend on what runs only. Along them levels fall
//     and sums grow, so each gang's turn is its key. When all of a queue's have returned, what its next queued gang has a key for is what it has on nodes now.
//   - A queued gang is selected in its turn, the largest key of its queue up to itself, those left out that were passed over because
//     of their scheduling key. Which these are depends on the order in which others failed, so the queued gangs are gone through in that order,
//     and the first one of a queue is found when its last running gang has returned.
//   - A job finds a node with others in the way exactly if it fits into what is available at its level, where evicted jobs whose turn is later count
//     for nobody (leastAvailable). That is what mayDisplace asks, as for calmCycle; it counts evicted jobs of higher levels, too, but these have returned.
//     What a gang takes from evicted jobs and their siblings is within its bounds.
//   - A gang that finds no free nodes changes nothing either if there is nobody to displace. That says nothing about others: one of its jobs may
//     avoid nodes that others do not, or the nodes that its first jobs took were those that a later one needs.
//
// A gang that changed nothing otherwise changes nothing later if it comes as late or later, until something else happens than that jobs are queued.
func (s *Scheduler) calmAsArmada() bool {
	c, o := s.c, &s.outlook
	if s.joined > 0 {
		return false
	}
	c.armada.second = false
	c.armada.beginPass()
	o.grow()
	o.distinct = o.distinct[:0]
	copy(o.running, c.amounts.placed)
	for q := range int32(len(c.queues)) {
		p := &o.queues[q]
		if !p.known {
			o.inspectAsArmada(q)
		}
		c.queues[q].next, p.turn, p.failed = p.last+1, p.returned, none
		if p.returns = p.returned.level < int32(c.levels); !p.returns {
			o.advance(q)
		}
	}
	for {
		q := o.soonest()
		if q == none {
			return true
		}
		p, at := &o.queues[q], c.queues[q].next
		if p.returns { // only now it is known which of its queued gangs are passed over
			p.returns = false
			o.advance(q)
			continue
		}
		g := c.queues[q].gangs[at]
		gang := &c.gangs[g]
		same := o.tried[g] == o.era && p.turn.compare(o.turns[g]) >= 0
		o.turns[g], o.places[g] = p.turn, int32(at)
		c.mark()
		switch {
		case same || o.follows(g):
			o.fail(g)
		case c.findsFreeAsArmada(gang):
			s.last.started = append(s.last.started, gang.members...)
			p.failed = none
		case !o.mayDisplace(g):
			o.leads(g)
			o.fail(g)
		case !o.onlyFree(g):
			s.startOver()
			return false
		}
		c.queues[q].next++
		o.advance(q)
	}
}

// inspectAsArmada finds the turn of a queue's last gang that runs.
func (o *outlook) inspectAsArmada(q int32) {
	c, p, gangs := o.c, &o.queues[q], o.c.queues[q].gangs
	p.known, p.returned = true, key{level: int32(c.levels)} // before all others
	p.last = sort.Search(len(gangs), func(i int) bool { return !c.gangs[gangs[i]].running }) - 1
	for _, g := range slices.Backward(gangs[:p.last+1]) {
		if !c.keeps(g) {
			p.returned = c.keyOf(fractionOf(c.of(o.running, q), c.total, c.queues[q].factor), &c.gangs[g])
			return
		}
	}
}

// advance finds the next gang of a queue, and its turn. It passes over gangs like one that has just changed nothing: they have the same key.
func (o *outlook) advance(q int32) {
	c, p := o.c, &o.queues[q]
	g := c.firstGangFromJobs(q)
	for ; g != none && p.failed != none && c.alike(p.failed, g); g = c.firstGangFromJobs(q) {
		c.queues[q].next++
	}
	if g == none {
		return
	}
	if own := c.line.key(q); own.compare(p.turn) > 0 {
		p.turn = own
	}
}

// onlyFree says whether there is nothing for a gang but what is free: no evicted job returns later, and none of a lower level runs.
func (o *outlook) onlyFree(g int32) bool {
	o.reserve(g)
	defer o.unreserve()
	lower := o.c.rank.displaceable[placed-reserved][:int(o.level(g))*len(o.c.queues)]
	return len(o.nodes) == 0 && !slices.ContainsFunc(lower, func(jobs int32) bool { return jobs > 0 })
}

// fail notes that a gang changes nothing in its turn.
func (o *outlook) fail(g int32) {
	gang := &o.c.gangs[g]
	o.tried[g] = o.era
	if o.c.fail(gang); len(gang.members) > 1 {
		o.queues[gang.queue].failed = g
	}
}

// alike says whether two gangs of several jobs have the same level, and request the same on equal terms.
func (c *cycle) alike(a, b int32) bool {
	g, h := &c.gangs[a], &c.gangs[b]
	if len(g.members) != len(h.members) || c.jobs[g.members[0]].level != c.jobs[h.members[0]].level || g.need != h.need || g.label != h.label {
		return false
	}
	for i, j := range g.members {
		if !slices.Equal(c.request(j), c.request(h.members[i])) {
			return false
		}
	}
	return true
}

// soonest is the queue whose next gang comes first; none if there are no more.
func (o *outlook) soonest() int32 {
	best := int32(none)
	for q := range int32(len(o.queues)) {
		if queue := &o.c.queues[q]; queue.next < len(queue.gangs) && (best == none || o.queues[q].turn.compare(o.queues[best].turn) < 0) {
			best = q
		}
	}
	return best
}

// findsFreeAsArmada gives free nodes to all jobs of a queued gang, as scheduleAsArmada would, or changes nothing.
func (c *cycle) findsFreeAsArmada(g *gang) bool {
	if g.label == "" {
		return c.selectFree(g, nil)
	}
	return slices.ContainsFunc(c.labelled(g.label).nodes, func(nodes []int32) bool { return c.selectFree(g, nodes) })
}

func (c *cycle) selectFree(g *gang, nodes []int32) bool {
	for _, j := range g.members {
		n := c.leastFree(j, nodes)
		if n == none {
			c.takeBack()
			return false
		}
		c.assign(j, placed, n)
	}
	return true
}
