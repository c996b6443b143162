package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refloat/refloat/internal/simulate"
)

// interval is the time between scheduling cycles of a cluster as seen in a history, which does not show it.
const interval = time.Second

// Cluster returns the cluster as the history shows it, and what is assumed about it.
func (h *History) Cluster() (*simulate.Cluster, []string) {
	c := &simulate.Cluster{SchedulingInterval: interval, Resources: h.resources()}
	h.classes(c)
	queues := map[string]bool{}
	for _, j := range h.order {
		queues[j.queue] = true
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		c.Queues = append(c.Queues, simulate.Queue{Name: name})
	}
	sizes := h.peaks()
	for _, node := range slices.Sorted(maps.Keys(sizes)) {
		c.Nodes = append(c.Nodes, simulate.NodeGroup{Names: []string{node}, Resources: sizes[node].texts()})
	}
	return c, []string{
		"the cluster is that of " + h.name + ": the nodes on which its runs were, each as large as what ran there at the same time at most; nodes on which nothing ran are unknown, and so are labels, zones and outages",
		"all queues have the same weight; a scheduling cycle runs each " + interval.String(),
		"a priority class has the highest priority at which one of its runs was scheduled (0 where no lease names one), and is preemptible if one of its runs was preempted",
	}
}

// resources lists all that jobs request, the scarcest first: devices, then cores, memory and storage.
func (h *History) resources() []string {
	names := map[string]bool{}
	for _, j := range h.order {
		for _, name := range slices.Sorted(maps.Keys(j.request)) {
			names[name] = true
		}
	}
	if len(names) == 0 {
		names["cpu"] = true
	}
	rank := map[string]int{"cpu": 1, "memory": 2, "ephemeral-storage": 3}
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int { return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b)) })
}

// classes sets the priority classes.
func (h *History) classes(c *simulate.Cluster) {
	const unnamed = "default"
	classes := map[string]*simulate.PriorityClass{}
	for _, j := range h.order {
		name := j.class
		if name == "" {
			name, c.DefaultPriorityClass = unnamed, unnamed
		}
		if classes[name] == nil {
			classes[name] = &simulate.PriorityClass{Name: name}
		}
		for _, r := range j.runs {
			if r.hasPriority {
				classes[name].Priority = max(classes[name].Priority, r.priority)
			}
			classes[name].Preemptible = classes[name].Preemptible || r.err.GetJobRunPreemptedError() != nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		c.PriorityClasses = append(c.PriorityClasses, *classes[name])
		c.DefaultPriorityClass = cmp.Or(c.DefaultPriorityClass, name)
	}
}

// peaks returns, by node, the most of each resource that ran there at the same time. A scheduling cycle reports what it preempts after
// what it leases in its place: a run that the scheduler preempted counts up to a cycle before.
func (h *History) peaks() map[string]amounts {
	type step struct {
		at    int64
		begin bool
		order int
		of    *job
		node  string
	}
	var steps []step
	for _, j := range h.order {
		for _, r := range j.runs {
			if r.node == "" {
				continue
			}
			end := r.ended
			if end == 0 {
				end = max(h.last, r.leased)
				if j.cancelled > r.leased {
					end = j.cancelled
				}
			}
			if r.byScheduler {
				end -= int64(interval)
			}
			steps = append(steps, step{r.leased, true, len(steps), j, r.node}, step{max(end, r.leased+1), false, len(steps), j, r.node})
		}
	}
	slices.SortFunc(steps, func(a, b step) int {
		if a.at == b.at && a.begin != b.begin { // what ends makes room first
			if b.begin {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
	})
	now, most := map[string]amounts{}, map[string]amounts{}
	for _, s := range steps {
		if now[s.node] == nil {
			now[s.node], most[s.node] = amounts{}, amounts{}
		}
		for _, name := range slices.Sorted(maps.Keys(s.of.request)) {
			q := now[s.node][name].DeepCopy()
			if s.begin {
				q.Add(s.of.request[name])
			} else {
				q.Sub(s.of.request[name])
			}
			now[s.node][name] = q
			if have, ok := most[s.node][name]; !ok || q.Cmp(have) > 0 {
				most[s.node][name] = positive(q)
			}
		}
	}
	return most
}

func positive(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		return resource.Quantity{}
	}
	return q.DeepCopy()
}
