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

// recordRoom is what AppendRecord reserves for a record's length, while it does not know it.
const recordRoom = 2

// AppendRecord appends the canonical encoding of a record.
func AppendRecord(b []byte, r Record) []byte {
	w := wire{b: b}
	w.message(r.field(), recordRoom, func() { w.record(r) })
	return w.b
}

// record goes through the fields of a record. An interface's method would take w to the heap.
func (w *wire) record(r Record) {
	switch r := r.(type) {
	case *Decision:
		r.fields(w)
	case *NotDecided:
		r.fields(w)
	case *Parked:
		r.fields(w)
	case *RetryReady:
		r.fields(w)
	case *PolicyActivated:
		r.fields(w)
	case *SemanticsActivated:
		r.fields(w)
	case *OwnerClaim:
		r.fields(w)
	case *HistoryAccepted:
		r.fields(w)
	case *StateRebuilt:
		r.fields(w)
	case *GroupBound:
		r.fields(w)
	case *GroupFinding:
		r.fields(w)
	case *MemberChange:
		r.fields(w)
	case *UnitEnded:
		r.fields(w)
	case *GroupEnded:
		r.fields(w)
	case *OrderAnswered:
		r.fields(w)
	}
}

// DecodeRecord decodes one record. It returns ErrMalformed for anything that this
// version of the program cannot decode completely.
func DecodeRecord(b []byte) (Record, error) { return new(recordDecoder).decode(b) }

// recordDecoder decodes records with the same memory.
type recordDecoder struct {
	wire  wire
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
	d.wire.read(body)
	d.wire.record(r)
	if err := d.wire.done(); err != nil {
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

func (d *Decision) fields(w *wire) {
	w.uint(1, &d.Number)
	w.position(2, &d.Position)
	w.string(3, &d.Queue)
	w.string(4, &d.JobSet)
	w.string(5, &d.JobID)
	w.string(6, &d.RunID)
	w.uint32(7, &d.RunIndex)
	enum(w, 8, &d.Code)
	w.string(9, &d.Policy)
	w.string(10, &d.Rule)
	w.string(11, &d.RuleID)
	w.int(12, &d.Time)
	w.int(13, &d.DelayMS)
	w.int(14, &d.RetryAfter)
	w.readyAfter(15, &d.ReadyAfter, d.RetryAfter)
	w.string(16, &d.PodName)
	w.strings(17, &d.AvoidNodes)
	w.uint32(18, &d.RuleUsed)
	w.uint32(19, &d.RuleLimit)
	enum(w, 20, &d.LimitFrom)
	w.uint32(21, &d.GlobalUsed)
	w.uint32(22, &d.GlobalLimit)
	w.string(23, &d.Container)
	enum(w, 24, &d.Matcher)
	w.strings(25, &d.Skipped)
	w.bool(26, &d.Shadow)
	w.uint(27, &d.Generation)
	w.fixed(28, d.PolicySet[:])
	w.uint32(29, &d.NodesLeftOut)
	optional(w, 30, &d.Member, func(m *Member) { m.fields(w) })
	optional(w, 31, &d.Group, func(v *GroupVerdict) { v.fields(w) })
	optional(w, 32, &d.Budget, func(u *policy.BudgetUse) { budgetUseFields(w, u) })
}

func (*NotDecided) field() fieldNumber { return fieldNotDecided }

func (r *NotDecided) fields(w *wire) {
	w.position(1, &r.Position)
	w.string(2, &r.Queue)
	w.string(3, &r.JobSet)
	w.string(4, &r.JobID)
	w.string(5, &r.RunID)
	enum(w, 6, &r.Reason)
	w.int(7, &r.Time)
}

func (*Parked) field() fieldNumber { return fieldParked }

func (r *Parked) fields(w *wire) {
	w.position(1, &r.Position)
	enum(w, 2, &r.Reason)
	w.uint32(3, &r.Event)
	w.raw(4, &r.Raw)
	if w.has(5, r.Length != 0) {
		w.fixed(5, r.Digest[:])
	}
	w.uint(6, &r.Length)
	if w.decodes && r.Length != 0 && len(r.Raw) > 0 {
		w.wrong() // the bytes are there
	}
}

func (*RetryReady) field() fieldNumber { return fieldRetryReady }

func (r *RetryReady) fields(w *wire) {
	w.position(1, &r.Position)
	w.string(2, &r.JobID)
	w.string(3, &r.RunID)
	w.int(4, &r.RetryAfter)
}

func (*PolicyActivated) field() fieldNumber { return fieldPolicyActivated }

func (r *PolicyActivated) fields(w *wire) {
	w.uint(1, &r.Generation)
	w.fixed(2, r.Digest[:])
	w.int(3, &r.HorizonMS)
	list(w, 4, &r.Budgets, func(b *policy.Budget) { budgetFields(w, b) })
}

func (*SemanticsActivated) field() fieldNumber { return fieldSemanticsActivated }

func (r *SemanticsActivated) fields(w *wire) { w.uint32(1, &r.Version) }

func (*OwnerClaim) field() fieldNumber { return fieldOwnerClaim }

func (r *OwnerClaim) fields(w *wire) {
	w.uint(1, &r.Epoch)
	w.fixed(2, r.Owner[:])
	w.uint(3, &r.LastSeq)
	w.fixed(4, r.LastLink[:])
	w.uint32(5, &r.Partitions)
}

func (*HistoryAccepted) field() fieldNumber { return fieldHistoryAccepted }

func (r *HistoryAccepted) fields(w *wire) { w.string(1, &r.By) }

func (*StateRebuilt) field() fieldNumber { return fieldStateRebuilt }

func (r *StateRebuilt) fields(w *wire) {
	w.string(1, &r.By)
	w.position(2, &r.From)
}
