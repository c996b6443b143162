package policy

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// A set is built from definitions: the content of what operators wrote, without its form. Package policyfile reads
// them from files and from the log.

// MaxRules is the maximum number of rules of a policy. A queue may name several policies.
const MaxRules = 1000

// DefaultRule is the rule name under which retries by a default action are counted.
const DefaultRule = "default"

// Action is what a rule or a default action does with a failed run (semantics.md 5).
type Action uint8

// The actions. NoAction: the policy states no default action.
const (
	NoAction Action = iota
	Fail
	Retry
	Ignore
	FailUnit // as Fail; the unit of a member of a group fails at once
)

var actions = [...]string{"", "Fail", "Retry", "Ignore", "FailUnit"}

// String returns the action's name in a policy file, and "" for NoAction.
func (a Action) String() string { return NameAt(actions[:], uint8(a), "Action") }

// Replacement says whether a retry waits until the old pod is gone (semantics.md 8).
type Replacement uint8

// The replacements. NoReplacement inherits.
const (
	NoReplacement Replacement = iota
	WhenFailed
	WhenTerminated
)

// Overrides are the fields that each level may set: settings, then policy, then rule. Nil and zero inherit.
type Overrides struct {
	RetryLimit  *uint32
	Backoff     Backoff
	Avoid       *AvoidMode
	Replacement Replacement
}

// Backoff is the delay of retries (semantics.md 6); each field is inherited separately.
type Backoff struct {
	InitialDelay, MaxDelay *time.Duration // whole milliseconds
	Multiplier             *uint32        // thousandths, at least 1000
	Jitter                 *uint32        // thousandths, at most 1000
}

// RuleDefinition is one rule of a policy.
type RuleDefinition struct {
	Name     string // "": the rule is counted under Identity
	Identity string // of a rule without a name: a digest of its matchers
	Action   Action
	// UnitReason is for what a unit fails by the action FailUnit; NoUnitReason: PodFailurePolicy.
	UnitReason UnitReason
	Matchers   Matchers
	Overrides
}

// Definition is one policy as its author wrote it.
type Definition struct {
	Name             string
	DefaultAction    Action
	SelectableByJobs *bool // nil: the settings' JobsMaySelect
	// MaxRetries stands in for GlobalMaxRetries, up to the settings' PolicyMaxRetries, where this policy retries; nil: it does not.
	MaxRetries *uint32
	Rules      []RuleDefinition
	Overrides
}

// Policy is one policy, ready to decide. It depends only on its definition, so sets share equal policies.
type Policy struct {
	name       string
	selectable *bool
	byDefault  target
	rules      []rule
	index      index
}

// Name is the policy's name.
func (p *Policy) Name() string { return p.name }

// Queue is the binding of one queue.
type Queue struct {
	Name        string
	Policies    []string // names, in order
	Shadow      *bool    // nil: the settings' Shadow
	Killed      bool
	PausedUntil *int64 // Unix nanoseconds
}

// Settings apply to all policies and queues. The zero value kills all retries: start from DefaultSettings.
type Settings struct {
	Enabled           bool
	GlobalMaxRetries  uint32
	PolicyMaxRetries  uint32 // to which MaxRetries of a policy may raise GlobalMaxRetries
	DefaultPolicy     string // "": none
	DefaultBackoff    Backoff
	LegacyMaxAttempts uint32
	TerminationSlack  time.Duration
	Horizon           time.Duration
	Shadow            bool
	PausedUntil       *int64 // Unix nanoseconds
	JobsMaySelect     bool
	AvoidNodes        []AvoidedNode // at most MaxAvoidNodes, by name, each once
	OpenBreakers      []Breaker     // at most MaxOpenBreakers
	Protection        *Protection   // nil: off
	Breakers          *Breakers     // nil: off
	Budgets           []Budget      // at most MaxBudgets, by name, each once
}

// MaxAvoidNodes is the maximum number of nodes that settings and overrides have retries avoid.
const MaxAvoidNodes = 1000

// AvoidedNode is a node that retries of failures before a time avoid (semantics.md 7).
type AvoidedNode struct {
	Name  string
	Until int64 // Unix nanoseconds
}

// DefaultSettings returns the settings without any file (semantics.md 1, 5, 6 and 9).
func DefaultSettings() Settings {
	return Settings{Enabled: true, GlobalMaxRetries: 20, LegacyMaxAttempts: 4, Horizon: 24 * time.Hour, JobsMaySelect: true}
}

// Compile makes a policy from its definition, which it keeps and which must not change afterwards. A definition
// has at most MaxRules rules.
func Compile(d *Definition) *Policy {
	p := &Policy{
		name:       d.Name,
		selectable: d.SelectableByJobs,
		byDefault: target{
			key: RuleKey{d.Name, DefaultRule}, shown: DefaultRule, isDefault: true,
			action: d.DefaultAction, policy: &d.Overrides, maxRetries: d.MaxRetries,
		},
		rules: make([]rule, len(d.Rules)),
	}
	for i := range d.Rules {
		r := &d.Rules[i]
		t := target{key: RuleKey{d.Name, r.Name}, shown: r.Name, action: r.Action, policy: &d.Overrides, rule: &r.Overrides, maxRetries: d.MaxRetries, reason: r.UnitReason}
		if r.Name == "" {
			t.key.Rule, t.shown = r.Identity, "#"+strconv.Itoa(i)
		}
		slices.SortFunc(r.Matchers.Requirements, func(a, b Requirement) int { return cmp.Compare(a.Matcher(), b.Matcher()) })
		p.rules[i] = rule{r.Matchers, t}
	}
	p.index = newIndex(p.rules)
	return p
}
