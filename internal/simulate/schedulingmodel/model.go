package schedulingmodel

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// Schedule is scheduling.Schedule, slower.
func Schedule(config scheduling.Config, queues []scheduling.Queue, nodes []scheduling.Node, nodeByJob map[string]string) (scheduling.Result, error) {
	if err := check(config, queues, nodes, nodeByJob); err != nil {
		return scheduling.Result{}, err
	}
	c := newCycle(config, queues, nodes, nodeByJob)
	c.evict()
	if config.LikeArmada {
		c.likeArmada()
		return c.result(), nil
	}
	for _, class := range c.urgencies() {
		c.loop(class)
	}
	return c.result(), nil
}

// job is a job with what its class, queue and gang say.
type job struct {
	scheduling.Job

	index    int // among all jobs
	queue    *scheduling.Queue
	urgency  int32 // the priority of its class
	evicted  bool
	ranOn    string           // empty: it is queued
	home     *scheduling.Node // that one, which may be gone; nil: it is queued
	gang     *gang            // nil: it is queued and cannot be selected
	unplaced scheduling.Reason
}

// gang is jobs that are selected together, in queue order.
type gang struct {
	jobs []*job
	ran  bool
	need int
}

// cycle is the state of one scheduling cycle.
type cycle struct {
	config scheduling.Config
	queues []scheduling.Queue
	nodes  []*scheduling.Node
	jobs   []*job
	gangs  []*gang

	// Each by the index of a job.
	node     []*scheduling.Node // that the job has; nil: it has no node
	reserved []bool             // the job was evicted, and has a reservation on the node where it ran
}

func newCycle(config scheduling.Config, queues []scheduling.Queue, nodes []scheduling.Node, nodeByJob map[string]string) *cycle {
	c := &cycle{config: config, queues: queues}
	homes := map[string]*scheduling.Node{}
	for i := range nodes {
		c.nodes = append(c.nodes, &nodes[i])
		homes[nodes[i].Name] = &nodes[i]
	}
	for i := range queues {
		for _, of := range queues[i].Jobs {
			class := classOf(config, of)
			j := &job{Job: of, queue: &queues[i], urgency: class.Priority, ranOn: nodeByJob[of.ID]}
			if j.home = homes[j.ranOn]; j.ranOn != "" && j.home == nil {
				j.home = &scheduling.Node{Name: j.ranOn}
			}
			j.evicted = j.ranOn != "" && class.IsFairSharePreemptible
			c.jobs = append(c.jobs, j)
		}
	}
	slices.SortFunc(c.jobs, c.inQueue)
	c.node, c.reserved = make([]*scheduling.Node, len(c.jobs)), make([]bool, len(c.jobs))
	for i, j := range c.jobs {
		j.index = i
		c.node[i] = j.home
	}
	for _, first := range c.jobs {
		c.gather(first)
	}
	return c
}

// inQueue is the order within a queue (R5). Jobs of different queues need any fixed order.
func (c *cycle) inQueue(a, b *job) int {
	return cmp.Or(
		c.runningFirst(a, b),
		cmp.Compare(b.urgency, a.urgency),
		cmp.Compare(a.Priority, b.Priority),
		c.runningLonger(a, b),
		a.Submitted.Compare(b.Submitted),
		cmp.Compare(a.ID, b.ID),
	)
}

// runningFirst is the part of the order that only Armada's scheduler has (R22).
func (c *cycle) runningFirst(a, b *job) int {
	switch aRan, bRan := a.ranOn != "", b.ranOn != ""; {
	case !c.config.LikeArmada || aRan == bRan:
		return 0
	case aRan:
		return -1
	}
	return 1
}

// runningLonger is the other part of it (R22): jobs whose runs were scheduled earlier come first.
func (c *cycle) runningLonger(a, b *job) int {
	if c.config.LikeArmada && a.ranOn != "" && b.ranOn != "" {
		return a.Started.Compare(b.Started)
	}
	return 0
}

// gather makes the gang of a job, if it is the first of it, and if the gang can be selected or runs (R6, R7).
func (c *cycle) gather(first *job) {
	if first.gang != nil || first.unplaced != scheduling.UnknownReason {
		return
	}
	var all, ready []*job
	for _, j := range c.jobs {
		if j != first && (first.Gang.ID == "" || j.queue != first.queue || j.Gang.ID != first.Gang.ID) {
			continue
		}
		if (j.ranOn != "") != (first.ranOn != "") && !c.joined(first) {
			continue
		}
		all = append(all, j)
		switch {
		case j.ranOn == "" && j.Held:
			j.unplaced = scheduling.Held
		case j.ranOn == "" && j.RetryAfter.After(c.config.Now):
			j.unplaced = scheduling.TooEarly
		default:
			j.unplaced = scheduling.GangIncomplete
			ready = append(ready, j)
		}
	}
	cardinality, need := 1, 1
	if first.Gang.ID != "" {
		cardinality, need = first.Gang.Cardinality, first.Gang.Cardinality
		if first.Gang.MinimumCardinality > 0 {
			need = first.Gang.MinimumCardinality
		}
	}
	ran := first.ranOn != ""
	if (!ran || c.joined(first)) && len(ready) < cardinality {
		return
	}
	g := &gang{jobs: all, ran: ran, need: min(need, len(all))}
	for _, j := range all {
		j.gang = g
		j.unplaced = scheduling.NoRoom
		if !c.fitsSomeEmptyNode(j) {
			j.unplaced = scheduling.FitsNoNode
		}
	}
	c.gangs = append(c.gangs, g)
}

// joined says whether jobs of a gang that run and queued ones are selected together (R22).
func (c *cycle) joined(of *job) bool {
	runs, queued := false, false
	for _, j := range c.jobs {
		if of.Gang.ID == "" || j.queue != of.queue || j.Gang.ID != of.Gang.ID {
			continue
		}
		if j.ranOn == "" && (j.Held || j.RetryAfter.After(c.config.Now)) {
			return false
		}
		runs, queued = runs || j.ranOn != "", queued || j.ranOn == ""
	}
	return c.config.LikeArmada && runs && queued && classOf(c.config, of.Job).IsFairSharePreemptible
}

// evict takes their nodes from all running jobs that can be preempted to fair share, and
// reserves what they had, where the node is still there (R3, R11).
func (c *cycle) evict() {
	for _, j := range c.jobs {
		if j.evicted {
			c.node[j.index] = nil
			c.reserved[j.index] = slices.Contains(c.nodes, j.home)
		}
	}
}

// urgencies are the priorities of all classes, highest first (R19).
func (c *cycle) urgencies() []int32 {
	var all []int32
	for _, class := range c.config.PriorityClasses {
		all = append(all, class.Priority)
	}
	slices.Sort(all)
	slices.Reverse(all)
	return slices.Compact(all)
}

// loop selects and places all gangs of an urgency of which jobs have no node (R19).
func (c *cycle) loop(urgency int32) {
	var left []*gang
	for _, g := range c.gangs {
		if g.jobs[0].urgency == urgency && c.having(g) < len(g.jobs) {
			left = append(left, g)
		}
	}
	for len(left) > 0 {
		next := c.next(left)
		left = slices.DeleteFunc(left, func(g *gang) bool { return g == next })
		c.place(next)
	}
}

// next is the gang to select: of the first ones of all queues, that of the queue with the smallest fraction (R8, R9).
func (c *cycle) next(left []*gang) *gang {
	var next *gang
	var smallest *big.Rat
	for i := range c.queues {
		first := c.firstOf(left, &c.queues[i])
		if first == nil {
			continue
		}
		fraction := c.fractionWith(first)
		if next == nil || cmp.Or(fraction.Cmp(smallest), c.queuedLast(first)-c.queuedLast(next), strings.Compare(c.queues[i].Name, next.jobs[0].queue.Name)) < 0 {
			next, smallest = first, fraction
		}
	}
	return next
}

// firstOf is the first gang of a queue: the one whose first job is first (R6).
func (c *cycle) firstOf(gangs []*gang, queue *scheduling.Queue) *gang {
	var first *gang
	for _, g := range gangs {
		if g.jobs[0].queue == queue && (first == nil || c.inQueue(g.jobs[0], first.jobs[0]) < 0) {
			first = g
		}
	}
	return first
}

// queuedLast says whether a gang comes after others with an equal fraction.
func (c *cycle) queuedLast(g *gang) int {
	if g.ran {
		return 0
	}
	return 1
}

// fractionWith is the fraction of its fair share that the gang's queue would have with all jobs of the gang (R8).
func (c *cycle) fractionWith(g *gang) *big.Rat {
	return c.fraction(g.jobs[0].queue, func(j *job) bool { return c.node[j.index] != nil || slices.Contains(g.jobs, j) })
}

// allocated is the fraction of its fair share that a queue has in nodes and reservations, and with a job to place (R13).
func (c *cycle) allocated(queue *scheduling.Queue, toPlace *job) *big.Rat {
	return c.fraction(queue, func(j *job) bool { return c.node[j.index] != nil || c.reserved[j.index] || j == toPlace })
}

// fraction is the cost of those jobs of a queue that count, divided by its weight.
func (c *cycle) fraction(queue *scheduling.Queue, counts func(*job) bool) *big.Rat {
	_, cost := c.dominant(queue, counts)
	return cost.Mul(cost, new(big.Rat).SetInt64(queue.PriorityFactor))
}

// dominant is the dominant resource of those jobs of a queue that count, and their part of it: -1 and 0
// if they have no resources of which there are any.
func (c *cycle) dominant(queue *scheduling.Queue, counts func(*job) bool) (int, *big.Rat) {
	resource, cost := -1, new(big.Rat)
	for r := range c.config.Resources {
		used, total := c.used(queue, counts, r), c.total(r)
		if total == 0 {
			continue
		}
		if part := big.NewRat(used, total); part.Cmp(cost) > 0 {
			resource, cost = r, part
		}
	}
	return resource, cost
}

func (c *cycle) used(queue *scheduling.Queue, counts func(*job) bool, r int) int64 {
	var used int64
	for _, j := range c.jobs {
		if j.queue == queue && counts(j) {
			used += amount(j.Request, r)
		}
	}
	return used
}

func (c *cycle) total(r int) int64 {
	var total int64
	for _, n := range c.nodes {
		total += amount(n.Total, r)
	}
	return total
}

// having is how many jobs of a gang have a node.
func (c *cycle) having(g *gang) int {
	n := 0
	for _, j := range g.jobs {
		if c.node[j.index] != nil {
			n++
		}
	}
	return n
}

func (c *cycle) result() scheduling.Result {
	result := scheduling.Result{NodeByJob: map[string]string{}}
	jobs := slices.SortedFunc(slices.Values(c.jobs), func(a, b *job) int { return cmp.Compare(a.ID, b.ID) })
	for _, j := range jobs {
		if c.node[j.index] != nil {
			result.NodeByJob[j.ID] = c.node[j.index].Name
		}
		switch has := c.node[j.index] != nil; {
		case has && j.ranOn == "":
			result.Scheduled = append(result.Scheduled, j.ID)
		case !has && j.ranOn != "":
			result.Preempted = append(result.Preempted, j.ID)
		case !has && j.gang != nil && c.having(j.gang) > 0:
			result.Failed = append(result.Failed, j.ID)
		case !has:
			result.Unscheduled = append(result.Unscheduled, scheduling.Unscheduled{Job: j.ID, Reason: j.unplaced})
		}
	}
	for i := range c.queues {
		q := &c.queues[i]
		if len(q.Jobs) == 0 {
			continue
		}
		share := scheduling.Share{Queue: q.Name}
		has := func(j *job) bool { return c.node[j.index] != nil }
		if r, _ := c.dominant(q, has); r >= 0 {
			share.Resource, share.Allocated, share.Total = c.config.Resources[r], c.used(q, has, r), c.total(r)
		}
		result.Shares = append(result.Shares, share)
	}
	slices.SortFunc(result.Shares, func(a, b scheduling.Share) int { return strings.Compare(a.Queue, b.Queue) })
	return result
}

func (c *cycle) clone() *cycle {
	other := *c
	other.node, other.reserved = slices.Clone(c.node), slices.Clone(c.reserved)
	return &other
}

func classOf(config scheduling.Config, j scheduling.Job) scheduling.PriorityClass {
	name := cmp.Or(j.PriorityClass, config.DefaultPriorityClass)
	i := slices.IndexFunc(config.PriorityClasses, func(c scheduling.PriorityClass) bool { return c.Name == name })
	return config.PriorityClasses[i]
}

func amount(amounts scheduling.Resources, r int) int64 {
	if r < len(amounts) {
		return amounts[r]
	}
	return 0
}
