package schedulingmodel

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// TestGenerator asks that everything that can come of a cycle comes of some of the first instances.
func TestGenerator(t *testing.T) {
	t.Parallel()
	seen := map[string]int{
		"scheduled": 0, "preempted": 0, "failed": 0, "more than 100 jobs": 0, "a node is gone": 0, "no nodes": 0,
		"a gang with a label is scheduled": 0, "large": 0, "bad input": 0,
	}
	reasons := map[scheduling.Reason]int{scheduling.Held: 0, scheduling.TooEarly: 0, scheduling.GangIncomplete: 0, scheduling.FitsNoNode: 0, scheduling.NoRoom: 0}
	add := func(what string, is bool) {
		if is {
			seen[what]++
		}
	}
	instances := rapid.Custom(Everything.Draw)
	spoiled := rapid.Custom(func(t *rapid.T) Instance { return Everything.Draw(t).Spoil(t) })
	for seed := range 200 {
		bad := spoiled.Example(seed)
		_, err := Schedule(bad.Config, bad.Queues, bad.Nodes, bad.NodeByJob)
		add("bad input", err != nil)
		in := instances.Example(seed)
		result, err := Schedule(in.Config, in.Queues, in.Nodes, in.NodeByJob)
		if err != nil {
			t.Fatal(err)
		}
		c := newCycle(in.Config, in.Queues, in.Nodes, in.NodeByJob)
		add("scheduled", len(result.Scheduled) > 0)
		add("preempted", len(result.Preempted) > 0)
		add("failed", len(result.Failed) > 0)
		add("more than 100 jobs", len(c.jobs) > 100)
		add("no nodes", len(in.Nodes) == 0)
		for _, u := range result.Unscheduled {
			reasons[u.Reason]++
		}
		for _, j := range c.jobs {
			add("a node is gone", j.ranOn == "node-gone")
			add("a gang with a label is scheduled", j.ranOn == "" && j.Gang.NodeUniformityLabel != "" && result.NodeByJob[j.ID] != "")
			add("large", amount(j.Request, 0) > 1<<50)
		}
	}
	for what, n := range seen {
		if n == 0 {
			t.Errorf("never: %s", what)
		}
	}
	for reason, n := range reasons {
		if n == 0 {
			t.Errorf("never: reason %v", reason)
		}
	}
}
