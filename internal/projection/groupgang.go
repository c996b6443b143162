package projection

import "github.com/refloat/refloat/internal/group"

// A gang is in one group of its job set (GROUPS 1): that of its first member, until the group
// is forgotten.

// gangGroup is the group of a gang that names none.
func gangGroup(id string) string { return "gang/" + id }

// hasGang reports whether a group of the job set has the gang of a wish.
func (s *State) hasGang(w *wish) bool {
	ge := s.groupOf(group.Key{Queue: w.Queue, Set: w.Set, Name: gangGroup(w.gangID)})
	return ge.gangIn != "" || ge.g != nil && ge.g.UnitOfGang(w.gangID) != nil
}

// placeGang records the group that a gang is in, beside the group that the gang would
// otherwise be; "": it is in none. The latter needs no such record for itself.
func (s *State) placeGang(g *group.Group, id, name string) {
	alone := gangGroup(id)
	if id == "" || g.Name == alone {
		return
	}
	ge := s.groupOf(group.Key{Queue: g.Queue, Set: g.Set, Name: alone})
	ge.gangIn = name
	s.markDirty(ge)
}
