package model

// Message is one message of one partition. Position and publish time are those of the origin, if the message was
// fed from a recording.
type Message struct {
	Ledger, Entry int64
	Batch         int32
	Publish       int64 // Unix nanoseconds
	Payload       []byte
}

// Kind says what a Record is.
type Kind string

// The kinds of records.
const (
	JobRequeued Kind = "JobRequeued"
	JobFailed   Kind = "JobFailed"
	NotDecided  Kind = "NotDecided"
	Parked      Kind = "Parked"
	RetryReady  Kind = "RetryReady"

	OrderAnswered Kind = "OrderAnswered" // semantics.md 16
)

// The kinds of records about groups (semantics.md 12.9).
const (
	GroupBound     Kind = "GroupBound"
	GroupFinding   Kind = "GroupFinding"
	MemberHeld     Kind = "MemberHeld"
	MemberReleased Kind = "MemberReleased"
	MemberRestart  Kind = "MemberRestart"
	MemberStopped  Kind = "MemberStopped"
	UnitEnded      Kind = "UnitEnded"
	GroupEnded     Kind = "GroupEnded"
)

// The codes of decisions (§11, and semantics.md 12.4). GangRetry to UnitLimit need version 3, BudgetRefused and BreakerHeld version 5.
const (
	RuleRetry     = "RuleRetry"
	RuleIgnore    = "RuleIgnore"
	RuleFail      = "RuleFail"
	DefaultRetry  = "DefaultRetry"
	DefaultFail   = "DefaultFail"
	RuleLimit     = "RuleLimit"
	PolicyLimit   = "PolicyLimit"
	GlobalLimit   = "GlobalLimit"
	KillSwitch    = "KillSwitch"
	FailFast      = "FailFast"
	NoPolicy      = "NoPolicy"
	LeaseReturned = "LeaseReturned"
	LegacyLimit   = "LegacyLimit"
	GangFail      = "GangFail"
	GangRetry     = "GangRetry"
	GroupRestart  = "GroupRestart"
	GroupIsOver   = "GroupEnded"
	UnitLimit     = "UnitLimit"
	BudgetRefused = "BudgetRefused"
	BreakerHeld   = "BreakerHeld"
)

// The reasons of NotDecided (§1), in order of precedence.
const (
	StaleRun   = "StaleRun"
	Cancelled  = "Cancelled"
	Ended      = "Ended"
	UnknownJob = "UnknownJob"
)

// The reasons of Parked (§1).
const (
	Unreadable      = "message unreadable"
	NoQueue         = "no queue"
	NoJobSet        = "no job set"
	NoEvents        = "no events"
	EventWithoutJob = "event without job"
	EventWithoutRun = "event without run"
)

// Record is what one message left behind (§11). Fields that a kind does not
// have are zero.
//
//	field                              | kinds
//	Kind, Ledger, Entry, Batch         | all
//	Queue, JobSet, JobID, RunID        | decisions, NotDecided, RetryReady
//	T                                  | decisions, NotDecided
//	Reason                             | NotDecided, Parked
//	Raw, Event                         | Parked
//	RetryAfter                         | JobRequeued, RetryReady
//	DelayMs, PodName, AvoidNodes       | JobRequeued
//	Group, Part, Replica, Index        | decisions on members, and records about groups
//	Generation                         | decisions on members, MemberRestart, UnitEnded
//	UnitReason, GroupAction, GroupRule | decisions where the unit failed
//	RestartsUsed, MaxRestarts          | the same, and UnitEnded
//	OrderID, OrderAction, Author, Text | OrderAnswered, which has the refusal as its Reason
//	the others                         | decisions (JobRequeued, JobFailed)
//
// Of records about groups: GroupBound has Policy, Shape, Success and MaxRestarts; GroupFinding the job and the Reason;
// MemberHeld, MemberReleased and MemberStopped the member; MemberStopped and MemberRestart its latest run as well;
// MemberRestart the RetryAfter; UnitEnded State, Reason, GroupAction and Rule; GroupEnded State, Reason and Rule.
type Record struct {
	Kind   Kind
	Ledger int64
	Entry  int64
	Batch  int32

	Queue  string
	JobSet string
	JobID  string
	RunID  string

	Number          int64 // dense from 1 over the decisions of the partition
	RunIndex        int
	Code            string
	Policy          string
	Rule            string // name, #index in its policy from 0, default, or ""
	T               int64  // Unix nanoseconds
	DelayMs         int64
	RetryAfter      int64 // Unix nanoseconds
	PodName         string
	AvoidNodes      []string
	NodesLeftOut    int
	RuleUsed        int
	RuleLimit       int
	LimitFrom       string // rule, policy or global; "": the rule's limit was not checked
	GlobalUsed      int
	GlobalLimit     int
	SkippedPolicies []string
	Shadow          bool

	Group        string
	Part         string
	Replica      int
	Index        int
	Generation   int
	UnitReason   string
	GroupAction  string
	GroupRule    string // name, #index in its policy from 0, restarts, or ""
	RestartsUsed int
	MaxRestarts  int
	State        string
	Shape        []Shape
	Success      Success

	Budget       string // the retry budget that held a retry back the most of those asked; "": none was
	BudgetEffect string
	BudgetNoted  bool
	BudgetFirsts int
	BudgetLeft   int
	BudgetAt     int64 // Unix nanoseconds

	OrderID      string
	OrderAction  int
	Author, Text string // of an order; Text is its reason

	Reason string
	Event  int // Parked: index of the event in its message, from 1; 0: the whole message
	Raw    []byte
}
