package model

import (
	"fmt"
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

// memberRequest is what the annotations of a job say of its membership.
type memberRequest struct {
	name, policy, part string
	replica, index     int    // -1: not one that can be declared
	free               bool   // the next free index
	gang               string // id, or ""
	size               int    // of the gang
	alone              bool   // a gang without a group
}

// memberRequestOf reads the annotations of a job; nil: it names no group and is in no gang.
func memberRequestOf(j *job) *memberRequest {
	a := j.annotations
	w := &memberRequest{name: a[annotationGroup], policy: a[annotationGroupPolicy], part: a[annotationPart]}
	replica, index := a[annotationReplica], a[annotationIndex]
	if isGang(a) {
		w.gang, w.size = a[annotationGang], number(a[annotationCardinality])
	}
	switch {
	case w.name == "" && w.gang == "":
		return nil
	case w.name == "":
		// "Without group it is in the group gang/<gangId>: one part, one unit". (R4)
		w.name, w.policy, w.part, replica, index, w.alone = "gang/"+w.gang, "", "", "", "", true
	}
	if w.part == "" {
		w.part = "main"
	}
	w.replica, w.index, w.free = number(replica), number(index), index == ""
	if replica == "" {
		w.replica = 0
	}
	return w
}

// join makes a job a member, if it is one (semantics.md 12.1).
func (m *Model) join(j *job, t int64) {
	w := memberRequestOf(j)
	switch {
	case w == nil:
		return
	case !w.alone && utf8.RuneCountInString(w.name) > 253: // "1 to 253 characters"
		m.finding(j, w.name, BadGroupName)
		return
	}
	g, n := m.newestGroup(j.queue, j.set, w.name)
	p := m.place(g, j, w)
	// Version 4: "It has ended and the job does not fit, or the group is of open size: the job
	// begins a new group as its first member". Its reason counts, not that of the old one.
	if g != nil && g.ended && m.has(successors) && (p.reason != "" || g.open) {
		for n++; m.group(j, w.follower(n)) != nil; n++ {
			m.Seen["group: the name of a successor was taken"]++
		}
		g = nil
	}
	isNew := g == nil
	if isNew {
		n = max(n, 1)
		if g, p.reason = m.begin(j, w, n); g != nil {
			p = m.place(g, j, w)
		}
	}
	if p.reason != "" {
		if n > 1 {
			m.Seen["finding: not in a successor either"]++
		}
		m.finding(j, w.name, p.reason)
		return
	}

	if isNew {
		m.groups = append(m.groups, g)
		slices.SortFunc(m.groups, func(a, b *group) int { return strings.Compare(a.key(), b.key()) })
		m.Seen["group: bound"]++
		if n > 1 {
			m.Seen["group: successor"]++
			if w.gang != "" {
				m.Seen["group: successor of a gang"]++
			}
		}
		m.bound(g)
	}
	m.enter(j, w, p, t)
}

// newestGroup is the newest group of a name in a job set, and its number, from 1: the first has the
// name itself, those that follow have been begun under it. nil: there is none (R33).
func (m *Model) newestGroup(queue, set, name string) (newest *group, n int) {
	for _, g := range m.groups {
		if g.queue != queue || g.set != set {
			continue
		}
		number := 0
		switch {
		case g.name == name:
			number = 1
		case g.begunAs == name:
			number = g.number
		}
		if number > n {
			newest, n = g, number
		}
	}
	return newest, n
}

// group is the group that has a name in the job's set.
func (m *Model) group(j *job, name string) *group {
	for _, g := range m.groups {
		if g.queue == j.queue && g.set == j.set && g.name == name {
			return g
		}
	}
	return nil
}

// gangElsewhere says whether another unit of the job set has the gang, in this group or in
// another one (R6).
func (m *Model) gangElsewhere(j *job, not *unit, id string) bool {
	for _, g := range m.groups {
		if g.queue != j.queue || g.set != j.set {
			continue
		}
		// Version 4: it "means groups that have not ended". (R34)
		if g.ended && g != not.part.group && m.has(successors) {
			continue
		}
		for _, u := range g.units() {
			if u != not && u.gang == id {
				if g != not.part.group {
					m.Seen["finding: gang of another group"]++
				}
				return true
			}
		}
	}
	return false
}

// follower is the name of the nth group of a name.
func (w *memberRequest) follower(n int) string {
	if n == 1 {
		return w.name
	}
	return fmt.Sprintf("%s#%d", w.name, n)
}

// begin makes a group for its first member, as the nth of its name, or says why it cannot be bound.
func (m *Model) begin(j *job, w *memberRequest, n int) (*group, string) {
	var g *group
	switch {
	case w.alone && w.size < 0:
		return nil, GangNotOneUnit
	case w.alone:
		g = newGroup(j, w.follower(n), "", []Shape{{Name: "main", Replicas: 1, Members: w.size, MinMembers: w.size}})
	case w.policy == "": // semantics.md 12.13.15
		return nil, NoGroupPolicy
	case m.policies.groupPolicy(w.policy) == nil:
		return nil, UnknownPolicy
	default:
		p := m.policies.groupPolicy(w.policy)
		if !m.has(successRules) {
			p = p.plain()
		}
		g = newGroup(j, w.follower(n), w.policy, p.shapes())
		g.success = or(p.Success, Success{})
	}
	g.begunAs, g.number = w.name, n
	return g, ""
}

// place is where a job fits in a group, or the reason why it does not.
type place struct {
	unit   *unit
	index  int
	reason string
}

// place finds the place of a job in a group; nil has none.
func (m *Model) place(g *group, j *job, w *memberRequest) place {
	switch {
	case g == nil:
		return place{}
	case w.policy != "" && w.policy != g.policy: // (R5)
		return place{reason: AnotherPolicy}
	}
	p := g.part(w.part)
	if p == nil {
		return place{reason: UnknownPart}
	}
	if w.replica < 0 || w.replica >= len(p.units) {
		return place{reason: UnknownReplica}
	}
	u, index := p.units[w.replica], w.index
	if w.free { // "default: the next free one of the unit, in order of submission"
		index = 0
		for u.member(index) != nil {
			index++
		}
	}
	gang := w.gang != ""
	switch {
	case index < 0, index >= maxMembers, p.Members > 0 && index >= p.Members:
		return place{reason: UnknownIndex}
	case u.member(index) != nil:
		return place{reason: IndexTaken}
	// "With group, a gang must be exactly one unit." (R6)
	case len(u.members) > 0 && (u.gang != w.gang || u.gangSize != w.size),
		gang && p.Members > 0 && p.Members != w.size,
		gang && (w.size < 0 || len(u.members) >= w.size),
		gang && m.gangElsewhere(j, u, w.gang):
		return place{reason: GangNotOneUnit}
	case gang && p.Parallelism > 0 && p.Parallelism < w.size:
		return place{reason: GangParallelism}
	}
	return place{unit: u, index: index}
}

// enter makes a job a member, where it fits.
func (m *Model) enter(j *job, w *memberRequest, p place, t int64) {
	u := p.unit
	g := u.part.group
	u.gang, u.gangSize = w.gang, w.size
	mem := &member{job: j, unit: u, index: p.index}
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
	// semantics.md 12.8 and 12.13.14: a member submitted late.
	if g.ended || u.state != "" {
		m.Seen["group: member too late"]++
		m.recordMember(MemberHeld, mem)
		m.stop(mem)
		return
	}
	// semantics.md 12.7: "If it may not when its SubmitJob is folded".
	if !m.mayStart(mem) {
		m.Seen["group: held at its submit"]++
		mem.held = true
		m.recordMember(MemberHeld, mem)
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
	m.recordOf(g, Record{Kind: GroupBound, Policy: g.policy, Shape: shape, Success: g.success, MaxRestarts: or(m.inForce(g).MaxRestarts, 0)})
}

// finding: the job "is in no group: GroupFinding".
func (m *Model) finding(j *job, name, reason string) {
	m.Seen["finding: "+reason]++
	m.record(Record{
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
		s.AfterReady = q.AfterReady
		for _, r := range q.SuccessRules {
			s.SuccessRules = append(s.SuccessRules, SuccessRule{r.Indexes, new(or(r.Count, len(r.Indexes)))})
		}
		shapes = append(shapes, s)
	}
	return shapes
}
