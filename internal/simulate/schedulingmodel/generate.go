package schedulingmodel

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// Instance is the input of one scheduling cycle.
type Instance struct {
	Config    scheduling.Config
	Queues    []scheduling.Queue
	Nodes     []scheduling.Node
	NodeByJob map[string]string
}

// Shape says what instances may have. The numbers are upper limits.
type Shape struct {
	Queues, Nodes, Jobs int
	Resources, Classes  int
	Gang                int  // jobs of a gang
	Capacity, Request   int  // amounts that a node has, and that a job requests, of each resource
	Least               int  // the lower limit of these amounts
	Identical           bool // all jobs of a queue request the same
	Restrictions        bool // avoided nodes, retryAfter, held members, labels, nodes that are gone
	Fixed               bool // classes that are not fair-share preemptible
	Overfull            bool // nodes with more running jobs than they have room for
	Factors             bool // queues of different weights
	Idle                bool // nothing runs yet
	Modes               bool // as documented, and as Armada's scheduler does it
	Large               bool // also amounts and weights that only products of 128 bits can compare
}

// Everything is the shape of any instance of up to 6 queues, 20 nodes and 200 jobs.
var Everything = Shape{
	Queues: 6, Nodes: 20, Jobs: 200, Resources: 3, Classes: 4, Gang: 6, Capacity: 8, Request: 5,
	Restrictions: true, Fixed: true, Overfull: true, Factors: true, Modes: true, Large: true,
}

// Wide is the shape of instances with few jobs for many nodes.
var Wide = Shape{
	Queues: 4, Nodes: 200, Jobs: 100, Resources: 2, Classes: 3, Gang: 4, Capacity: 2, Request: 3,
	Restrictions: true, Fixed: true, Factors: true, Modes: true,
}

var (
	cycleTime     = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	resourceNames = []string{"gpu", "cpu", "memory"}
)

// Draw draws an instance.
func (s Shape) Draw(t *rapid.T) Instance {
	d := drawing{Shape: s, T: t, free: map[string][]int64{}, in: Instance{NodeByJob: map[string]string{}}}
	d.config()
	d.nodes()
	d.queues()
	d.jobs()
	if s.Large && d.oneIn(10, "large") {
		d.enlarge()
	}
	return d.in
}

type drawing struct {
	Shape
	*rapid.T

	in     Instance
	shapes []scheduling.Resources // what most jobs request
	free   map[string][]int64     // by node
	gangs  int
	number int
}

func (d *drawing) upTo(n int, what string) int { return rapid.IntRange(0, n).Draw(d.T, what) }

// oneIn is true once in n times, and never in the smallest counterexample that needs it not.
func (d *drawing) oneIn(n int, what string) bool {
	return rapid.IntRange(0, n-1).Draw(d.T, what) == n-1
}

func (d *drawing) config() {
	d.in.Config = scheduling.Config{Now: cycleTime, Resources: resourceNames[:1+d.upTo(d.Resources-1, "resources")]}
	for i := range 1 + d.upTo(d.Classes-1, "classes") {
		d.in.Config.PriorityClasses = append(d.in.Config.PriorityClasses, scheduling.PriorityClass{
			Name: fmt.Sprintf("class-%d", i), Priority: int32(d.upTo(d.Classes-1, "urgency")),
			IsFairSharePreemptible: !d.Fixed || !d.oneIn(4, "fixed"),
		})
	}
	d.in.Config.DefaultPriorityClass = "class-0"
	if d.in.Config.LikeArmada = d.Modes && d.oneIn(3, "like Armada"); d.in.Config.LikeArmada {
		for range d.in.Config.Resources {
			d.in.Config.Resolution = append(d.in.Config.Resolution, int64(d.upTo(3, "resolution")))
		}
	}
}

// amounts are small, so that jobs compete and equals are frequent.
func (d *drawing) amounts(most int, what string) scheduling.Resources {
	amounts := make(scheduling.Resources, len(d.in.Config.Resources))
	for r := range amounts {
		amounts[r] = int64(rapid.IntRange(d.Least, most).Draw(d.T, what))
	}
	return amounts
}

func (d *drawing) nodes() {
	n := 1 + d.upTo(d.Nodes-1, "nodes")
	if d.Restrictions && d.oneIn(20, "no nodes") {
		n = 0
	}
	uniform := d.oneIn(3, "all nodes alike")
	for i := range n {
		node := scheduling.Node{Name: fmt.Sprintf("node-%02d", i)}
		if uniform && i > 0 {
			node.Total = slices.Clone(d.in.Nodes[0].Total)
		} else {
			node.Total = d.amounts(d.Capacity, "total")
		}
		for _, label := range []string{"rack", "zone"} {
			if value := d.upTo(3, label); d.Restrictions && value > 0 {
				if node.Labels == nil {
					node.Labels = map[string]string{}
				}
				node.Labels[label] = fmt.Sprintf("%s-%d", label, value)
			}
		}
		d.free[node.Name] = slices.Clone(node.Total)
		d.in.Nodes = append(d.in.Nodes, node)
	}
}

func (d *drawing) queues() {
	for i := range 1 + d.upTo(d.Queues-1, "queues") {
		q := scheduling.Queue{Name: fmt.Sprintf("queue-%d", i), PriorityFactor: 1000}
		if d.Factors {
			q.PriorityFactor = rapid.SampledFrom([]int64{1000, 2000, 500, 1500, 1, 333}).Draw(d.T, "factor")
		}
		d.in.Queues = append(d.in.Queues, q)
	}
}

func (d *drawing) jobs() {
	for range max(3, len(d.in.Queues)) {
		d.shapes = append(d.shapes, d.amounts(max(d.Request-1, d.Least, 1), "shape"))
	}
	most := min(d.Jobs, rapid.SampledFrom([]int{8, 4, 25, 60, 200}).Draw(d.T, "load"))
	least := d.upTo(most, "least")
	one := rapid.Custom(func(t *rapid.T) int {
		outer := d.T
		d.T = t
		defer func() { d.T = outer }()
		if queue := d.upTo(len(d.in.Queues)-1, "queue"); d.number < most {
			d.gang(&d.in.Queues[queue])
		}
		return 0
	})
	rapid.SliceOfN(one, least, max(least, most)).Draw(d.T, "gangs")
}

// gang adds a job, or a gang of jobs, to a queue.
func (d *drawing) gang(q *scheduling.Queue) {
	first := scheduling.Job{Request: d.request(q)}
	if class := d.upTo(len(d.in.Config.PriorityClasses)-1, "class"); class > 0 || d.Restrictions && d.oneIn(4, "named class") {
		first.PriorityClass = d.in.Config.PriorityClasses[class].Name
	}
	members := 1
	if d.Gang > 1 && d.oneIn(4, "gang") {
		members = 1 + d.upTo(d.Gang-1, "members")
		first.Gang = scheduling.Gang{ID: fmt.Sprintf("gang-%d", d.gangs), Cardinality: members}
		d.gangs++
		if d.oneIn(2, "minimum") {
			first.Gang.MinimumCardinality = 1 + d.upTo(members-1, "minimum cardinality")
		}
		if d.Restrictions && d.oneIn(2, "label") {
			first.Gang.NodeUniformityLabel = rapid.SampledFrom([]string{"rack", "zone", "row"}).Draw(d.T, "label")
		}
		if d.Restrictions && d.oneIn(6, "members are missing") {
			members -= d.upTo(members-1, "missing")
		}
	}
	runs := d.upTo(2, "runs")
	for range min(members, d.Jobs-d.number) {
		j := first
		if d.number > 0 && first.Gang.ID != "" && d.oneIn(3, "another shape") {
			j.Request = d.request(q)
		}
		d.job(q, j, runs)
	}
}

func (d *drawing) request(q *scheduling.Queue) scheduling.Resources {
	if d.Identical {
		return d.shapes[slices.IndexFunc(d.in.Queues, func(of scheduling.Queue) bool { return of.Name == q.Name })]
	}
	if d.oneIn(5, "any shape") {
		return d.amounts(d.Request, "request")
	}
	shape := rapid.SampledFrom(d.shapes).Draw(d.T, "shape")
	if last := len(shape) - 1; d.Restrictions && shape[last] == 0 {
		return shape[:last]
	}
	return shape
}

// job adds a job to a queue. It runs never (0), if it finds room (1), or mostly (2, for gangs of which some members run).
func (d *drawing) job(q *scheduling.Queue, j scheduling.Job, runs int) {
	j.ID = fmt.Sprintf("job-%03d", d.number)
	d.number++
	j.Priority = int64(d.upTo(2, "priority"))
	j.Submitted = cycleTime.Add(time.Duration(d.upTo(4, "submitted")) * time.Second)
	if d.Restrictions {
		j.Held = d.oneIn(12, "held")
		if d.oneIn(8, "retry after") {
			j.RetryAfter = cycleTime.Add(time.Duration(d.upTo(2, "retry after")-1) * time.Second)
		}
		if d.oneIn(6, "avoids") && len(d.in.Nodes) > 0 {
			for range 1 + d.upTo(len(d.in.Nodes)-1, "avoided") {
				j.AvoidedNodes = append(j.AvoidedNodes, fmt.Sprintf("node-%02d", d.upTo(len(d.in.Nodes), "avoids")))
			}
		}
	}
	if d.Idle {
		runs = 0
	}
	if runs == 1 || runs == 2 && !d.oneIn(4, "waits") {
		d.run(j)
		j.Started = cycleTime.Add(time.Duration(d.upTo(4, "started")) * time.Second)
	}
	q.Jobs = append(q.Jobs, j)
}

// run lets a job run on a node, if there is one on which it fits.
func (d *drawing) run(j scheduling.Job) {
	if d.Restrictions && d.oneIn(30, "gone") {
		d.in.NodeByJob[j.ID] = "node-gone"
		return
	}
	if len(d.in.Nodes) == 0 {
		return
	}
	name := d.in.Nodes[d.upTo(len(d.in.Nodes)-1, "node")].Name
	room := true
	for r, n := range j.Request {
		room = room && n <= d.free[name][r]
	}
	if !room && (!d.Overfull || !d.oneIn(20, "overfull")) {
		return
	}
	for r, n := range j.Request {
		d.free[name][r] -= n
	}
	d.in.NodeByJob[j.ID] = name
}

// enlarge multiplies all amounts and some weights, and takes a little away here and there.
func (d *drawing) enlarge() {
	large := func(amounts scheduling.Resources, what string) scheduling.Resources {
		all := make(scheduling.Resources, len(amounts))
		for r, n := range amounts {
			if all[r] = n << 52; n > 0 {
				all[r] -= int64(d.upTo(1, what))
			}
		}
		return all
	}
	for i, n := range d.in.Nodes {
		d.in.Nodes[i].Total = large(n.Total, "less on a node")
	}
	for i := range d.in.Queues {
		q := &d.in.Queues[i]
		q.PriorityFactor <<= d.upTo(50, "weight")
		for k, j := range q.Jobs {
			q.Jobs[k].Request = large(j.Request, "less for a job")
		}
	}
}

// String is the instance as a person would write it.
func (in Instance) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "resources %s likeArmada=%t resolution=%v\n", strings.Join(in.Config.Resources, " "), in.Config.LikeArmada, in.Config.Resolution)
	for _, c := range in.Config.PriorityClasses {
		fmt.Fprintf(&b, "class %s priority=%d preemptible=%t\n", c.Name, c.Priority, c.IsFairSharePreemptible)
	}
	for _, n := range in.Nodes {
		fmt.Fprintf(&b, "node %s total=%v labels=%v\n", n.Name, n.Total, n.Labels)
	}
	for _, q := range in.Queues {
		fmt.Fprintf(&b, "queue %s factor=%d\n", q.Name, q.PriorityFactor)
		for _, j := range q.Jobs {
			fmt.Fprintf(&b, "  %s %v class=%q priority=%d submitted=%d", j.ID, j.Request, j.PriorityClass, j.Priority, j.Submitted.Unix()-cycleTime.Unix())
			if on, ok := in.NodeByJob[j.ID]; ok {
				fmt.Fprintf(&b, " on=%s", on)
			}
			if j.Gang.ID != "" {
				fmt.Fprintf(&b, " gang=%s(%d,%d,%q)", j.Gang.ID, j.Gang.Cardinality, j.Gang.MinimumCardinality, j.Gang.NodeUniformityLabel)
			}
			if j.Held {
				b.WriteString(" held")
			}
			if !j.RetryAfter.IsZero() {
				fmt.Fprintf(&b, " retryAfter=%d", j.RetryAfter.Unix()-cycleTime.Unix())
			}
			if len(j.AvoidedNodes) > 0 {
				fmt.Fprintf(&b, " avoids=%v", j.AvoidedNodes)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
