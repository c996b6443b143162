package projection

import (
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
)

// noGroups is the part of a Handler for histories before there were groups.
type noGroups struct{}

func (noGroups) Groups() bool { return false }

func (noGroups) Durations() bool  { return true }
func (noGroups) Successors() bool { return false }
func (noGroups) DueAgain() bool   { return false }
func (noGroups) RulesFirst() bool { return false }

func (noGroups) Order([]int) bool { panic("no groups") }

func (noGroups) Bind(*Job, string, string, bool, uint32) (Bound, policy.FindingReason) {
	panic("no groups")
}

func (noGroups) Bound(*Job, string, string, Bound) { panic("no groups") }

func (noGroups) Found(*Job, string, policy.FindingReason) { panic("no groups") }

func (noGroups) Offer(*MemberChange) bool { panic("no groups") }

func (noGroups) Changed(*MemberChange) { panic("no groups") }

func (noGroups) RestartAt(*Job, int64, int64) int64 { panic("no groups") }

func (noGroups) UnitEnded(*UnitEnd) (Verdict, bool) { panic("no groups") }

func (noGroups) OfferEnd(*group.Group, policy.GroupState, policy.UnitReason, string) bool {
	panic("no groups")
}

func (noGroups) GroupEnded(*group.Group, policy.GroupState, policy.UnitReason, string) {
	panic("no groups")
}
