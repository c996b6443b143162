package standin

import (
	"cmp"
	"slices"
	"time"
)

// staleAfter is for how long a silent executor is given new jobs
// (scheduling.executorTimeout).
const staleAfter = 10 * time.Minute

// candidate is a node with its free slots.
type candidate struct {
	Node
	executor string
	free     int64
}

// place leases queued jobs to nodes, in Armada's order; a gang is leased only as a whole.
func (c *cycle) place() {
	candidates := c.candidates()
	gangs := map[string][]*job{}
	for _, j := range c.queue() {
		together := []*job{j}
		if gang := j.gang(); gang != "" {
			gangs[gang] = append(gangs[gang], j)
			if _, members := j.info.gang(); len(gangs[gang]) < members {
				continue
			}
			together = gangs[gang]
		}
		c.placeAll(together, candidates)
	}
}

// candidates lists the nodes that may get jobs. A run occupies its slot until it has ended in the scheduler's memory.
func (c *cycle) candidates() []*candidate {
	var candidates []*candidate
	byName := map[string]*candidate{}
	for _, x := range c.cfg.Executors {
		if heard, ok := c.heard[x.Name]; !ok || c.now.Sub(heard) > staleAfter {
			continue
		}
		for _, n := range x.Nodes {
			s := &candidate{Node: n, executor: x.Name, free: int64(n.Slots)}
			candidates, byName[n.Name] = append(candidates, s), s
		}
	}
	for _, id := range c.jobs.ids() {
		j := c.jobs.peek(id)
		if r := j.latest(); r != nil && !r.over() && byName[r.node] != nil {
			byName[r.node].free -= j.info.slots
		}
	}
	return candidates
}

// queue are the jobs to be placed: by priority class, priority, time of
// submission, and id.
func (c *cycle) queue() []*job {
	var queue []*job
	for _, id := range c.jobs.ids() {
		if j := c.jobs.peek(id); j.queued && j.validated && !j.over() && !j.dormant {
			queue = append(queue, j)
		}
	}
	slices.SortFunc(queue, func(a, b *job) int {
		return cmp.Or(
			cmp.Compare(priorityOf(b.info.class), priorityOf(a.info.class)), cmp.Compare(a.priority, b.priority),
			cmp.Compare(a.submitted, b.submitted), cmp.Compare(a.id, b.id))
	})
	return queue
}

func (c *cycle) placeAll(jobs []*job, candidates []*candidate) {
	var taken []*candidate
	for _, j := range jobs {
		var fit []*candidate
		for _, s := range candidates {
			if s.free >= j.info.slots && j.info.fits(s.Node) {
				fit = append(fit, s)
			}
		}
		if len(fit) == 0 {
			for i, s := range taken {
				s.free += jobs[i].info.slots
			}
			return
		}
		s := fit[c.random.IntN(len(fit))]
		s.free -= j.info.slots
		taken = append(taken, s)
	}
	for i, j := range jobs {
		c.lease(c.jobs.edit(j.id), taken[i])
	}
}

func (c *cycle) lease(j *job, s *candidate) {
	j.queued = false
	j.queuedVersion++
	r := run{id: uuid(c.random), executor: s.executor, node: s.Name, created: c.now.UnixNano()}
	j.runs = append(j.runs, r)
	c.kept[j.id] = j.info
	c.leases = append(c.leases, Lease{Job: j.id, Run: r.id, Executor: s.executor, Node: s.Name, At: c.now, Version: j.queuedVersion})
	c.emit(j, ev(evJobRunLeased, leased(j, &r)))
}
