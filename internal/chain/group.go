package chain

import (
	"fmt"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// The records of groups (semantics.md 12.9). They exist from version 3 of the semantics on.

// Member says which member of its group a job is (semantics.md 12.1). The group's queue and job set
// are those of the job.
type Member struct {
	Group, Part    string
	Replica, Index uint32
	Generation     uint32 // of its unit, after this record
}

// GroupVerdict is what a group does about a unit that ended (semantics.md 12.5).
type GroupVerdict struct {
	Reason       policy.UnitReason
	Action       policy.GroupAction
	Rule         string // of the group policy, or policy.RestartsRule; "": no rule matched
	RestartsUsed uint32 // that count, after this decision
	MaxRestarts  uint32
	Keep         bool // a restart leaves out members that succeeded
	Refused      bool // Action is FailGroup because the restart of Rule was over a limit
	Noted        bool // nothing is done: the queue is in shadow, or retries are disabled
}

// GroupBound fixes what a group consists of. The submission of its first member causes it.
type GroupBound struct {
	Position             eventlog.Position
	Queue, JobSet, Group string
	JobID                string
	Policy               string   // "": a gang without a group policy
	Digest               [32]byte // of the policy's canonical text
	Shape                policy.Shape
	MaxRestarts          uint32 // of the policy then
}

// GroupFinding records that a job that names a group is not a member of it.
type GroupFinding struct {
	Position             eventlog.Position
	Queue, JobSet, Group string // the group's name is cut to policy.MaxGroupName characters
	JobID                string
	Reason               policy.FindingReason
}

// Change is what happens to a member.
type Change uint8

// The changes. Their numbers are those of their fields in Record. MemberJoined exists from version
// 4 of the semantics on: it names the group of a member that names an earlier one.
const (
	MemberHeld     Change = 13
	MemberReleased Change = 14
	MemberRestart  Change = 15
	MemberStopped  Change = 16
	MemberJoined   Change = 19
)

// String returns the name of the record.
func (c Change) String() string {
	switch c {
	case MemberHeld:
		return "MemberHeld"
	case MemberReleased:
		return "MemberReleased"
	case MemberRestart:
		return "MemberRestart"
	case MemberStopped:
		return "MemberStopped"
	case MemberJoined:
		return "MemberJoined"
	}
	return fmt.Sprintf("Change(%d)", uint8(c))
}

// MemberChange is a member that is held back, released, restarted or stopped, or that joined
// another group than it names.
type MemberChange struct {
	Change        Change
	Position      eventlog.Position
	Queue, JobSet string
	JobID         string
	RunID         string // its latest run; "": it has had none
	Member        Member
	RetryAfter    int64 // of MemberRestart; Unix nanoseconds
}

// UnitEnded is the end of a unit that no failed run caused: by a cancellation, by its last
// success, or a success after which it runs again.
type UnitEnded struct {
	Position      eventlog.Position
	Queue, JobSet string
	Member        Member // without index
	Succeeded     bool
	Verdict       GroupVerdict
}

// GroupEnded is the end of a group: its members that are not over are stopped.
type GroupEnded struct {
	Position             eventlog.Position
	Queue, JobSet, Group string
	State                policy.GroupState
	Reason               policy.UnitReason
	Rule                 string
}

// FromInput returns true: it follows from its input.
func (*GroupBound) FromInput() bool { return true }

// FromInput returns true: it follows from its input.
func (*GroupFinding) FromInput() bool { return true }

// FromInput returns true: it follows from its input.
func (*MemberChange) FromInput() bool { return true }

// FromInput returns true: it follows from its input.
func (*UnitEnded) FromInput() bool { return true }

// FromInput returns true: it follows from its input.
func (*GroupEnded) FromInput() bool { return true }

// The members of Record in events/pb/refloat.proto.
const (
	fieldGroupBound   fieldNumber = 11
	fieldGroupFinding fieldNumber = 12
	fieldUnitEnded    fieldNumber = 17
	fieldGroupEnded   fieldNumber = 18
)

func (*GroupBound) field() fieldNumber     { return fieldGroupBound }
func (*GroupFinding) field() fieldNumber   { return fieldGroupFinding }
func (r *MemberChange) field() fieldNumber { return fieldNumber(r.Change) }
func (*UnitEnded) field() fieldNumber      { return fieldUnitEnded }
func (*GroupEnded) field() fieldNumber     { return fieldGroupEnded }

func newGroupRecord(n fieldNumber) Record {
	switch n {
	case fieldGroupBound:
		return &GroupBound{Position: eventlog.Start}
	case fieldGroupFinding:
		return &GroupFinding{Position: eventlog.Start}
	case fieldNumber(MemberHeld), fieldNumber(MemberReleased), fieldNumber(MemberRestart), fieldNumber(MemberStopped), fieldNumber(MemberJoined):
		return &MemberChange{Change: Change(n), Position: eventlog.Start}
	case fieldUnitEnded:
		return &UnitEnded{Position: eventlog.Start}
	case fieldGroupEnded:
		return &GroupEnded{Position: eventlog.Start}
	}
	return nil
}

func (m *Member) fields(w *wire) {
	w.string(1, &m.Group)
	w.string(2, &m.Part)
	w.uint32(3, &m.Replica)
	w.uint32(4, &m.Index)
	w.uint32(5, &m.Generation)
}

func (v *GroupVerdict) fields(w *wire) {
	enum(w, 1, &v.Reason)
	enum(w, 2, &v.Action)
	w.string(3, &v.Rule)
	w.uint32(4, &v.RestartsUsed)
	w.uint32(5, &v.MaxRestarts)
	w.bool(6, &v.Keep)
	w.bool(7, &v.Refused)
	w.bool(8, &v.Noted)
}

func (r *GroupBound) fields(w *wire) {
	w.position(1, &r.Position)
	w.string(2, &r.Queue)
	w.string(3, &r.JobSet)
	w.string(4, &r.Group)
	w.string(5, &r.JobID)
	w.string(6, &r.Policy)
	w.fixed(7, r.Digest[:])
	list(w, 8, &r.Shape.Parts, func(p *policy.ShapePart) {
		w.string(1, &p.Name)
		w.uint32(2, &p.Replicas)
		w.uint32(3, &p.Members)
		w.uint32(4, &p.MinMembers)
		w.indexes(5, &p.After)
		w.uint32(6, &p.Parallelism)
		w.indexes(7, &p.AfterReady)
		list(w, 8, &p.SuccessRules, func(rule *policy.SuccessRule) {
			indexes := rule.Indexes.String()
			if w.string(1, &indexes); w.decodes {
				rule.Indexes = policy.ParseIndexes(indexes)
			}
			w.uint32(2, &rule.Count)
		})
	})
	w.uint32(9, &r.MaxRestarts)
	w.bool(10, &r.Shape.Success.Any)
	w.indexes(11, &r.Shape.Success.Parts)
}

func (r *GroupFinding) fields(w *wire) {
	w.position(1, &r.Position)
	w.string(2, &r.Queue)
	w.string(3, &r.JobSet)
	w.string(4, &r.Group)
	w.string(5, &r.JobID)
	enum(w, 6, &r.Reason)
}

func (r *MemberChange) fields(w *wire) {
	w.position(1, &r.Position)
	w.string(2, &r.Queue)
	w.string(3, &r.JobSet)
	w.string(4, &r.JobID)
	w.string(5, &r.RunID)
	w.message(6, 1, func() { r.Member.fields(w) })
	w.int(7, &r.RetryAfter)
}

func (r *UnitEnded) fields(w *wire) {
	w.position(1, &r.Position)
	w.string(2, &r.Queue)
	w.string(3, &r.JobSet)
	w.message(4, 1, func() { r.Member.fields(w) })
	w.bool(5, &r.Succeeded)
	w.message(6, 1, func() { r.Verdict.fields(w) })
}

func (r *GroupEnded) fields(w *wire) {
	w.position(1, &r.Position)
	w.string(2, &r.Queue)
	w.string(3, &r.JobSet)
	w.string(4, &r.Group)
	enum(w, 5, &r.State)
	enum(w, 6, &r.Reason)
	w.string(7, &r.Rule)
}
