package chain

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/policy"
)

func appendBudget(b []byte, n fieldNumber, r *policy.Budget) []byte {
	return appendMessage(b, n, 1, func(b []byte) []byte {
		b = appendString(b, 1, r.Name)
		b = appendString(b, 2, r.Queue)
		b = appendUint(b, 3, uint64(r.Ratio))
		b = appendUint(b, 4, uint64(r.Floor))
		b = appendInt(b, 5, r.Window.Milliseconds())
		b = appendBool(b, 6, r.Refuse)
		return appendBool(b, 7, r.Shadow)
	})
}

func (f *wireField) budgetTo(r *policy.Budget) error {
	if f.typ != protowire.BytesType {
		return f.wrongType()
	}
	return eachField(f.bytes, func(f *wireField) error {
		switch f.number {
		case 1:
			return f.stringTo(&r.Name)
		case 2:
			return f.stringTo(&r.Queue)
		case 3:
			return f.uint32To(&r.Ratio)
		case 4:
			return f.uint32To(&r.Floor)
		case 5:
			var ms int64
			err := f.int64To(&ms)
			if r.Window = time.Duration(ms) * time.Millisecond; ms < policy.LeastBudgetWindow.Milliseconds() || ms > policy.LongestBudgetWindow.Milliseconds() {
				return f.wrongType()
			}
			return err
		case 6:
			return f.boolTo(&r.Refuse)
		case 7:
			return f.boolTo(&r.Shadow)
		}
		return f.unknown()
	})
}

func appendBudgetUse(b []byte, n fieldNumber, u *policy.BudgetUse) []byte {
	return appendMessage(b, n, 1, func(b []byte) []byte {
		b = appendString(b, 1, u.Budget)
		b = appendUint(b, 2, uint64(u.Effect))
		b = appendBool(b, 3, u.Noted)
		b = appendUint(b, 4, uint64(u.Firsts))
		b = appendUint(b, 5, uint64(u.Left))
		return appendInt(b, 6, u.At)
	})
}

func (f *wireField) budgetUseTo(u *policy.BudgetUse) error {
	if f.typ != protowire.BytesType {
		return f.wrongType()
	}
	*u = policy.BudgetUse{}
	return eachField(f.bytes, func(f *wireField) error {
		switch f.number {
		case 1:
			return f.stringTo(&u.Budget)
		case 2:
			return setEnum(f, &u.Effect)
		case 3:
			return f.boolTo(&u.Noted)
		case 4:
			return f.uint32To(&u.Firsts)
		case 5:
			return f.uint32To(&u.Left)
		case 6:
			return f.int64To(&u.At)
		}
		return f.unknown()
	})
}
