package model

import "fmt"

// Policies is one policy set: settings, policies and queues (§13). A nil or
// empty field is one that the files do not state.
type Policies struct {
	Settings *Settings
	Policies []Policy
	Queues   []Queue
	Groups   []GroupPolicy
	Budgets  []Budget
}

// Settings is the document RetrySettings.
type Settings struct {
	Enabled            *bool
	GlobalMaxRetries   *int
	PolicyMaxRetries   *int
	DefaultPolicyName  string
	DefaultBackoff     Backoff
	LegacyMaxAttempts  *int
	TerminationSlackMs *int64
	HorizonMs          *int64
	Mode               string // "", Enforce or Shadow
	PausedUntil        int64  // Unix nanoseconds; 0: not stated
	JobsMaySelect      *bool
	AvoidNodes         []AvoidedNode
	OpenBreakers       []OpenBreaker
}

// AvoidedNode is an entry of avoidNodes.
type AvoidedNode struct {
	Name  string
	Until int64 // Unix nanoseconds
}

// Queue is a document Queue.
type Queue struct {
	Name          string
	RetryPolicies []string
	Mode          string // "", Enforce or Shadow
	Killed        bool
	PausedUntil   int64 // Unix nanoseconds; 0: not stated
}

// Policy is a document RetryPolicy.
type Policy struct {
	Name             string
	RetryLimit       *int
	DefaultAction    string // "", Retry or Fail
	Backoff          Backoff
	AntiAffinity     string // "", none, node or allNodes
	Replacement      string // "", WhenFailed or WhenTerminated
	SelectableByJobs *bool
	MaxRetries       *int
	Rules            []Rule
	Flat             bool // written in Armada's flat form, where an absent RetryLimit is 0
}

// Rule is a rule of a policy: matchers and an action.
type Rule struct {
	Name                  string
	Action                string // Retry, Fail, Ignore or FailUnit
	UnitReason            string // of FailUnit; "": PodFailurePolicy
	OnConditions          []string
	OnExitCodes           *ExitCodes
	OnTerminationMessage  string // a pattern; "": no such matcher
	OnFailureCategory     []string
	OnFailureSubcategory  []string
	OnRunDuration         *RunDuration
	ContainerName         string
	IncludeInitContainers bool
	RetryLimit            *int
	Backoff               Backoff
	AntiAffinity          string
	Replacement           string
}

// ExitCodes is the matcher onExitCodes.
type ExitCodes struct {
	Operator string // In or NotIn
	Values   []int32
}

// RunDuration is the matcher onRunDuration. A nil bound is not stated.
type RunDuration struct {
	LessThanMs, AtLeastMs *int64
}

// Backoff is one level of backoff. Constant and Multiplier are one field of
// which at most one is stated (§6).
type Backoff struct {
	InitialDelayMs  *int64
	MaxDelayMs      *int64
	Constant        bool
	MultiplierMilli *int64 // thousandths
	JitterMilli     *int64 // thousandths
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func (p Policies) settings() Settings {
	if p.Settings == nil {
		return Settings{}
	}
	return *p.Settings
}

// §5 and §13: the defaults of the settings.
func (p Policies) enabled() bool             { return or(p.settings().Enabled, true) }
func (p Policies) globalMaxRetries() int     { return or(p.settings().GlobalMaxRetries, 20) }
func (p Policies) legacyMaxAttempts() int    { return or(p.settings().LegacyMaxAttempts, 4) }
func (p Policies) terminationSlackMs() int64 { return or(p.settings().TerminationSlackMs, 0) }
func (p Policies) horizonMs() int64          { return or(p.settings().HorizonMs, 24*60*60*1000) }

// maxRetries: §5, "maxRetries of the policy stands in for globalMaxRetries, up to the
// settings' policyMaxRetries".
func (p Policies) maxRetries(policy *Policy) int {
	if policy.MaxRetries == nil {
		return p.globalMaxRetries()
	}
	return min(*policy.MaxRetries, max(p.globalMaxRetries(), or(p.settings().PolicyMaxRetries, 0)))
}

// READING: §13 shows `jobsMaySelect: true` beside the settings without saying
// what it is when unset. Here: true, since §3 lets the annotation add policies
// without a word about permission. (Otherwise: false.)
func (p Policies) jobsMaySelect() bool { return or(p.settings().JobsMaySelect, true) }

func (p Policies) policy(name string) *Policy {
	for i := range p.Policies {
		if p.Policies[i].Name == name {
			return &p.Policies[i]
		}
	}
	return nil
}

// queue returns the document of a queue; a queue without one states nothing.
func (p Policies) queue(name string) Queue {
	for _, q := range p.Queues {
		if q.Name == name {
			return q
		}
	}
	return Queue{Name: name}
}

// §3: "a queue may say mode: Shadow (settings give the default, Enforce)".
func (p Policies) shadow(queue string) bool {
	mode := p.queue(queue).Mode
	if mode == "" {
		mode = p.settings().Mode
	}
	return mode == "Shadow"
}

// retryLimit is the policy's own limit, or nil when it states none. §13: in the
// flat form an absent one is 0, never.
func (p *Policy) retryLimit() *int {
	if p.Flat && p.RetryLimit == nil {
		return new(int)
	}
	return p.RetryLimit
}

// label is the name of the rule in a decision (§11): its name, or #index.
func (r *Rule) label(place int) string {
	if r.Name != "" {
		return r.Name
	}
	return fmt.Sprintf("#%d", place)
}
