package group

import (
	"math"
	"strconv"
	"strings"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/policy"
)

// Membership is the place in a group that a job's annotations ask for.
type Membership struct {
	Key
	Policy    string // of the group; "": none is named
	Part      string
	Replica   uint32
	Index     uint32
	FreeIndex bool // Index is the next free one
	GangID    string
	GangSize  uint32 // 0: no gang
	WholeGang bool   // the gang is a group of its own: it names no group
}

// TooMany stands for a number that is none, or larger than any group has.
const TooMany = math.MaxUint32

// MembershipOf reads the annotations of a job (semantics.md 12.1). It is false if the job names no group and is in no gang. A gang that
// names no group is one: its other annotations do not count. The strings are those of sub.
func MembershipOf(queue, set string, sub *events.Submit) (m Membership, ok bool) {
	m = Membership{Key: Key{Queue: queue, Set: set, Name: sub.Group}, Part: policy.MainPart, FreeIndex: true}
	if IsGang(sub.GangID, sub.GangCardinality) {
		m.GangID, m.GangSize = sub.GangID, number(strings.TrimLeft(sub.GangCardinality, "0"))
	}
	if m.Name == "" {
		if m.GangID == "" {
			return m, false
		}
		m.WholeGang, m.Name = true, OfGang(m.GangID)
		return m, true
	}
	m.Policy = sub.GroupPolicy
	if sub.Part != "" {
		m.Part = sub.Part
	}
	if sub.Replica != "" {
		m.Replica = number(sub.Replica)
	}
	if m.FreeIndex = sub.Index == ""; !m.FreeIndex {
		m.Index = number(sub.Index)
	}
	return m, true
}

// OfGang is the group of a gang that names none.
func OfGang(id string) string { return "gang/" + id }

// IsGang reports whether a job has a gang id and a numeric cardinality of at least 2
// (semantics.md 3.1).
func IsGang(id, cardinality string) bool {
	if id == "" || cardinality == "" {
		return false
	}
	for i := range len(cardinality) {
		if cardinality[i] < '0' || cardinality[i] > '9' {
			return false
		}
	}
	size := strings.TrimLeft(cardinality, "0")
	return len(size) > 1 || size >= "2"
}

// number parses a decimal number, digits only; anything else is TooMany.
func number(s string) uint32 {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return TooMany
		}
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n > policy.MaxGroupMembers {
		return TooMany
	}
	return uint32(n)
}

// Misfit is why a group has no room for the member; 0: it has. elsewhere: the gang is a unit of another group.
func (m *Membership) Misfit(g *Group, elsewhere bool) policy.FindingReason {
	part := g.Part(m.Part)
	if part == nil {
		return policy.NoSuchPart
	}
	if m.Replica >= part.Replicas {
		return policy.NoSuchReplica
	}
	u := part.Unit(m.Replica)
	size := uint32(policy.MaxGroupMembers)
	if part.Members > 0 {
		size = part.Members
	}
	index := m.Index
	if m.FreeIndex && u != nil {
		index = u.NextFree()
	}
	switch {
	case index >= size:
		return policy.NoSuchIndex
	case u != nil && u.Member(index) != nil:
		return policy.IndexTaken
	}
	if elsewhere {
		return policy.NotOneUnit
	}
	return m.gangMisfit(g, part, u)
}

// gangMisfit is why a gang would not be exactly one unit.
func (m *Membership) gangMisfit(g *Group, part *Part, u *Unit) policy.FindingReason {
	if u != nil && (u.GangID != m.GangID || u.GangSize != m.GangSize) {
		return policy.NotOneUnit
	}
	if m.GangID == "" {
		return 0
	}
	other := g.UnitOfGang(m.GangID)
	switch {
	case m.GangSize == TooMany, part.Members > 0 && part.Members != m.GangSize:
		return policy.NotOneUnit
	case u != nil && len(u.Members) >= int(m.GangSize), other != nil && other != u:
		return policy.NotOneUnit
	case part.Parallelism > 0 && part.Parallelism < m.GangSize:
		return policy.OverParallelism
	}
	return 0
}
