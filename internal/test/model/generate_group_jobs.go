package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/events/pb"
)

// plan makes the jobs of a history.
func (g *groupGenerator) plan() {
	for i := range 1 + g.IntN(3) {
		queue, set := pick(g.generator, []string{"ml", "ml", "batch"}), pick(g.generator, setNames)
		name := fmt.Sprintf("group-%d", i)
		switch {
		case g.chance(0.04):
			name = strings.Repeat("g", 253)
		case g.chance(0.06) && i > 1: // named like the successor of another one
			queue, set, name = g.batches[0].queue, g.batches[0].set, g.batches[0].name+"#2"
		}
		from := len(g.unsent)
		switch p := g.Float64(); {
		case p < 0.2 && len(g.policies.Groups) > 0:
			g.planGang(queue, set, i)
		default:
			if len(g.policies.Groups) == 0 {
				g.planGang(queue, set, i)
				break
			}
			g.planGroup(&plannedGroup{queue: queue, set: set, name: name, policy: pick(g.generator, g.policies.Groups).Name})
		}
		g.batches = append(g.batches, newBatch(g.unsent[from:]))
		// Mostly in order, part by part; some later; some never.
		for k := from + 1; k < len(g.unsent); k++ {
			if g.chance(0.1) {
				other := from + g.IntN(k-from+1)
				g.unsent[k], g.unsent[other] = g.unsent[other], g.unsent[k]
			}
		}
		for g.chance(0.06) && len(g.unsent) > from+1 {
			at := from + g.IntN(len(g.unsent)-from)
			g.unsent = slices.Delete(g.unsent, at, at+1)
		}
	}
	for g.chance(0.3) {
		g.job(pick(g.generator, queueNames), pick(g.generator, setNames), nil)
	}
	if g.chance(0.3) { // groups come one among the other
		g.Shuffle(len(g.unsent), func(i, j int) { g.unsent[i], g.unsent[j] = g.unsent[j], g.unsent[i] })
	}
}

// job adds a job with these annotations.
func (g *groupGenerator) job(queue, set string, annotations map[string]string) *clusterJob {
	j := &clusterJob{plannedJob: &plannedJob{id: fmt.Sprintf("01job%03d", len(g.byID)), queue: queue, set: set}}
	all := map[string]string{}
	if g.chance(0.15) {
		all[annotationPolicies] = pick(g.generator, policyNames)
	}
	if g.chance(0.03) {
		all[annotationFailFast] = "true"
	}
	maps.Copy(all, annotations)
	s := &pb.SubmitJob{JobId: j.id, ObjectMeta: &pb.ObjectMeta{Namespace: "ns", Annotations: all}}
	if g.chance(0.6) {
		grace := pick(g.generator, []int64{1, 5, 30, 60, 400})
		s.MainObject = &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: &pb.PodSpec{TerminationGracePeriodSeconds: grace}}}
	}
	if annotations[annotationGang] != "" {
		j.gang = queue + set + annotations[annotationGang]
		if g.chance(0.5) { // Armada sets it on all members of gangs
			all[annotationFailFast] = "true"
		}
	}
	j.submit = &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: s}}
	g.byID[j.id] = j
	g.jobs = append(g.jobs, j.plannedJob)
	g.unsent = append(g.unsent, j)
	return j
}

// planGang makes a gang without a group.
func (g *groupGenerator) planGang(queue, set string, i int) {
	size := 2 + g.IntN(4)
	if g.options.Large || g.chance(0.05) {
		size = 64
	}
	for k := range size {
		a := map[string]string{annotationGang: fmt.Sprintf("gang-%d", i), annotationCardinality: strconv.Itoa(size)}
		if g.chance(0.01) {
			a[annotationCardinality] = pick(g.generator, []string{strconv.Itoa(size + 1), "99999999999999999999", "1"})
		}
		if g.chance(0.02) {
			a[annotationIndex] = strconv.Itoa(k)
		}
		g.job(queue, set, a)
	}
}

// planGroup makes the jobs that a group's policy declares, and some that it does not.
func (g *groupGenerator) planGroup(to *plannedGroup) {
	from := len(g.unsent)
	shapes := g.policies.groupPolicy(to.policy).shapes()
	open := shapes == nil
	if open {
		shapes = []Shape{{Name: "main", Replicas: 1, Members: 1 + g.IntN(5)}}
	}
	var gang map[string]string // of the last of its gangs
	for _, s := range shapes {
		gangs := g.chance(0.4) && (s.Parallelism == 0 || g.chance(0.1))
		for replica := range s.Replicas {
			numbered := g.chance(0.5)
			for index := range s.Members {
				a := map[string]string{annotationGroup: to.name, annotationGroupPolicy: to.policy}
				if s.Name != "main" || g.chance(0.5) {
					a[annotationPart] = s.Name
				}
				if replica > 0 || g.chance(0.3) {
					a[annotationReplica] = strconv.Itoa(replica)
				}
				if numbered {
					a[annotationIndex] = strconv.Itoa(index)
				}
				if gangs && s.Members > 1 {
					a[annotationGang] = fmt.Sprintf("%.20s-%s-%d", to.name, s.Name, replica)
					a[annotationCardinality] = strconv.Itoa(s.Members)
					gang = a
				}
				if g.chance(0.02) {
					g.spoil(a)
				}
				g.job(to.queue, to.set, a)
			}
		}
	}
	for len(gang) > 0 && g.chance(0.15) { // the same gang in another group
		a := maps.Clone(gang)
		switch a[annotationGroup] = pick(g.generator, []string{"", "another", "group-0"}); {
		case a[annotationGroup] == "":
			delete(a, annotationGroup)
		case g.chance(0.5):
			a[annotationGroupPolicy] = pick(g.generator, g.policies.Groups).Name
		}
		g.job(to.queue, to.set, a)
		if g.chance(0.3) { // and it comes first
			last := len(g.unsent) - 1
			g.unsent[last], g.unsent[from] = g.unsent[from], g.unsent[last]
		}
	}
	for g.chance(0.12) { // one too many
		a := map[string]string{annotationGroup: to.name, annotationGroupPolicy: to.policy, annotationPart: pick(g.generator, shapes).Name}
		g.spoil(a)
		g.job(to.queue, to.set, a)
	}
}

// spoil makes the annotations of a member odd.
func (g *groupGenerator) spoil(a map[string]string) {
	switch g.IntN(13) {
	case 0:
		a[annotationPart] = "unheard"
	case 1:
		a[annotationReplica] = pick(g.generator, []string{"9999", "-1", "x", "1.0", "99999999999999999999"})
	case 2:
		a[annotationIndex] = pick(g.generator, []string{"4294967296", "99999999999999999999", "-1", "x", " 1"})
	case 3:
		a[annotationIndex] = "0"
	case 4:
		a[annotationGroupPolicy] = pick(g.generator, []string{"gone", "train", "flow"})
	case 5:
		delete(a, annotationGroupPolicy)
	case 6:
		a[annotationGroup] = strings.Repeat("x", 4096)
	case 7:
		a[annotationGroup] = strings.Repeat("x", 254)
	case 8:
		a[annotationGang], a[annotationCardinality] = "stray", pick(g.generator, []string{"2", "3", "64"})
	case 9:
		delete(a, annotationGang)
	case 10:
		a[annotationCardinality] = "7"
	case 11:
		a[annotationGroup] = "another"
	case 12:
		a[annotationIndex] = "00" + strconv.Itoa(g.IntN(3))
	}
}
