package policy

import "slices"

// GroupDefinition is a group policy as its author wrote it (semantics.md 12.2).
type GroupDefinition struct {
	Name        string
	Digest      [32]byte // SHA-256 of its canonical text
	MaxRestarts *uint32  // nil: unset, which is 0
	Backoff     Backoff  // of restarts by rules
	Keep        bool     // completed: Keep
	Blocking    bool     // restartStrategy: BlockingRecreate
	HasRules    bool     // rules is there, though it may be empty
	Rules       []GroupRule
	Restarts    UnitRestarts     // unit.restarts: of parts that state none, and of groups of open size
	Parts       []PartDefinition // in order; none: one part MainPart of open size
	Success     Success
}

// PartDefinition is one part of a group policy.
type PartDefinition struct {
	ShapePart
	RetryLimit       *uint32 // of all members of a unit together; nil: no limit
	CountFailed      bool    // members that failed for good count against RetryLimit
	Continue         bool    // onMemberFailure: Continue
	MaxFailedMembers *uint32 // with Continue; nil: no limit
	Restarts         UnitRestarts
}

// UnitRestarts is restarts of a unit: tried before the group's rules.
type UnitRestarts struct {
	On      RestartOn
	Limit   uint32
	Backoff Backoff
}

// RestartOn says after which ends a unit restarts by itself.
type RestartOn uint8

// The values of restarts.on.
const (
	RestartNever RestartOn = iota
	RestartOnFailure
	RestartAlways
)

// GroupRule is one rule of a group policy: what happens when a unit failed.
type GroupRule struct {
	Name      string
	Action    GroupAction
	Uncounted bool    // countsTowardsMax: false
	Limit     *uint32 // restarts by this rule; nil: the rule has no limit of its own
	OnReasons []UnitReason
	OnMessage *Pattern
	Parts     []string
}

// GroupAction is what happens to a group when one of its units failed (semantics.md 12.5).
type GroupAction uint8

// The actions. Decision logs contain these numbers: never change one.
const (
	NoGroupAction GroupAction = iota
	FailGroup
	RestartGroup
	RestartPart
	RestartUnit
	Leave
	Halt
)

var groupActions = [...]string{"", "FailGroup", "RestartGroup", "RestartPart", "RestartUnit", "Leave", "Halt"}

// String returns the action's name in a policy file, and "" for NoGroupAction.
func (a GroupAction) String() string { return NameAt(groupActions[:], uint8(a), "GroupAction") }

// ParseGroupAction returns the action that String names s.
func ParseGroupAction(s string) (GroupAction, bool) { return parseName(s, FailGroup, Halt) }

// Restarts reports whether the action starts members again.
func (a GroupAction) Restarts() bool {
	return a == RestartGroup || a == RestartPart || a == RestartUnit
}

// UnitReason is why a unit or a group ended (semantics.md 12.4 and 12.5).
type UnitReason uint8

// The reasons. Decision logs contain these numbers: never change one.
const (
	NoUnitReason UnitReason = iota
	PodFailurePolicy
	UnitDeadlineExceeded // "DeadlineExceeded"
	BackoffLimitExceeded
	MaxFailedIndexesExceeded
	FailedIndexes
	MemberCancelled
	ReachedMaxRestarts // of a group only
	Exhausted          // of a group only: no unit can start or run any more
)

var unitReasons = [...]string{
	"", "PodFailurePolicy", "DeadlineExceeded", "BackoffLimitExceeded", "MaxFailedIndexesExceeded", "FailedIndexes", "MemberCancelled",
	"ReachedMaxRestarts", "Exhausted",
}

// String returns the reason's name in files and records, and "" for NoUnitReason.
func (r UnitReason) String() string { return NameAt(unitReasons[:], uint8(r), "UnitReason") }

// ParseUnitReason returns the reason of a unit, as onReasons of a group rule names it.
func ParseUnitReason(s string) (UnitReason, bool) {
	return parseName(s, PodFailurePolicy, MemberCancelled)
}

// GroupState is the state of a group.
type GroupState uint8

// The states of a group. Decision logs contain these numbers: never change one.
const (
	GroupActive GroupState = iota
	GroupSucceeded
	GroupFailed
	GroupHalted
)

var groupStates = [...]string{"Active", "Succeeded", "Failed", "Halted"}

// String returns the state's name in output for people and programs.
func (s GroupState) String() string { return NameAt(groupStates[:], uint8(s), "GroupState") }

// FindingReason is why a job that names a group is not a member of it.
type FindingReason uint8

// The reasons, in the order in which they are checked. Decision logs contain these
// numbers: never change one.
const (
	UnknownFinding FindingReason = iota
	InvalidName                  // of the group: it has more than MaxGroupName characters
	NoPolicyNamed                // the first member names no group policy
	NoSuchPolicy                 // the first member names one that does not exist
	OtherPolicy                  // it names another policy than the group's
	NoSuchPart
	NoSuchReplica
	NoSuchIndex
	IndexTaken
	NotOneUnit      // its gang is not exactly one unit
	OverParallelism // the gang is larger than the parallelism of its part
)

var findingReasons = [...]string{
	"FindingReason(0)", "InvalidName", "NoPolicyNamed", "NoSuchPolicy", "OtherPolicy", "NoSuchPart", "NoSuchReplica", "NoSuchIndex",
	"IndexTaken", "NotOneUnit", "OverParallelism",
}

// String returns the reason's name in output for people and programs.
func (r FindingReason) String() string { return NameAt(findingReasons[:], uint8(r), "FindingReason") }

// RestartsRule is the rule of restarts that restarts of a unit granted.
const RestartsRule = "restarts"

// MainPart is the part of members that name none.
const MainPart = "main"

// Shape is the part of a group policy that the first member fixes for the group's life.
type Shape struct {
	Parts   []ShapePart
	Success Success
}

// Success is when a group has succeeded: when some of its parts have, or one unit of them.
type Success struct {
	Any   bool     // one unit is enough
	Parts []uint32 // their indexes, ascending; none: all
}

// Open reports whether the group's size is not declared: one part MainPart with any number
// of replicas and members.
func (s *Shape) Open() bool { return len(s.Parts) == 0 }

// Extended reports whether the shape has something that only version 4 of the semantics knows.
func (s *Shape) Extended() bool {
	return s.Success.Any || len(s.Success.Parts) > 0 ||
		slices.ContainsFunc(s.Parts, func(p ShapePart) bool { return len(p.AfterReady) > 0 || len(p.SuccessRules) > 0 })
}

// Part returns the part of that name, or nil.
func (s *Shape) Part(name string) *ShapePart {
	for i := range s.Parts {
		if s.Parts[i].Name == name {
			return &s.Parts[i]
		}
	}
	return nil
}

// ShapePart is a part as it is when a group is bound.
type ShapePart struct {
	Name        string
	Replicas    uint32   // units; at least 1
	Members     uint32   // of a unit; at least 1
	MinMembers  uint32   // that must succeed; 1 to Members
	After       []uint32 // indexes of the parts that must have succeeded, ascending
	Parallelism uint32   // members of a unit that may be started and not over; 0: all

	AfterReady   []uint32 // indexes of the parts that must be ready or have succeeded, ascending
	SuccessRules []SuccessRule
}

// Enough reports whether a unit has succeeded when the members with these indexes have.
func (p *ShapePart) Enough(succeeded Indexes) bool {
	return succeeded.Len() >= uint64(p.MinMembers) || slices.ContainsFunc(p.SuccessRules, func(r SuccessRule) bool { return r.holds(succeeded) })
}

func (r *SuccessRule) holds(succeeded Indexes) bool {
	n := uint32(0)
	for _, in := range succeeded {
		for i := in.First; i <= in.Last; i++ {
			if r.Indexes.Has(i) {
				n++
			}
		}
	}
	return n >= r.Count
}

// SuccessRule is a number of members of a unit that are enough for it to succeed, also if they are fewer than MinMembers.
type SuccessRule struct {
	Indexes Indexes // of some members; not empty
	Count   uint32  // of them, that must succeed
}

// MaxGroupName is the maximum length of a group's name, in characters.
const MaxGroupName = 253

// MaxGroupParts is the maximum number of parts of a group policy.
const MaxGroupParts = 1000

// MaxGroupMembers is the maximum number of members of a group: a restart of so many fits into one
// envelope (ADR 15).
const MaxGroupMembers = 50_000

// GroupPolicy is one group policy, ready to decide.
type GroupPolicy struct{ GroupDefinition }

// CompileGroup makes a group policy from its definition, which it keeps and which must not
// change afterwards.
func CompileGroup(d *GroupDefinition) *GroupPolicy { return &GroupPolicy{*d} }

// Shape returns what the policy fixes when it binds a group. Before version 4 of the semantics it is not extended.
func (g *GroupPolicy) Shape(extended bool) Shape {
	var s Shape
	for i := range g.Parts {
		p := g.Parts[i].ShapePart
		if !extended {
			p.AfterReady, p.SuccessRules = nil, nil
		}
		s.Parts = append(s.Parts, p)
	}
	if extended {
		s.Success = g.Success
	}
	return s
}
