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

func (r *OrderAnswered) fields(w *wire) {
	w.position(1, &r.Position)
	w.string(2, &r.Queue)
	w.string(3, &r.JobSet)
	w.string(4, &r.JobID)
	w.string(5, &r.RunID)
	w.string(6, &r.OrderID)
	enum(w, 7, &r.Action)
	w.string(8, &r.Author)
	w.string(9, &r.Reason)
	w.int(10, &r.Time)
	enum(w, 11, &r.Refusal)
	w.uint(12, &r.Generation)
	w.fixed(13, r.PolicySet[:])
	w.int(14, &r.RetryAfter)
	w.readyAfter(15, &r.ReadyAfter, r.RetryAfter)
	w.string(16, &r.PodName)
	w.strings(17, &r.AvoidNodes)
	w.uint32(18, &r.NodesLeftOut)
}
