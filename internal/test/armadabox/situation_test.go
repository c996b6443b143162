package armadabox_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// situation is the input of one scheduling cycle, in a short form.
type situation struct {
	name string
	// nodes are "NAME CPU[/MEMORY] [rack=VALUE]", separated by semicolons.
	nodes string
	// jobs are "NAME CPU[/MEMORY] [FIELD=VALUE]…", separated by semicolons. The first letter of the name is the queue.
	// Later ones were submitted later. Fields: on (the node where it runs), class, priority, at (when it was
	// submitted, in seconds), since (when its run was leased, in seconds; without it, when it was submitted), gang (ID,cardinality[,minimum[,label]]), avoid.
	jobs string
	// protected is Armada's protectedFractionOfFairShare, 0 as the documentation describes it.
	protected float64
	// because says why Armada does otherwise than its documentation, or than Schedule with LikeArmada.
	because string
}

// factors are the priority factors of the queues.
var factors = map[string]float64{"a": 1, "b": 1, "c": 1, "d": 1, "u": 1.5, "v": 2, "w": 3}

// classes are the priority classes of all situations.
var classes = []scheduling.PriorityClass{
	{Name: "low", Priority: 10, IsFairSharePreemptible: true},
	{Name: "normal", Priority: 20, IsFairSharePreemptible: true},
	{Name: "keep", Priority: 20},
	{Name: "high", Priority: 30, IsFairSharePreemptible: true},
	{Name: "top", Priority: 40},
}

const defaultClass = "normal"

// input is a situation as Schedule takes it.
type input struct {
	nodes     []scheduling.Node
	queues    []scheduling.Queue
	nodeByJob map[string]string
}

func (in *input) jobs() (all []scheduling.Job) {
	for _, q := range in.queues {
		all = append(all, q.Jobs...)
	}
	return all
}

// began is when the first job of a situation was submitted.
var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func list(text string) (all [][]string) {
	for one := range strings.SplitSeq(text, ";") {
		all = append(all, strings.Fields(one))
	}
	return all
}

func amounts(t *testing.T, text string) scheduling.Resources {
	t.Helper()
	all := scheduling.Resources{0, 0}
	for i, part := range strings.Split(text, "/") {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = n
	}
	return all
}

func number(t *testing.T, text string) int64 { t.Helper(); return amounts(t, text)[0] }

func (s situation) input(t *testing.T) *input {
	t.Helper()
	in := &input{nodeByJob: map[string]string{}}
	for _, fields := range list(s.nodes) {
		n := scheduling.Node{Name: fields[0], Total: amounts(t, fields[1]), Labels: map[string]string{}}
		for _, label := range fields[2:] {
			name, value, _ := strings.Cut(label, "=")
			n.Labels[name] = value
		}
		in.nodes = append(in.nodes, n)
	}
	for i, fields := range list(s.jobs) {
		j := scheduling.Job{ID: fields[0], Request: amounts(t, fields[1]), Submitted: began.Add(time.Duration(i) * time.Second), PriorityClass: defaultClass}
		for _, f := range fields[2:] {
			in.set(t, &j, f)
		}
		if j.Started.IsZero() {
			j.Started = j.Submitted
		}
		queue := fields[0][:1]
		at := slices.IndexFunc(in.queues, func(q scheduling.Queue) bool { return q.Name == queue })
		if at < 0 {
			at = len(in.queues)
			in.queues = append(in.queues, scheduling.Queue{Name: queue, PriorityFactor: int64(1000 * factors[queue])})
		}
		in.queues[at].Jobs = append(in.queues[at].Jobs, j)
	}
	return in
}

func (in *input) set(t *testing.T, j *scheduling.Job, field string) {
	t.Helper()
	switch name, value, _ := strings.Cut(field, "="); name {
	case "on":
		in.nodeByJob[j.ID] = value
	case "class":
		j.PriorityClass = value
	case "priority":
		j.Priority = number(t, value)
	case "at":
		j.Submitted = began.Add(time.Duration(number(t, value)) * time.Second)
	case "since":
		j.Started = began.Add(time.Duration(number(t, value)) * time.Second)
	case "avoid":
		j.AvoidedNodes = strings.Split(value, ",")
	case "gang":
		parts := append(strings.Split(value, ","), "0", "")
		j.Gang = scheduling.Gang{ID: parts[0], Cardinality: int(number(t, parts[1])), MinimumCardinality: int(number(t, parts[2]))}
		if label := parts[3]; label != "0" {
			j.Gang.NodeUniformityLabel = label
		}
	default:
		t.Fatalf("unknown field %s", field)
	}
}

// fine makes thousandths of CPUs and mebibytes of amounts: Armada rounds both to hundreds (see config/scheduler/config.yaml of the box).
func fine(amounts scheduling.Resources) {
	amounts[0], amounts[1] = amounts[0]*1000, amounts[1]*1024
}

// schedule is what Schedule says.
func (s situation) schedule(t *testing.T, likeArmada bool) string {
	t.Helper()
	in := s.input(t)
	for _, n := range in.nodes {
		fine(n.Total)
	}
	for _, j := range in.jobs() {
		fine(j.Request)
	}
	r, err := scheduling.Schedule(scheduling.Config{
		Now: began.Add(time.Hour), Resources: []string{"cpu", "memory"}, PriorityClasses: classes, DefaultPriorityClass: defaultClass, LikeArmada: likeArmada,
		Resolution: scheduling.Resources{100, 100},
	}, in.queues, in.nodes, in.nodeByJob)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	leased := map[string]string{}
	for _, id := range r.Scheduled {
		leased[id] = r.NodeByJob[id]
	}
	return outcome(leased, r.Preempted)
}

// outcome says who was leased where, and who was preempted.
func outcome(leased map[string]string, preempted []string) string {
	var all []string
	for id, node := range leased {
		all = append(all, id+"→"+node)
	}
	slices.Sort(all)
	if len(preempted) > 0 {
		slices.Sort(preempted)
		all = append(all, fmt.Sprintf("preempted %s", strings.Join(preempted, ", ")))
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, " ")
}
