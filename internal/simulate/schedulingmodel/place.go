package schedulingmodel

import (
	"cmp"
	"maps"
	"math/big"
	"slices"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// place places a gang, if enough of its jobs find room (R16, R17).
func (c *cycle) place(g *gang) {
	if g.ran {
		for _, j := range g.jobs {
			c.reserved[j.index] = false
		}
	}
	var best *attempt
	for _, nodes := range c.nodesFor(g) {
		a := &attempt{cycle: c.clone()}
		for _, j := range g.jobs {
			if a.cycle.node[j.index] == nil {
				a.place(j, nodes)
			}
		}
		if best == nil || a.compare(best) < 0 {
			best = a
		}
	}
	if best == nil || best.cycle.having(g) < g.need {
		return
	}
	c.node, c.reserved = best.cycle.node, best.cycle.reserved
}

// nodesFor are the sets of nodes on which a gang can be placed: all, or those with one value of its label (R17, R22).
func (c *cycle) nodesFor(g *gang) [][]*scheduling.Node {
	label := g.jobs[0].Gang.NodeUniformityLabel
	queued := slices.ContainsFunc(g.jobs, func(j *job) bool { return j.ranOn == "" })
	if label == "" || !queued || c.config.LikeArmada && g.jobs[0].Gang.Cardinality == 1 {
		return [][]*scheduling.Node{c.nodes}
	}
	byValue := map[string][]*scheduling.Node{}
	for _, n := range c.nodes {
		if value, ok := n.Labels[label]; ok {
			byValue[value] = append(byValue[value], n)
		}
	}
	var sets [][]*scheduling.Node
	for _, value := range slices.Sorted(maps.Keys(byValue)) {
		sets = append(sets, byValue[value])
	}
	return sets
}

// attempt is a gang placed on some set of nodes.
type attempt struct {
	cycle   *cycle
	placed  int
	dearest dear
}

func (a *attempt) compare(b *attempt) int {
	return cmp.Or(cmp.Compare(b.placed, a.placed), a.dearest.compare(b.dearest))
}

// dear says how dear a displaced job is.
type dear struct {
	displaced bool // nothing is displaced: cheaper than anything
	urgency   int32
	fraction  *big.Rat // of its queue, at the time
}

func (d dear) compare(e dear) int {
	switch {
	case !d.displaced && !e.displaced:
		return 0
	case !d.displaced:
		return -1
	case !e.displaced:
		return 1
	}
	return cmp.Or(cmp.Compare(d.urgency, e.urgency), e.fraction.Cmp(d.fraction))
}

// option is a node that is possible for a job, with what the job would displace.
type option struct {
	node      *scheduling.Node
	displaced []*job
	dearest   dear
	free      []int64
}

// place gives a job the best node that is possible for it (R14).
func (a *attempt) place(j *job, nodes []*scheduling.Node) {
	c := a.cycle
	fractions := map[string]*big.Rat{}
	for i := range c.queues {
		fractions[c.queues[i].Name] = c.allocated(&c.queues[i], j)
	}
	var best *option
	for _, n := range nodes {
		if j.home != nil && n != j.home || j.home == nil && slices.Contains(j.AvoidedNodes, n.Name) {
			continue
		}
		if o := c.option(j, n, fractions); o != nil && (best == nil || o.compare(best) < 0) {
			best = o
		}
	}
	if best == nil {
		return
	}
	a.placed++
	if best.dearest.compare(a.dearest) > 0 {
		a.dearest = best.dearest
	}
	c.node[j.index] = best.node
	for _, other := range best.displaced {
		c.displace(other)
	}
}

func (o *option) compare(p *option) int {
	return cmp.Or(o.dearest.compare(p.dearest), slices.Compare(o.free, p.free), cmp.Compare(o.node.Name, p.node.Name))
}

// option says how a job would be placed on a node; nil: not at all (R12, R13).
func (c *cycle) option(j *job, n *scheduling.Node, fractions map[string]*big.Rat) *option {
	there := c.on(n)
	free := c.free(n, there)
	o := &option{node: n, free: free}
	if fits(j, free) {
		return o
	}
	candidates := c.candidates(j, there, fractions)
	for i := range candidates {
		prefix := candidates[:i+1]
		if !fits(j, with(free, prefix)) {
			continue
		}
		o.dearest = dear{displaced: true, urgency: candidates[i].urgency, fraction: fractions[candidates[i].queue.Name]}
		o.displaced = slices.Clone(prefix)
		for _, spared := range slices.Backward(prefix) {
			others := slices.DeleteFunc(slices.Clone(o.displaced), func(other *job) bool { return other == spared })
			if fits(j, with(free, others)) {
				o.displaced = others
			}
		}
		return o
	}
	return nil
}

// on are the jobs that have a node, or a reservation there.
func (c *cycle) on(n *scheduling.Node) []*job {
	var list []*job
	for i, j := range c.jobs {
		if c.node[i] == n || c.reserved[i] && j.home == n {
			list = append(list, j)
		}
	}
	return list
}

// candidates are what a job may displace of what others have on a node, from cheap to dear.
func (c *cycle) candidates(j *job, there []*job, fractions map[string]*big.Rat) []*job {
	var list []*job
	for _, other := range there {
		if reserved := c.reserved[other.index]; reserved && other.urgency <= j.urgency || !reserved && other.urgency < j.urgency {
			list = append(list, other)
		}
	}
	slices.SortFunc(list, func(x, y *job) int {
		return cmp.Or(
			cmp.Compare(x.urgency, y.urgency),
			fractions[y.queue.Name].Cmp(fractions[x.queue.Name]),
			cmp.Compare(x.queue.Name, y.queue.Name),
			c.inQueue(y, x),
		)
	})
	return list
}

// displace takes a job's reservation, or its node, and then those of its gang if too few are left (R18).
func (c *cycle) displace(j *job) {
	if c.reserved[j.index] {
		c.reserved[j.index] = false
		return
	}
	c.node[j.index] = nil
	if c.having(j.gang) < j.gang.need {
		for _, other := range j.gang.jobs {
			c.node[other.index] = nil
		}
	}
}

// free is a node's total minus what jobs have there and what is reserved (R11).
func (c *cycle) free(n *scheduling.Node, there []*job) []int64 {
	free := make([]int64, len(c.config.Resources))
	for r := range free {
		free[r] = amount(n.Total, r)
	}
	for _, j := range there {
		for r := range free {
			free[r] -= amount(j.Request, r)
		}
	}
	return free
}

// with is what is free without some jobs.
func with(free []int64, without []*job) []int64 {
	more := slices.Clone(free)
	for r := range more {
		for _, j := range without {
			more[r] += amount(j.Request, r)
		}
	}
	return more
}

// fits says whether a job fits into what is free (R2).
func fits(j *job, free []int64) bool {
	for r := range free {
		if need := amount(j.Request, r); need > 0 && need > free[r] {
			return false
		}
	}
	return true
}

// fitsSomeEmptyNode says whether the job would fit on any node that it does not avoid, if that were empty (R21).
func (c *cycle) fitsSomeEmptyNode(j *job) bool {
	return slices.ContainsFunc(c.nodes, func(n *scheduling.Node) bool {
		total := make([]int64, len(c.config.Resources))
		for r := range total {
			total[r] = amount(n.Total, r)
		}
		return !slices.Contains(j.AvoidedNodes, n.Name) && fits(j, total)
	})
}
