package projection

import (
	"unicode/utf8"

	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
)

// admit checks a wish against the newest group of its name, and binds a new group if the job is
// its first member.
func (s *State) admit(e *entry, w *wish) (*groupEntry, policy.FindingReason) {
	if utf8.RuneCountInString(w.Name) > policy.MaxGroupName && !w.whole {
		w.Name = string([]rune(w.Name)[:policy.MaxGroupName])
		return nil, policy.InvalidName
	}
	ge := s.newest(w.Key)
	if ge.g != nil {
		why := s.misfit(w, ge.g)
		ended := ge.g.State != policy.GroupActive && s.msg.features.Successors
		if !ended || why == 0 && !ge.g.Shape.Open() {
			return ge, why
		}
	}
	switch {
	case w.whole && w.gangSize == tooMany:
		return nil, policy.NotOneUnit
	case !w.whole && w.policy == "":
		return nil, policy.NoPolicyNamed
	}
	next := s.next(w.Key)
	bound, why, err := s.msg.q.Bind(e.job, next.Name, w.policy, w.whole, w.gangSize)
	if err != nil {
		s.fail(err)
		return nil, policy.NoSuchPolicy
	}
	if why != 0 {
		return nil, why
	}
	if bound.Name != "" {
		next.Name = bound.Name
	}
	if ge = s.groupOf(next); ge.g != nil { // a log that is not whole says so
		return ge, s.misfit(w, ge.g)
	}
	g := group.New(next, w.policy, bound.Shape)
	if why := s.misfit(w, g); why != 0 {
		return nil, why
	}
	ge.g, ge.wipe = g, ge.inKV
	s.follow(w.Key, next)
	s.happened(&Binding{Bound: bound, First: e.job, Group: g.Name, Policy: w.policy})
	return ge, 0
}

// misfit is why a wish does not fit into a group.
func (s *State) misfit(w *wish, g *group.Group) policy.FindingReason {
	if w.policy != "" && g.Policy != w.policy {
		return policy.OtherPolicy
	}
	own := g.UnitOfGang(w.gangID) != nil && (g.State == policy.GroupActive || !s.msg.features.Successors)
	return w.misfit(g, w.gangID != "" && !own && s.hasGang(w))
}

// misfit is why a group has no room for the member. elsewhere: the gang is a unit of another
// group.
func (w *wish) misfit(g *group.Group, elsewhere bool) policy.FindingReason {
	part := g.Part(w.part)
	if part == nil {
		return policy.NoSuchPart
	}
	if w.replica >= part.Replicas {
		return policy.NoSuchReplica
	}
	u := part.Unit(w.replica)
	size := uint32(policy.MaxGroupMembers)
	if part.Members > 0 {
		size = part.Members
	}
	index := w.index
	if w.freeIndex && u != nil {
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
	return w.gangMisfit(g, part, u)
}

// gangMisfit is why a gang would not be exactly one unit.
func (w *wish) gangMisfit(g *group.Group, part *group.Part, u *group.Unit) policy.FindingReason {
	if u != nil && (u.GangID != w.gangID || u.GangSize != w.gangSize) {
		return policy.NotOneUnit
	}
	if w.gangID == "" {
		return 0
	}
	other := g.UnitOfGang(w.gangID)
	switch {
	case w.gangSize == tooMany, part.Members > 0 && part.Members != w.gangSize:
		return policy.NotOneUnit
	case u != nil && len(u.Members) >= int(w.gangSize), other != nil && other != u:
		return policy.NotOneUnit
	case part.Parallelism > 0 && part.Parallelism < w.gangSize:
		return policy.OverParallelism
	}
	return 0
}
