package policyfile

import (
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

// word is an enumerated scalar of the files: the index of one of the words of V. Zero is unset, where its word is "".
type word[V vocabulary] uint8

// vocabulary has the words of a scalar, and what messages call it.
type vocabulary interface {
	words() (what string, all []string)
}

func (w *word[V]) words() []string {
	var v V
	_, all := v.words()
	return all
}

func (w *word[V]) form() (what, tags string) { return oneOf(w.words()), "!!str" }
func (w *word[V]) text() string              { return w.words()[*w] }

// parse does not accept the word "".
func (w *word[V]) parse(s string) fault {
	var v V
	what, all := v.words()
	if i := slices.Index(all, s); i >= 0 && s != "" {
		*w = word[V](i)
		return fault{}
	}
	*w = 0
	return unknownValue(what, s, all)
}

type (
	action      = word[actionWords]
	operator    = word[operatorWords]
	mode        = word[modeWords]
	replacement = word[replacementWords]
	growth      = word[growthWords]
	avoidMode   = word[avoidModeWords]
	condition   = word[conditionWords]

	// Of group policies.
	completed       = word[completedWords]
	restartStrategy = word[restartStrategyWords]
	groupAction     = word[groupActionWords]
	unitReason      = word[unitReasonWords]
	restartOn       = word[restartOnWords]
	memberFailure   = word[memberFailureWords]
	successOperator = word[successOperatorWords]

	// Of retry budgets.
	whenExhausted = word[whenExhaustedWords]
)

type (
	actionWords          struct{}
	operatorWords        struct{}
	modeWords            struct{}
	replacementWords     struct{}
	growthWords          struct{}
	avoidModeWords       struct{}
	conditionWords       struct{}
	completedWords       struct{}
	restartStrategyWords struct{}
	groupActionWords     struct{}
	unitReasonWords      struct{}
	restartOnWords       struct{}
	memberFailureWords   struct{}
	successOperatorWords struct{}
	whenExhaustedWords   struct{}
)

func (actionWords) words() (string, []string) {
	return "action", []string{"", "Fail", "Retry", "Ignore", "FailUnit"}
}
func (operatorWords) words() (string, []string) { return "operator", []string{"", "In", "NotIn"} }
func (modeWords) words() (string, []string)     { return "mode", []string{"", "Enforce", "Shadow"} }
func (replacementWords) words() (string, []string) {
	return "replacement", []string{"", "WhenFailed", "WhenTerminated"}
}

func (growthWords) words() (string, []string) { return "type", []string{"", "Constant", "Exponential"} }

func (avoidModeWords) words() (string, []string) {
	return "mode", policy.Names(policy.AvoidNone, policy.AvoidAllNodes)
}

func (conditionWords) words() (string, []string) {
	return "condition", append([]string{""}, policy.Names(policy.OOMKilled, policy.LeaseExpired)...)
}
func (completedWords) words() (string, []string) { return "value", []string{"", "Rerun", "Keep"} }
func (restartStrategyWords) words() (string, []string) {
	return "value", []string{"", "Recreate", "BlockingRecreate"}
}

func (groupActionWords) words() (string, []string) {
	return "action", append([]string{""}, policy.Names(policy.FailGroup, policy.Halt)...)
}

func (unitReasonWords) words() (string, []string) {
	return "reason", append([]string{""}, policy.Names(policy.PodFailurePolicy, policy.MemberCancelled)...)
}

func (restartOnWords) words() (string, []string) {
	return "value", []string{"", "OnFailure", "Always", "Never"}
}

func (memberFailureWords) words() (string, []string) {
	return "value", []string{"", "FailUnit", "Continue"}
}

func (successOperatorWords) words() (string, []string) { return "operator", []string{"", "All", "Any"} }

func (whenExhaustedWords) words() (string, []string) {
	return "whenExhausted", []string{"", "Delay", "Refuse"}
}

const (
	noAction = action(policy.NoAction)
	fail     = action(policy.Fail)
	retry    = action(policy.Retry)
	ignore   = action(policy.Ignore)
	failUnit = action(policy.FailUnit)
)

const (
	noOperator operator = iota
	in
	notIn
)

const (
	noMode mode = iota
	enforce
	shadow
)

const (
	noGrowth growth = iota
	constant
	exponential
)

const (
	noWhenExhausted whenExhausted = iota
	delay
	refuse
)

const (
	noCompleted completed = iota
	rerun
	keep
)

const (
	noRestartStrategy restartStrategy = iota
	recreate
	blockingRecreate
)

const (
	noRestartOn restartOn = iota
	onFailure
	always
	never
)

const (
	noMemberFailure memberFailure = iota
	failTheUnit
	continueUnit
)

const (
	noSuccessOperator successOperator = iota
	allOf
	anyOf
)

func unknownValue(what, s string, words []string) fault {
	return fault{codeUnknownValue, "unknown " + what + " " + shown(s), suggest.Fix(s, words, "use "+oneOf(words))}
}

// oneOf joins the words for a message.
func oneOf(words []string) string {
	if len(words) > 0 && words[0] == "" {
		words = words[1:]
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
