package projection

import (
	"unicode/utf8"

	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
)

// admit checks a membership against the newest group of its name, and binds a new group if the job is
// its first member.
func (s *State) admit(e *entry, m *group.Membership) (*groupEntry, policy.FindingReason) {
	if utf8.RuneCountInString(m.Name) > policy.MaxGroupName && !m.WholeGang {
		m.Name = string([]rune(m.Name)[:policy.MaxGroupName])
		return nil, policy.InvalidName
	}
	ge := s.newest(m.Key)
	if ge.g != nil {
		why := s.misfit(m, ge.g)
		ended := ge.g.State != policy.GroupActive && s.msg.features.Successors
		if !ended || why == 0 && !ge.g.Shape.Open() {
			return ge, why
		}
	}
	switch {
	case m.WholeGang && m.GangSize == group.TooMany:
		return nil, policy.NotOneUnit
	case !m.WholeGang && m.Policy == "":
		return nil, policy.NoPolicyNamed
	}
	next := s.next(m.Key)
	bound, why, err := s.msg.q.Bind(e.job, next.Name, m.Policy, m.WholeGang, m.GangSize)
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
		return ge, s.misfit(m, ge.g)
	}
	g := group.New(next, m.Policy, bound.Shape)
	if why := s.misfit(m, g); why != 0 {
		return nil, why
	}
	ge.g, ge.wipe = g, ge.inKV
	s.follow(m.Key, next)
	s.happened(&Binding{Bound: bound, First: e.job, Group: g.Name, Policy: m.Policy})
	return ge, 0
}

// misfit is why a membership does not fit into a group.
func (s *State) misfit(m *group.Membership, g *group.Group) policy.FindingReason {
	if m.Policy != "" && g.Policy != m.Policy {
		return policy.OtherPolicy
	}
	own := g.UnitOfGang(m.GangID) != nil && (g.State == policy.GroupActive || !s.msg.features.Successors)
	return m.Misfit(g, m.GangID != "" && !own && s.hasGang(m))
}
