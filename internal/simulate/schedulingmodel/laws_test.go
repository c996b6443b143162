package schedulingmodel

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// A law says how an outcome breaks it; empty: it does not. What the laws promise, in which form they hold and
// why not in a wider one, is in docs/internals/scheduling.md.
type law func(t *rapid.T, o outcome) string

// outcome is an instance with what scheduling.Schedule decides.
type outcome struct {
	Instance

	result scheduling.Result
	cycle  *cycle // at its beginning: for its jobs and gangs
	jobs   map[string]*job
}

func decide(in Instance) outcome {
	result, err := scheduling.Schedule(in.Config, in.Queues, in.Nodes, in.NodeByJob)
	if err != nil {
		panic(err)
	}
	o := outcome{Instance: in, result: result, cycle: newCycle(in.Config, in.Queues, in.Nodes, in.NodeByJob), jobs: map[string]*job{}}
	for _, j := range o.cycle.jobs {
		o.jobs[j.ID] = j
	}
	return o
}

func (o outcome) has(id string) bool { return o.result.NodeByJob[id] != "" }

// running is how many jobs of a queue have a node.
func (o outcome) running(q scheduling.Queue) int64 {
	var n int64
	for _, j := range q.Jobs {
		if o.has(j.ID) {
			n++
		}
	}
	return n
}

// free is what is free on a node in the end, apart from jobs of less urgency than given.
func (o outcome) free(node scheduling.Node, urgency int32) []int64 {
	free := make([]int64, len(o.Config.Resources))
	for r := range free {
		free[r] = amount(node.Total, r)
		for id, on := range o.result.NodeByJob {
			if on == node.Name && o.jobs[id].urgency >= urgency {
				free[r] -= amount(o.jobs[id].Request, r)
			}
		}
	}
	return free
}

func (o outcome) nodeOf(j *job) (scheduling.Node, bool) {
	i := slices.IndexFunc(o.Nodes, func(n scheduling.Node) bool { return n.Name == j.ranOn })
	if i < 0 {
		return scheduling.Node{}, false
	}
	return o.Nodes[i], true
}

const anyUrgency = -1 << 31

// permutation: the order of the input changes nothing.
func permutation(t *rapid.T, o outcome) string {
	other := o.clone()
	other.Config.PriorityClasses = rapid.Permutation(other.Config.PriorityClasses).Draw(t, "classes")
	other.Nodes = rapid.Permutation(other.Nodes).Draw(t, "nodes")
	other.Queues = rapid.Permutation(other.Queues).Draw(t, "queues")
	for i := range other.Queues {
		other.Queues[i].Jobs = rapid.Permutation(other.Queues[i].Jobs).Draw(t, "jobs")
	}
	return cmp.Diff(o.result, decide(other).result)
}

// urgency: where a job was preempted, jobs that are at least as urgent left it no room.
func urgency(_ *rapid.T, o outcome) string {
	for _, id := range o.result.Preempted {
		j := o.jobs[id]
		if node, ok := o.nodeOf(j); ok && fits(j, o.free(node, j.urgency)) {
			return id + " was preempted for less urgent jobs"
		}
	}
	return ""
}

// moreUrgent: where a job was preempted, a job that is at least as urgent was scheduled.
func moreUrgent(_ *rapid.T, o outcome) string {
	for _, id := range o.result.Preempted {
		j := o.jobs[id]
		_, ok := o.nodeOf(j)
		if ok && !slices.ContainsFunc(o.result.Scheduled, func(by string) bool {
			return o.result.NodeByJob[by] == j.ranOn && o.jobs[by].urgency >= j.urgency
		}) {
			return id + " was preempted, and nothing as urgent was scheduled on its node"
		}
	}
	return ""
}

// help: no gang that lost jobs could have them back.
func help(_ *rapid.T, o outcome) string {
	for _, g := range o.cycle.gangs {
		if !g.ran {
			continue
		}
		free := map[string][]int64{}
		for _, n := range o.Nodes {
			free[n.Name] = o.free(n, anyUrgency)
		}
		had, back := 0, 0
		for _, j := range g.jobs {
			switch node := free[j.ranOn]; {
			case o.has(j.ID):
				had++
			case node != nil && fits(j, node):
				back++
				for r := range node {
					node[r] -= amount(j.Request, r)
				}
			}
		}
		if back > 0 && had+back >= g.need {
			return fmt.Sprintf("%s was preempted, and its gang's room is not used", g.jobs[0].ID)
		}
	}
	return ""
}

// maximality: no gang that was not scheduled could still be placed.
func maximality(_ *rapid.T, o outcome) string {
	for _, g := range o.cycle.gangs {
		if g.ran || !alike(g) {
			continue
		}
		had := 0
		for _, j := range g.jobs {
			if o.has(j.ID) {
				had++
			}
		}
		if had == len(g.jobs) {
			continue
		}
		for _, nodes := range o.cycle.nodesFor(g) {
			if room := o.room(g, nodes); had == 0 && room >= g.need {
				return fmt.Sprintf("%s waits, and there is room for %d like it", g.jobs[0].ID, room)
			}
		}
	}
	return ""
}

// elsewhere: no preempted job would fit on any node.
func elsewhere(_ *rapid.T, o outcome) string {
	for _, id := range o.result.Preempted {
		for _, n := range o.Nodes {
			if j := o.jobs[id]; fits(j, o.free(n, anyUrgency)) && !slices.Contains(j.AvoidedNodes, n.Name) {
				return fmt.Sprintf("%s was preempted, and there is room on %s", id, n.Name)
			}
		}
	}
	return ""
}

// alike says whether all jobs of a gang request the same and avoid the same nodes.
func alike(g *gang) bool {
	return !slices.ContainsFunc(g.jobs, func(j *job) bool {
		return !slices.Equal(j.Request, g.jobs[0].Request) || !slices.Equal(j.AvoidedNodes, g.jobs[0].AvoidedNodes)
	})
}

// room is how many jobs like the first of a gang fit into what is free.
func (o outcome) room(g *gang, nodes []*scheduling.Node) int {
	room := 0
	for _, n := range nodes {
		free := o.free(*n, anyUrgency)
		for range g.jobs {
			if slices.Contains(g.jobs[0].AvoidedNodes, n.Name) || !fits(g.jobs[0], free) {
				break
			}
			room++
			for r := range free {
				free[r] -= amount(g.jobs[0].Request, r)
			}
		}
	}
	return room
}

// pareto: no other placement of the same jobs runs all jobs that run, and more.
func pareto(_ *rapid.T, o outcome) string {
	var running, waiting []*job
	for _, j := range o.cycle.jobs {
		if o.has(j.ID) {
			running = append(running, j)
		} else {
			waiting = append(waiting, j)
		}
	}
	free := map[string][]int64{}
	for _, n := range o.Nodes {
		free[n.Name] = append(make([]int64, 0, len(n.Total)), n.Total...)
	}
	for _, j := range waiting {
		if packs(append([]*job{j}, running...), free) {
			return fmt.Sprintf("%s could run beside all that run, on other nodes", j.ID)
		}
	}
	return ""
}

// packs says whether there is any placement of jobs.
func packs(jobs []*job, free map[string][]int64) bool {
	if len(jobs) == 0 {
		return true
	}
	for _, node := range free {
		if !fits(jobs[0], node) {
			continue
		}
		for r := range node {
			node[r] -= amount(jobs[0].Request, r)
		}
		ok := packs(jobs[1:], free)
		for r := range node {
			node[r] += amount(jobs[0].Request, r)
		}
		if ok {
			return true
		}
	}
	return false
}

// stability: if the preempted jobs are submitted again, before anything else happens, then no job is preempted, and
// they are not scheduled.
func stability(_ *rapid.T, o outcome) string {
	return o.cycleAgain(func(j *scheduling.Job) { j.Priority, j.Submitted = 1000, cycleTime.Add(time.Hour) })
}

// stabilityInPlace is stability for jobs that keep their priority and time.
func stabilityInPlace(_ *rapid.T, o outcome) string { return o.cycleAgain(func(*scheduling.Job) {}) }

func (o outcome) cycleAgain(resubmit func(*scheduling.Job)) string {
	again := o.next(resubmit)
	if len(again.Preempted) > 0 {
		return fmt.Sprintf("first %v were preempted, and then %v", o.result.Preempted, again.Preempted)
	}
	for _, id := range o.result.Preempted {
		if slices.Contains(again.Scheduled, id) {
			return id + " was preempted, and then scheduled"
		}
	}
	return ""
}

// next is the cycle after this one, in which the preempted jobs are queued again.
func (o outcome) next(resubmit func(*scheduling.Job)) scheduling.Result {
	in := o.clone()
	in.NodeByJob = o.result.NodeByJob
	for i := range in.Queues {
		q := &in.Queues[i]
		q.Jobs = slices.DeleteFunc(q.Jobs, func(j scheduling.Job) bool { return slices.Contains(o.result.Failed, j.ID) })
		for k := range q.Jobs {
			if slices.Contains(o.result.Preempted, q.Jobs[k].ID) {
				resubmit(&q.Jobs[k])
			}
		}
	}
	return decide(in).result
}

// sharing: a queue's first jobs run, as far as they fit into the part of the cluster that is the queue's own.
func sharing(_ *rapid.T, o outcome) string {
	for i := range o.Queues {
		q := &o.Queues[i]
		if len(q.Jobs) == 0 {
			continue
		}
		part, used := o.part(*q), make([]int64, len(o.Config.Resources))
	gangs:
		for _, g := range o.cycle.ofQueue(q) {
			for r := range used {
				for _, j := range g.jobs {
					used[r] += amount(j.Request, r)
				}
				if new(big.Rat).SetInt64(used[r]).Cmp(new(big.Rat).Mul(part, new(big.Rat).SetInt64(o.cycle.total(r)))) > 0 {
					break gangs
				}
			}
			if id := g.jobs[0].ID; !o.has(id) {
				return fmt.Sprintf("%s has no node, and fits into the part of the cluster that is its queue's", id)
			}
		}
	}
	return ""
}

// part is the part of the cluster that is a queue's own.
func (o outcome) part(q scheduling.Queue) *big.Rat {
	weights := new(big.Rat)
	for _, other := range o.Queues {
		if len(other.Jobs) > 0 {
			weights.Add(weights, big.NewRat(1, other.PriorityFactor))
		}
	}
	return new(big.Rat).Quo(big.NewRat(1, q.PriorityFactor), weights)
}

// ofQueue are a queue's gangs in order.
func (c *cycle) ofQueue(q *scheduling.Queue) []*gang {
	list := slices.DeleteFunc(slices.Clone(c.gangs), func(g *gang) bool { return g.jobs[0].queue != q })
	slices.SortFunc(list, func(a, b *gang) int { return c.inQueue(a.jobs[0], b.jobs[0]) })
	return list
}

// sharingCount: a queue of jobs of size 1 runs as many as its own part of the cluster would.
func sharingCount(_ *rapid.T, o outcome) string {
	for _, q := range o.Queues {
		if len(q.Jobs) == 0 {
			continue
		}
		own := new(big.Rat).Mul(o.part(q), new(big.Rat).SetInt64(o.cycle.total(0)))
		whole := new(big.Int).Quo(own.Num(), own.Denom()).Int64()
		if has := o.running(q); has < min(whole, int64(len(q.Jobs))) {
			return fmt.Sprintf("%s runs %d jobs, and has room for %d in its own part of the cluster", q.Name, has, whole)
		}
	}
	return ""
}

// envy: a queue whose jobs are alike, and do not all run, would run at most one job more with what another queue
// of the same weight has. In general, one job less than what it would run is less than its jobs and the next one,
// times the ratio of the weights.
func envy(_ *rapid.T, o outcome) string { return o.envy(1) }

// envyStrict is envy without the one more.
func envyStrict(_ *rapid.T, o outcome) string { return o.envy(0) }

func (o outcome) envy(more int64) string {
	for _, mine := range o.Queues {
		has := o.running(mine)
		if has == int64(len(mine.Jobs)) {
			continue
		}
		for _, theirs := range o.Queues {
			n := o.with(mine, theirs)
			if (n-more)*theirs.PriorityFactor >= (has+1)*mine.PriorityFactor && mine.Name != theirs.Name {
				return fmt.Sprintf("%s runs %d jobs, and would run %d with what %s has", mine.Name, has, n, theirs.Name)
			}
		}
	}
	return ""
}

// with is how many of its jobs a queue would run with what another one has.
func (o outcome) with(mine, theirs scheduling.Queue) int64 {
	n := int64(-1)
	for r := range o.Config.Resources {
		if need := amount(mine.Jobs[0].Request, r); need > 0 {
			var used int64
			for _, j := range theirs.Jobs {
				if o.has(j.ID) {
					used += amount(j.Request, r)
				}
			}
			if whole := used / need; n < 0 || whole < n {
				n = whole
			}
		}
	}
	return max(n, 0)
}

// maxMin: no queue has more than a waiting queue would have with its next job. All jobs have the size 1.
func maxMin(_ *rapid.T, o outcome) string {
	for _, poor := range o.Queues {
		has := o.running(poor)
		if has == int64(len(poor.Jobs)) {
			continue
		}
		for _, rich := range o.Queues {
			if n := o.running(rich); n*rich.PriorityFactor > (has+1)*poor.PriorityFactor && rich.Name != poor.Name {
				return fmt.Sprintf("%s runs %d jobs, and %s runs %d", poor.Name, has, rich.Name, n)
			}
		}
	}
	return ""
}

// strategy: a queue that requests more than its jobs need does not run more of them.
func strategy(t *rapid.T, o outcome) string { return o.someLie(t, 0) }

// strategyUpToOne: it runs one more at most.
func strategyUpToOne(t *rapid.T, o outcome) string { return o.someLie(t, 1) }

func (o outcome) someLie(t *rapid.T, gain int64) string {
	queue := rapid.SampledFrom(o.Queues).Draw(t, "liar").Name
	var more []int64
	for range o.Config.Resources {
		more = append(more, rapid.Int64Range(0, 4).Draw(t, "more"))
	}
	return o.lie(queue, gain, more)
}

// lie is strategy for one lie.
func lie(queue string, more ...int64) law {
	return func(_ *rapid.T, o outcome) string { return o.lie(queue, 0, more) }
}

func (o outcome) lie(queue string, gain int64, more []int64) string {
	other := o.clone()
	i := slices.IndexFunc(other.Queues, func(q scheduling.Queue) bool { return q.Name == queue })
	for k, j := range other.Queues[i].Jobs {
		request := slices.Clone(j.Request)
		for r := range request {
			request[r] += more[r]
		}
		other.Queues[i].Jobs[k].Request = request
	}
	honest, liar := o.running(o.Queues[i]), decide(other).running(o.Queues[i])
	if liar > honest+gain {
		return fmt.Sprintf("%s runs %d jobs, and %d if it requests %v more", queue, honest, liar, more)
	}
	return ""
}

// The shapes in which the laws hold.
var (
	single   = Shape{Queues: 6, Nodes: 20, Jobs: 60, Resources: 3, Classes: 4, Gang: 1, Capacity: 8, Request: 5, Restrictions: true, Fixed: true, Factors: true}
	oneNode  = Shape{Queues: 5, Nodes: 1, Jobs: 60, Resources: 3, Classes: 1, Gang: 4, Capacity: 30, Request: 5, Factors: true}
	oneKind  = Shape{Queues: 5, Nodes: 1, Jobs: 60, Resources: 3, Classes: 1, Gang: 1, Capacity: 30, Request: 5, Identical: true, Factors: true}
	unit     = Shape{Queues: 5, Nodes: 6, Jobs: 40, Resources: 1, Classes: 1, Gang: 1, Capacity: 8, Request: 1, Least: 1, Factors: true}
	idle     = Shape{Queues: 5, Nodes: 6, Jobs: 40, Resources: 1, Classes: 1, Gang: 1, Capacity: 8, Request: 1, Least: 1, Factors: true, Idle: true}
	fewUnits = Shape{Queues: 3, Nodes: 3, Jobs: 7, Resources: 1, Classes: 1, Gang: 1, Capacity: 3, Request: 1, Least: 1, Factors: true}
)

// described is Everything as the description has it: like Armada, some jobs are preempted in vain, and what they leave is not always used.
func described() Shape {
	s := Everything
	s.Modes = false
	return s
}

var laws = []struct {
	name  string
	law   law
	shape Shape
}{
	{"permutation", permutation, Everything},
	{"urgency", urgency, single},
	{"moreUrgent", moreUrgent, single},
	{"help", help, described()},
	{"maximality", maximality, described()},
	{"pareto", pareto, fewUnits},
	{"stability", stability, oneKind},
	{"stability in place", stabilityInPlace, oneKind},
	{"sharing on one node", sharing, oneNode},
	{"sharing of units", sharing, idle},
	{"envy on one node", envy, oneKind},
	{"envy of units", envy, idle},
	{"maxMin", maxMin, idle},
	{"strategy on one node", strategyUpToOne, oneKind},
	{"strategy of units", strategy, unit},
}

// TestLaws holds scheduling.Schedule to its promises on random instances.
func TestLaws(t *testing.T) {
	t.Parallel()
	for _, tt := range laws {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				in := tt.shape.Draw(t)
				if broken := tt.law(t, decide(in)); broken != "" {
					t.Fatalf("BROKEN %s\n%v", broken, in)
				}
			})
		})
	}
}
