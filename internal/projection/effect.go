package projection

import (
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
)

// Effect is one thing that happened because of a message: a *ParkedEvent, *Failure, *Binding, *Finding, *MemberChange,
// *UnitEnd, *GroupEnd, *Order or *Readiness. There is a record of each, in the order of Effects.
type Effect interface{ effect() }

func (*ParkedEvent) effect()  {}
func (*Failure) effect()      {}
func (*Binding) effect()      {}
func (*Finding) effect()      {}
func (*MemberChange) effect() {}
func (*UnitEnd) effect()      {}
func (*GroupEnd) effect()     {}
func (*Order) effect()        {}
func (*Readiness) effect()    {}

// Effects returns what has happened because of the current message so far; after Process, all of it. It is valid until the
// next message.
func (s *State) Effects() []Effect { return s.msg.effects }

func (s *State) happened(e Effect) { s.msg.effects = append(s.msg.effects, e) }

// happens reports whether an effect happens that does so only if groups act on the queue.
func (s *State) happens(queue string, e Effect) bool {
	if !s.msg.q.Acts(queue, e) {
		return false
	}
	s.happened(e)
	return true
}

// Questions are what does not follow from events: policies answer them, or a log of what they answered. Whoever does so
// sees in Effects what has happened before. (They are more than three, because it takes all of them to process a message.)
type Questions interface {
	// Decide decides on a failed run, or sets f.Skip if there is no decision.
	Decide(f *Failure) (Decided, error)
	// Order sorts the failures of a group that wait for their decision, by their index in the message, and reports whether it
	// did. If not, they go on in the order of their indexes, and it is asked again before the next one. Failure describes each.
	// It is asked only with Features.RulesFirst.
	Order(waiting []int) bool
	// Bind returns what the group policy of that name fixes, or why the job is not a member.
	// whole: the group is the job's gang, of that cardinality.
	Bind(first *Job, name, policy string, whole bool, cardinality uint32) (Bound, policy.FindingReason, error)
	// Acts reports whether an effect happens that does so only if groups act on the queue.
	Acts(queue string, e Effect) bool
	// RestartAt returns when a member may start again, given the restart's own time and the
	// longest grace of the pods that may still run: its own, or in a gang that of any member;
	// graceSeconds is negative if there is none.
	RestartAt(j *Job, base, graceSeconds int64) (int64, error)
	// Answer returns what becomes of an order. Its Answer says whether the state refuses it.
	Answer(o *Order) (OrderAnswer, error)
	// UnitEnded returns what to do about a unit that ended; false: nothing.
	UnitEnded(u *UnitEnd) (Verdict, bool)
}

// Features are the differences between versions of the semantics that concern the state.
type Features struct {
	Groups     bool   // jobs can be members of groups
	Successors bool   // a new group can follow one that has ended
	Durations  bool   // it is kept since when a run runs
	DueAgain   bool   // a group that came due comes due again if a policy generation makes the horizon longer
	RulesFirst bool   // rules of a group say in which order failures of one message are decided
	Orders     bool   // operators can order what becomes of a job
	Partitions uint32 // of events, by which floors of budgets are divided
}

// Binding is a group with its first member.
type Binding struct {
	Bound
	First         *Job
	Group, Policy string
}

// Finding is a job that names a group and is not its member.
type Finding struct {
	Job    *Job
	Group  string
	Reason policy.FindingReason
}

// Change is what happens to a member.
type Change uint8

// The changes.
const (
	Held Change = iota
	Unheld
	Restarted
	Stopped
	Joined // a group that follows the one that it names
)

// MemberChange is a change of a member.
type MemberChange struct {
	Change     Change
	Job        *Job
	RunID      string // its latest run; "": it has had none
	Generation uint32 // of its unit
	RetryAfter int64  // of Restarted
}

// UnitEnd is a unit that ended without a failed run.
type UnitEnd struct {
	Group      *group.Group
	Unit       *group.Unit
	Succeeded  bool
	Reason     policy.UnitReason // if it failed
	Verdict    Verdict           // about it, once it is an effect
	Generation uint32            // of the unit, after that
}

// GroupEnd is the end of a group.
type GroupEnd struct {
	Group  *group.Group
	State  policy.GroupState
	Reason policy.UnitReason
	Rule   string
}

// Readiness is a retry that no longer needs to wait for its old run.
type Readiness struct {
	JobID, RunID string
	RetryAfter   int64
}
