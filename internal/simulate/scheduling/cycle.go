package scheduling

import (
	"slices"
	"time"
)

const none = -1

// cycle is the state of one scheduling cycle. Queues, jobs, gangs and nodes are named by their
// indexes. Those of queues and nodes are in the order of their names. Those of jobs are in order if sorted is set:
// by queue and then by their order in it.
type cycle struct {
	names        []string // of the resources
	resources    int
	now          time.Time
	defaultClass string
	total        []int64 // of all nodes
	levels       int     // distinct priorities of classes; a level is the index of one, the lowest first
	priorities   []int32 // by level
	likeArmada   bool
	resolution   Resources
	sorted       bool

	queues []queue
	jobs   []job
	gangs  []gang
	nodes  []node

	requests []int64 // by job
	amounts  amounts
	index    index
	nodeOf   map[string]int32
	labels   map[string]*label

	line     line // the queues with gangs to select
	rank     rank // the queues by what they hold
	undo     []change
	level    int32 // the one that is scheduled
	version  int   // how many times a job lost what it had on a node
	hopeless hopeless
	armada   likeArmada
	work     scratch
}

type queue struct {
	name   string
	factor int64
	gangs  []int32 // in order
	next   int     // the first one that was neither popped nor passed over
}

type job struct {
	*Job
	queue, gang int32
	level       int32
	preemptible bool
	state       state
	node        int32 // if it has one, or a reservation there
	at          int32 // its position in the list of that node
	key         int32 // its scheduling key; none if nobody has asked
	start       int32 // where it ran when the cycle began; gone if that node is unknown, none if it was queued
}

// gone is the node of a running job whose node is not among the nodes.
const gone = -2

// state is what a job has on job.node.
type state uint8

const (
	nothing  state = iota
	reserved       // evicted, and neither selected again nor displaced
	placed
)

type gang struct {
	queue   int32
	members []int32 // in order
	need    int
	have    int // members that are placed
	label   string
	running bool   // its members ran when the cycle began
	joined  bool   // only some of them did: see joins
	again   bool   // see likeArmada
	blocked Reason // why it cannot be selected, if its members do not say so
}

type node struct {
	*Node
	jobs []occupant // what has it, or a reservation on it, in no order
}

// occupant is a job that has a node or a reservation there.
type occupant struct {
	job, queue, level int32
	state             state
}

// amounts are vectors of resources, one behind the other.
type amounts struct {
	free      []int64 // by node: its total without jobs and reservations
	available []int64 // by node and level: what a job of the level could take, with displacement
	indexed   []int64 // by node: what was free when the index last saw it
	held      []int64 // by queue: of jobs with a node or a reservation
	placed    []int64 // by queue: of jobs with a node
}

// change is what undo takes back.
type change struct {
	job, node int32
	state     state
}

// scratch is memory that is used again and again.
type scratch struct {
	avoided []int32
	victims []occupant
	sum     []int64
	left    []int64
}

func (c *cycle) of(vectors []int64, i int32) []int64 {
	from := int(i) * c.resources
	return vectors[from : from+c.resources : from+c.resources]
}

func (c *cycle) request(j int32) []int64 { return c.of(c.requests, j) }

func (c *cycle) available(n, level int32) []int64 {
	return c.of(c.amounts.available, n*int32(c.levels)+level)
}

// jobFitsOnNode says whether a request fits into what is available.
func jobFitsOnNode(request, available []int64) bool {
	for r, amount := range request {
		if amount > available[r] && amount > 0 {
			return false
		}
	}
	return true
}

// assign gives a job a node, a reservation or nothing, and remembers what it had.
func (c *cycle) assign(j int32, s state, n int32) {
	c.undo = append(c.undo, change{j, c.jobs[j].node, c.jobs[j].state})
	c.put(j, s, n)
}

// guarded is the level above which jobs may displace a job that has a node.
func (c *cycle) guarded(j *job) int32 {
	if c.likeArmada && !j.preemptible {
		return int32(c.levels) - 1
	}
	return j.level
}

// mark forgets what changed so far: takeBack goes back to here.
func (c *cycle) mark() {
	c.undo = c.undo[:0]
}

// takeBack takes back all changes since the last mark.
func (c *cycle) takeBack() {
	for _, u := range slices.Backward(c.undo) {
		c.put(u.job, u.state, u.node)
	}
	c.undo = c.undo[:0]
}

func (c *cycle) put(j int32, s state, n int32) {
	job := &c.jobs[j]
	if job.state != nothing {
		c.count(j, -1)
		c.unlink(j)
		if s != placed {
			c.version++
		}
	}
	job.state, job.node = s, n
	if s != nothing {
		c.count(j, 1)
		c.link(j)
	}
}

// count adds what a job has to all sums, or takes it away.
func (c *cycle) count(j int32, sign int64) {
	job, request := &c.jobs[j], c.request(j)
	held := c.of(c.amounts.held, job.queue)
	for r, amount := range request {
		held[r] += sign * amount
	}
	c.rank.stale(job.queue)
	if job.state == placed {
		sum := c.of(c.amounts.placed, job.queue)
		for r, amount := range request {
			sum[r] += sign * amount
		}
		c.gangs[job.gang].have += int(sign)
		c.line.stale(job.queue)
	}
	if job.node < 0 {
		return
	}
	free := c.of(c.amounts.free, job.node)
	for r, amount := range request {
		free[r] -= sign * amount
	}
	// A job can displace reservations up to its own level, and jobs below it.
	last := c.guarded(job)
	switch {
	case job.state == placed:
	case c.likeArmada:
		last = none
	default:
		last--
	}
	for level := int32(0); level <= last; level++ {
		available := c.available(job.node, level)
		for r, amount := range request {
			available[r] -= sign * amount
		}
	}
	c.rank.count(job, c.guarded(job), int32(sign))
	c.index.touch(job.node)
}

func (c *cycle) link(j int32) {
	if job := &c.jobs[j]; job.node >= 0 {
		list := &c.nodes[job.node].jobs
		job.at = int32(len(*list))
		*list = append(*list, occupant{j, job.queue, c.guarded(job), job.state})
	}
}

func (c *cycle) unlink(j int32) {
	if job := &c.jobs[j]; job.node >= 0 {
		list := c.nodes[job.node].jobs
		last := len(list) - 1
		list[job.at] = list[last]
		c.jobs[list[last].job].at = job.at
		c.nodes[job.node].jobs = list[:last]
	}
}

// allAvailable is what is available on a node at all levels.
func (c *cycle) allAvailable(n int32) []int64 {
	size := c.levels * c.resources
	return c.amounts.available[int(n)*size : (int(n)+1)*size]
}
