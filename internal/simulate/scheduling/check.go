package scheduling

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// problems keeps the alphabetically first of many errors, so that the answer
// does not depend on the order of the input.
type problems struct{ first string }

func (p *problems) add(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); p.first == "" || text < p.first {
		p.first = text
	}
}

func (p *problems) err() error {
	if p.first == "" {
		return nil
	}
	return errors.New(p.first)
}

// classes are the priority classes by name, and their levels.
type classes struct {
	byName map[string]PriorityClass
	levels []int32 // priorities
}

func (c classes) level(priority int32) int32 {
	level, _ := slices.BinarySearch(c.levels, priority)
	return int32(level)
}

func (c Config) classes() (classes, error) {
	var p problems
	for i, name := range c.Resources {
		if slices.Contains(c.Resources[:i], name) {
			p.add("resource %q: named twice", name)
		}
	}
	if len(c.Resources) == 0 {
		p.add("no resources")
	}
	all := classes{byName: make(map[string]PriorityClass, len(c.PriorityClasses))}
	for _, class := range c.PriorityClasses {
		if _, twice := all.byName[class.Name]; twice {
			p.add("priority class %q: named twice", class.Name)
		}
		if class.Name == "" {
			p.add("priority class without a name")
		}
		all.byName[class.Name] = class
		all.levels = append(all.levels, class.Priority)
	}
	slices.Sort(all.levels)
	all.levels = slices.Compact(all.levels)
	if _, ok := all.byName[c.DefaultPriorityClass]; !ok {
		p.add("default priority class %q: there is no such class", c.DefaultPriorityClass)
	}
	return all, p.err()
}

// checkAmounts reports amounts that are negative, or of no resource.
func (p *problems) checkAmounts(kind, name string, amounts Resources, names []string) {
	if len(amounts) > len(names) {
		p.add("%s %q: %d amounts of %d resources", kind, name, len(amounts), len(names))
		return
	}
	for r, amount := range amounts {
		if amount < 0 {
			p.add("%s %q: %d of %s is negative", kind, name, amount, names[r])
		}
	}
}

// addUp adds amounts to a sum, and reports a sum that is too large.
func (p *problems) addUp(of string, sum []int64, amounts Resources, names []string) {
	for r, amount := range amounts {
		if amount > math.MaxInt64-sum[r] {
			p.add("%s: more than 2^63-1 of %s in total", of, names[r])
			return
		}
		sum[r] += amount
	}
}

// newCycle checks the input, and puts everything in order: nodes and queues by name,
// jobs by sortQueues.
func newCycle(config Config, queues []Queue, nodes []Node, nodeByJob map[string]string) (*cycle, error) {
	all, err := config.classes()
	if err != nil {
		return nil, err
	}
	c := &cycle{names: config.Resources, resources: len(config.Resources), now: config.Now, defaultClass: config.DefaultPriorityClass, levels: len(all.levels), priorities: all.levels, likeArmada: config.LikeArmada, resolution: config.Resolution, total: make([]int64, len(config.Resources))}
	if err := c.addNodes(config, nodes); err != nil {
		return nil, err
	}
	if err := c.addQueues(config, queues, all, nodeByJob); err != nil {
		return nil, err
	}
	if err := c.addGangs(); err != nil {
		return nil, err
	}
	c.begin()
	return c, nil
}

// roomForJobs is how many jobs a node can have before it needs memory of its own.
const roomForJobs = 8

func (c *cycle) addNodes(config Config, nodes []Node) error {
	var p problems
	c.nodes = make([]node, len(nodes))
	room := make([]occupant, roomForJobs*len(nodes))
	for i := range nodes {
		from := i * roomForJobs
		c.nodes[i] = node{&nodes[i], room[from : from : from+roomForJobs]}
	}
	slices.SortFunc(c.nodes, func(a, b node) int { return strings.Compare(a.Name, b.Name) })
	c.nodeOf = make(map[string]int32, len(nodes))
	c.amounts.free = make([]int64, len(nodes)*c.resources)
	for i, n := range c.nodes {
		if n.Name == "" {
			p.add("node without a name")
		}
		if _, twice := c.nodeOf[n.Name]; twice {
			p.add("node %q: named twice", n.Name)
		}
		c.nodeOf[n.Name] = int32(i)
		p.checkAmounts("node", n.Name, n.Total, config.Resources)
		if p.first == "" {
			p.addUp("nodes", c.total, n.Total, config.Resources)
			copy(c.of(c.amounts.free, int32(i)), n.Total)
		}
	}
	return p.err()
}

func (c *cycle) addQueues(config Config, queues []Queue, all classes, nodeByJob map[string]string) error {
	var p problems
	sorted := make([]*Queue, len(queues))
	jobs := 0
	for i := range queues {
		sorted[i] = &queues[i]
		jobs += len(queues[i].Jobs)
	}
	slices.SortFunc(sorted, func(a, b *Queue) int { return strings.Compare(a.Name, b.Name) })
	c.queues, c.jobs = make([]queue, len(queues)), make([]job, 0, jobs)
	for i, q := range sorted {
		if q.Name == "" {
			p.add("queue without a name")
		}
		if i > 0 && q.Name == sorted[i-1].Name {
			p.add("queue %q: named twice", q.Name)
		}
		if q.PriorityFactor < 1 {
			p.add("queue %q: priority factor %d, must be at least 1 thousandth", q.Name, q.PriorityFactor)
		}
		c.queues[i] = queue{name: q.Name, factor: q.PriorityFactor}
		for k := range q.Jobs {
			c.jobs = append(c.jobs, p.checkJob(config, &q.Jobs[k], int32(i), all))
		}
	}
	if p.first != "" {
		return p.err()
	}
	sum := make([]int64, c.resources)
	running, ids := 0, make(map[string]struct{}, jobs)
	for i := range c.jobs {
		job := &c.jobs[i]
		p.addUp("jobs", sum, job.Request, config.Resources)
		if _, twice := ids[job.ID]; twice {
			p.add("job %q: named twice", job.ID)
		}
		ids[job.ID] = struct{}{}
		if name, ok := nodeByJob[job.ID]; ok {
			running++
			job.start = gone
			if n, ok := c.nodeOf[name]; ok {
				job.start = n
			}
		}
	}
	if p.first == "" && running < len(nodeByJob) {
		for id, node := range nodeByJob { //house:sorted only the first error is kept
			if _, ok := ids[id]; !ok {
				p.add("job %q: runs on node %q, but is in no queue", id, node)
			}
		}
	}
	return p.err()
}

func (p *problems) checkJob(config Config, j *Job, q int32, all classes) job {
	if j.ID == "" {
		p.add("job without an ID")
	}
	p.checkAmounts("job", j.ID, j.Request, config.Resources)
	name := cmp.Or(j.PriorityClass, config.DefaultPriorityClass)
	class, ok := all.byName[name]
	if !ok {
		p.add("job %q: there is no priority class %q", j.ID, name)
	}
	g := j.Gang
	switch {
	case g == Gang{}:
	case g.ID == "":
		p.add("job %q: a gang without an ID", j.ID)
	case g.Cardinality < 1:
		p.add("job %q: gang cardinality %d, must be at least 1", j.ID, g.Cardinality)
	case g.MinimumCardinality < 0 || g.MinimumCardinality > g.Cardinality:
		p.add("job %q: gang minimum cardinality %d, must be between 0 and the cardinality %d", j.ID, g.MinimumCardinality, g.Cardinality)
	}
	return job{Job: j, queue: q, level: all.level(class.Priority), preemptible: class.IsFairSharePreemptible, node: none, start: none, key: none}
}

// begin allocates what the cycle computes with. Nothing runs yet.
func (c *cycle) begin() {
	queues, nodes := len(c.queues), len(c.nodes)
	c.amounts.available = make([]int64, nodes*c.levels*c.resources)
	for n := range int32(nodes) {
		for level := range int32(c.levels) {
			copy(c.available(n, level), c.of(c.amounts.free, n))
		}
	}
	c.amounts.held = make([]int64, queues*c.resources)
	c.amounts.placed = make([]int64, queues*c.resources)
	c.work = scratch{sum: make([]int64, c.resources), left: make([]int64, c.resources)}
	c.hopeless = hopeless{requests: make([][]int32, c.levels+1)}
	c.labels = map[string]*label{}
	c.armada.begin(c)
	c.index = index{c: c, isTouched: make([]bool, nodes)}
	c.line = line{c: c, places: make([]int32, queues), keys: make([]key, queues), isChanged: make([]bool, queues)}
	c.rank = rank{c: c, toPlace: none, order: make([]int32, queues), position: make([]int32, queues), fractions: make([]fraction, queues), isChanged: make([]bool, queues)}
	for q := range int32(queues) {
		c.rank.order[q], c.rank.position[q] = q, q
		c.rank.fractions[q] = fraction{0, 1, c.queues[q].factor}
	}
	for i := range c.rank.displaceable {
		c.rank.displaceable[i] = make([]int32, queues*c.levels)
	}
}
