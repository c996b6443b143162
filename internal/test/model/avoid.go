package model

import (
	"slices"
	"strings"
)

// avoid implements §7: the nodes that the next run avoids, each once, in order of first occurrence.
func (m *Model) avoid(r *run, v verdict) []string {
	var runs []*run
	switch v.antiAffinity {
	case "node":
		// "the node of this failure only, attempted or not".
		runs = []*run{r}
	case "allNodes":
		// "the nodes of all runs of this job that failed after being attempted,
		// in order of failure".
		// READING: also of those not decided (stale runs, failures before the
		// SubmitJob), and of those that failed after this one in the same
		// message. (Otherwise: only of those decided.)
		for _, failed := range r.job.failures {
			if failed.failure.attempted() {
				runs = append(runs, failed)
			}
		}
	}
	var nodes []string
	for _, failed := range runs {
		if failed.node != "" && !slices.Contains(nodes, failed.node) {
			nodes = append(nodes, failed.node)
		}
	}
	m.Seen["anti-affinity: "+v.antiAffinity]++
	if len(nodes) > 1 {
		m.Seen["several nodes avoided"]++
	}
	return nodes
}

// newest: §7, "A decision names the 50 nodes that were added last, and says how many it
// leaves out." READING: version 1 names all. It counts nodes, each once.
func (m *Model) newest(nodes []string) ([]string, int) {
	leftOut := 0
	for m.version >= 2 && len(nodes) > 50 {
		nodes, leftOut = nodes[1:], leftOut+1
	}
	if leftOut > 0 {
		m.Seen["nodes left out"]++
	}
	return nodes, leftOut
}

// avoidAlso: §7, "Every retry of a failure before until also avoids the nodes of avoidNodes, by name, after its own".
// READING: a node of its own that is left out is not named again. (Otherwise: it could be.) Version 1 has room for
// 50 too.
func (m *Model) avoidAlso(rec *Record, own []string, t int64) {
	listed := slices.Clone(m.policies.settings().AvoidNodes)
	slices.SortFunc(listed, func(a, b AvoidedNode) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range listed {
		switch {
		case t >= n.Until:
			m.Seen["avoided node: over"]++
		case slices.Contains(own, n.Name):
			m.Seen["avoided node: the job's own"]++
		case len(rec.AvoidNodes) >= 50:
			m.Seen["avoided node: left out"]++
			rec.NodesLeftOut++
		default:
			m.Seen["avoided node"]++
			rec.AvoidNodes = append(slices.Clip(rec.AvoidNodes), n.Name)
		}
	}
}
