package scheduling

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// config has three classes: low and high are fair-share preemptible, keep is not and lies between them.
func config() Config {
	return Config{
		Now: noon, Resources: []string{"gpu", "cpu", "memory"}, DefaultPriorityClass: "low",
		PriorityClasses: []PriorityClass{{"low", 0, true}, {"keep", 5, false}, {"high", 10, true}, {"top", 20, false}},
	}
}

// cpu is a request, or what a node has, of cpu only.
func cpu(n int64) Resources { return Resources{0, n} }

type situation struct {
	config  Config
	queues  []Queue
	nodes   []Node
	running map[string]string
}

// with is a situation of nodes with cpu only, n0, n1, ….
func with(sizes ...int64) *situation {
	s := &situation{config: config(), running: map[string]string{}}
	for i, size := range sizes {
		s.nodes = append(s.nodes, Node{Name: "n" + string(rune('0'+i)), Total: cpu(size)})
	}
	return s
}

// memory gives all nodes memory.
func (s *situation) memory(size int64) *situation {
	for i := range s.nodes {
		s.nodes[i].Total = append(s.nodes[i].Total, size)
	}
	return s
}

// jobs adds jobs to a queue. A description is "ID size" or "ID cpu/memory", and then "class=…", "on=NODE" and so on. Later jobs of
// a situation were submitted later.
func (s *situation) jobs(queue string, descriptions ...string) *situation {
	at := -1
	for i := range s.queues {
		if s.queues[i].Name == queue {
			at = i
		}
	}
	if at < 0 {
		at = len(s.queues)
		s.queues = append(s.queues, Queue{Name: queue, PriorityFactor: 1000})
	}
	for _, d := range descriptions {
		s.queues[at].Jobs = append(s.queues[at].Jobs, s.job(d))
	}
	return s
}

func (s *situation) job(description string) Job {
	fields := strings.Fields(description)
	count := 0
	for _, q := range s.queues {
		count += len(q.Jobs)
	}
	size, memory, _ := strings.Cut(fields[1], "/")
	j := Job{ID: fields[0], Request: append(cpu(number(size)), number(memory)), Submitted: noon.Add(time.Duration(count) * time.Second)}
	for _, f := range fields[2:] {
		name, value, _ := strings.Cut(f, "=")
		switch name {
		case "class":
			j.PriorityClass = value
		case "on":
			s.running[j.ID] = value
		case "priority":
			j.Priority = number(value)
		case "at":
			j.Submitted = noon.Add(time.Duration(number(value)) * time.Second)
		case "retry": // seconds from now
			j.RetryAfter = noon.Add(time.Duration(number(value)) * time.Second)
		case "avoid":
			j.AvoidedNodes = strings.Split(value, ",")
		case "held":
			j.Held = true
		case "gang": // ID,cardinality,minimum,label
			parts := append(strings.Split(value, ","), "0", "")
			j.Gang = Gang{parts[0], int(number(parts[1])), int(number(parts[2])), parts[3]}
			if j.Gang.NodeUniformityLabel == "0" {
				j.Gang.NodeUniformityLabel = ""
			}
		default:
			panic(description)
		}
	}
	return j
}

func number(s string) (n int64) {
	if s, ok := strings.CutPrefix(s, "-"); ok {
		return -number(s)
	}
	for _, digit := range s {
		n = n*10 + int64(digit-'0')
	}
	return n
}

// weigh sets a queue's priority factor.
func (s *situation) weigh(queue string, thousandths int64) *situation {
	for i := range s.queues {
		if s.queues[i].Name == queue {
			s.queues[i].PriorityFactor = thousandths
		}
	}
	return s
}

// label labels nodes: "rack=a" for each, in order.
func (s *situation) label(labels ...string) *situation {
	for i, l := range labels {
		if name, value, ok := strings.Cut(l, "="); ok {
			s.nodes[i].Labels = map[string]string{name: value}
		}
	}
	return s
}

func (s *situation) schedule(t *testing.T) Result {
	t.Helper()
	r, err := Schedule(s.config, s.queues, s.nodes, s.running)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// expect compares the nodes of all jobs: "job=node …", sorted by job.
func (s *situation) expect(t *testing.T, want string) Result {
	t.Helper()
	r := s.schedule(t)
	got := map[string]string{}
	for f := range strings.FieldsSeq(want) {
		job, node, _ := strings.Cut(f, "=")
		got[job] = node
	}
	if diff := cmp.Diff(got, r.NodeByJob); diff != "" {
		t.Errorf("nodes of jobs (-want +got):\n%s", diff)
	}
	return r
}

func lists(t *testing.T, what string, got []string, want string) {
	t.Helper()
	if strings.Join(got, " ") != want {
		t.Errorf("%s: %v, want %q", what, got, want)
	}
}

func TestOrderWithinQueue(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, first, second string }{
		{"class priority before job priority", "a 1 class=high priority=9 at=9", "b 1 priority=1 at=1"},
		{"lower job priority before time", "a 1 priority=1 at=9", "b 1 priority=2 at=1"},
		{"earlier before later", "b 1 at=1", "a 1 at=2"},
		{"a requeued job keeps its time, and precedes new ones", "old 1 at=1 retry=-1", "new 1 at=2"},
		{"ID last", "a 1 at=1", "b 1 at=1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			// The first takes the smaller node.
			want := strings.Fields(row.first)[0] + "=n0 " + strings.Fields(row.second)[0] + "=n1"
			with(1, 2).jobs("q", row.first, row.second).expect(t, want)
			with(1, 2).jobs("q", row.second, row.first).expect(t, want)
		})
	}
}

func TestFairShare(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		s    *situation
		want string
	}{
		{"the smallest fraction is next", with(4).jobs("a", "a1 1", "a2 1", "a3 1", "a4 1").jobs("b", "b1 1", "b2 1", "b3 1"), "a1=n0 b1=n0 a2=n0 b2=n0"},
		{
			"the weight is the reciprocal of the priority factor",
			with(4).jobs("a", "a1 1", "a2 1", "a3 1", "a4 1").jobs("b", "b1 1", "b2 1", "b3 1").weigh("a", 3000), "a1=n0 b1=n0 b2=n0 b3=n0",
		},
		{"the gang is included in the fraction", with(4).jobs("a", "a1 3").jobs("b", "b1 1", "b2 1", "b3 1"), "b1=n0 b2=n0 b3=n0"},
		{"all jobs of the gang are", with(4).jobs("a", "a1 1 gang=g,3", "a2 1 gang=g,3", "a3 1 gang=g,3").jobs("b", "b1 2", "b2 2"), "b1=n0 b2=n0"},
		{"running jobs count", with(3).jobs("a", "a1 1 class=keep on=n0", "a2 1").jobs("b", "b1 1", "b2 1"), "a1=n0 b1=n0 a2=n0"},
		{"the dominant share counts: not the first resource", with(8).memory(8).jobs("a", "a1 2/1", "a2 2/1", "a3 2/1").jobs("b", "b1 1/4", "b2 1/4", "b3 1/4"), "a1=n0 a2=n0 a3=n0 b1=n0"},
		{"the dominant share counts: not the sum", with(4).memory(4).jobs("a", "a1 2/2").jobs("b", "b1 3/0"), "a1=n0"},
		{"of equal fractions the queue by name", with(1).jobs("b", "b1 1").jobs("a", "a1 1"), "a1=n0"},
		{"of equal fractions the evicted gang", with(3).jobs("a", "a1 1 on=n0", "a2 1").jobs("b", "b1 1 on=n0", "b2 1 on=n0"), "a1=n0 b1=n0 b2=n0"},
		{"a job that does not fit does not stop its queue", with(2).jobs("a", "a1 3", "a2 1"), "a2=n0"},
		{
			"fractions are exact: two thirds are more than 666666666666666666/10^18", &situation{
				config: config(), nodes: []Node{{Name: "n0", Total: Resources{0, 2, 666666666666666667}}, {Name: "n1", Total: Resources{0, 1, 333333333333333333}}},
				queues: []Queue{
					{"a", 1000, []Job{{ID: "a1", Request: Resources{0, 2, 1}}}},
					{"b", 1000, []Job{{ID: "b1", Request: Resources{0, 1, 666666666666666666}}}},
				},
			}, "b1=n0",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.s.expect(t, row.want)
		})
	}
}
