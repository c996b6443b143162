package chain

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

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

func (m *Member) append(b []byte, n fieldNumber) []byte {
	return appendMessage(b, n, 1, func(b []byte) []byte {
		b = appendString(b, 1, m.Group)
		b = appendString(b, 2, m.Part)
		b = appendUint(b, 3, uint64(m.Replica))
		b = appendUint(b, 4, uint64(m.Index))
		return appendUint(b, 5, uint64(m.Generation))
	})
}

func (f *wireField) memberTo(m *Member) error {
	if f.typ != protowire.BytesType {
		return f.wrongType()
	}
	*m = Member{}
	return eachField(f.bytes, func(f *wireField) error {
		switch f.number {
		case 1:
			return f.stringTo(&m.Group)
		case 2:
			return f.stringTo(&m.Part)
		case 3:
			return f.uint32To(&m.Replica)
		case 4:
			return f.uint32To(&m.Index)
		case 5:
			return f.uint32To(&m.Generation)
		}
		return f.unknown()
	})
}

func (v *GroupVerdict) append(b []byte, n fieldNumber) []byte {
	return appendMessage(b, n, 1, func(b []byte) []byte {
		b = appendUint(b, 1, uint64(v.Reason))
		b = appendUint(b, 2, uint64(v.Action))
		b = appendString(b, 3, v.Rule)
		b = appendUint(b, 4, uint64(v.RestartsUsed))
		b = appendUint(b, 5, uint64(v.MaxRestarts))
		b = appendBool(b, 6, v.Keep)
		b = appendBool(b, 7, v.Refused)
		return appendBool(b, 8, v.Noted)
	})
}

func (f *wireField) verdictTo(v *GroupVerdict) error {
	if f.typ != protowire.BytesType {
		return f.wrongType()
	}
	*v = GroupVerdict{}
	return eachField(f.bytes, func(f *wireField) error {
		switch f.number {
		case 1:
			return setEnum(f, &v.Reason)
		case 2:
			return setEnum(f, &v.Action)
		case 3:
			return f.stringTo(&v.Rule)
		case 4:
			return f.uint32To(&v.RestartsUsed)
		case 5:
			return f.uint32To(&v.MaxRestarts)
		case 6:
			return f.boolTo(&v.Keep)
		case 7:
			return f.boolTo(&v.Refused)
		case 8:
			return f.boolTo(&v.Noted)
		}
		return f.unknown()
	})
}

// setGroupField sets the fields of a decision that are about its group, or about budgets.
func (d *Decision) setGroupField(f *wireField) error {
	switch f.number {
	case 30:
		d.Member = &Member{}
		return f.memberTo(d.Member)
	case 31:
		d.Group = &GroupVerdict{}
		return f.verdictTo(d.Group)
	case 32:
		d.Budget = &policy.BudgetUse{}
		return f.budgetUseTo(d.Budget)
	}
	return f.unknown()
}

func (r *GroupBound) appendBody(b []byte) []byte {
	b = appendPosition(b, 1, r.Position)
	b = appendString(b, 2, r.Queue)
	b = appendString(b, 3, r.JobSet)
	b = appendString(b, 4, r.Group)
	b = appendString(b, 5, r.JobID)
	b = appendString(b, 6, r.Policy)
	b = appendBytes(b, 7, r.Digest[:])
	for i := range r.Shape.Parts {
		p := &r.Shape.Parts[i]
		b = appendMessage(b, 8, 1, func(b []byte) []byte {
			b = appendString(b, 1, p.Name)
			b = appendUint(b, 2, uint64(p.Replicas))
			b = appendUint(b, 3, uint64(p.Members))
			b = appendUint(b, 4, uint64(p.MinMembers))
			b = appendIndexes(b, 5, p.After)
			b = appendUint(b, 6, uint64(p.Parallelism))
			b = appendIndexes(b, 7, p.AfterReady)
			for _, rule := range p.SuccessRules {
				b = appendMessage(b, 8, 1, func(b []byte) []byte {
					return appendUint(appendString(b, 1, rule.Indexes.String()), 2, uint64(rule.Count))
				})
			}
			return b
		})
	}
	b = appendUint(b, 9, uint64(r.MaxRestarts))
	b = appendBool(b, 10, r.Shape.Success.Any)
	return appendIndexes(b, 11, r.Shape.Success.Parts)
}

// appendIndexes appends indexes of parts, 0 too.
func appendIndexes(b []byte, n fieldNumber, parts []uint32) []byte {
	for _, part := range parts {
		b = protowire.AppendVarint(appendTag(b, n, protowire.VarintType), uint64(part))
	}
	return b
}

// indexTo appends the index of a part.
func (f *wireField) indexTo(parts *[]uint32) error {
	var part uint32
	err := f.uint32To(&part)
	*parts = append(*parts, part)
	return err
}

func (r *GroupBound) setField(f *wireField) error {
	switch f.number {
	case 1:
		return f.positionTo(&r.Position)
	case 2:
		return f.stringTo(&r.Queue)
	case 3:
		return f.stringTo(&r.JobSet)
	case 4:
		return f.stringTo(&r.Group)
	case 5:
		return f.stringTo(&r.JobID)
	case 6:
		return f.stringTo(&r.Policy)
	case 7:
		return f.fixedTo(r.Digest[:])
	case 8:
		var p policy.ShapePart
		if err := f.partTo(&p); err != nil {
			return err
		}
		r.Shape.Parts = append(r.Shape.Parts, p)
		return nil
	case 9:
		return f.uint32To(&r.MaxRestarts)
	case 10:
		return f.boolTo(&r.Shape.Success.Any)
	case 11:
		return f.indexTo(&r.Shape.Success.Parts)
	}
	return f.unknown()
}

func (f *wireField) partTo(p *policy.ShapePart) error {
	if f.typ != protowire.BytesType {
		return f.wrongType()
	}
	return eachField(f.bytes, func(f *wireField) error {
		switch f.number {
		case 1:
			return f.stringTo(&p.Name)
		case 2:
			return f.uint32To(&p.Replicas)
		case 3:
			return f.uint32To(&p.Members)
		case 4:
			return f.uint32To(&p.MinMembers)
		case 5:
			return f.indexTo(&p.After)
		case 6:
			return f.uint32To(&p.Parallelism)
		case 7:
			return f.indexTo(&p.AfterReady)
		case 8:
			p.SuccessRules = append(p.SuccessRules, policy.SuccessRule{})
			return f.successRuleTo(&p.SuccessRules[len(p.SuccessRules)-1])
		}
		return f.unknown()
	})
}

func (f *wireField) successRuleTo(r *policy.SuccessRule) error {
	if f.typ != protowire.BytesType {
		return f.wrongType()
	}
	return eachField(f.bytes, func(f *wireField) error {
		switch f.number {
		case 1:
			var s string
			err := f.stringTo(&s)
			r.Indexes = policy.ParseIndexes(s)
			return err
		case 2:
			return f.uint32To(&r.Count)
		}
		return f.unknown()
	})
}

func (r *GroupFinding) appendBody(b []byte) []byte {
	b = appendPosition(b, 1, r.Position)
	b = appendString(b, 2, r.Queue)
	b = appendString(b, 3, r.JobSet)
	b = appendString(b, 4, r.Group)
	b = appendString(b, 5, r.JobID)
	return appendUint(b, 6, uint64(r.Reason))
}

func (r *GroupFinding) setField(f *wireField) error {
	switch f.number {
	case 1:
		return f.positionTo(&r.Position)
	case 2:
		return f.stringTo(&r.Queue)
	case 3:
		return f.stringTo(&r.JobSet)
	case 4:
		return f.stringTo(&r.Group)
	case 5:
		return f.stringTo(&r.JobID)
	case 6:
		return setEnum(f, &r.Reason)
	}
	return f.unknown()
}

func (r *MemberChange) appendBody(b []byte) []byte {
	b = appendPosition(b, 1, r.Position)
	b = appendString(b, 2, r.Queue)
	b = appendString(b, 3, r.JobSet)
	b = appendString(b, 4, r.JobID)
	b = appendString(b, 5, r.RunID)
	b = r.Member.append(b, 6)
	return appendInt(b, 7, r.RetryAfter)
}

func (r *MemberChange) setField(f *wireField) error {
	switch f.number {
	case 1:
		return f.positionTo(&r.Position)
	case 2:
		return f.stringTo(&r.Queue)
	case 3:
		return f.stringTo(&r.JobSet)
	case 4:
		return f.stringTo(&r.JobID)
	case 5:
		return f.stringTo(&r.RunID)
	case 6:
		return f.memberTo(&r.Member)
	case 7:
		return f.int64To(&r.RetryAfter)
	}
	return f.unknown()
}

func (r *UnitEnded) appendBody(b []byte) []byte {
	b = appendPosition(b, 1, r.Position)
	b = appendString(b, 2, r.Queue)
	b = appendString(b, 3, r.JobSet)
	b = r.Member.append(b, 4)
	b = appendBool(b, 5, r.Succeeded)
	return r.Verdict.append(b, 6)
}

func (r *UnitEnded) setField(f *wireField) error {
	switch f.number {
	case 1:
		return f.positionTo(&r.Position)
	case 2:
		return f.stringTo(&r.Queue)
	case 3:
		return f.stringTo(&r.JobSet)
	case 4:
		return f.memberTo(&r.Member)
	case 5:
		return f.boolTo(&r.Succeeded)
	case 6:
		return f.verdictTo(&r.Verdict)
	}
	return f.unknown()
}

func (r *GroupEnded) appendBody(b []byte) []byte {
	b = appendPosition(b, 1, r.Position)
	b = appendString(b, 2, r.Queue)
	b = appendString(b, 3, r.JobSet)
	b = appendString(b, 4, r.Group)
	b = appendUint(b, 5, uint64(r.State))
	b = appendUint(b, 6, uint64(r.Reason))
	return appendString(b, 7, r.Rule)
}

func (r *GroupEnded) setField(f *wireField) error {
	switch f.number {
	case 1:
		return f.positionTo(&r.Position)
	case 2:
		return f.stringTo(&r.Queue)
	case 3:
		return f.stringTo(&r.JobSet)
	case 4:
		return f.stringTo(&r.Group)
	case 5:
		return setEnum(f, &r.State)
	case 6:
		return setEnum(f, &r.Reason)
	case 7:
		return f.stringTo(&r.Rule)
	}
	return f.unknown()
}
