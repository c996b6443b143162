package schedulingmodel

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// armada is a cycle as Armada's scheduler computes it (R22), after running jobs have been evicted. In it, reserved says that a job has been evicted from
// the node in c.node, or from its home.
type armada struct {
	*cycle

	order  []*job // evicted jobs, in the order in which they would return
	failed []*job // single queued jobs that found no node in this pass
}

// likeArmada runs both passes.
func (c *cycle) likeArmada() {
	a := &armada{cycle: c}
	var first []*gang
	for _, g := range c.gangs {
		if c.having(g) == 0 {
			first = append(first, g)
		}
	}
	for _, j := range c.jobs { // R22: an evicted job keeps its node, and is only marked
		if c.reserved[j.index] {
			c.node[j.index] = j.home
		}
	}
	overfull := map[*scheduling.Node]bool{}
	for _, n := range c.nodes {
		overfull[n] = slices.Min(a.free(n, c.on(n))) < 0
	}
	a.findOrder(first)
	a.pass(first, overfull)

	var again []*gang
	for _, g := range c.gangs {
		if slices.ContainsFunc(g.jobs, a.isSqueezed) {
			again = append(again, g)
		}
	}
	for _, g := range again {
		for _, j := range g.jobs {
			c.reserved[j.index] = true
		}
	}
	a.order, a.failed = nil, nil
	a.pass(again, overfull)
	for _, j := range c.jobs {
		if c.reserved[j.index] {
			c.node[j.index], c.reserved[j.index] = nil, false
		}
	}
}

// isSqueezed says whether a job can be evicted for the second pass: its node has less than nothing for jobs of its class.
func (a *armada) isSqueezed(j *job) bool {
	n := a.node[j.index]
	return n != nil && !a.reserved[j.index] && slices.Contains(a.nodes, n) && classOf(a.config, j.Job).IsFairSharePreemptible && slices.Min(a.available(n, j.urgency)) < 0
}

// available is what a node has for jobs of an urgency: all but what others as urgent have that are not evicted, or that cannot be preempted.
func (a *armada) available(n *scheduling.Node, urgency int32) []int64 {
	return a.free(n, slices.DeleteFunc(a.on(n), func(j *job) bool {
		return a.reserved[j.index] || j.urgency < urgency && classOf(a.config, j.Job).IsFairSharePreemptible
	}))
}

// has says whether a job counts for its queue.
func (a *armada) has(j *job) bool { return a.node[j.index] != nil && !a.reserved[j.index] }

// first is the gang of a queue that comes next, of some: gangs stand where their last jobs stand. Those are passed over of which a queued job asks for the same as one that failed.
func (a *armada) first(left []*gang, q *scheduling.Queue) *gang {
	var first *gang
	for _, g := range left {
		skip := slices.ContainsFunc(g.jobs, func(j *job) bool {
			return j.ranOn == "" && slices.ContainsFunc(a.failed, func(f *job) bool { return a.alike(j, f) })
		})
		if g.jobs[0].queue == q && !skip && (first == nil || a.inQueue(g.jobs[len(g.jobs)-1], first.jobs[len(first.jobs)-1]) < 0) {
			first = g
		}
	}
	return first
}

func (a *armada) alike(j, k *job) bool {
	for r := range a.config.Resources {
		if amount(j.Request, r) != amount(k.Request, r) {
			return false
		}
	}
	return classOf(a.config, j.Job).Name == classOf(a.config, k.Job).Name && slices.Equal(j.AvoidedNodes, k.AvoidedNodes)
}

// merge takes gangs from the heads of all queues: the most urgent one, then that with the smallest fraction, itself included. A head is looked for
// again when it has been taken only.
func (a *armada) merge(left []*gang, counts func(*job) bool, take func(*gang)) {
	left = slices.Clone(left)
	heads := map[*scheduling.Queue]*gang{}
	for i := range a.queues {
		heads[&a.queues[i]] = a.first(left, &a.queues[i])
	}
	for {
		var next *gang
		var smallest *big.Rat
		for i := range a.queues {
			q := &a.queues[i]
			g := heads[q]
			if g == nil {
				continue
			}
			fraction := a.fraction(q, func(j *job) bool { return counts(j) || slices.Contains(g.jobs, j) })
			if next == nil || cmp.Or(cmp.Compare(next.jobs[0].urgency, g.jobs[0].urgency), fraction.Cmp(smallest), strings.Compare(q.Name, next.jobs[0].queue.Name)) < 0 {
				next, smallest = g, fraction
			}
		}
		if next == nil {
			return
		}
		take(next)
		behind := slices.IndexFunc(left, func(g *gang) bool { return g == next })
		q := next.jobs[0].queue
		at := next.jobs[len(next.jobs)-1]
		left = slices.Delete(left, behind, behind+1)
		left = slices.DeleteFunc(left, func(g *gang) bool { // what was passed over does not come again
			return g.jobs[0].queue == q && a.inQueue(g.jobs[len(g.jobs)-1], at) < 0
		})
		heads[q] = a.first(left, q)
	}
}

// findOrder finds the order in which evicted jobs would return without queued ones. Those that wait for a queued job of their gang have no place in it.
func (a *armada) findOrder(gangs []*gang) {
	var evicted []*gang
	for _, g := range gangs {
		if g.ran && !slices.ContainsFunc(g.jobs, func(j *job) bool { return j.ranOn == "" }) {
			evicted = append(evicted, g)
		}
	}
	a.merge(evicted, func(j *job) bool { return a.has(j) || slices.Contains(a.order, j) }, func(g *gang) { a.order = append(a.order, g.jobs...) })
}

// pass selects and places all gangs that are left.
func (a *armada) pass(left []*gang, overfull map[*scheduling.Node]bool) {
	a.merge(left, a.has, func(g *gang) {
		var best *armada
		var least int64
		for _, nodes := range a.nodesFor(g) {
			nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *scheduling.Node) bool { return overfull[n] })
			try := &armada{cycle: a.clone(), order: a.order}
			if sum, ok := try.place(g, nodes, overfull); ok && (best == nil || sum < least) {
				best, least = try, sum
			}
		}
		switch {
		case best != nil:
			a.node, a.reserved = best.node, best.reserved
		case len(g.jobs) == 1 && g.jobs[0].ranOn == "":
			a.failed = append(a.failed, g.jobs[0])
		}
	})
}

// place gives nodes to all jobs of a gang. It returns the sum of the priorities at which they preempt.
func (a *armada) place(g *gang, nodes []*scheduling.Node, overfull map[*scheduling.Node]bool) (sum int64, ok bool) {
	for _, j := range g.jobs {
		n, at, victims := a.choose(j, nodes, overfull)
		if n == nil {
			return 0, false
		}
		sum += at
		a.node[j.index], a.reserved[j.index] = n, false
		for _, v := range victims {
			for _, other := range v.gang.jobs {
				if v == other || a.reserved[other.index] {
					a.node[other.index], a.reserved[other.index] = nil, false
				}
			}
		}
	}
	return sum, true
}

func (a *armada) choose(j *job, nodes []*scheduling.Node, overfull map[*scheduling.Node]bool) (*scheduling.Node, int64, []*job) {
	if a.reserved[j.index] {
		if n := a.node[j.index]; overfull[n] || roomy(a.config, j, a.available(n, j.urgency)) {
			return n, -2, nil
		}
		return nil, 0, nil
	}
	if j.ranOn != "" {
		return nil, 0, nil
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *scheduling.Node) bool { return slices.Contains(j.AvoidedNodes, n.Name) })
	if n := a.tightest(j, nodes, func(n *scheduling.Node) []int64 { return a.free(n, a.on(n)) }); n != nil {
		return n, -2, nil
	}
	at := func(urgency int32) *scheduling.Node {
		return a.tightest(j, nodes, func(n *scheduling.Node) []int64 { return a.available(n, urgency) })
	}
	if at(j.urgency) == nil {
		return nil, 0, nil
	}
	gathered := map[*scheduling.Node][]*job{}
	for _, e := range slices.Backward(a.order) {
		n := a.node[e.index]
		if !a.reserved[e.index] || e.urgency > j.urgency || !slices.Contains(nodes, n) {
			continue
		}
		gathered[n] = append(gathered[n], e)
		if roomy(a.config, j, with(a.free(n, a.on(n)), gathered[n])) {
			most := int64(-2)
			for _, v := range gathered[n] {
				most = max(most, int64(v.urgency))
			}
			return n, most, gathered[n]
		}
	}
	urgencies := a.urgencies()
	slices.Reverse(urgencies)
	for i, u := range urgencies {
		if n := at(u); n != nil {
			if i == 0 {
				return n, -1, nil
			}
			return n, int64(u), nil
		}
	}
	return nil, 0, nil
}

// tightest is the node on which a job fits and least is available.
func (a *armada) tightest(j *job, nodes []*scheduling.Node, available func(*scheduling.Node) []int64) *scheduling.Node {
	var best *scheduling.Node
	for _, n := range nodes {
		if !roomy(a.config, j, available(n)) || slices.Compare(a.rounded(available(n)), a.all(j.Request)) < 0 {
			continue
		}
		if best == nil || cmp.Or(slices.Compare(available(n), available(best)), cmp.Compare(n.Name, best.Name)) < 0 {
			best = n
		}
	}
	return best
}

// rounded is what the search for nodes takes for available.
func (a *armada) rounded(available []int64) []int64 {
	down := slices.Clone(available)
	for r := range down {
		if by := amount(a.config.Resolution, r); by > 0 {
			down[r] = down[r] / by * by
		}
	}
	return down
}

func (a *armada) all(amounts scheduling.Resources) []int64 {
	all := make([]int64, len(a.config.Resources))
	for r := range all {
		all[r] = amount(amounts, r)
	}
	return all
}

// roomy is fits, but a job that requests nothing does not fit where there is less than nothing.
func roomy(config scheduling.Config, j *job, available []int64) bool {
	for r := range config.Resources {
		if amount(j.Request, r) > available[r] {
			return false
		}
	}
	return true
}
