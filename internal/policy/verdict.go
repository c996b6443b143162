package policy

import "time"

// Failure holds the facts of one failed run that rules can match (semantics.md 2), and those of its job that
// semantics.md 3 needs. It holds no protobuf types.
type Failure struct {
	Queue       string
	RunID       string        // for jitter
	Time        int64         // t, Unix nanoseconds
	JobPolicies string        // the annotation armadaproject.io/retry-policy, verbatim; "" if absent
	FailFast    bool          // armadaproject.io/failFast is exactly "true"
	Gang        bool          // the job belongs to a gang (semantics.md 3.1)
	Grace       time.Duration // Evaluate limits it to between 1 s and 300 s

	Conditions  Conditions // those of the pod and the run; OOMKilled is per rule
	PodOOM      bool       // PodError.kubernetes_reason is OOM
	Containers  []Container
	Message     string // of the pod error
	Category    string
	Subcategory string
	Ran         bool          // it is known since when the run was running
	RunDuration time.Duration // from then to Time; at least 0
	// Unproved: a version of the semantics decides in which no failure proves that its pod is over.
	Unproved bool
	// LeaseReturned by the executor: Conditions holds Unschedulable or
	// LeaseReturned, by whether the run was attempted.
}

// Container is one container of PodError.containerErrors, in report order.
type Container struct {
	Name     string
	ExitCode int32
	Reason   string
	Message  string
	Init     bool // its name is among the job's init containers
}

// Condition is a named fact of semantics.md 2.
type Condition uint8

// The conditions of semantics.md 2.
const (
	UnknownCondition Condition = iota
	OOMKilled
	Evicted
	DeadlineExceeded
	Preempted
	Unschedulable // a returned lease that was never attempted
	LeaseReturned // a returned lease that was attempted
	LeaseExpired
)

// RuleKey is what a rule is counted under (semantics.md 5): its policy and its name, "default" for a default action,
// or "#" and a digest of its matchers.
type RuleKey struct{ Policy, Rule string }

// RuleCount is what one rule has granted to one job so far.
type RuleCount struct {
	Key     RuleKey
	Granted uint32 // retries that count against limits
	Ignored uint32 // retries by action Ignore
}

// Counts is what was granted to one job before this failure.
type Counts struct {
	Rules         []RuleCount // any order, keys unique
	Granted       uint32      // all counted retries of the job
	LegacyReturns uint32      // decided returned leases that were attempted, whoever decided them
}

// Code is the reason for a decision: the closed set of semantics.md 11.
type Code uint8

// The codes of semantics.md 11. Their numbers are in decision logs: never change one.
const (
	UnknownCode Code = iota
	RuleRetry
	RuleIgnore
	RuleFail
	DefaultRetry
	DefaultFail
	RuleLimit
	PolicyLimit
	GlobalLimit
	KillSwitch
	FailFast
	NoPolicy
	LegacyReturn // "LeaseReturned" in semantics.md 11
	LegacyLimit
	GangRetry
	GangFail
	GroupRestart // from here on: semantics.md 12
	GroupOver    // "GroupEnded"
	UnitLimit
	BudgetRefused // semantics.md 14
	BreakerHeld   // semantics.md 15
)

// LimitFrom is the level that a rule's limit came from.
type LimitFrom uint8

// The levels of semantics.md 5. FromNowhere: the rule's limit was not checked.
const (
	FromNowhere LimitFrom = iota
	FromRule
	FromPolicy
	FromGlobal
)

// AvoidMode is antiAffinity.mode (semantics.md 7).
type AvoidMode uint8

// The modes of semantics.md 7.
const (
	AvoidNone     AvoidMode = iota
	AvoidNode               // the node of this failure
	AvoidAllNodes           // the nodes of all attempted failed runs of the job
)

// Verdict is the result of Evaluate for one failure. It contains everything that a decision records about the
// policies.
type Verdict struct {
	Requeue bool
	Code    Code
	// FailUnit is for what the unit of a member fails: the action was FailUnit, which only groups tell from Fail.
	FailUnit UnitReason
	Policy   string  // "" if no policy applied
	Rule     string  // name, "#index" in its policy from 0, "default", or ""
	Key      RuleKey // what a granted or ignored retry is counted under; zero if nothing is counted

	LimitFrom   LimitFrom // FromNowhere: RuleUsed and RuleLimit are meaningless
	RuleUsed    uint32    // after this decision
	RuleLimit   uint32
	GlobalUsed  uint32 // after this decision
	GlobalLimit uint32

	// Only for a requeue.
	Delay      time.Duration // with jitter and grace
	Backoff    time.Duration // Delay without the grace
	RetryAfter int64         // Unix nanoseconds: t + Delay, or the end of a pause
	ReadyAfter int64         // RetryAfter without the grace; equal to it if grace adds nothing
	Avoid      AvoidMode

	// Container is the one that decided: the one whose message matched, else the targeted one if its exit code or
	// reason was evaluated, else "".
	Container string
	Matcher   Matcher // the last matcher of the rule that had to hold; NoMatcher when no rule matched
	Skipped   []string
	Shadow    bool
}

// RuleTrace is one rule in the result of Explain.
type RuleTrace struct {
	Policy, Rule string
	Matched      bool
	// Failed is the first matcher that did not hold, and Why explains it for people. Rules after the first match
	// are not tried: Tried is false.
	Failed Matcher
	Why    string
	Tried  bool
}
