package chain

import (
	"bytes"
	"crypto/sha256"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// Record is one of Decision, NotDecided, Parked, RetryReady, PolicyActivated,
// SemanticsActivated, OwnerClaim, HistoryAccepted, StateRebuilt, GroupBound, GroupFinding,
// MemberChange, UnitEnded, GroupEnded and OrderAnswered, as a pointer.
type Record interface {
	// FromInput reports whether the record follows from an input message, and is
	// therefore part of the running hash.
	FromInput() bool
	field() fieldNumber
}

// Decision is the verdict on one failed run (semantics.md 11).
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
	RuleID      string // what the rule's retries are counted under, if that is not Rule
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
	ReadyAfter int64 // RetryAfter once the old run is known to be gone; equal if that makes no difference
	PodName    string
	AvoidNodes []string
	// NodesLeftOut is the number of nodes to avoid that AvoidNodes does not name.
	NodesLeftOut uint32

	Member *Member       // nil: the job is in no group
	Group  *GroupVerdict // nil: the failure did not fail the member's unit

	Budget *policy.BudgetUse // nil: no budget was asked
}

// The kinds of decisions, as metrics, rows and answers name them.
const (
	JobRequeued = "JobRequeued"
	JobFailed   = "JobFailed"
)

// Kind names the decision.
func (d *Decision) Kind() string { return DecisionKind(d.Requeue) }

// DecisionKind names a decision.
func DecisionKind(requeue bool) string {
	if requeue {
		return JobRequeued
	}
	return JobFailed
}

// NotDecidedReason is the reason why a failed run was not decided.
type NotDecidedReason uint8

// The reasons of semantics.md 1; the first that applies is used. Absorbed is for gangs
// (semantics.md 12). Decision logs contain these numbers: never change one.
const (
	UnknownNotDecided NotDecidedReason = iota
	StaleRun
	Cancelled
	Ended
	UnknownJob
	Absorbed
)

var notDecidedReasons = [...]string{"Unknown", "StaleRun", "Cancelled", "Ended", "UnknownJob", "Absorbed"}

// String returns the reason's name in semantics.md 1, a metric label.
func (r NotDecidedReason) String() string {
	return policy.NameAt(notDecidedReasons[:], uint8(r), "NotDecidedReason")
}

// NotDecided is the record of a failed run that was not decided.
type NotDecided struct {
	Position eventlog.Position
	Queue    string // of the job; of the message, if the job is not known
	JobSet   string // of the job; of the message, if the job is not known
	JobID    string
	RunID    string
	Reason   NotDecidedReason
	Time     int64 // t, Unix nanoseconds
}

// Parked keeps the bytes of a message or event that could not be processed,
// or, if they do not fit into a message of the log, their digest and length.
type Parked struct {
	Position eventlog.Position
	Reason   events.ParkReason
	Event    uint32 // index in the message, from 1; 0: the whole message
	Raw      []byte // empty where Length is not 0
	Digest   Hash   // SHA-256 of the bytes that are not here
	Length   uint64 // their number; 0: they are all in Raw
}

// Keeps says whether the record keeps these bytes, in full or by their digest.
func (r *Parked) Keeps(raw []byte) bool {
	if r.Length == 0 {
		return bytes.Equal(r.Raw, raw)
	}
	return r.Length == uint64(len(raw)) && r.Digest == sha256.Sum256(raw)
}

// Brief is the record without its bytes, of which it keeps digest and length.
func (r *Parked) Brief() *Parked {
	if len(r.Raw) == 0 {
		return r
	}
	return &Parked{Position: r.Position, Reason: r.Reason, Event: r.Event, Digest: sha256.Sum256(r.Raw), Length: uint64(len(r.Raw))}
}

// RetryReady records that the old run of a retry is gone (semantics.md 8).
type RetryReady struct {
	Position   eventlog.Position
	JobID      string
	RunID      string
	RetryAfter int64 // Unix nanoseconds
}

// PolicyActivated puts a policy generation in force. It includes the horizon and the budgets, so that
// folding needs only the chain, not the policies.
type PolicyActivated struct {
	Generation uint64
	Digest     [32]byte
	HorizonMS  int64
	Budgets    []policy.Budget // by name; from version 5 of the semantics on
}

// SemanticsActivated names the version of the semantics that decides from here on.
type SemanticsActivated struct{ Version uint32 }

// NewestSemantics is the newest version of the semantics that this program knows: it reads
// all records of this version and of earlier ones, and can decide by each of them.
//
// To add a version, bump this number and implement the differences in package evaluator.
// The decisions of a released version never change.
const NewestSemantics = 5

// OwnerID is drawn at random for each attempt to claim a partition.
type OwnerID [16]byte

// OwnerClaim begins an epoch. It names the end of the chain that its owner had read.
type OwnerClaim struct {
	Epoch    uint64
	Owner    OwnerID
	LastSeq  uint64
	LastLink Hash
	// Partitions is the number of partitions of events, because a job set's partition
	// depends on it.
	Partitions uint32
}

// HistoryAccepted is the only record of an envelope that covers no message but moves
// the input position: the events up to there are gone, and an operator accepted that.
type HistoryAccepted struct{ By string }

// StateRebuilt is the only record of an envelope without input. The earlier state was
// lost and derived again from the events after From and the decisions in this log. Events
// up to From are unknown, and an operator accepted that.
type StateRebuilt struct {
	By   string
	From eventlog.Position
}

// FromInput returns true: a decision follows from its input.
func (*Decision) FromInput() bool { return true }

// FromInput returns true: it follows from its input.
func (*NotDecided) FromInput() bool { return true }

// FromInput returns true: it follows from its input.
func (*Parked) FromInput() bool { return true }

// FromInput returns true: it follows from its input.
func (*RetryReady) FromInput() bool { return true }

// FromInput returns false: the owner makes an activation.
func (*PolicyActivated) FromInput() bool { return false }

// FromInput returns false: the owner makes an activation.
func (*SemanticsActivated) FromInput() bool { return false }

// FromInput returns false: the owner makes a claim.
func (*OwnerClaim) FromInput() bool { return false }

// FromInput returns false: an operator makes the acknowledgement.
func (*HistoryAccepted) FromInput() bool { return false }

// FromInput returns false: an operator makes the acknowledgement.
func (*StateRebuilt) FromInput() bool { return false }

// PositionOf returns the input position that a record names, if it names one.
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
	case *GroupBound:
		return r.Position, true
	case *GroupFinding:
		return r.Position, true
	case *MemberChange:
		return r.Position, true
	case *UnitEnded:
		return r.Position, true
	case *GroupEnded:
		return r.Position, true
	case *OrderAnswered:
		return r.Position, true
	}
	return eventlog.Position{}, false
}
