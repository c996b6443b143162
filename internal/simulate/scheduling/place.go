package scheduling

import (
	"cmp"
	"slices"
)

// label is the nodes by their values of a label.
type label struct {
	values []string
	nodes  [][]int32
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

// anything is dearer than all that can be displaced: the limit where there is none.
func (c *cycle) anything() displaced { return displaced{level: int32(c.levels)} }

// terms are what an attempt to place a gang must keep: otherwise it is given up.
type terms struct {
	displace bool
	// below is what every displaced job must be cheaper than.
	below displaced
	// have is how many jobs of the gang must have a node at the end.
	have int
}

// selectNodesForGang gives nodes to the jobs of a gang that have none, or changes nothing.
func (c *cycle) selectNodesForGang(g *gang) {
	c.mark()
	if j := g.members[0]; len(g.members) == 1 && c.jobs[j].state == reserved && c.canStay(j) {
		c.put(j, placed, c.jobs[j].node)
		return
	}
	for _, j := range g.members {
		if c.jobs[j].state == reserved {
			c.put(j, nothing, none)
		}
	}
	t := terms{true, c.anything(), g.need}
	if g.label == "" || g.running {
		c.selectNodes(g, nil, t)
		return
	}
	c.selectUniformNodes(g, c.labelled(g.label), t)
}

// canStay says whether what a job has reserved is enough for it, which it is not on an oversubscribed node.
func (c *cycle) canStay(j int32) bool {
	free := c.of(c.amounts.free, c.jobs[j].node)
	for r, amount := range c.request(j) {
		if amount > 0 && free[r] < 0 {
			return false
		}
	}
	return true
}

// selectUniformNodes does what selectNodesForGang says, on nodes that have the same value of a label.
func (c *cycle) selectUniformNodes(g *gang, label *label, t terms) {
	all := terms{false, c.anything(), len(g.members)}
	for _, nodes := range label.nodes {
		if _, ok := c.selectNodes(g, nodes, all); ok {
			return // nothing is better than all jobs without displacement
		}
	}
	best, bestDearest := none, displaced{}
	for v, nodes := range label.nodes {
		dearest, ok := c.selectNodes(g, nodes, t)
		if !ok {
			continue
		}
		if best == none || g.have > t.have || dearest.compare(bestDearest) < 0 {
			best, bestDearest, t.have = v, dearest, g.have
		}
		if g.have == len(g.members) {
			t.below = bestDearest
		}
		c.takeBack()
	}
	if best != none {
		t.below = c.anything()
		c.selectNodes(g, label.nodes[best], t)
	}
}

// selectNodes gives jobs of a gang nodes, all or some of them, or changes nothing; nil are all nodes.
// It returns the dearest job that was displaced.
func (c *cycle) selectNodes(g *gang, nodes []int32, t terms) (displaced, bool) {
	dearest, missing := displaced{level: none}, 0
	for _, j := range g.members {
		if c.jobs[j].state == placed {
			continue
		}
		n, d := c.selectNodeForJob(j, nodes, t)
		if n == none {
			if missing++; len(g.members)-missing < t.have {
				break
			}
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
	if g.have < t.have {
		c.takeBack()
		return dearest, false
	}
	return dearest, true
}

// selectNodeForJob is the best node for a job, and what the job displaces there; none if there is no node.
func (c *cycle) selectNodeForJob(j int32, nodes []int32, t terms) (int32, displaced) {
	job := &c.jobs[j]
	if job.start != none {
		return c.selectOwnNode(j, t)
	}
	c.avoid(job)
	if nodes != nil {
		return c.searchAmong(j, nodes, t)
	}
	n, d := int32(none), displaced{level: none}
	if !c.hopeless.knows(c, j, none) {
		n = c.searchFree(j)
	}
	if n == none && t.displace && !c.hopeless.knows(c, j, job.level) {
		c.index.settle()
		n, d = c.searchDisplaced(j)
	}
	if n == none && len(c.work.avoided) == 0 {
		level := job.level
		if !t.displace {
			level = none
		}
		c.hopeless.add(c, j, level)
	}
	return n, d
}

// selectOwnNode is the node on which a job ran when the cycle began, if it can return there.
func (c *cycle) selectOwnNode(j int32, t terms) (int32, displaced) {
	n := c.jobs[j].start
	if n == gone {
		return none, displaced{}
	}
	if jobFitsOnNode(c.request(j), c.of(c.amounts.free, n)) {
		return n, displaced{level: none}
	}
	if t.displace {
		c.rank.settle(j)
		if d, ok := c.displacedBy(j, n); ok {
			return n, d
		}
	}
	return none, displaced{}
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
func (c *cycle) searchAmong(j int32, nodes []int32, t terms) (int32, displaced) {
	best, bestD := int32(none), t.below
	request := c.request(j)
	for _, n := range nodes {
		if jobFitsOnNode(request, c.of(c.amounts.free, n)) && !slices.Contains(c.work.avoided, n) {
			if best == none || c.fitScore(n, best) < 0 {
				best = n
			}
		}
	}
	if best != none || !t.displace {
		return best, displaced{level: none}
	}
	c.rank.settle(j)
	limit := c.limit(bestD)
	for _, n := range nodes {
		limit.equal = best != none && c.fitScore(n, best) < 0
		if !c.fitsWithin(j, n, limit) || slices.Contains(c.work.avoided, n) {
			continue
		}
		if d, ok := c.displacedBy(j, n); ok {
			best, bestD = n, d
			limit = c.limit(bestD)
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
	if len(c.nodes) <= fewNodes {
		best := int32(none)
		for n := range int32(len(c.nodes)) {
			if jobFitsOnNode(request, c.of(c.amounts.free, n)) && !slices.Contains(c.work.avoided, n) && (best == none || c.fitScore(n, best) < 0) {
				best = n
			}
		}
		return best
	}
	c.index.settle()
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
	best, bestD := int32(none), c.anything()
	request, level := c.request(j), c.jobs[j].level
	c.rank.settle(j)
	cheapest, ok := c.rank.cheapest(level)
	if !ok {
		return none, bestD
	}
	limit := c.limit(bestD)
	for _, b := range c.index.blocks {
		if !jobFitsOnNode(request, c.index.mostOf(b, level)) {
			continue
		}
		for _, n := range b.nodes {
			if !c.fitsWithin(j, n, limit) || slices.Contains(c.work.avoided, n) {
				continue
			}
			d, ok := c.displacedBy(j, n)
			if !ok {
				continue
			}
			best, bestD = n, d
			if d.compare(cheapest) <= 0 {
				return best, bestD // no node is better
			}
			limit = c.limit(bestD)
		}
	}
	return best, bestD
}

// limit is a bound on what may be displaced: cheaper than something, or as cheap if equal is set.
// It holds until the rank of queues changes.
type limit struct {
	level          int32
	cheaper, alike int32 // how many queues, in the order of the rank, are cheaper at this level, and at most as dear
	equal          bool
}

func (c *cycle) limit(d displaced) limit {
	l := limit{level: d.level}
	if int(d.level) == c.levels {
		return l
	}
	for _, q := range c.rank.order {
		switch order := c.rank.fractions[q].compare(d.fraction); {
		case order > 0:
			l.cheaper, l.alike = l.cheaper+1, l.alike+1
		case order == 0:
			l.alike++
		default:
			return l
		}
	}
	return l
}

// fitsWithin says whether a job fits on a node if it displaces only what is within a limit.
func (c *cycle) fitsWithin(j, n int32, l limit) bool {
	job, request := &c.jobs[j], c.request(j)
	if !jobFitsOnNode(request, c.available(n, job.level)) {
		return false
	}
	if l.level > job.level {
		return true
	}
	reach := l.cheaper
	if l.equal {
		reach = l.alike
	}
	left := c.work.left
	copy(left, c.of(c.amounts.free, n))
	for i := range c.nodes[n].jobs {
		o := &c.nodes[n].jobs[i]
		if o.level > l.level || o.level == l.level && c.rank.position[o.queue] >= reach || !job.canDisplace(o) {
			continue
		}
		for r, amount := range c.request(o.job) {
			left[r] += amount
		}
	}
	return jobFitsOnNode(request, left)
}

// canDisplace says whether a job may take what another has on a node.
func (j *job) canDisplace(o *occupant) bool {
	return o.level < j.level || o.level == j.level && o.state == reserved
}

// victims are the jobs on a node that a job can displace, from cheap to dear.
func (c *cycle) victims(j, n int32) []occupant {
	list := c.work.victims[:0]
	for i := range c.nodes[n].jobs {
		if o := &c.nodes[n].jobs[i]; c.jobs[j].canDisplace(o) {
			list = append(list, *o)
		}
	}
	slices.SortFunc(list, func(a, b occupant) int {
		if a.level != b.level {
			return cmp.Compare(a.level, b.level)
		}
		if a.queue != b.queue {
			return cmp.Compare(c.rank.position[a.queue], c.rank.position[b.queue])
		}
		return c.compareInQueue(b.job, a.job)
	})
	c.work.victims = list
	return list
}

// prefix is how many of the victims must go so that a job fits; what is free then is in c.work.left.
func (c *cycle) prefix(j, n int32, victims []occupant) (int, bool) {
	request := c.request(j)
	left := c.work.left
	copy(left, c.of(c.amounts.free, n))
	for i, v := range victims {
		for r, amount := range c.request(v.job) {
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
	last := victims[k-1]
	return displaced{last.level, c.rank.fractions[last.queue]}, true
}

// displaceFor takes from others on a node what a job needs to fit there.
func (c *cycle) displaceFor(j, n int32) {
	victims := c.victims(j, n)
	k, _ := c.prefix(j, n, victims)
	request, left := c.request(j), c.work.left
	for _, v := range slices.Backward(victims[:k]) {
		spared := true
		for r, amount := range c.request(v.job) {
			left[r] -= amount
			spared = spared && (left[r] >= request[r] || request[r] == 0)
		}
		if spared {
			continue
		}
		for r, amount := range c.request(v.job) {
			left[r] += amount
		}
		c.displace(v.job)
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
	l := &label{}
	for i := range c.nodes {
		if value, ok := c.nodes[i].Labels[name]; ok {
			l.values = append(l.values, value)
		}
	}
	slices.Sort(l.values)
	l.values = slices.Compact(l.values)
	l.nodes = make([][]int32, len(l.values))
	for i := range c.nodes {
		if value, ok := c.nodes[i].Labels[name]; ok {
			v, _ := slices.BinarySearch(l.values, value)
			l.nodes[v] = append(l.nodes[v], int32(i))
		}
	}
	c.labels[name] = l
	return l
}
