package chain

import (
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// OrderAnswered is the one answer to an operator's order on a job (semantics.md 16).
type OrderAnswered struct {
	Position      eventlog.Position
	Queue, JobSet string // of the job; of the message, if the job is not known
	JobID         string
	RunID         string // the failed run that the order is about
	OrderID       string // the same for a repeated order
	Action        policy.OrderAction
	Author        string
	Reason        string
	Time          int64 // t, Unix nanoseconds
	Refusal       policy.Refusal
	Generation    uint64
	PolicySet     [32]byte

	// Of a retry that is carried out, and the times of one that is started. Times are Unix nanoseconds.
	RetryAfter   int64
	ReadyAfter   int64 // RetryAfter once the old run is known to be gone
	PodName      string
	AvoidNodes   []string
	NodesLeftOut uint32 // the number of nodes to avoid that AvoidNodes does not name
}

// Retries reports whether the order starts the job again.
func (r *OrderAnswered) Retries() bool {
	return r.Refusal == policy.NotRefused && r.Action == policy.OrderRetry
}

// FromInput returns true: it follows from its input.
func (*OrderAnswered) FromInput() bool { return true }

const fieldOrderAnswered fieldNumber = 25 // in Record of events/pb/refloat.proto

func (*OrderAnswered) field() fieldNumber { return fieldOrderAnswered }

func (r *OrderAnswered) appendBody(b []byte) []byte {
	b = appendPosition(b, 1, r.Position)
	b = appendString(b, 2, r.Queue)
	b = appendString(b, 3, r.JobSet)
	b = appendString(b, 4, r.JobID)
	b = appendString(b, 5, r.RunID)
	b = appendString(b, 6, r.OrderID)
	b = appendUint(b, 7, uint64(r.Action))
	b = appendString(b, 8, r.Author)
	b = appendString(b, 9, r.Reason)
	b = appendInt(b, 10, r.Time)
	b = appendUint(b, 11, uint64(r.Refusal))
	b = appendUint(b, 12, r.Generation)
	b = appendBytes(b, 13, r.PolicySet[:])
	b = appendInt(b, 14, r.RetryAfter)
	b = appendInt(b, 15, r.RetryAfter-r.ReadyAfter)
	b = appendString(b, 16, r.PodName)
	b = appendStrings(b, 17, r.AvoidNodes)
	return appendUint(b, 18, uint64(r.NodesLeftOut))
}

func (r *OrderAnswered) setField(f *wireField) error {
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
		return f.stringTo(&r.OrderID)
	case 7:
		return setEnum(f, &r.Action)
	case 8:
		return f.stringTo(&r.Author)
	case 9:
		return f.stringTo(&r.Reason)
	case 10:
		return f.int64To(&r.Time)
	case 11:
		return setEnum(f, &r.Refusal)
	case 12:
		return f.uint64To(&r.Generation)
	case 13:
		return f.fixedTo(r.PolicySet[:])
	case 14:
		err := f.int64To(&r.RetryAfter)
		r.ReadyAfter = r.RetryAfter
		return err
	case 15:
		var early int64
		err := f.int64To(&early)
		r.ReadyAfter = r.RetryAfter - early
		return err
	case 16:
		return f.stringTo(&r.PodName)
	case 17:
		return f.stringsTo(&r.AvoidNodes)
	case 18:
		return f.uint32To(&r.NodesLeftOut)
	}
	return f.unknown()
}
