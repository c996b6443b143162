package scheduling

import (
	"math"
	"testing"
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		s    *situation
		do   func(*situation)
		want string
	}{
		{"no resources", with(1), func(s *situation) { s.config.Resources = nil }, "no resources"},
		{"a resource twice", with(1), func(s *situation) { s.config.Resources = []string{"cpu", "cpu"} }, `resource "cpu": named twice`},
		{"a class twice", with(1), func(s *situation) { s.config.PriorityClasses[1].Name = "low" }, `priority class "low": named twice`},
		{"a class without a name", with(1), func(s *situation) { s.config.PriorityClasses[1].Name = "" }, `priority class without a name`},
		{"no default class", with(1), func(s *situation) { s.config.DefaultPriorityClass = "x" }, `default priority class "x": there is no such class`},
		{"a node twice", with(1, 2), func(s *situation) { s.nodes[1].Name = "n0" }, `node "n0": named twice`},
		{"a node without a name", with(1, 2), func(s *situation) { s.nodes[1].Name = "" }, `node without a name`},
		{"a node with a negative amount", with(1), func(s *situation) { s.nodes[0].Total = cpu(-1) }, `node "n0": -1 of cpu is negative`},
		{"nodes with too much", with(1, 1), func(s *situation) { s.nodes[1].Total = cpu(math.MaxInt64) }, `nodes: more than 2^63-1 of cpu in total`},
		{"a queue twice", with(1).jobs("a", "a1 1").jobs("b", "b1 1"), func(s *situation) { s.queues[1].Name = "a" }, `queue "a": named twice`},
		{"a queue without a name", with(1).jobs("a", "a1 1"), func(s *situation) { s.queues[0].Name = "" }, `queue without a name`},
		{"a queue without weight", with(1).jobs("a").weigh("a", 0), nil, `queue "a": priority factor 0, must be at least 1 thousandth`},
		{"a negative weight", with(1).jobs("a").weigh("a", -1000), nil, `queue "a": priority factor -1000, must be at least 1 thousandth`},
		{"a job twice", with(1).jobs("a", "x 1").jobs("b", "x 1"), nil, `job "x": named twice`},
		{"a job without an ID", with(1).jobs("a", "x 1"), func(s *situation) { s.queues[0].Jobs[0].ID = "" }, `job without an ID`},
		{"a negative request", with(1).jobs("a", "x -1"), nil, `job "x": -1 of cpu is negative`},
		{"an unknown resource", with(1).jobs("a", "x 1"), func(s *situation) { s.queues[0].Jobs[0].Request = make(Resources, 4) }, `job "x": 4 amounts of 3 resources`},
		{"requests that are too large", with(1).jobs("a", "x 1", "y 9223372036854775807"), nil, `jobs: more than 2^63-1 of cpu in total`},
		{"an unknown class", with(1).jobs("a", "x 1 class=none"), nil, `job "x": there is no priority class "none"`},
		{"a running job of no queue", with(1).jobs("a", "x 1"), func(s *situation) { s.running["z"], s.running["y"] = "n0", "n0" }, `job "y": runs on node "n0", but is in no queue`},
		{"a gang without an ID", with(1).jobs("a", "x 1 gang=,2"), nil, `job "x": a gang without an ID`},
		{"a gang of none", with(1).jobs("a", "x 1 gang=g,0"), nil, `job "x": gang cardinality 0, must be at least 1`},
		{"a minimum above the cardinality", with(1).jobs("a", "x 1 gang=g,1,2"), nil, `job "x": gang minimum cardinality 2, must be between 0 and the cardinality 1`},
		{"a negative minimum", with(1).jobs("a", "x 1 gang=g,1,-2"), nil, `job "x": gang minimum cardinality -2, must be between 0 and the cardinality 1`},
		{"too many jobs of a gang", with(1).jobs("a", "x 1 gang=g,1", "y 1 gang=g,1 on=n0"), nil, `gang "g" of queue "a": more jobs than its cardinality 1`},
		{"jobs that differ", with(1).jobs("a", "x 1 gang=g,2", "y 1 gang=g,3"), nil, `gang "g" of queue "a": its jobs differ in cardinality, minimum cardinality, label or priority class`},
		{"a queued and a running job that differ", with(1).jobs("a", "x 1 gang=g,2", "y 1 gang=g,2 class=high on=n0"), nil, `gang "g" of queue "a": its jobs differ in cardinality, minimum cardinality, label or priority class`},
		{"the first of two", with(1).jobs("a", "y -1", "x -1"), nil, `job "x": -1 of cpu is negative`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.do != nil {
				row.do(row.s)
			}
			_, err := Schedule(row.s.config, row.s.queues, row.s.nodes, row.s.running)
			if err == nil || err.Error() != row.want {
				t.Errorf("error %v, want %s", err, row.want)
			}
		})
	}
}

func TestNothing(t *testing.T) {
	t.Parallel()
	with().expect(t, "")
	r := with().jobs("a", "x 1").expect(t, "")
	if len(r.Unscheduled) != 1 || r.Unscheduled[0].Reason != FitsNoNode {
		t.Errorf("without nodes: %v", r.Unscheduled)
	}
	with(1).jobs("a", "x 1 class=").expect(t, "x=n0") // the default class
	with(0).jobs("a", "x 0").expect(t, "x=n0")
	with(5).jobs("a", "x 9223372036854775807").weigh("a", math.MaxInt64).jobs("b", "b1 0").weigh("b", math.MaxInt64).expect(t, "b1=n0")
}
