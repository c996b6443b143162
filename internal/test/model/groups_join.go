package model

import (
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxMembers bounds the size of a gang and the indexes of a group of open size (R3).
const maxMembers = 50_000

// The reasons of GroupFinding.
const (
	BadGroupName    = "group name"
	NoGroupPolicy   = "no group policy"
	UnknownPolicy   = "unknown group policy"
	AnotherPolicy   = "another group policy"
	UnknownPart     = "part not declared"
	UnknownReplica  = "replica not declared"
	UnknownIndex    = "index not declared"
	IndexTaken      = "index taken"
	GangNotOneUnit  = "gang is not one unit"
	GangParallelism = "parallelism below the size of the gang"
)

// join makes a job a member, if it is one (GROUPS 1).
func (m *Model) join(j *job, t int64) {
	a := j.annotations
	gang := isGang(a)
	name, policy, partName := a[annotationGroup], a[annotationGroupPolicy], a[annotationPart]
	replicaText, indexText := a[annotationReplica], a[annotationIndex]
	size := 0
	if gang {
		size = number(a[annotationCardinality])
	}
	switch {
	case name == "" && !gang:
		return
	case name == "":
		// "Without group it is in the group gang/<gangId>: one part, one unit". (R4)
		name, policy, partName, replicaText, indexText = "gang/"+a[annotationGang], "", "", "", ""
	case utf8.RuneCountInString(name) > 253: // "1 to 253 characters"
		m.finding(j, name, BadGroupName)
		return
	}
	if partName == "" {
		partName = "main"
	}
	replica, index := number(replicaText), number(indexText)
	if replicaText == "" {
		replica = 0
	}

	g := m.group(j.queue, j.set, name)
	isNew := g == nil
	switch {
	case isNew && strings.HasPrefix(name, "gang/") && a[annotationGroup] == "":
		if size < 0 {
			m.finding(j, name, GangNotOneUnit)
			return
		}
		g = newGroup(j, name, "", []Shape{{Name: "main", Replicas: 1, Members: size, MinMembers: size}})
	case isNew && policy == "": // GROUPS 13.15
		m.finding(j, name, NoGroupPolicy)
		return
	case isNew && m.policies.groupPolicy(policy) == nil:
		m.finding(j, name, UnknownPolicy)
		return
	case isNew:
		g = newGroup(j, name, policy, m.policies.groupPolicy(policy).shapes())
	case policy != "" && policy != g.policy: // (R5)
		m.finding(j, name, AnotherPolicy)
		return
	}

	p := g.part(partName)
	if p == nil {
		m.finding(j, name, UnknownPart)
		return
	}
	if replica < 0 || replica >= len(p.units) {
		m.finding(j, name, UnknownReplica)
		return
	}
	u := p.units[replica]
	if indexText == "" { // "default: the next free one of the unit, in order of submission"
		index = 0
		for u.member(index) != nil {
			index++
		}
	}
	switch {
	case index < 0, index >= maxMembers, p.Members > 0 && index >= p.Members:
		m.finding(j, name, UnknownIndex)
		return
	case u.member(index) != nil:
		m.finding(j, name, IndexTaken)
		return
	}
	// "With group, a gang must be exactly one unit." (R6)
	id := ""
	if gang {
		id = a[annotationGang]
	}
	switch {
	case len(u.members) > 0 && (u.gang != id || u.gangSize != size),
		gang && p.Members > 0 && p.Members != size,
		gang && (size < 0 || len(u.members) >= size),
		gang && m.gangElsewhere(j, u, id):
		m.finding(j, name, GangNotOneUnit)
		return
	case gang && p.Parallelism > 0 && p.Parallelism < size:
		m.finding(j, name, GangParallelism)
		return
	}

	if isNew {
		m.groups = append(m.groups, g)
		slices.SortFunc(m.groups, func(a, b *group) int { return strings.Compare(a.key(), b.key()) })
		m.Seen["group: bound"]++
		m.bound(g)
	}
	u.gang, u.gangSize = id, size
	mem := &member{job: j, unit: u, index: index}
	j.member = mem
	u.members = append(u.members, mem)
	slices.SortFunc(u.members, func(a, b *member) int { return a.index - b.index })
	m.touch(j)

	// What came before the SubmitJob. (R7)
	if j.succeeded {
		j.ended, j.succeeded = false, false
	}
	if n := len(j.runs); n > 0 && j.runs[n-1].well {
		mem.over = succeededWell
		u.changed = t
	}
	m.memberLost(j, t)
	if mem.over != "" || m.mute(g.queue) {
		return
	}
	// GROUPS 8 and 13.14: a member submitted late.
	if g.ended || u.state != "" {
		m.Seen["group: member too late"]++
		m.sayMember(MemberHeld, mem)
		m.stop(mem)
		return
	}
	// GROUPS 7: "If it may not when its SubmitJob is folded".
	if !m.mayStart(mem) {
		m.Seen["group: held at its submit"]++
		mem.held = true
		m.sayMember(MemberHeld, mem)
	}
}

// bound says that a group is bound, also in shadow. (R1).
func (m *Model) bound(g *group) {
	g.lastEvent = *m.watermark
	var shape []Shape
	if !g.open {
		for _, p := range g.parts {
			shape = append(shape, p.Shape)
		}
	}
	m.sayOf(g, Record{Kind: GroupBound, Policy: g.policy, Shape: shape, MaxRestarts: or(m.inForce(g).MaxRestarts, 0)})
}

// finding: the job "is in no group: GroupFinding".
func (m *Model) finding(j *job, name, reason string) {
	m.Seen["finding: "+reason]++
	m.say(Record{
		Kind: GroupFinding, Ledger: m.current.Ledger, Entry: m.current.Entry, Batch: m.current.Batch,
		Queue: j.queue, JobSet: j.set, Group: name, JobID: j.id, Reason: reason,
	})
}

// number reads a decimal integer, digits only, like the cardinality of a gang; -1
// stands for anything else, and for what is too large: R3.
func number(s string) int {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return -1
	}
	n, _ := new(big.Int).SetString(s, 10)
	if n.Cmp(big.NewInt(maxMembers)) > 0 {
		return -1
	}
	return int(n.Int64())
}

// shapes is what a policy declares of the sizes of its parts.
func (p *GroupPolicy) shapes() []Shape {
	if p.Parts == nil {
		return nil
	}
	var shapes []Shape
	for _, q := range p.Parts {
		s := Shape{Name: q.Name, Replicas: or(q.Replicas, 1), Members: or(q.Members, 1), After: q.After, Parallelism: or(q.Parallelism, 0)}
		s.MinMembers = or(q.MinMembers, s.Members)
		shapes = append(shapes, s)
	}
	return shapes
}
