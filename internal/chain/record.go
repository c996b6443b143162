package chain

import (
	"fmt"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// Record is one of Decision, NotDecided, Parked, RetryReady, PolicyActivated,
// SemanticsActivated, OwnerClaim, HistoryAccepted and StateRebuilt, as a pointer.
type Record interface {
	// FromInput says whether the record follows from an input message, and so
	// counts for the running hash.
	FromInput() bool
	field() fieldNumber
	appendBody(b []byte) []byte
	setField(f *wireField) error
}

// Decision is the one verdict on one failed run (SEMANTICS 11).
type Decision struct {
	Requeue  bool   // JobRequeued, else JobFailed
	Number   uint64 // dense per partition, from 1
	Position eventlog.Position
	Queue    string
	JobSet   string
	JobID    string
	RunID    string
	RunIndex uint32 // of the failed run
	Time     int64  // t, Unix nanoseconds

	Code        policy.Code
	Policy      string
	Rule        string // name, "#place", "default" or ""
	RuleID      string // what the rule counts under, where that is not Rule
	LimitFrom   policy.LimitFrom
	RuleUsed    uint32
	RuleLimit   uint32
	GlobalUsed  uint32
	GlobalLimit uint32
	Container   string
	Matcher     policy.Matcher
	Skipped     []string
	Shadow      bool
	Generation  uint64
	PolicySet   [32]byte

	// On JobRequeued only. Times are Unix nanoseconds.
	DelayMS    int64
	RetryAfter int64
	ReadyAfter int64 // RetryAfter once the old run is known to be gone; equal where that changes nothing
	PodName    string
	AvoidNodes []string
}

// NotDecidedReason says why a failed run was left alone.
type NotDecidedReason uint8

// The reasons of SEMANTICS 1, the first that applies. Absorbed is for gangs
// (SEMANTICS 12). Their numbers stand in decision logs: never change one.
const (
	UnknownNotDecided NotDecidedReason = iota
	StaleRun
	Cancelled
	Ended
	UnknownJob
	Absorbed
)

var notDecidedReasons = [...]string{"Unknown", "StaleRun", "Cancelled", "Ended", "UnknownJob", "Absorbed"}

// String is the reason's name in SEMANTICS 1, a metric label.
func (r NotDecidedReason) String() string {
	if int(r) < len(notDecidedReasons) {
		return notDecidedReasons[r]
	}
	return fmt.Sprintf("NotDecidedReason(%d)", uint8(r))
}

// NotDecided says why a failed run was left alone.
type NotDecided struct {
	Position eventlog.Position
	Queue    string // of the job; of the message, if the job is not known
	JobSet   string // likewise
	JobID    string
	RunID    string
	Reason   NotDecidedReason
	Time     int64 // t, Unix nanoseconds
}

// Parked keeps the bytes of a message or event that could not be used.
type Parked struct {
	Position eventlog.Position
	Reason   events.ParkReason
	Event    uint32 // place in the message, from 1; 0: the whole message
	Raw      []byte
}

// RetryReady says that the old run of a retry is gone (SEMANTICS 8).
type RetryReady struct {
	Position   eventlog.Position
	JobID      string
	RunID      string
	RetryAfter int64 // Unix nanoseconds
}

// PolicyActivated puts a policy generation into force. The horizon stands in
// it so that folding needs the chain alone, not the policies.
type PolicyActivated struct {
	Generation uint64
	Digest     [32]byte
	HorizonMS  int64
}

// SemanticsActivated names the version of SEMANTICS that decides from here on.
type SemanticsActivated struct{ Version uint32 }

// NewestSemantics is the newest version of SEMANTICS that this program knows: it
// reads every record of it and of the versions before, and decides by each of them.
//
// A new version is a new number here, with what it decides differently in package
// evaluator. What a released version decides never changes.
const NewestSemantics = 2

// OwnerID is drawn at random for each attempt to claim a partition.
type OwnerID [16]byte

// OwnerClaim opens an epoch. It names the end that its owner had read.
type OwnerClaim struct {
	Epoch    uint64
	Owner    OwnerID
	LastSeq  uint64
	LastLink Hash
	// Partitions is how many partitions events has, since a job set's partition
	// depends on it.
	Partitions uint32
}

// HistoryAccepted stands alone in an envelope that covers no message but moves
// the input position: what events held up to there is gone, and an operator said
// to go on without it.
type HistoryAccepted struct{ By string }

// StateRebuilt stands alone in an envelope without input: the state before it was lost
// and derived again from the events after From and the decisions that stand here. What
// events held up to From is unknown, and an operator said to go on without it.
type StateRebuilt struct {
	By   string
	From eventlog.Position
}

// FromInput is true: a decision follows from its input.
func (*Decision) FromInput() bool { return true }

// FromInput is true: it follows from its input.
func (*NotDecided) FromInput() bool { return true }

// FromInput is true: it follows from its input.
func (*Parked) FromInput() bool { return true }

// FromInput is true: it follows from its input.
func (*RetryReady) FromInput() bool { return true }

// FromInput is false: an activation is the owner's doing.
func (*PolicyActivated) FromInput() bool { return false }

// FromInput is false: an activation is the owner's doing.
func (*SemanticsActivated) FromInput() bool { return false }

// FromInput is false: a claim is the owner's doing.
func (*OwnerClaim) FromInput() bool { return false }

// FromInput is false: an acceptance is the operator's doing.
func (*HistoryAccepted) FromInput() bool { return false }

// FromInput is false: an acceptance is the operator's doing.
func (*StateRebuilt) FromInput() bool { return false }

// PositionOf is the input position that a record names, if it names one.
func PositionOf(r Record) (eventlog.Position, bool) {
	switch r := r.(type) {
	case *Decision:
		return r.Position, true
	case *NotDecided:
		return r.Position, true
	case *Parked:
		return r.Position, true
	case *RetryReady:
		return r.Position, true
	}
	return eventlog.Position{}, false
}
