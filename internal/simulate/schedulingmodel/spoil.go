package schedulingmodel

import (
	"maps"
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// Spoil changes one thing about an instance, mostly so that it is no longer valid.
func (in Instance) Spoil(t *rapid.T) Instance {
	in = in.clone()
	var q *scheduling.Queue
	j, n := new(scheduling.Job), new(scheduling.Node)
	if len(in.Queues) > 0 {
		q = &in.Queues[rapid.IntRange(0, len(in.Queues)-1).Draw(t, "queue")]
		if len(q.Jobs) > 0 {
			j = &q.Jobs[rapid.IntRange(0, len(q.Jobs)-1).Draw(t, "job")]
		}
	}
	if len(in.Nodes) > 0 {
		n = &in.Nodes[rapid.IntRange(0, len(in.Nodes)-1).Draw(t, "node")]
	}
	first := &in.Config.PriorityClasses[0]
	number := rapid.SampledFrom([]int{-1, 0, 1, 2, 3, 1000}).Draw(t, "number")
	large := rapid.SampledFrom([]int64{math.MaxInt64, math.MaxInt64 / 2, math.MaxInt64/2 + 1, -1, 0}).Draw(t, "large")
	name := rapid.SampledFrom([]string{"", "node-00", "class-1", "class-9", "queue-0", "gang-0", "job-000"}).Draw(t, "name")
	rapid.SampledFrom([]func(){
		func() { in.Config.Resources = nil },
		func() { in.Config.Resources = append(slices.Clone(in.Config.Resources), in.Config.Resources[0]) },
		func() { in.Config.PriorityClasses = nil },
		func() { first.Name = name },
		func() { in.Config.PriorityClasses = append(in.Config.PriorityClasses, *first) },
		func() { in.Config.DefaultPriorityClass = name },
		func() { in.Queues = append(in.Queues, *q) },
		func() { q.Name = name },
		func() { q.PriorityFactor = large },
		func() { j.PriorityClass = name },
		func() { j.ID = name },
		func() { j.Request = scheduling.Resources{large} },
		func() { j.Request = make(scheduling.Resources, number&7) },
		func() { j.Gang.ID = name },
		func() { j.Gang.Cardinality = number },
		func() { j.Gang.MinimumCardinality = number },
		func() { j.Gang.NodeUniformityLabel = name },
		func() { j.Gang = scheduling.Gang{ID: name, Cardinality: number} },
		func() { n.Name = name },
		func() { n.Total = scheduling.Resources{large} },
		func() { n.Total = make(scheduling.Resources, number&7) },
		func() { in.Nodes = append(in.Nodes, *n) },
		func() { in.NodeByJob["nobody"] = "node-00" },
		func() { in.Queues = nil },
	}).Draw(t, "what is spoiled")()
	return in
}

// clone copies what Spoil, or a law, may change.
func (in Instance) clone() Instance {
	in.Config.PriorityClasses = slices.Clone(in.Config.PriorityClasses)
	in.Nodes = slices.Clone(in.Nodes)
	in.NodeByJob = maps.Clone(in.NodeByJob)
	in.Queues = slices.Clone(in.Queues)
	for i := range in.Queues {
		in.Queues[i].Jobs = slices.Clone(in.Queues[i].Jobs)
	}
	return in
}
