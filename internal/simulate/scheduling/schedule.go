package scheduling

// Result is what a scheduling cycle decides. All lists are sorted by job.
type Result struct {
	// NodeByJob is the new mapping from jobs to nodes. A job that is in neither mapping remains queued,
	// one that is only in the new mapping was scheduled, one that is only in the old mapping was preempted.
	NodeByJob map[string]string
	// Scheduled are the IDs of the queued jobs that got a node.
	Scheduled []string
	// Preempted are the IDs of the running jobs that lost their node.
	Preempted []string
	// Failed are the IDs of the queued jobs that got no node while enough other jobs of their gang did.
	// They are to be failed.
	Failed []string
	// Unscheduled are the jobs that remain queued, with the reason. Failed jobs are not among them.
	Unscheduled []Unscheduled
	// Shares are the shares of all active queues, sorted by queue.
	Shares []Share
}

// Unscheduled is a job that remains queued.
type Unscheduled struct {
	Job    string
	Reason Reason
}

// Reason says why a job remains queued: the first in this list that holds.
type Reason int

// The reasons.
const (
	// UnknownReason is no reason.
	UnknownReason Reason = iota
	// Held means Job.Held.
	Held
	// TooEarly means that Job.RetryAfter is later than Config.Now.
	TooEarly
	// GangIncomplete means that fewer than Cardinality jobs of the gang are queued, neither held nor too early.
	GangIncomplete
	// FitsNoNode means that the job would not fit on any node that it does not avoid, even if the node were empty.
	FitsNoNode
	// NoRoom means that other jobs have what the job, or its gang, needs.
	NoRoom
)

// String is the reason in words that do not change.
func (r Reason) String() string {
	switch r {
	case Held:
		return "Held"
	case TooEarly:
		return "TooEarly"
	case GangIncomplete:
		return "GangIncomplete"
	case FitsNoNode:
		return "FitsNoNode"
	case NoRoom:
		return "NoRoom"
	default:
		return "UnknownReason"
	}
}

// Share is what an active queue, one with a job that is queued or running, has after the cycle.
type Share struct {
	Queue string
	// Resource is the dominant resource of the queue's jobs that have a node; empty if they have no resources.
	Resource string
	// Allocated and Total are how much of it these jobs have, and how much all nodes have.
	Allocated, Total int64
}

// Schedule determines which queued jobs to schedule and which running jobs to preempt.
// nodeByJob maps each running job to its node; a job that is not in it is queued.
func Schedule(config Config, queues []Queue, nodes []Node, nodeByJob map[string]string) (Result, error) {
	c, err := newCycle(config, queues, nodes, nodeByJob)
	if err != nil {
		return Result{}, err
	}
	c.evict()
	c.index.build()
	c.schedule()
	return c.result(nodeByJob), nil
}

// evict takes the nodes from all running jobs that are fair-share preemptible, and leaves them
// a reservation. The other running jobs keep their nodes.
func (c *cycle) evict() {
	for j := range c.jobs {
		switch job := &c.jobs[j]; {
		case job.start == none:
		case !job.preemptible:
			if job.state != placed {
				c.put(int32(j), placed, job.start)
			}
		case job.start != gone:
			c.put(int32(j), reserved, job.start)
		case job.state != nothing:
			c.put(int32(j), nothing, none)
		}
	}
}

// schedule selects gang after gang and gives them nodes, level by level from the most urgent one,
// until there are no more. What it displaces, apart from reservations, is of lower levels, and is selected there.
func (c *cycle) schedule() {
	if c.likeArmada {
		c.scheduleAsArmada()
		return
	}
	for level := int32(c.levels) - 1; level >= 0; level-- {
		c.line.fill(level)
		for g := c.selectNextQueuedGangToSchedule(); g != none; g = c.selectNextQueuedGangToSchedule() {
			c.selectNodesForGang(&c.gangs[g])
		}
	}
}
