package scheduling

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// sortQueues puts the jobs of each queue in order.
func (c *cycle) sortQueues() {
	slices.SortFunc(c.jobs, func(a, b job) int {
		if a.queue != b.queue {
			return cmp.Compare(a.queue, b.queue)
		}
		return c.compareJobs(&a, &b)
	})
	c.sorted = true
	c.requests = make([]int64, len(c.jobs)*c.resources)
	for i := range c.jobs {
		copy(c.request(int32(i)), c.jobs[i].Request)
	}
}

// compareJobs is the total order of the jobs of a queue.
func (c *cycle) compareJobs(a, b *job) int {
	if runs := a.start != none; c.likeArmada && runs != (b.start != none) {
		if runs {
			return -1
		}
		return 1
	}
	if a.level != b.level {
		return cmp.Compare(b.level, a.level)
	}
	if a.Priority != b.Priority {
		return cmp.Compare(a.Priority, b.Priority)
	}
	if c.likeArmada && a.start != none {
		if t := a.Started.Compare(b.Started); t != 0 {
			return t
		}
	}
	if t := a.Submitted.Compare(b.Submitted); t != 0 {
		return t
	}
	return strings.Compare(a.ID, b.ID)
}

// compareInQueue is compareJobs for two jobs of one queue.
func (c *cycle) compareInQueue(a, b int32) int {
	if c.sorted {
		return cmp.Compare(a, b)
	}
	return c.compareJobs(&c.jobs[a], &c.jobs[b])
}

// addGangs collects the gangs of all queues: queued and running jobs of one ID apart.
func (c *cycle) addGangs() error {
	c.sortQueues()
	var p problems
	alone := make([]int32, len(c.jobs))
	c.gangs = make([]gang, 0, len(c.jobs))
	type named struct {
		queue   int32
		id      string
		running bool
	}
	byName := map[named]int32{}
	sizes := map[named]int{}
	for i := range c.jobs {
		job := &c.jobs[i]
		alone[i] = int32(i)
		job.gang = int32(len(c.gangs))
		if job.Gang.ID == "" {
			c.gangs = append(c.gangs, gang{queue: job.queue, members: alone[i : i+1 : i+1], running: job.start != none})
			continue
		}
		k := named{job.queue, job.Gang.ID, job.start != none}
		if g, ok := byName[k]; ok {
			job.gang = g
			c.gangs[g].members = append(c.gangs[g].members, int32(i))
		} else {
			byName[k] = job.gang
			c.gangs = append(c.gangs, gang{queue: job.queue, members: []int32{int32(i)}, label: c.uniform(job), running: k.running})
		}
		both := named{job.queue, job.Gang.ID, false}
		sizes[both]++
		if other, ok := byName[named{job.queue, job.Gang.ID, !k.running}]; ok {
			p.checkAlike(c, job, c.gangs[other].members[0])
		}
		p.checkAlike(c, job, c.gangs[job.gang].members[0])
		if sizes[both] > job.Gang.Cardinality {
			p.add("gang %q of queue %q: more jobs than its cardinality %d", job.Gang.ID, c.queues[job.queue].name, job.Gang.Cardinality)
		}
	}
	if p.first != "" {
		return p.err()
	}
	for k, g := range byName { //house:sorted each pair by itself
		if queued, ok := byName[named{k.queue, k.id, false}]; ok && k.running {
			c.join(g, queued)
		}
	}
	all := make([]int32, 0, len(c.gangs))
	for i, first := 0, 0; i < len(c.gangs); i++ {
		g := &c.gangs[i]
		if len(g.members) == 0 {
			continue
		}
		all = append(all, int32(i))
		g.need = c.need(g)
		g.blocked = c.blocked(g)
		if g.queue != c.gangs[all[first]].queue {
			first = len(all) - 1
		}
		c.queues[g.queue].gangs = all[first:len(all):len(all)]
	}
	if c.likeArmada {
		for q := range c.queues {
			slices.SortFunc(c.queues[q].gangs, func(a, b int32) int { return c.compareInQueue(c.standsAt(a), c.standsAt(b)) })
		}
	}
	return nil
}

// uniform is the label that must have one value on all nodes of a job's gang; empty if there is none.
func (c *cycle) uniform(j *job) string {
	if c.likeArmada && j.Gang.Cardinality == 1 {
		return ""
	}
	return j.Gang.NodeUniformityLabel
}

// need is how many jobs of a gang must be placed.
func (c *cycle) need(g *gang) int {
	of := &c.jobs[g.members[0]].Gang
	need := of.Cardinality
	if least := of.MinimumCardinality; least > 0 {
		need = least
	}
	switch {
	case of.ID == "":
		return 1
	case g.running:
		return min(need, len(g.members))
	default:
		return need
	}
}

// checkAlike reports jobs of one gang that say different things about it.
func (p *problems) checkAlike(c *cycle, job *job, other int32) {
	a, b := job, &c.jobs[other]
	if a.Gang != b.Gang || cmp.Or(a.PriorityClass, c.defaultClass) != cmp.Or(b.PriorityClass, c.defaultClass) {
		p.add("gang %q of queue %q: its jobs differ in cardinality, minimum cardinality, label or priority class", a.Gang.ID, c.queues[a.queue].name)
	}
}

// blocked is why a gang cannot be selected at all, if its members do not say so themselves.
func (c *cycle) blocked(g *gang) Reason {
	switch {
	case g.joined && len(g.members) < c.jobs[g.members[0]].Gang.Cardinality:
		return GangIncomplete
	case g.running:
		return UnknownReason
	}
	ready := 0
	for _, j := range g.members {
		if c.notYet(j) == UnknownReason {
			ready++
		}
	}
	if ready < max(1, c.jobs[g.members[0]].Gang.Cardinality) {
		return GangIncomplete
	}
	return UnknownReason
}

// notYet is why a queued job cannot be selected, as far as it says so itself.
func (c *cycle) notYet(j int32) Reason {
	switch job := &c.jobs[j]; {
	case job.Held:
		return Held
	case job.RetryAfter.After(c.now):
		return TooEarly
	}
	return UnknownReason
}

// line is a heap of the queues that have a gang of some level to select. The first has the smallest
// fraction of its fair share, its first gang included.
type line struct {
	c         *cycle
	queues    []int32
	places    []int32 // of each queue in queues; none if it is not there
	keys      []key   // of each queue, as the heap knows them
	changed   []int32
	isChanged []bool
}

type key struct {
	level    int32 // of the first gang: in a line of Schedule the same for all
	fraction fraction
	running  bool // the first gang was evicted
}

// keyOf is the key of a queue with a gang that comes first. In Armada, only the names of queues decide between equal fractions (R22).
func (c *cycle) keyOf(f fraction, first *gang) key {
	return key{c.jobs[first.members[0]].level, f, first.running && !c.likeArmada}
}

// compare is negative if a gang with this key is selected before one with another key; if they are equal, the queue decides.
func (k key) compare(o key) int {
	if k.level != o.level {
		return cmp.Compare(o.level, k.level)
	}
	if order := k.fraction.compare(o.fraction); order != 0 || k.running == o.running {
		return order
	}
	if k.running {
		return -1
	}
	return 1
}

func (l *line) Len() int { return len(l.queues) }

func (l *line) Less(i, k int) bool {
	a, b := l.queues[i], l.queues[k]
	if order := l.keys[a].compare(l.keys[b]); order != 0 {
		return order < 0
	}
	return a < b
}

func (l *line) Swap(i, k int) {
	l.queues[i], l.queues[k] = l.queues[k], l.queues[i]
	l.places[l.queues[i]], l.places[l.queues[k]] = int32(i), int32(k)
}

// Push implements heap.Interface; queues only leave.
func (l *line) Push(any) { panic("scheduling: a queue enters the line") }

// Pop implements heap.Interface.
func (l *line) Pop() any {
	last := len(l.queues) - 1
	l.places[l.queues[last]] = none
	l.queues = l.queues[:last]
	return nil
}

// stale says that what the queue has on nodes changed.
func (l *line) stale(q int32) {
	if !l.isChanged[q] {
		l.isChanged[q] = true
		l.changed = append(l.changed, q)
	}
}

// fill lets all queues that have gangs of a level to select stand in line. Levels come in falling order.
func (l *line) fill(level int32) {
	c := l.c
	c.level = level
	l.queues = l.queues[:0]
	for q := range int32(len(c.queues)) {
		l.places[q] = none
		if c.firstGangFromJobs(q) != none {
			l.places[q] = int32(len(l.queues))
			l.queues = append(l.queues, q)
			l.keys[q] = l.key(q)
		}
	}
	heap.Init(l)
}

// settle puts the queues that changed where they belong.
func (l *line) settle() {
	for _, q := range l.changed {
		l.isChanged[q] = false
		if l.places[q] == none {
			continue
		}
		if l.c.firstGangFromJobs(q) == none {
			heap.Remove(l, int(l.places[q]))
			continue
		}
		l.keys[q] = l.key(q)
		heap.Fix(l, int(l.places[q]))
	}
	l.changed = l.changed[:0]
}

func (l *line) key(q int32) key {
	return l.c.keyOf(l.c.fractionOfFairShare(q), l.c.firstGang(q))
}

func (c *cycle) firstGang(q int32) *gang {
	queue := &c.queues[q]
	return &c.gangs[queue.gangs[queue.next]]
}

// firstGangFromJobs is the first gang of a queue that can be selected at this level; none if there is none.
func (c *cycle) firstGangFromJobs(q int32) int32 {
	queue := &c.queues[q]
	for ; queue.next < len(queue.gangs); queue.next++ {
		g := &c.gangs[queue.gangs[queue.next]]
		if c.jobs[g.members[0]].level < c.level {
			return none
		}
		if c.isNext(g) {
			return queue.gangs[queue.next]
		}
	}
	return none
}

// popFirstGang removes the first gang of a queue.
func (c *cycle) popFirstGang(q int32) {
	c.queues[q].next++
	c.line.stale(q)
}

// fractionOfFairShare is what fraction of its fair share a queue would have with its first gang scheduled.
func (c *cycle) fractionOfFairShare(q int32) fraction {
	sum := c.work.sum
	copy(sum, c.of(c.amounts.placed, q))
	for _, j := range c.firstGang(q).members {
		if c.jobs[j].state != placed {
			for r, amount := range c.request(j) {
				sum[r] += amount
			}
		}
	}
	return fractionOf(sum, c.total, c.queues[q].factor)
}

// selectNextQueuedGangToSchedule removes the gang that comes next from its queue; none if there are no more.
func (c *cycle) selectNextQueuedGangToSchedule() int32 {
	c.line.settle()
	if len(c.line.queues) == 0 {
		return none
	}
	q := c.line.queues[0]
	g := c.queues[q].gangs[c.queues[q].next]
	c.popFirstGang(q)
	return g
}

// rank orders queues by the fraction of fair share that they hold, reservations and the job to place included:
// the largest first.
type rank struct {
	toPlace   int32 // none if there is none
	c         *cycle
	order     []int32
	position  []int32
	fractions []fraction
	changed   []int32
	isChanged []bool
	// displaceable is how many reserved, and how many placed jobs there are, by level and queue.
	displaceable [2][]int32
}

func (k *rank) stale(q int32) {
	if !k.isChanged[q] {
		k.isChanged[q] = true
		k.changed = append(k.changed, q)
	}
}

func (k *rank) count(j *job, level, sign int32) {
	k.displaceable[j.state-reserved][int(level)*len(k.order)+int(j.queue)] += sign
}

// settle brings the order up to date, for a job to place.
func (k *rank) settle(toPlace int32) {
	c := k.c
	if k.toPlace != toPlace {
		if k.toPlace != none {
			k.stale(c.jobs[k.toPlace].queue)
		}
		k.stale(c.jobs[toPlace].queue)
		k.toPlace = toPlace
	}
	if len(k.changed) == 0 {
		return
	}
	for _, q := range k.changed {
		k.isChanged[q] = false
		sum := c.work.sum
		copy(sum, c.of(c.amounts.held, q))
		if q == c.jobs[toPlace].queue {
			for r, amount := range c.request(toPlace) {
				sum[r] += amount
			}
		}
		k.fractions[q] = fractionOf(sum, c.total, c.queues[q].factor)
	}
	k.changed = k.changed[:0]
	// Few queues have changed: an insertion sort has little to do.
	for i := range k.order {
		q := k.order[i]
		for ; i > 0 && k.before(q, k.order[i-1]); i-- {
			k.order[i] = k.order[i-1]
		}
		k.order[i] = q
	}
	for i, q := range k.order {
		k.position[q] = int32(i)
	}
}

// before says whether a queue holds a larger fraction than another, or comes first by name.
func (k *rank) before(a, b int32) bool {
	if order := k.fractions[a].compare(k.fractions[b]); order != 0 {
		return order > 0
	}
	return a < b
}
