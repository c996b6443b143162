package model

import (
	"fmt"
	"maps"
	"slices"
)

// batch is what was submitted together under one name, and may be submitted again.
type batch struct {
	queue, set, name string
	jobs             []map[string]string // their annotations
	again            int
}

func newBatch(jobs []*clusterJob) *batch {
	first := jobs[0]
	b := &batch{queue: first.queue, set: first.set}
	for _, j := range jobs {
		b.jobs = append(b.jobs, j.submit.GetSubmitJob().GetObjectMeta().GetAnnotations())
	}
	b.name = b.jobs[0][annotationGroup]
	if b.name == "" {
		b.name = "gang/" + b.jobs[0][annotationGang]
	}
	return b
}

// resubmit has what has ended submitted again under its name, now and then: all of it or some,
// sometimes changed; rarely while it still goes on.
func (g *groupGenerator) resubmit() {
	for _, b := range g.batches {
		newest, _ := g.m.newestGroup(b.queue, b.set, b.name)
		often := 0.003
		switch {
		case newest != nil && newest.ended && g.m.version >= SuccessorsVersion:
			often = 0.08
		case newest != nil && newest.ended: // all of it would be in no group
			often = 0.03
		case g.draining:
			often = 0
		}
		if b.again >= 2 || len(g.unsent) > 20 || !g.chance(often) {
			continue
		}
		b.again++
		g.left += 3 + g.IntN(8)
		jobs := b.jobs
		if g.chance(0.3) {
			jobs = jobs[:1+g.IntN(len(jobs))]
		}
		change := g.changeAgain(b)
		for _, a := range jobs {
			a = maps.Clone(a)
			change(a)
			if g.chance(0.03) {
				g.spoil(a)
			}
			g.job(b.queue, b.set, a)
		}
	}
}

// changeAgain says what is different when a batch is submitted again: mostly nothing.
func (g *groupGenerator) changeAgain(b *batch) func(a map[string]string) {
	switch n := g.IntN(20); {
	case n == 0 && len(g.policies.Groups) > 0: // another policy
		policy := pick(g.generator, g.policies.Groups).Name
		return func(a map[string]string) { a[annotationGroupPolicy] = policy }
	case n == 1: // without it
		return func(a map[string]string) { delete(a, annotationGroupPolicy) }
	case n == 2: // by the name of a successor
		name := fmt.Sprintf("%s#%d", b.name, 2+g.IntN(2))
		return func(a map[string]string) { a[annotationGroup] = name }
	case n <= 4: // its gangs in another group
		name := fmt.Sprintf("again-%d", b.again)
		return func(a map[string]string) { a[annotationGroup] = name }
	case n <= 6: // its indexes as they come
		return func(a map[string]string) { delete(a, annotationIndex) }
	case n == 7: // a gang of another size
		return func(a map[string]string) {
			if a[annotationGang] != "" {
				a[annotationCardinality] = "2"
			}
		}
	case n == 8: // another gang
		return func(a map[string]string) {
			if a[annotationGang] != "" {
				a[annotationGang] += "-again"
			}
		}
	case n == 9 && len(b.jobs) > 1: // other jobs of it, from now on
		b.jobs = slices.Concat(b.jobs[1:], b.jobs[:1])
	}
	return func(map[string]string) {}
}
