package scheduling

import (
	"cmp"
	"slices"
)

// A cycle is calm if no job displaces anything: then all evicted jobs return to their nodes, and queued jobs only take what is free.
// calmCycle finds out whether a cycle is calm, and what it schedules, without evicting anything. Why that is enough:
//
// Say that up to some moment of schedule nothing was displaced, and each gang that was selected returned or found all its nodes free.
// On nodes that have room for what runs there, an evicted gang finds its reservations free when it is selected, and returns. So only
// queued gangs need to be looked at, in the order in which they are selected. What that order depends on is known beforehand:
//
//   - A queue's next gang has a key (line): the fraction with the gang included. It depends on the queue's own jobs only. The
//     selection merges the queues by the keys of their first gangs; so a gang of one queue is selected before one of another queue if
//     the largest key of its queue up to itself, its turn, is smaller. Keys of different queues are never equal, because the queue decides last.
//   - When a gang with some turn is selected, those evicted gangs have reservations whose turn is later. A job fits
//     on a node with displacement if it fits into what is free, the reservations there of its own level or below, and what
//     jobs of a lower level have. For a single job this is what searchDisplaced asks for: it displaces exactly if there is such a
//     node. For a gang it bounds how many of its jobs a node can have, whatever they displace there and elsewhere: jobs of the gang's level lose reservations
//     only, and only on the node itself; others, which may lose their nodes with their gang, are of a lower level and counted already. So a gang changes nothing if these bounds
//     add up to less than its need. Otherwise the cycle is not known to be calm, and is computed in full.
//
// While a cycle is calm, what is available to a level on a node only shrinks: free amounts become placed jobs, reservations too. So when a gang changes nothing, neither does
// a later one of at most its level that requests as much or more. (hopeless says the same of schedule.)
//
// If nothing changes after a calm cycle whose new jobs can all be evicted, the next one is calm and changes nothing. Its queues have the same gangs
// in the same order with the same sums, and some that were queued run. These come earlier among equal keys, if anything; they return. For every other
// queued gang there is at most as much available as in the cycle before: what these took was free, or reserved, then. Their bounds hold again.
// The reason of a job that remains queued depends on itself, its gang, the time and empty nodes only. (New jobs that cannot be evicted
// count for their queue from the beginning of the next cycle, so that others of it are selected later.)

// outlook is what queues do in a calm cycle.
type outlook struct {
	c        *cycle
	queues   []prospect
	turns    []key   // by gang that may be selected: the largest key of its queue and level up to itself
	places   []int32 // by gang, its place in the queue
	sum      []int64
	running  []int64 // by queue, of the jobs that ran when the cycle began; see calmAsArmada
	with     []int64
	distinct []int32
	alike    []int32
	tried    []int // by gang, the era in which it changed nothing; see calmAsArmada
	era      int   // begins anew when anything happens but that a job is added to a queue

	least      []int64 // of each resource, what all jobs of a gang request
	reserved   []int64 // by node, for reserve
	isReserved []bool
	nodes      []int32
}

// prospect is a queue's part.
type prospect struct {
	known      bool
	candidates []int32 // queued gangs, without those that get nothing if one before them gets nothing
	next       int
	last       int // the place of the last gang with nodes
	returned   key // the turn of the last one that runs, and that of the gang that comes next: see calmAsArmada
	turn       key
	returns    bool  // its last gang that runs has not returned
	failed     int32 // the last gang of several jobs that changed nothing, since when the queue has the same sum
}

func newOutlook(c *cycle) outlook {
	return outlook{
		era: 1, c: c, queues: make([]prospect, len(c.queues)), sum: make([]int64, c.resources), running: make([]int64, len(c.amounts.placed)), with: make([]int64, c.resources),
		least: make([]int64, c.resources), reserved: make([]int64, len(c.amounts.free)), isReserved: make([]bool, len(c.nodes)),
	}
}

func (o *outlook) stale(q int32) { o.queues[q].known = false }

// calmCycle schedules if the cycle is calm. Otherwise it changes nothing.
func (s *Scheduler) calmCycle() bool {
	c, o := s.c, &s.outlook
	if len(s.nodeOf) > 0 || s.tight && slices.ContainsFunc(c.amounts.free, func(amount int64) bool { return amount < 0 }) {
		return false
	}
	if s.tight { // as it may have been in the cycle before
		s.tight = false
		clear(c.armada.over)
	}
	if c.likeArmada {
		return s.calmAsArmada()
	}
	for q := range o.queues {
		if !o.queues[q].known {
			o.inspect(int32(q))
		}
		o.queues[q].next = 0
	}
	for {
		g := o.first()
		if g == none {
			return true
		}
		gang := &c.gangs[g]
		p := &o.queues[gang.queue]
		p.next++
		c.mark()
		switch {
		case o.findsFree(gang):
			s.last.started = append(s.last.started, gang.members...)
			at := o.places[g]
			o.inspect(gang.queue)
			for p.next = 0; p.next < len(p.candidates) && o.places[p.candidates[p.next]] < at; {
				p.next++
			}
		case o.mayDisplace(g):
			s.startOver()
			return false
		}
	}
}

// startOver takes back what a cycle scheduled before it turned out not to be calm.
func (s *Scheduler) startOver() {
	c := s.c
	for _, j := range s.last.started {
		c.put(j, nothing, none)
		s.outlook.stale(c.jobs[j].queue)
	}
	s.last.started = s.last.started[:0]
	c.version++
}

// first is the candidate whose turn comes first; none if there are no more.
func (o *outlook) first() int32 {
	best := int32(none)
	for q := range o.queues {
		if p := &o.queues[q]; p.next < len(p.candidates) {
			if g := p.candidates[p.next]; best == none || o.compareTurns(g, best) < 0 {
				best = g
			}
		}
	}
	return best
}

// compareTurns is the order in which gangs are selected.
func (o *outlook) compareTurns(a, b int32) int {
	qa, qb := o.c.gangs[a].queue, o.c.gangs[b].queue
	if qa == qb {
		return cmp.Compare(o.places[a], o.places[b])
	}
	if order := o.turns[a].compare(o.turns[b]); order != 0 {
		return order
	}
	return cmp.Compare(qa, qb)
}

func (o *outlook) level(g int32) int32 { return o.c.jobs[o.c.gangs[g].members[0]].level }

func (o *outlook) grow() {
	for len(o.turns) < len(o.c.gangs) {
		o.turns, o.places, o.tried = append(o.turns, key{}), append(o.places, 0), append(o.tried, 0)
	}
}

// inspect finds the turns and candidates of a queue.
func (o *outlook) inspect(q int32) {
	c, p := o.c, &o.queues[q]
	p.known, p.candidates, o.distinct = true, p.candidates[:0], o.distinct[:0]
	o.grow()
	copy(o.sum, c.of(c.amounts.placed, q))
	gangs := c.queues[q].gangs
	for _, g := range gangs {
		if c.gangs[g].have > 0 && !c.keeps(g) {
			o.add(o.sum, g, -1)
		}
	}
	var turn key
	last := len(gangs) - 1
	for last >= 0 && c.gangs[gangs[last]].have == 0 {
		last--
	}
	p.last = last
	o.alike = o.alike[:0]
	first := true
	for i, g := range gangs {
		gang := &c.gangs[g]
		if gang.blocked != UnknownReason || c.keeps(g) {
			continue
		}
		follows := gang.have == 0 && o.follows(g)
		if o.places[g] = int32(i); follows && i > last && o.again(g) {
			continue // nobody asks for its turn, and it raises no other one
		}
		copy(o.with, o.sum)
		o.add(o.with, g, 1)
		own := c.keyOf(fractionOf(o.with, c.total, c.queues[q].factor), gang)
		if gang.have > 0 {
			copy(o.sum, o.with)
		} else if !follows {
			o.leads(g)
			p.candidates = append(p.candidates, g)
		}
		if first || own.compare(turn) > 0 {
			turn, first = own, false
		}
		o.turns[g] = turn
	}
}

// keeps says whether a gang runs and is not evicted.
func (c *cycle) keeps(g int32) bool {
	return c.gangs[g].running && !c.jobs[c.gangs[g].members[0]].preemptible
}

func (o *outlook) add(sum []int64, g int32, sign int64) {
	for _, j := range o.c.gangs[g].members {
		for r, amount := range o.c.request(j) {
			sum[r] += sign * amount
		}
	}
}

// again says whether a queued job has the key of one before it, since when the queue has the same sum.
func (o *outlook) again(g int32) bool {
	c, members := o.c, o.c.gangs[g].members
	if len(members) > 1 {
		return false
	}
	for _, j := range o.alike {
		if c.jobs[j].level == c.jobs[members[0]].level && slices.Equal(c.request(j), c.request(members[0])) {
			return true
		}
	}
	if len(o.alike) < mostHopeless {
		o.alike = append(o.alike, members[0])
	}
	return false
}

// follows says whether a queued gang gets nothing if those that lead get nothing.
func (o *outlook) follows(g int32) bool {
	c, gang := o.c, &o.c.gangs[g]
	for _, d := range o.distinct {
		before := &c.gangs[d]
		if o.level(d) < o.level(g) || len(before.members) != len(gang.members) || before.need > gang.need || before.label != gang.label {
			continue
		}
		more := true
		for i, j := range gang.members {
			more = more && atLeast(c.request(j), c.request(before.members[i]))
		}
		if more {
			return true
		}
	}
	return false
}

// leads has follows compare gangs that come later with this one.
func (o *outlook) leads(g int32) {
	if gang := &o.c.gangs[g]; len(o.distinct) < mostHopeless && (len(gang.members) > 1 || len(o.c.jobs[gang.members[0]].AvoidedNodes) == 0) {
		o.distinct = append(o.distinct, g)
	}
}

// findsFree gives nodes to all jobs of a queued gang, if it displaces nothing, as selectNodesForGang would. Otherwise it changes nothing.
func (o *outlook) findsFree(g *gang) bool {
	all := terms{false, o.c.anything(), len(g.members)}
	if g.label == "" {
		_, ok := o.c.selectNodes(g, nil, all)
		return ok
	}
	for _, nodes := range o.c.labelled(g.label).nodes {
		if _, ok := o.c.selectNodes(g, nodes, all); ok {
			return true
		}
	}
	return false
}

// mayDisplace is false if a queued gang that found no free nodes changes nothing.
func (o *outlook) mayDisplace(g int32) bool {
	c, gang := o.c, &o.c.gangs[g]
	j := gang.members[0]
	single := len(gang.members) == 1
	c.work.avoided = c.work.avoided[:0]
	if single {
		c.avoid(&c.jobs[j])
		if gang.label == "" && c.hopeless.knows(c, j, c.jobs[j].level) {
			return false
		}
	}
	copy(o.least, c.request(j))
	for _, j := range gang.members[1:] {
		for r, amount := range c.request(j) {
			o.least[r] = min(o.least[r], amount)
		}
	}
	o.reserve(g)
	defer o.unreserve()
	if gang.label != "" {
		return slices.ContainsFunc(c.labelled(gang.label).nodes, func(nodes []int32) bool { return o.haveRoom(gang, nodes) })
	}
	if o.roomAnywhere(gang) {
		return true
	}
	if single && len(c.work.avoided) == 0 {
		c.hopeless.add(c, j, c.jobs[j].level)
	}
	return false
}

// reserve finds what evicted gangs of a gang's level that return after it have on nodes. Turns rise along a queue, so these are the last of their level.
func (o *outlook) reserve(g int32) {
	c, level := o.c, o.level(g)
	for q := range c.queues {
		copy(o.sum, c.of(o.running, int32(q)))
		for i, other := range slices.Backward(c.queues[q].gangs[:o.queues[q].last+1]) {
			gang := &c.gangs[other]
			if gang.blocked != UnknownReason || c.keeps(other) {
				continue
			}
			if c.likeArmada { // see calmAsArmada
				o.places[other], o.turns[other] = int32(i), c.keyOf(fractionOf(o.sum, c.total, c.queues[q].factor), gang)
				o.add(o.sum, other, -1)
			}
			of := o.level(other)
			if of < level {
				continue
			}
			if of > level || o.compareTurns(other, g) <= 0 {
				break
			}
			if !gang.running {
				continue
			}
			for _, j := range gang.members {
				n := c.jobs[j].node
				if !o.isReserved[n] {
					o.isReserved[n] = true
					o.nodes = append(o.nodes, n)
				}
				for r, amount := range c.request(j) {
					c.of(o.reserved, n)[r] += amount
				}
			}
		}
	}
}

func (o *outlook) unreserve() {
	for _, n := range o.nodes {
		o.isReserved[n] = false
		clear(o.c.of(o.reserved, n))
	}
	o.nodes = o.nodes[:0]
}

// roomAnywhere is haveRoom for all nodes. It skips those that have no room for a single job: of a block, and without reservations.
func (o *outlook) roomAnywhere(g *gang) bool {
	c := o.c
	if o.haveRoom(g, o.nodes) {
		return true
	}
	level, room := c.jobs[g.members[0]].level, 0
	for _, n := range o.nodes {
		room += o.roomOn(g, n)
	}
	if len(c.nodes) <= fewNodes {
		for n := range int32(len(c.nodes)) {
			if o.isReserved[n] {
				continue
			}
			if room += o.roomOn(g, n); room >= g.need {
				return true
			}
		}
		return false
	}
	c.index.settle()
	for _, b := range c.index.blocks {
		if !jobFitsOnNode(o.least, c.index.mostOf(b, level)) {
			continue
		}
		for _, n := range b.nodes {
			if o.isReserved[n] {
				continue
			}
			if room += o.roomOn(g, n); room >= g.need {
				return true
			}
		}
	}
	return false
}

func (o *outlook) haveRoom(g *gang, nodes []int32) bool {
	room := 0
	for _, n := range nodes {
		if room += o.roomOn(g, n); room >= g.need {
			return true
		}
	}
	return false
}

// roomOn bounds how many jobs of a gang a node can have if they displace whatever they can.
func (o *outlook) roomOn(g *gang, n int32) int {
	c := o.c
	if slices.Contains(c.work.avoided, n) {
		return 0
	}
	// Nothing is evicted, so this counts what jobs of lower levels have, and no reservations.
	available, reserved := c.available(n, c.jobs[g.members[0]].level), c.of(o.reserved, n)
	room := int64(len(g.members))
	for r, amount := range o.least {
		if amount > 0 {
			room = min(room, (available[r]+reserved[r])/amount)
		}
	}
	return int(max(0, room))
}
