package trace

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/refloat/refloat/internal/simulate"
)

const (
	gpu = "nvidia.com/gpu"
	// maxSeconds is as long as a simulation may take, maxAmount more than any machine has.
	maxSeconds = 100_000 * 3600
	maxAmount  = 1 << 40
	// giveUp is how long after the last submission the simulation ends.
	giveUp = 200 * 24 * time.Hour
)

// Pods reads a trace of pods as a workload without failures. Arrivals are load times as fast: 1 leaves them as they are.
func Pods(in io.Reader, path string, load float64) (*simulate.Workload, []string, error) {
	if !(load >= 0.001 && load <= 1000) {
		return nil, nil, fmt.Errorf("load %v: want a number from 0.001 to 1000", load)
	}
	t, err := open(in, path, "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "qos", "creation_time", "deletion_time", "scheduled_time")
	if err != nil {
		return nil, nil, err
	}
	w := &simulate.Workload{GiveUp: giveUp, Given: []simulate.Given{}}
	var ran []time.Duration
	pending := 0
	for {
		ok, err := t.next()
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			break
		}
		g, length, err := t.pod()
		if err != nil {
			return nil, nil, err
		}
		if length > 0 {
			ran = append(ran, length)
		} else {
			pending++
		}
		w.Given = append(w.Given, g)
	}
	switch {
	case len(w.Given) == 0:
		return nil, nil, fmt.Errorf("%s: the trace holds no pod", path)
	case len(ran) == 0:
		return nil, nil, fmt.Errorf("%s: no pod of the trace ran, so nothing says how long they take", path)
	}
	slices.Sort(ran)
	median := ran[(len(ran)-1)/2]
	slices.SortStableFunc(w.Given, func(a, b simulate.Given) int { return cmp.Compare(a.Submitted, b.Submitted) })
	first := w.Given[0].Submitted
	for i := range w.Given {
		g := &w.Given[i]
		g.Submitted = time.Duration(float64(g.Submitted-first) / load)
		g.RunTime.P50 = cmp.Or(g.RunTime.P50, median)
	}
	return w, []string{
		fmt.Sprintf("the workload is that of %s: %d pods, each a job that arrives when it was created (arrivals %g times as fast), draws one of the queues, and takes as long as from its scheduled_time to its deletion_time, whether it succeeded there or not", path, len(w.Given), load),
		fmt.Sprintf("%d pods never ran there: they take as long as the median of the others, %v", pending, median),
		"the trace does not say why a pod failed: failures are those of the workload file's first kind that requests a GPU, or none, as the pod does",
		"a part of a GPU is a part of all of its node's: it may be spread over several; which model of GPU a pod wants is ignored",
	}, nil
}

// pod reads the current row; the length is 0 if the pod never ran.
func (t *table) pod() (simulate.Given, time.Duration, error) {
	where := t.where()
	created := t.number("creation_time", 0, maxSeconds)
	gpus, milli := t.number("num_gpu", 0, 1_000_000), t.number("gpu_milli", 0, 1_000_000_000)
	if gpus > 1 || milli > 1000 {
		milli = 1000 // of each: whole ones
	}
	request := map[string]string{
		"cpu":    strconv.FormatInt(t.number("cpu_milli", 0, maxAmount), 10) + "m",
		"memory": strconv.FormatInt(t.number("memory_mib", 0, maxAmount), 10) + "Mi",
	}
	if gpus > 0 && milli > 0 {
		request[gpu] = strconv.FormatInt(gpus*milli, 10) + "m"
	}
	length := time.Duration(0)
	if t.text("scheduled_time") != "" {
		scheduled := t.number("scheduled_time", 0, maxSeconds)
		deleted := t.number("deletion_time", 0, maxSeconds)
		switch {
		case t.err != nil:
		case scheduled < created:
			t.err = fmt.Errorf("%s: scheduled_time %d is before creation_time %d: times must not go backwards", where, scheduled, created)
		case deleted < scheduled:
			t.err = fmt.Errorf("%s: deletion_time %d is before scheduled_time %d: times must not go backwards", where, deleted, scheduled)
		}
		length = max(time.Duration(deleted-scheduled)*time.Second, time.Second)
	}
	g := simulate.Given{
		ID: t.text("name"), Where: where, PriorityClass: t.text("qos"), Request: request, Submitted: time.Duration(created) * time.Second,
		RunTime: simulate.RunTime{P50: length},
	}
	if t.err == nil && g.ID == "" {
		t.err = fmt.Errorf("%s: name is empty", where)
	}
	return g, length, t.err
}

// WithFailures gives jobs the failures of the first kind of a workload that requests a GPU, or none, as they do.
func WithFailures(w, of *simulate.Workload) {
	for i := range w.Given {
		_, wants := w.Given[i].Request[gpu]
		k := slices.IndexFunc(of.Kinds, func(k simulate.Kind) bool { _, has := k.Request[gpu]; return has == wants })
		if k >= 0 {
			w.Given[i].Failures = of.Kinds[k].Failures
		}
	}
}

// Nodes reads a trace of nodes as a cluster, with the priority classes of the pods' qos.
func Nodes(in io.Reader, path string) (*simulate.Cluster, []string, error) {
	t, err := open(in, path, "sn", "cpu_milli", "memory_mib", "gpu")
	if err != nil {
		return nil, nil, err
	}
	c := &simulate.Cluster{
		SchedulingInterval: 10 * time.Second, Resources: []string{gpu, "cpu", "memory"}, DefaultPriorityClass: "BE",
		PriorityClasses: []simulate.PriorityClass{
			{Name: "BE", Priority: 1000, Preemptible: true},
			{Name: "Burstable", Priority: 2000, Preemptible: true},
			{Name: "LS", Priority: 3000},
			{Name: "Guaranteed", Priority: 3000},
		},
	}
	groups, seen := map[[3]int64]int{}, map[string]bool{}
	for {
		ok, err := t.next()
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			break
		}
		size := [3]int64{t.number("cpu_milli", 0, maxAmount), t.number("memory_mib", 0, maxAmount), t.number("gpu", 0, 1_000_000)}
		name := t.text("sn")
		switch {
		case t.err != nil:
			return nil, nil, t.err
		case name == "":
			return nil, nil, fmt.Errorf("%s: sn is empty", t.where())
		case seen[name]:
			return nil, nil, fmt.Errorf("%s: there are two nodes %q", t.where(), name)
		}
		seen[name] = true
		at, known := groups[size]
		if !known {
			at = len(c.Nodes)
			groups[size] = at
			c.Nodes = append(c.Nodes, simulate.NodeGroup{Resources: map[string]string{
				"cpu": fmt.Sprintf("%dm", size[0]), "memory": fmt.Sprintf("%dMi", size[1]), gpu: strconv.FormatInt(size[2], 10),
			}})
		}
		c.Nodes[at].Names = append(c.Nodes[at].Names, name)
	}
	if len(c.Nodes) == 0 {
		return nil, nil, fmt.Errorf("%s: the trace holds no node", path)
	}
	return c, []string{
		fmt.Sprintf("the cluster is that of %s, %d nodes; the classes are the trace's QoS: LS and Guaranteed are more urgent than Burstable, which is more urgent than BE; BE and Burstable are preemptible", path, len(seen)),
	}, nil
}
