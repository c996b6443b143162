package scheduling

import (
	"cmp"
	"slices"
	"strings"
)

// result is what became of every job.
func (c *cycle) result(nodeByJob map[string]string) Result {
	out := Result{NodeByJob: make(map[string]string, len(nodeByJob))}
	c.each(func(g *gang) {
		for _, j := range g.members {
			switch job := &c.jobs[j]; {
			case job.state == placed && job.start != none:
				out.NodeByJob[job.ID] = nodeByJob[job.ID]
			case job.state == placed:
				out.NodeByJob[job.ID] = c.nodes[job.node].Name
				out.Scheduled = append(out.Scheduled, job.ID)
			case job.start != none:
				out.Preempted = append(out.Preempted, job.ID)
			case g.have > 0:
				out.Failed = append(out.Failed, job.ID)
			default:
				out.Unscheduled = append(out.Unscheduled, Unscheduled{job.ID, c.reason(j)})
			}
		}
	})
	slices.Sort(out.Scheduled)
	slices.Sort(out.Preempted)
	slices.Sort(out.Failed)
	slices.SortFunc(out.Unscheduled, func(a, b Unscheduled) int { return strings.Compare(a.Job, b.Job) })
	out.Shares = c.shares(nil)
	return out
}

// each calls a function with every gang.
func (c *cycle) each(do func(*gang)) {
	for q := range c.queues {
		for _, g := range c.queues[q].gangs {
			do(&c.gangs[g])
		}
	}
}

// shares appends those of the active queues.
func (c *cycle) shares(all []Share) []Share {
	for q := range c.queues {
		if len(c.queues[q].gangs) > 0 {
			all = append(all, c.share(int32(q)))
		}
	}
	return all
}

// reason is why a queued job remains queued.
func (c *cycle) reason(j int32) Reason {
	blocked := cmp.Or(c.notYet(j), c.gangs[c.jobs[j].gang].blocked)
	switch {
	case blocked != UnknownReason:
		return blocked
	case !c.fitsSomeNode(j):
		return FitsNoNode
	}
	return NoRoom
}

// fitsSomeNode says whether a job would fit on a node if all were empty.
func (c *cycle) fitsSomeNode(j int32) bool {
	c.avoid(&c.jobs[j])
	request := c.request(j)
	for n := range c.nodes {
		if fits(request, c.nodes[n].Total) && !slices.Contains(c.work.avoided, int32(n)) {
			return true
		}
	}
	return false
}

// fits is jobFitsOnNode for a node with fewer amounts.
func fits(request []int64, total Resources) bool {
	for r, amount := range request {
		if amount > 0 && (r >= len(total) || amount > total[r]) {
			return false
		}
	}
	return true
}

func (c *cycle) share(q int32) Share {
	sum := c.of(c.amounts.placed, q)
	share := Share{Queue: c.queues[q].name}
	if r := dominant(sum, c.total); r >= 0 && sum[r] > 0 {
		share.Resource, share.Allocated, share.Total = c.names[r], sum[r], c.total[r]
	}
	return share
}
