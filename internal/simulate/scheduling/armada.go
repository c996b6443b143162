package scheduling

import (
	"cmp"
	"fmt"
	"slices"
)

// This file is what Config.LikeArmada does instead of schedule: a cycle as Armada's scheduler computes it (armadaproject/armada at
// 207cc9e, internal/scheduler). Each function names the file there whose facts it follows. A cycle has two passes:
//
//   - First pass: evicted jobs and queued ones, by class and fraction of fair share. A job that finds nothing free takes what those
//     evicted jobs hold that would return last; they do not return in this cycle. If that is not enough, it is put on a node over less urgent
//     jobs, which then has more jobs than room (scheduling/preempting_queue_scheduler.go, nodedb/nodedb.go).
//   - Second pass: on each node that has too little room for the jobs of some class, all preemptible ones of that class are evicted, also new
//     ones. They return to that node or not at all, in order, as far as there is room (scheduling/eviction.go).
//
// What an evicted job (state reserved) has is not free for jobs that displace nobody, but available to all others (EvictedPriority
// in internaltypes/node.go). So amounts.available counts jobs that are placed only.

// likeArmada is the state of such a cycle.
type likeArmada struct {
	second   bool    // the second pass
	again    []int32 // the gangs that were evicted for it
	order    []int32 // evicted jobs, in the order in which they would return if no others were scheduled
	all      []comes // see orderOfReturn
	keys     map[string]int32
	passes   int   // counts passes, also calm cycles
	failed   []int // by scheduling key, the last pass in which a job with it found no node
	failures bool  // some did in this pass

	victims []int32   // of the job that is placed
	on      [][]int32 // by node, for takeLastInLine: the jobs that would go, and what is free without them
	left    []int64
	touched []int32
	over    []bool // by node: more ran there than it has room for when the cycle began
}

// comes is when an evicted gang returns.
type comes struct {
	gang, queue int32
	turn        key
}

func (a *likeArmada) begin(c *cycle) {
	nodes := len(c.nodes)
	*a = likeArmada{keys: map[string]int32{}, on: make([][]int32, nodes), left: make([]int64, nodes*c.resources), over: make([]bool, nodes)}
}

// standsAt is the job that a gang stands at in its queue: in Armada the last one, since a gang is complete when that has come
// (QueuedGangIterator in scheduling/queue_scheduler.go).
func (c *cycle) standsAt(g int32) int32 {
	members := c.gangs[g].members
	if c.likeArmada {
		return members[len(members)-1]
	}
	return members[0]
}

// joins says whether the queued jobs of a gang are selected together with those that run and can be evicted. In Armada they wait for each other, since
// an evicted job counts all jobs of its gang that have not ended (setEvictedGangCardinality in scheduling/preempting_queue_scheduler.go). If that
// is less than the cardinality, the gang is never complete: it is not selected, and those that ran are preempted. With
// a job that may not be scheduled yet, of which Armada does not know that its run has ended, the others run on.
func (c *cycle) joins(jobs []int32) bool {
	if !c.likeArmada || !c.jobs[jobs[0]].preemptible {
		return false
	}
	running := 0
	for _, j := range jobs {
		if c.jobs[j].start != none {
			running++
		} else if c.notYet(j) != UnknownReason {
			return false
		}
	}
	return running > 0 && running < len(jobs)
}

// join has the jobs of two gangs selected together, if they are: those that run, and the queued ones.
func (c *cycle) join(running, queued int32) {
	g, of := &c.gangs[running], &c.gangs[queued]
	if all := slices.Concat(g.members, of.members); c.joins(all) {
		g.members, g.joined, of.members = all, true, nil
		for _, j := range all {
			c.jobs[j].gang = running
		}
	}
}

// scheduleAsArmada is schedule as Armada does it.
func (c *cycle) scheduleAsArmada() {
	a := &c.armada
	for n := range c.nodes { // nobody is preempted there, and nothing is scheduled (populateNodeDb in scheduling/scheduling_algo.go)
		a.over[n] = slices.ContainsFunc(c.of(c.amounts.free, int32(n)), func(amount int64) bool { return amount < 0 })
	}
	a.second = false
	c.orderOfReturn()
	c.pass()
	a.second = true
	c.evictOversubscribed()
	c.pass()
	for _, g := range a.again {
		c.gangs[g].again = false
	}
	for j := range c.jobs {
		if c.jobs[j].state == reserved { // it did not return
			c.put(int32(j), nothing, none)
		}
	}
}

// pass selects gang after gang. What is first in a queue decides on its place among the queues: by its class, then by the fraction of
// fair share (QueueCandidateGangIteratorPQ in scheduling/queue_scheduler.go). Urgent jobs that wait behind less urgent ones that run so come later.
func (c *cycle) pass() {
	c.armada.beginPass()
	for q := range c.queues {
		c.queues[q].next = 0
	}
	c.line.fill(0)
	for g := c.selectNextQueuedGangToSchedule(); g != none; g = c.selectNextQueuedGangToSchedule() {
		gang := &c.gangs[g]
		c.mark()
		if gang.label != "" && (!gang.running || gang.joined) {
			c.selectUniformAsArmada(gang)
			continue
		}
		if _, ok := c.selectNodesAsArmada(gang, nil); !ok {
			c.fail(gang)
		}
	}
}

// isNext says whether a gang that comes first in its queue is to be selected in this pass. Queued jobs are passed over if one with the
// same scheduling key has found no node, whatever has been preempted since (QueuedGangIterator in scheduling/queue_scheduler.go).
func (c *cycle) isNext(g *gang) bool {
	if g.blocked != UnknownReason || g.have == len(g.members) || c.armada.second && !g.again {
		return false
	}
	return !c.armada.failures || !slices.ContainsFunc(g.members, func(j int32) bool {
		return c.jobs[j].start == none && c.armada.failed[c.schedulingKey(j)] == c.armada.passes
	})
}

func (a *likeArmada) beginPass() {
	a.passes++
	a.failures = false
}

// fail notes that a gang found no nodes. Only that of a single queued job says something about others.
func (c *cycle) fail(g *gang) {
	if j := g.members[0]; len(g.members) == 1 && c.jobs[j].start == none {
		c.armada.failed[c.schedulingKey(j)], c.armada.failures = c.armada.passes, true
	}
}

// schedulingKey is the same for jobs with the same class, request and avoided nodes.
func (c *cycle) schedulingKey(j int32) int32 {
	job, a := &c.jobs[j], &c.armada
	if job.key == none {
		text := fmt.Sprintf("%q %v %q", cmp.Or(job.PriorityClass, c.defaultClass), c.request(j), job.AvoidedNodes)
		key, ok := a.keys[text]
		if !ok {
			key = int32(len(a.keys))
			a.keys[text] = key
			a.failed = append(a.failed, 0)
		}
		job.key = key
	}
	return job.key
}

// orderOfReturn finds the order in which evicted jobs would return if no others were scheduled: the queues merged as in pass, each gang counted as
// placed when it has come (addEvictedJobsToNodeDb in scheduling/preempting_queue_scheduler.go). A gang comes by the largest key of its queue up to itself.
func (c *cycle) orderOfReturn() {
	all, sum := c.armada.all[:0], c.work.sum
	for q := range int32(len(c.queues)) {
		copy(sum, c.of(c.amounts.placed, q))
		var turn key
		first := true
		for _, g := range c.queues[q].gangs {
			gang := &c.gangs[g]
			if !gang.running || gang.joined || gang.have > 0 {
				continue
			}
			for _, j := range gang.members {
				for r, amount := range c.request(j) {
					sum[r] += amount
				}
			}
			if own := c.keyOf(fractionOf(sum, c.total, c.queues[q].factor), gang); first || own.compare(turn) > 0 {
				turn, first = own, false
			}
			all = append(all, comes{g, q, turn})
		}
	}
	slices.SortStableFunc(all, func(a, b comes) int { return cmp.Or(a.turn.compare(b.turn), cmp.Compare(a.queue, b.queue)) })
	c.armada.all, c.armada.order = all, c.armada.order[:0]
	for _, one := range all {
		c.armada.order = append(c.armada.order, c.gangs[one.gang].members...)
	}
}

// selectNodesAsArmada gives nodes to all jobs of a gang, or changes nothing (ScheduleManyWithTxn in nodedb/nodedb.go); nil are all nodes. It
// returns the sum of the priorities at which the jobs preempt.
func (c *cycle) selectNodesAsArmada(g *gang, nodes []int32) (int64, bool) {
	var sum int64
	for _, j := range g.members {
		n, priority := c.selectNodeAsArmada(j, nodes)
		if n == none {
			c.takeBack()
			return 0, false
		}
		sum += int64(priority)
		c.assign(j, placed, n)
		for _, v := range c.armada.victims { // gangs are preempted as a whole
			for _, sibling := range c.gangs[c.jobs[v].gang].members {
				if c.jobs[sibling].state == reserved {
					c.assign(sibling, nothing, none)
				}
			}
		}
	}
	return sum, true
}

// selectUniformAsArmada places a gang on nodes with one value of its label, where it preempts at the lowest priorities on average (trySchedule in
// scheduling/gang_scheduler.go). Of equals Armada takes any, and this the first value.
func (c *cycle) selectUniformAsArmada(g *gang) {
	best, least := none, int64(0)
	label := c.labelled(g.label)
	for v, nodes := range label.nodes {
		if sum, ok := c.selectNodesAsArmada(g, nodes); ok {
			if best == none || sum < least {
				best, least = v, sum
			}
			c.takeBack()
		}
	}
	if best != none {
		c.selectNodesAsArmada(g, label.nodes[best])
	}
}

// evictedPriority is below all priorities.
const evictedPriority, crossPoolPriority = -2, -1

// selectNodeAsArmada finds a node for a job and takes it from evicted jobs, if need be (SelectNodeForJobWithTxn in nodedb/nodedb.go). It also
// returns the priority up to which the job preempts.
func (c *cycle) selectNodeAsArmada(j int32, nodes []int32) (int32, int32) {
	job := &c.jobs[j]
	c.armada.victims = c.armada.victims[:0]
	switch {
	case job.state == reserved: // on a node with more jobs than room it stays, whatever the others do
		if n := job.node; c.armada.over[n] || fitsAll(c.request(j), c.available(n, job.level)) {
			return n, evictedPriority
		}
		return none, 0
	case job.start != none: // it was preempted in this cycle, or its node is gone
		return none, 0
	}
	if n := c.leastFree(j, nodes); n != none {
		return n, evictedPriority
	}
	if nodes == nil && c.hopeless.knows(c, j, job.level) {
		return none, 0
	}
	if n := c.leastAvailable(j, nodes, job.level); n == none {
		if nodes == nil && len(c.work.avoided) == 0 {
			c.hopeless.add(c, j, job.level)
		}
		return none, 0
	}
	if n, priority := c.takeLastInLine(j, nodes); n != none {
		return n, priority
	}
	for level := int32(0); level < job.level; level++ {
		if n := c.leastAvailable(j, nodes, level); n != none {
			return n, c.preemptsAt(level)
		}
	}
	return c.leastAvailable(j, nodes, job.level), c.preemptsAt(job.level)
}

// leastFree is the node for a queued job that displaces nobody.
func (c *cycle) leastFree(j int32, nodes []int32) int32 {
	c.avoid(&c.jobs[j])
	if nodes == nil && c.hopeless.knows(c, j, none) {
		return none
	}
	n := c.leastAvailable(j, nodes, none)
	if n == none && nodes == nil && len(c.work.avoided) == 0 {
		c.hopeless.add(c, j, none)
	}
	return n
}

// preemptsAt is the priority of a level. Where nobody but evicted jobs is in the way, Armada's is that of jobs of other pools.
func (c *cycle) preemptsAt(level int32) int32 {
	if level == 0 {
		return crossPoolPriority
	}
	return c.priorities[level]
}

// fitsAll is jobFitsOnNode, but where there is less than nothing a job does not fit that requests nothing either.
func fitsAll(request, available []int64) bool {
	for r, amount := range request {
		if amount > available[r] {
			return false
		}
	}
	return true
}

// finds says whether a node on which a job fits is found: the search begins at the request, in the order of what is available rounded down. If a job fits exactly
// in the first resources, and what is available of the next one is rounded to less than the request, the node is missed (NewNodeTypeIterator in
// nodedb/nodeiteration.go; each node is of a type of its own, as where hostnames are indexed).
func (c *cycle) finds(request, available []int64) bool {
	if !fitsAll(request, available) {
		return false
	}
	for r, amount := range available {
		if r < len(c.resolution) && c.resolution[r] > 0 {
			amount -= amount % c.resolution[r]
		}
		if amount != request[r] {
			return amount > request[r]
		}
	}
	return true
}

// mayUse says whether a queued job may have a node, apart from room there.
func (c *cycle) mayUse(n int32) bool {
	return !c.armada.over[n] && !slices.Contains(c.work.avoided, n)
}

// leastAvailable is the node with room for a job at a level on which least is available at that level; at level none, what is free
// (nodedb/nodeiteration.go).
func (c *cycle) leastAvailable(j int32, nodes []int32, level int32) int32 {
	request, best := c.request(j), int32(none)
	if nodes == nil && level == none && len(c.nodes) > fewNodes {
		c.index.settle()
		for _, b := range c.index.blocks {
			if !fitsAll(request, c.index.mostOf(b, none)) {
				continue
			}
			for _, n := range b.nodes {
				if c.finds(request, c.of(c.amounts.free, n)) && c.mayUse(n) {
					return n
				}
			}
		}
		return none
	}
	vectors, levels, at := c.amounts.free, int32(1), int32(0)
	if level != none {
		vectors, levels, at = c.amounts.available, int32(c.levels), level
	}
	count := len(c.nodes)
	if nodes != nil {
		count = len(nodes)
	}
	var least []int64
	for i := range count {
		n := int32(i)
		if nodes != nil {
			n = nodes[i]
		}
		available := c.of(vectors, n*levels+at)
		if c.finds(request, available) && c.mayUse(n) && (best == none || slices.Compare(available, least) < 0) {
			best, least = n, available
		}
	}
	return best
}

// takeLastInLine goes through the evicted jobs from the last to the first until those of one node leave enough room there, and takes
// from all of them what they have, whether or not it is needed (selectNodeForJobWithFairPreemption in nodedb/nodedb.go). Jobs of a higher class are left out.
func (c *cycle) takeLastInLine(j int32, nodes []int32) (int32, int32) {
	a, request := &c.armada, c.request(j)
	defer func() {
		for _, n := range a.touched {
			a.on[n] = a.on[n][:0]
		}
		a.touched = a.touched[:0]
	}()
	for _, e := range slices.Backward(a.order) {
		evicted := &c.jobs[e]
		if evicted.state != reserved || evicted.level > c.jobs[j].level {
			continue
		}
		n := evicted.node
		left := c.of(a.left, n)
		if len(a.on[n]) == 0 {
			a.touched = append(a.touched, n)
			copy(left, c.of(c.amounts.free, n))
		}
		a.on[n] = append(a.on[n], e)
		for r, amount := range c.request(e) {
			left[r] += amount
		}
		if !fitsAll(request, left) || !c.mayUse(n) || nodes != nil && !slices.Contains(nodes, n) {
			continue
		}
		priority := int32(evictedPriority)
		a.victims = append(a.victims, a.on[n]...)
		for _, v := range a.victims {
			priority = max(priority, c.priorities[c.jobs[v].level])
			c.assign(v, nothing, none)
		}
		return n, priority
	}
	return none, 0
}

// evictOversubscribed evicts the preemptible jobs of each class for which a node has less than nothing, with all of their gangs
// (NewOversubscribedEvictor in scheduling/eviction.go).
func (c *cycle) evictOversubscribed() {
	a := &c.armada
	a.again = a.again[:0]
	for n := range int32(len(c.nodes)) {
		for i := range c.nodes[n].jobs {
			o := &c.nodes[n].jobs[i]
			job := &c.jobs[o.job]
			if o.state != placed || !job.preemptible || c.gangs[job.gang].again {
				continue
			}
			if slices.ContainsFunc(c.available(n, job.level), func(amount int64) bool { return amount < 0 }) {
				c.gangs[job.gang].again = true
				a.again = append(a.again, job.gang)
			}
		}
	}
	for _, g := range a.again {
		for _, j := range c.gangs[g].members {
			c.put(j, reserved, c.jobs[j].node)
		}
	}
}
