package chain

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// The members of Record in events/pb/refloat.proto.
const (
	fieldJobRequeued        fieldNumber = 1
	fieldJobFailed          fieldNumber = 2
	fieldNotDecided         fieldNumber = 3
	fieldParked             fieldNumber = 4
	fieldRetryReady         fieldNumber = 5
	fieldPolicyActivated    fieldNumber = 6
	fieldSemanticsActivated fieldNumber = 7
	fieldOwnerClaim         fieldNumber = 8
	fieldHistoryAccepted    fieldNumber = 9
	fieldStateRebuilt       fieldNumber = 10
)

// recordRoom is what AppendRecord needs beyond the record, while it does not know its length.
const recordRoom = 2

// AppendRecord appends the canonical encoding of a record.
func AppendRecord(b []byte, r Record) []byte {
	return appendMessage(b, r.field(), 2, r.appendBody)
}

// DecodeRecord decodes one record. It returns ErrMalformed for anything that this
// version of the program cannot decode completely.
func DecodeRecord(b []byte) (Record, error) { return new(recordDecoder).decode(b) }

// recordDecoder decodes records with the same memory.
type recordDecoder struct {
	field wireField
	again []byte
}

func (d *recordDecoder) decode(b []byte) (Record, error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || typ != protowire.BytesType {
		return nil, fmt.Errorf("record: %w", ErrMalformed)
	}
	body, m := protowire.ConsumeBytes(b[n:])
	if m < 0 || n+m != len(b) {
		return nil, fmt.Errorf("record: %w", ErrMalformed)
	}
	r := newRecord(fieldNumber(num))
	if r == nil {
		return nil, fmt.Errorf("record: %w: %w kind %d", ErrMalformed, errUnknown, num)
	}
	d.field = wireField{rest: body}
	for d.field.next() {
		if err := r.setField(&d.field); err != nil {
			return nil, fmt.Errorf("record of kind %d: %w", num, err)
		}
	}
	if err := d.field.malformed; err != nil {
		return nil, fmt.Errorf("record of kind %d: %w", num, err)
	}
	if d.again = AppendRecord(slices.Grow(d.again[:0], len(b)+recordRoom), r); !bytes.Equal(d.again, b) {
		return nil, fmt.Errorf("record of kind %d: %w: not in the one encoding", num, ErrMalformed)
	}
	return r, nil
}

// isFront reports whether the bytes are of a record that comes before those that follow from input.
func isFront(b []byte) bool {
	num, _, n := protowire.ConsumeTag(b)
	return n > 0 && num >= protowire.Number(fieldPolicyActivated) && num <= protowire.Number(fieldStateRebuilt)
}

// ParkedIn decodes a record if it is a Parked.
func ParkedIn(b []byte) (*Parked, bool) {
	if num, _, n := protowire.ConsumeTag(b); n < 0 || num != protowire.Number(fieldParked) {
		return nil, false
	}
	r, err := DecodeRecord(b)
	parked, _ := r.(*Parked)
	return parked, err == nil
}

func newRecord(n fieldNumber) Record {
	switch n {
	case fieldJobRequeued:
		return &Decision{Requeue: true, Position: eventlog.Start}
	case fieldJobFailed:
		return &Decision{Position: eventlog.Start}
	case fieldNotDecided:
		return &NotDecided{Position: eventlog.Start}
	case fieldParked:
		return &Parked{Position: eventlog.Start}
	case fieldRetryReady:
		return &RetryReady{Position: eventlog.Start}
	case fieldPolicyActivated:
		return &PolicyActivated{}
	case fieldSemanticsActivated:
		return &SemanticsActivated{}
	case fieldOwnerClaim:
		return &OwnerClaim{}
	case fieldHistoryAccepted:
		return &HistoryAccepted{}
	case fieldStateRebuilt:
		return &StateRebuilt{From: eventlog.Start}
	}
	if n == fieldOrderAnswered {
		return &OrderAnswered{Position: eventlog.Start}
	}
	return newGroupRecord(n)
}

func (d *Decision) field() fieldNumber {
	if d.Requeue {
		return fieldJobRequeued
	}
	return fieldJobFailed
}

func (d *Decision) appendBody(b []byte) []byte {
	b = appendUint(b, 1, d.Number)
	b = appendPosition(b, 2, d.Position)
	b = appendString(b, 3, d.Queue)
	b = appendString(b, 4, d.JobSet)
	b = appendString(b, 5, d.JobID)
	b = appendString(b, 6, d.RunID)
	b = appendUint(b, 7, uint64(d.RunIndex))
	b = appendUint(b, 8, uint64(d.Code))
	b = appendString(b, 9, d.Policy)
	b = appendString(b, 10, d.Rule)
	b = appendString(b, 11, d.RuleID)
	b = appendInt(b, 12, d.Time)
	b = appendInt(b, 13, d.DelayMS)
	b = appendInt(b, 14, d.RetryAfter)
	b = appendInt(b, 15, d.RetryAfter-d.ReadyAfter)
	b = appendString(b, 16, d.PodName)
	b = appendStrings(b, 17, d.AvoidNodes)
	b = appendUint(b, 18, uint64(d.RuleUsed))
	b = appendUint(b, 19, uint64(d.RuleLimit))
	b = appendUint(b, 20, uint64(d.LimitFrom))
	b = appendUint(b, 21, uint64(d.GlobalUsed))
	b = appendUint(b, 22, uint64(d.GlobalLimit))
	b = appendString(b, 23, d.Container)
	b = appendUint(b, 24, uint64(d.Matcher))
	b = appendStrings(b, 25, d.Skipped)
	b = appendBool(b, 26, d.Shadow)
	b = appendUint(b, 27, d.Generation)
	b = appendBytes(b, 28, d.PolicySet[:])
	b = appendUint(b, 29, uint64(d.NodesLeftOut))
	if d.Member != nil {
		b = d.Member.append(b, 30)
	}
	if d.Group != nil {
		b = d.Group.append(b, 31)
	}
	if d.Budget != nil {
		b = appendBudgetUse(b, 32, d.Budget)
	}
	return b
}

func (d *Decision) setField(f *wireField) error {
	switch f.number {
	case 1:
		return f.uint64To(&d.Number)
	case 2:
		return f.positionTo(&d.Position)
	case 3:
		return f.stringTo(&d.Queue)
	case 4:
		return f.stringTo(&d.JobSet)
	case 5:
		return f.stringTo(&d.JobID)
	case 6:
		return f.stringTo(&d.RunID)
	case 7:
		return f.uint32To(&d.RunIndex)
	case 12:
		return f.int64To(&d.Time)
	case 13:
		return f.int64To(&d.DelayMS)
	case 14:
		err := f.int64To(&d.RetryAfter)
		d.ReadyAfter = d.RetryAfter
		return err
	case 15:
		var early int64
		err := f.int64To(&early)
		d.ReadyAfter = d.RetryAfter - early
		return err
	case 16:
		return f.stringTo(&d.PodName)
	case 17:
		return f.stringsTo(&d.AvoidNodes)
	default:
		return d.setVerdictField(f)
	}
}

// setVerdictField sets the fields that come from the policy engine's verdict.
func (d *Decision) setVerdictField(f *wireField) error {
	switch f.number {
	case 8:
		return setEnum(f, &d.Code)
	case 9:
		return f.stringTo(&d.Policy)
	case 10:
		return f.stringTo(&d.Rule)
	case 11:
		return f.stringTo(&d.RuleID)
	case 18:
		return f.uint32To(&d.RuleUsed)
	case 19:
		return f.uint32To(&d.RuleLimit)
	case 20:
		return setEnum(f, &d.LimitFrom)
	case 21:
		return f.uint32To(&d.GlobalUsed)
	case 22:
		return f.uint32To(&d.GlobalLimit)
	case 23:
		return f.stringTo(&d.Container)
	case 24:
		return setEnum(f, &d.Matcher)
	case 25:
		return f.stringsTo(&d.Skipped)
	case 26:
		return f.boolTo(&d.Shadow)
	case 27:
		return f.uint64To(&d.Generation)
	case 28:
		return f.fixedTo(d.PolicySet[:])
	case 29:
		return f.uint32To(&d.NodesLeftOut)
	}
	return d.setGroupField(f)
}

func setEnum[E ~uint8](f *wireField, dst *E) error {
	var v uint32
	if err := f.uint32To(&v); err != nil {
		return err
	}
	if v > 255 {
		return f.wrongType()
	}
	*dst = E(v)
	return nil
}

func (*NotDecided) field() fieldNumber { return fieldNotDecided }

func (r *NotDecided) appendBody(b []byte) []byte {
	b = appendPosition(b, 1, r.Position)
	b = appendString(b, 2, r.Queue)
	b = appendString(b, 3, r.JobSet)
	b = appendString(b, 4, r.JobID)
	b = appendString(b, 5, r.RunID)
	b = appendUint(b, 6, uint64(r.Reason))
	return appendInt(b, 7, r.Time)
}

func (r *NotDecided) setField(f *wireField) error {
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
		return setEnum(f, &r.Reason)
	case 7:
		return f.int64To(&r.Time)
	}
	return f.unknown()
}

func (*Parked) field() fieldNumber { return fieldParked }

func (r *Parked) appendBody(b []byte) []byte {
	b = appendPosition(b, 1, r.Position)
	b = appendUint(b, 2, uint64(r.Reason))
	b = appendUint(b, 3, uint64(r.Event))
	b = appendBytes(b, 4, r.Raw)
	if r.Length == 0 {
		return b
	}
	return appendUint(appendBytes(b, 5, r.Digest[:]), 6, r.Length)
}

func (r *Parked) setField(f *wireField) error {
	switch f.number {
	case 1:
		return f.positionTo(&r.Position)
	case 2:
		return setEnum(f, &r.Reason)
	case 3:
		return f.uint32To(&r.Event)
	case 4:
		if f.typ != protowire.BytesType {
			return f.wrongType()
		}
		r.Raw = append([]byte(nil), f.bytes...)
		return nil
	case 5:
		if len(r.Raw) > 0 {
			return f.wrongType() // the bytes are there
		}
		return f.fixedTo(r.Digest[:])
	case 6:
		return f.uint64To(&r.Length)
	}
	return f.unknown()
}

func (*RetryReady) field() fieldNumber { return fieldRetryReady }

func (r *RetryReady) appendBody(b []byte) []byte {
	b = appendPosition(b, 1, r.Position)
	b = appendString(b, 2, r.JobID)
	b = appendString(b, 3, r.RunID)
	return appendInt(b, 4, r.RetryAfter)
}

func (r *RetryReady) setField(f *wireField) error {
	switch f.number {
	case 1:
		return f.positionTo(&r.Position)
	case 2:
		return f.stringTo(&r.JobID)
	case 3:
		return f.stringTo(&r.RunID)
	case 4:
		return f.int64To(&r.RetryAfter)
	}
	return f.unknown()
}

func (*PolicyActivated) field() fieldNumber { return fieldPolicyActivated }

func (r *PolicyActivated) appendBody(b []byte) []byte {
	b = appendUint(b, 1, r.Generation)
	b = appendBytes(b, 2, r.Digest[:])
	b = appendInt(b, 3, r.HorizonMS)
	for i := range r.Budgets {
		b = appendBudget(b, 4, &r.Budgets[i])
	}
	return b
}

func (r *PolicyActivated) setField(f *wireField) error {
	switch f.number {
	case 1:
		return f.uint64To(&r.Generation)
	case 2:
		return f.fixedTo(r.Digest[:])
	case 3:
		return f.int64To(&r.HorizonMS)
	case 4:
		r.Budgets = append(r.Budgets, policy.Budget{})
		return f.budgetTo(&r.Budgets[len(r.Budgets)-1])
	}
	return f.unknown()
}

func (*SemanticsActivated) field() fieldNumber { return fieldSemanticsActivated }

func (r *SemanticsActivated) appendBody(b []byte) []byte { return appendUint(b, 1, uint64(r.Version)) }

func (r *SemanticsActivated) setField(f *wireField) error {
	if f.number == 1 {
		return f.uint32To(&r.Version)
	}
	return f.unknown()
}

func (*OwnerClaim) field() fieldNumber { return fieldOwnerClaim }

func (r *OwnerClaim) appendBody(b []byte) []byte {
	b = appendUint(b, 1, r.Epoch)
	b = appendBytes(b, 2, r.Owner[:])
	b = appendUint(b, 3, r.LastSeq)
	b = appendBytes(b, 4, r.LastLink[:])
	return appendUint(b, 5, uint64(r.Partitions))
}

func (r *OwnerClaim) setField(f *wireField) error {
	switch f.number {
	case 1:
		return f.uint64To(&r.Epoch)
	case 2:
		return f.fixedTo(r.Owner[:])
	case 3:
		return f.uint64To(&r.LastSeq)
	case 4:
		return f.fixedTo(r.LastLink[:])
	case 5:
		return f.uint32To(&r.Partitions)
	}
	return f.unknown()
}

func (*HistoryAccepted) field() fieldNumber { return fieldHistoryAccepted }

func (r *HistoryAccepted) appendBody(b []byte) []byte { return appendString(b, 1, r.By) }

func (r *HistoryAccepted) setField(f *wireField) error {
	if f.number == 1 {
		return f.stringTo(&r.By)
	}
	return f.unknown()
}

func (*StateRebuilt) field() fieldNumber { return fieldStateRebuilt }

func (r *StateRebuilt) appendBody(b []byte) []byte {
	return appendPosition(appendString(b, 1, r.By), 2, r.From)
}

func (r *StateRebuilt) setField(f *wireField) error {
	switch f.number {
	case 1:
		return f.stringTo(&r.By)
	case 2:
		return f.positionTo(&r.From)
	}
	return f.unknown()
}
