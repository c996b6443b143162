package simulate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// Cluster is where jobs run, and what goes wrong there.
type Cluster struct {
	// SchedulingInterval is the time between two scheduling cycles.
	SchedulingInterval time.Duration `yaml:"schedulingInterval"`
	// Resources are the names of the resources, the scarcest first.
	Resources            []string        `yaml:"resources"`
	PriorityClasses      []PriorityClass `yaml:"priorityClasses"`
	DefaultPriorityClass string          `yaml:"defaultPriorityClass"`
	// Queues are all queues; none: those to which the candidates bind policies.
	Queues []Queue     `yaml:"queues"`
	Nodes  []NodeGroup `yaml:"nodes"`
	Faults []Fault     `yaml:"faults"`
}

// PriorityClass is a priority class of Armada.
type PriorityClass struct {
	Name        string `yaml:"name"`
	Priority    int32  `yaml:"priority"`
	Preemptible bool   `yaml:"preemptible"` // to restore fair shares
}

// Queue is a queue of the cluster.
type Queue struct {
	Name string `yaml:"name"`
	// PriorityFactor is the reciprocal of the queue's weight; 0 stands for 1.
	PriorityFactor float64 `yaml:"priorityFactor"`
}

// NodeGroup is a number of equal nodes, called NAME-1, NAME-2, and so on.
type NodeGroup struct {
	Name  string `yaml:"name"`
	Count int    `yaml:"count"`
	// Names are those of the nodes, in place of Name and Count.
	Names []string `yaml:"names,omitempty"`
	// Zones are given to the nodes in turn.
	Zones     []string          `yaml:"zones"`
	Resources map[string]string `yaml:"resources"`
	Labels    map[string]string `yaml:"labels"`
}

// Fault is what goes wrong at some nodes for some time: runs that start there meanwhile fail with
// the chance PerRun, or, with Down, the nodes are gone and the runs on them fail.
type Fault struct {
	Failure `yaml:",inline"`
	Nodes   []string      `yaml:"nodes"` // none, and no zone: all nodes
	Zone    string        `yaml:"zone"`
	At      time.Duration `yaml:"at"`  // since the beginning
	For     time.Duration `yaml:"for"` // 0: to the end
	Down    bool          `yaml:"down"`
}

// maxNodes limits what a mistyped count costs.
const maxNodes = 100_000

// placed is a node with its zone.
type placed struct {
	scheduling.Node
	zone  string
	count *nodeCount // nil: nothing has run there yet
}

// nodes returns all nodes.
func (c *Cluster) nodes() (all []placed, err error) {
	for i := range c.Nodes {
		g := &c.Nodes[i]
		total, problem := c.amounts(g.Resources)
		names := g.Names
		switch {
		case len(names) > 0 && (g.Name != "" || g.Count != 0):
			problem = errors.New("give either names, or name and count")
		case len(names) > 0 && len(all)+len(names) > maxNodes:
			problem = fmt.Errorf("names: want 1 to %d nodes in all", maxNodes)
		case len(names) > 0:
		case g.Name == "":
			problem = errors.New("no name")
		case g.Count < 1 || len(all)+g.Count > maxNodes:
			problem = fmt.Errorf("count: %d: want 1 to %d nodes in all", g.Count, maxNodes)
		}
		if problem != nil {
			return nil, fmt.Errorf("nodes[%d] %s: %w", i, g.Name, problem)
		}
		for n := range g.Count {
			names = append(names, fmt.Sprintf("%s-%d", g.Name, n+1))
		}
		for n, name := range names {
			node := placed{Node: scheduling.Node{Name: name, Total: total, Labels: g.Labels}}
			if len(g.Zones) > 0 {
				node.zone = g.Zones[n%len(g.Zones)]
			}
			all = append(all, node)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("nodes: a cluster needs at least one")
	}
	return all, nil
}

// amounts reads quantities, in the order of the cluster's resources: thousandths of a CPU or a GPU, and
// whole units of everything else.
func (c *Cluster) amounts(of map[string]string) (scheduling.Resources, error) {
	out := make(scheduling.Resources, len(c.Resources))
	for i, name := range c.Resources {
		text, ok := of[name]
		if !ok {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is no quantity such as 2, 500m or 16Gi", name, text)
		}
		if q.Sign() < 0 {
			return nil, fmt.Errorf("%s: %s is negative", name, text)
		}
		out[i] = q.Value()
		if inThousandths(name) {
			out[i] = q.MilliValue()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if !slices.Contains(c.Resources, name) {
			return nil, fmt.Errorf("%s is not one of the cluster's resources: %s", name, strings.Join(c.Resources, ", "))
		}
	}
	return out, nil
}

const cpu = "cpu"

// unit is how many of the units of amounts make one of those that people count in: cores, GiB, devices.
func unit(name string) float64 {
	switch {
	case inThousandths(name):
		return 1000
	case name == "memory" || name == "ephemeral-storage":
		return 1 << 30
	}
	return 1
}

// inThousandths says of which resources a job may request a part of one: of GPUs, which jobs may share.
func inThousandths(name string) bool { return name == cpu || strings.HasSuffix(name, "/gpu") }

// check reports mistakes that scheduling.Schedule does not report itself.
func (c *Cluster) check(nodes []placed) error {
	if c.SchedulingInterval <= 0 {
		return fmt.Errorf("schedulingInterval: %v: want a duration above 0, such as 10s", c.SchedulingInterval)
	}
	for i, q := range c.Queues {
		if q.PriorityFactor != 0 && !(q.PriorityFactor >= 1 && q.PriorityFactor <= 1e6) {
			return fmt.Errorf("queues[%d] %s: priorityFactor: %v: want 1 to 1000000 (the weight is its reciprocal)", i, q.Name, q.PriorityFactor)
		}
	}
	for i := range c.Faults {
		f := &c.Faults[i]
		problem := f.check()
		switch {
		case problem != nil:
		case f.At < 0 || f.For < 0 || f.At > maxGiveUp || f.For > maxGiveUp:
			problem = fmt.Errorf("at and for: want durations from 0 to %v", maxGiveUp)
		case f.PerJob != 0 || f.PerHour != 0:
			problem = errors.New("a fault of nodes has perRun only")
		case f.Down == (f.PerRun != 0):
			problem = errors.New("give either down: true or perRun")
		case f.Down && f.For == 0:
			problem = errors.New("nodes that are down need for: how long")
		case len(f.Nodes) > 0 && f.Zone != "":
			problem = errors.New("give either nodes or zone")
		case f.Zone != "" && !slices.ContainsFunc(nodes, func(n placed) bool { return n.zone == f.Zone }):
			problem = fmt.Errorf("no node is in zone %q", f.Zone)
		}
		for _, name := range f.Nodes {
			if !slices.ContainsFunc(nodes, func(n placed) bool { return n.Name == name }) {
				problem = fmt.Errorf("there is no node %q", name)
			}
		}
		if problem != nil {
			return fmt.Errorf("faults[%d] %s: %w", i, f.Cause, problem)
		}
	}
	return nil
}

// hits says whether the fault concerns a node.
func (f *Fault) hits(n *placed) bool {
	return len(f.Nodes) == 0 && f.Zone == "" || f.Zone != "" && n.zone == f.Zone || slices.Contains(f.Nodes, n.Name)
}

// active says whether the fault is there at a time.
func (f *Fault) active(at time.Duration) bool {
	return at >= f.At && (f.For == 0 || at < f.At+f.For)
}
