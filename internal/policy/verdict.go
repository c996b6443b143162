package policy

import "time"

// Failure is what the rules may see of one failed run (SEMANTICS 2), with
// what SEMANTICS 3 asks of its job. It holds no protobuf types.
type Failure struct {
	Queue       string
	RunID       string        // for jitter
	Time        int64         // t, Unix nanoseconds
	JobPolicies string        // the annotation armadaproject.io/retry-policy as it stands; "" when absent
	FailFast    bool          // armadaproject.io/failFast is exactly "true"
	Gang        bool          // the job belongs to a gang (SEMANTICS 3.1)
	Grace       time.Duration // Evaluate holds it within 1 s and 300 s

	Conditions  Conditions // those of the pod and the run; OOMKilled is per rule
	PodOOM      bool       // PodError.kubernetes_reason is OOM
	Containers  []Container
	Category    string
	Subcategory string
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

// Conditions is a set of Condition.
type Conditions uint16

// Has says whether the set holds c.
func (s Conditions) Has(c Condition) bool { return s&(1<<c) != 0 }

// With returns the set with c.
func (s Conditions) With(c Condition) Conditions { return s | 1<<c }

// Condition is a named fact of SEMANTICS 2.
type Condition uint8

// The conditions of SEMANTICS 2.
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

// RuleKey is what a rule counts under (SEMANTICS 5): its policy and its name,
// "default" for a default action, or "#" and a digest of its matchers.
type RuleKey struct{ Policy, Rule string }

// RuleCount is what one rule granted to one job so far.
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

// Code says why a decision is what it is: the closed set of SEMANTICS 11.
type Code uint8

// The codes of SEMANTICS 11. Their numbers stand in decision logs: never change one.
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
	LegacyReturn // "LeaseReturned" in SEMANTICS 11
	LegacyLimit
	GangRetry
	GangFail
)

// LimitFrom is the level that a rule's limit came from.
type LimitFrom uint8

// The levels of SEMANTICS 5. FromNowhere: the rule's limit was not checked.
const (
	FromNowhere LimitFrom = iota
	FromRule
	FromPolicy
	FromGlobal
)

// Matcher is a matcher of a rule, in the order in which it is tried.
type Matcher uint8

// The matchers of SEMANTICS 4. Their numbers stand in decision logs.
const (
	NoMatcher Matcher = iota
	OnConditions
	OnExitCodes
	OnTerminationMessage
	OnFailureCategory
	OnFailureSubcategory
)

// AvoidMode is antiAffinity.mode (SEMANTICS 7).
type AvoidMode uint8

// The modes of SEMANTICS 7.
const (
	AvoidNone     AvoidMode = iota
	AvoidNode               // the node of this failure
	AvoidAllNodes           // the nodes of all attempted failed runs of the job
)

// Verdict is what Evaluate says of one failure. All that a decision records
// about the policy side stands in it.
type Verdict struct {
	Requeue bool
	Code    Code
	Policy  string  // "" when no policy spoke
	Rule    string  // name, "#place" in its policy from 0, "default", or ""
	Key     RuleKey // what a granted or ignored retry counts under; zero where nothing is counted

	LimitFrom   LimitFrom // FromNowhere: RuleUsed and RuleLimit say nothing
	RuleUsed    uint32    // after this decision
	RuleLimit   uint32
	GlobalUsed  uint32 // after this decision
	GlobalLimit uint32

	// On a requeue only.
	Delay      time.Duration // with jitter and grace
	RetryAfter int64         // Unix nanoseconds: t + Delay, or the end of a pause
	ReadyAfter int64         // RetryAfter without the grace; equal to it where grace adds nothing
	Avoid      AvoidMode

	// Container decided: the one whose message matched, else the targeted one if
	// its exit code or reason was asked for, else "".
	Container string
	Matcher   Matcher // the last matcher of the rule that had to hold; NoMatcher when no rule matched
	Skipped   []string
	Shadow    bool
}

// Rung is one rule of the ladder that Explain returns.
type Rung struct {
	Policy, Rule string
	Matched      bool
	// Failed is the first matcher that did not hold, and Why the sentence for
	// people. Rules after the first match are not tried: Tried is false.
	Failed Matcher
	Why    string
	Tried  bool
}
