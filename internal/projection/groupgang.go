package projection

import (
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
)

// A gang is in one group of its job set (semantics.md 12.1): that of its first member, until the group
// is forgotten, or from version 4 of the semantics on until it has ended.

// hasGang reports whether a group of the job set has a gang, from version 4 on one
// that has not ended.
func (s *State) hasGang(m *group.Membership) bool {
	has := func(ge *groupEntry) bool {
		return ge.g != nil && ge.g.UnitOfGang(m.GangID) != nil && (ge.g.State == policy.GroupActive || !s.msg.features.Successors)
	}
	alone := s.groupOf(group.Key{Queue: m.Queue, Set: m.Set, Name: group.OfGang(m.GangID)})
	return has(alone) || alone.gangIn != "" && has(s.groupOf(group.Key{Queue: m.Queue, Set: m.Set, Name: alone.gangIn}))
}

// placeGang records the group that a gang is in, beside the group that the gang would
// otherwise be; "": it is not in g any more. The latter needs no such record for itself.
func (s *State) placeGang(g *group.Group, id, name string) {
	alone := group.OfGang(id)
	if id == "" || g.Name == alone {
		return
	}
	ge := s.groupOf(group.Key{Queue: g.Queue, Set: g.Set, Name: alone})
	if name == "" && ge.gangIn != g.Name {
		return // it is in a later one
	}
	ge.gangIn = name
	s.markDirty(ge)
}
