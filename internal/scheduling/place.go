package scheduling

import (
	"cmp"
	"slices"
)

// label is the nodes by their values of a label.
type label struct {
	values  []string
	nodes   [][]int32
	valueOf []int32 // by node; none if it lacks the label
}

// displaced is the dearest job that would be displaced on a node. Less is cheaper.
type displaced struct {
	level    int32 // none if nothing is displaced
	fraction fraction
}

func (d displaced) compare(e displaced) int {
	if d.level != e.level {
		return cmp.Compare(d.level, e.level)
	}
	if d.level == none {
		return 0
	}
	return e.fraction.compare(d.fraction)
}

// selectNodesForGang gives nodes to the jobs of a gang that have none, or changes nothing.
// What it changed remains in c.undo.
func (c *cycle) selectNodesForGang(g *gang, displace bool) {
	for _, j := range g.members {
		if c.jobs[j].state == reserved {
			c.put(j, nothing, none)
		}
	}
	c.mark()
	if g.label == "" || g.running {
		c.selectNodes(g, nil, displace)
		return
	}
	label := c.labelled(g.label)
	for _, j := range g.members {
		if c.jobs[j].state == placed {
			c.selectNodes(g, label.nodes[label.valueOf[c.jobs[j].node]], displace)
			return
		}
	}
	best, bestHave, bestDearest := none, 0, displaced{}
	for v, nodes := range label.nodes {
		dearest, ok := c.selectNodes(g, nodes, displace)
		if !ok {
			continue
		}
		if g.have == len(g.members) && dearest.level == none {
			return // no later value is better
		}
		if best == none || g.have > bestHave || g.have == bestHave && dearest.compare(bestDearest) < 0 {
			best, bestHave, bestDearest = v, g.have, dearest
		}
		c.takeBack()
	}
	if best != none {
		c.selectNodes(g, label.nodes[best], displace)
	}
}

// selectNodes does what selectNodesForGang says, on some nodes; nil are all.
func (c *cycle) selectNodes(g *gang, nodes []int32, displace bool) (displaced, bool) {
	dearest := displaced{level: none}
	for _, j := range g.members {
		if c.jobs[j].state == placed {
			continue
		}
		n, d := c.selectNodeForJob(j, nodes, displace)
		if n == none {
			continue
		}
		if d.level != none {
			c.displaceFor(j, n)
			if d.compare(dearest) > 0 {
				dearest = d
			}
		}
		c.assign(j, placed, n)
	}
	if g.have < g.need {
		c.takeBack()
		return dearest, false
	}
	return dearest, true
}

// selectNodeForJob is the best node for a job, and what the job displaces there; none if there is no node.
func (c *cycle) selectNodeForJob(j int32, nodes []int32, displace bool) (int32, displaced) {
	job := &c.jobs[j]
	free := displaced{level: none}
	if job.start != none {
		switch {
		case job.start == gone:
			return none, free
		case jobFitsOnNode(c.request(j), c.of(c.amounts.free, job.start)):
			return job.start, free
		case !displace:
			return none, free
		}
		c.rank.settle()
		d, ok := c.displacedBy(j, job.start)
		if !ok {
			return none, free
		}
		return job.start, d
	}
	c.avoid(job)
	if nodes != nil {
		return c.searchAmong(j, nodes, displace)
	}
	c.index.settle()
	if n := c.searchFree(j); n != none || !displace {
		return n, free
	}
	return c.searchDisplaced(j)
}

// avoid notes the nodes that a job avoids.
func (c *cycle) avoid(j *job) {
	c.work.avoided = c.work.avoided[:0]
	for _, name := range j.AvoidedNodes {
		if n, ok := c.nodeOf[name]; ok {
			c.work.avoided = append(c.work.avoided, n)
		}
	}
}

// searchAmong looks at every one of some nodes.
func (c *cycle) searchAmong(j int32, nodes []int32, displace bool) (int32, displaced) {
	best, bestD := int32(none), displaced{level: none}
	request := c.request(j)
	c.rank.settle()
	for _, n := range nodes {
		if slices.Contains(c.work.avoided, n) {
			continue
		}
		d := displaced{level: none}
		if !jobFitsOnNode(request, c.of(c.amounts.free, n)) {
			if !displace || best != none && bestD.level == none {
				continue
			}
			var ok bool
			if d, ok = c.displacedBy(j, n); !ok {
				continue
			}
		}
		if best == none || cmp.Or(d.compare(bestD), c.fitScore(n, best)) < 0 {
			best, bestD = n, d
		}
	}
	return best, bestD
}

// fitScore compares what is free on two nodes: the one with less comes first.
func (c *cycle) fitScore(a, b int32) int {
	return cmp.Or(slices.Compare(c.of(c.amounts.free, a), c.of(c.amounts.free, b)), cmp.Compare(a, b))
}

// searchFree is the first node in the order of the index on which a job fits without displacing anything.
func (c *cycle) searchFree(j int32) int32 {
	request := c.request(j)
	for _, b := range c.index.blocks {
		if !jobFitsOnNode(request, c.index.mostOf(b, none)) {
			continue
		}
		for _, n := range b.nodes {
			if jobFitsOnNode(request, c.of(c.amounts.free, n)) && !slices.Contains(c.work.avoided, n) {
				return n
			}
		}
	}
	return none
}

// searchDisplaced is the best node on which a job fits if it displaces others.
func (c *cycle) searchDisplaced(j int32) (int32, displaced) {
	best, bestD := int32(none), displaced{level: none}
	request, level := c.request(j), c.jobs[j].level
	c.rank.settle()
	cheapest, ok := c.rank.cheapest(level)
	if !ok {
		return none, bestD
	}
	for _, b := range c.index.blocks {
		if !jobFitsOnNode(request, c.index.mostOf(b, level)) {
			continue
		}
		for _, n := range b.nodes {
			if !jobFitsOnNode(request, c.available(n, level)) || slices.Contains(c.work.avoided, n) {
				continue
			}
			d, ok := c.displacedBy(j, n)
			if !ok || best != none && d.compare(bestD) >= 0 {
				continue
			}
			best, bestD = n, d
			if d.compare(cheapest) <= 0 {
				return best, bestD // no node is better
			}
		}
	}
	return best, bestD
}

// canDisplace says whether a job may take what another has on a node.
func (c *cycle) canDisplace(j, other int32) bool {
	a, b := &c.jobs[j], &c.jobs[other]
	return b.level < a.level || b.level == a.level && b.state == reserved
}

// victims are the jobs on a node that a job can displace, from cheap to dear.
func (c *cycle) victims(j, n int32) []int32 {
	list := c.work.victims[:0]
	for v := c.nodes[n].jobs; v != none; v = c.jobs[v].after {
		if c.canDisplace(j, v) {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b int32) int {
		x, y := &c.jobs[a], &c.jobs[b]
		return cmp.Or(cmp.Compare(x.level, y.level), cmp.Compare(c.rank.position[x.queue], c.rank.position[y.queue]), cmp.Compare(b, a))
	})
	c.work.victims = list
	return list
}

// prefix is how many of the victims must go so that a job fits; what is free then is in c.work.left.
func (c *cycle) prefix(j, n int32, victims []int32) (int, bool) {
	request := c.request(j)
	left := c.work.left
	copy(left, c.of(c.amounts.free, n))
	for i, v := range victims {
		for r, amount := range c.request(v) {
			left[r] += amount
		}
		if jobFitsOnNode(request, left) {
			return i + 1, true
		}
	}
	return 0, false
}

// displacedBy is the dearest job that a job must displace on a node on which it does not fit; false if that is not enough.
func (c *cycle) displacedBy(j, n int32) (displaced, bool) {
	if !jobFitsOnNode(c.request(j), c.available(n, c.jobs[j].level)) {
		return displaced{}, false
	}
	victims := c.victims(j, n)
	k, ok := c.prefix(j, n, victims)
	if !ok {
		return displaced{}, false
	}
	last := &c.jobs[victims[k-1]]
	return displaced{last.level, c.rank.fractions[last.queue]}, true
}

// displaceFor takes from others on a node what a job needs to fit there.
func (c *cycle) displaceFor(j, n int32) {
	victims := c.victims(j, n)
	k, _ := c.prefix(j, n, victims)
	request, left := c.request(j), c.work.left
	for _, v := range slices.Backward(victims[:k]) {
		spared := true
		for r, amount := range c.request(v) {
			left[r] -= amount
			spared = spared && (left[r] >= request[r] || request[r] == 0)
		}
		if spared {
			continue
		}
		for r, amount := range c.request(v) {
			left[r] += amount
		}
		c.displace(v)
	}
}

// displace takes from a job what it has. A gang that then has too few jobs loses all.
func (c *cycle) displace(v int32) {
	had := c.jobs[v].state
	if had == nothing {
		return // with another job of its gang
	}
	c.assign(v, nothing, none)
	if had != placed {
		return
	}
	c.lost++
	g := &c.gangs[c.jobs[v].gang]
	if g.have >= g.need {
		return
	}
	for _, other := range g.members {
		if c.jobs[other].state == placed {
			c.assign(other, nothing, none)
		}
	}
}

// cheapest is a bound on what a job of a level could displace.
func (k *rank) cheapest(level int32) (displaced, bool) {
	queues := len(k.order)
	for low := range level + 1 {
		for _, q := range k.order {
			i := int(low)*queues + int(q)
			if k.displaceable[0][i] > 0 || low < level && k.displaceable[1][i] > 0 {
				return displaced{low, k.fractions[q]}, true
			}
		}
	}
	return displaced{}, false
}

// labelled is the nodes by the values of a label.
func (c *cycle) labelled(name string) *label {
	if l, ok := c.labels[name]; ok {
		return l
	}
	l := &label{valueOf: make([]int32, len(c.nodes))}
	for i := range c.nodes {
		if value, ok := c.nodes[i].Labels[name]; ok {
			l.values = append(l.values, value)
		}
	}
	slices.Sort(l.values)
	l.values = slices.Compact(l.values)
	l.nodes = make([][]int32, len(l.values))
	for i := range c.nodes {
		l.valueOf[i] = none
		if value, ok := c.nodes[i].Labels[name]; ok {
			v, _ := slices.BinarySearch(l.values, value)
			l.valueOf[i] = int32(v)
			l.nodes[v] = append(l.nodes[v], int32(i))
		}
	}
	c.labels[name] = l
	return l
}
