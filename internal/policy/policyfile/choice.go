package policyfile

import (
	"strings"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

// Enumerated scalars of the files. Zero is unset.

type (
	action      policy.Action
	operator    uint8
	mode        uint8
	replacement policy.Replacement
	growth      uint8
	avoidMode   policy.AvoidMode
	condition   policy.Condition
)

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

// Of group policies.
type (
	completed       uint8
	restartStrategy uint8
	groupAction     policy.GroupAction
	unitReason      policy.UnitReason
	restartOn       uint8
	memberFailure   uint8
	successOperator uint8
)

// Of retry budgets.
type whenExhausted uint8

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

func (a *action) words() []string          { return []string{"", "Fail", "Retry", "Ignore", "FailUnit"} }
func (a *action) form() (string, string)   { return formOf(a.words()) }
func (a *action) text() string             { return a.words()[*a] }
func (a *action) parse(s string) (f fault) { *a, f = choose[action]("action", s, a.words()); return f }

func (o *operator) words() []string        { return []string{"", "In", "NotIn"} }
func (o *operator) form() (string, string) { return formOf(o.words()) }
func (o *operator) text() string           { return o.words()[*o] }
func (o *operator) parse(s string) (f fault) {
	*o, f = choose[operator]("operator", s, o.words())
	return f
}

func (m *mode) words() []string          { return []string{"", "Enforce", "Shadow"} }
func (m *mode) form() (string, string)   { return formOf(m.words()) }
func (m *mode) text() string             { return m.words()[*m] }
func (m *mode) parse(s string) (f fault) { *m, f = choose[mode]("mode", s, m.words()); return f }

func (r *replacement) words() []string        { return []string{"", "WhenFailed", "WhenTerminated"} }
func (r *replacement) form() (string, string) { return formOf(r.words()) }
func (r *replacement) text() string           { return r.words()[*r] }
func (r *replacement) parse(s string) (f fault) {
	*r, f = choose[replacement]("replacement", s, r.words())
	return f
}

func (g *growth) words() []string          { return []string{"", "Constant", "Exponential"} }
func (g *growth) form() (string, string)   { return formOf(g.words()) }
func (g *growth) text() string             { return g.words()[*g] }
func (g *growth) parse(s string) (f fault) { *g, f = choose[growth]("type", s, g.words()); return f }

func (m *avoidMode) words() []string {
	return []string{policy.AvoidNone.String(), policy.AvoidNode.String(), policy.AvoidAllNodes.String()}
}
func (m *avoidMode) form() (string, string) { return formOf(m.words()) }
func (m *avoidMode) text() string           { return policy.AvoidMode(*m).String() }
func (m *avoidMode) parse(s string) (f fault) {
	*m, f = choose[avoidMode]("mode", s, m.words())
	return f
}

func (c *condition) words() []string {
	words := []string{""}
	for known := policy.OOMKilled; known <= policy.LeaseExpired; known++ {
		words = append(words, known.String())
	}
	return words
}
func (c *condition) form() (string, string) { return formOf(c.words()) }
func (c *condition) text() string           { return policy.Condition(*c).String() }
func (c *condition) parse(s string) (f fault) {
	*c, f = choose[condition]("condition", s, c.words())
	return f
}

func (c *completed) words() []string        { return []string{"", "Rerun", "Keep"} }
func (c *completed) form() (string, string) { return formOf(c.words()) }
func (c *completed) text() string           { return c.words()[*c] }
func (c *completed) parse(s string) (f fault) {
	*c, f = choose[completed]("value", s, c.words())
	return f
}

func (r *restartStrategy) words() []string        { return []string{"", "Recreate", "BlockingRecreate"} }
func (r *restartStrategy) form() (string, string) { return formOf(r.words()) }
func (r *restartStrategy) text() string           { return r.words()[*r] }
func (r *restartStrategy) parse(s string) (f fault) {
	*r, f = choose[restartStrategy]("value", s, r.words())
	return f
}

func (a *groupAction) words() []string {
	words := []string{""}
	for known := policy.FailGroup; known <= policy.Halt; known++ {
		words = append(words, known.String())
	}
	return words
}
func (a *groupAction) form() (string, string) { return formOf(a.words()) }
func (a *groupAction) text() string           { return policy.GroupAction(*a).String() }
func (a *groupAction) parse(s string) (f fault) {
	*a, f = choose[groupAction]("action", s, a.words())
	return f
}

func (r *unitReason) words() []string {
	words := []string{""}
	for known := policy.PodFailurePolicy; known <= policy.MemberCancelled; known++ {
		words = append(words, known.String())
	}
	return words
}
func (r *unitReason) form() (string, string) { return formOf(r.words()) }
func (r *unitReason) text() string           { return policy.UnitReason(*r).String() }
func (r *unitReason) parse(s string) (f fault) {
	*r, f = choose[unitReason]("reason", s, r.words())
	return f
}

func (o *restartOn) words() []string        { return []string{"", "OnFailure", "Always", "Never"} }
func (o *restartOn) form() (string, string) { return formOf(o.words()) }
func (o *restartOn) text() string           { return o.words()[*o] }
func (o *restartOn) parse(s string) (f fault) {
	*o, f = choose[restartOn]("value", s, o.words())
	return f
}

func (m *memberFailure) words() []string        { return []string{"", "FailUnit", "Continue"} }
func (m *memberFailure) form() (string, string) { return formOf(m.words()) }
func (m *memberFailure) text() string           { return m.words()[*m] }
func (m *memberFailure) parse(s string) (f fault) {
	*m, f = choose[memberFailure]("value", s, m.words())
	return f
}

const (
	noSuccessOperator successOperator = iota
	allOf
	anyOf
)

func (o *successOperator) words() []string        { return []string{"", "All", "Any"} }
func (o *successOperator) form() (string, string) { return formOf(o.words()) }
func (o *successOperator) text() string           { return o.words()[*o] }
func (o *successOperator) parse(s string) (f fault) {
	*o, f = choose[successOperator]("operator", s, o.words())
	return f
}

// choose returns the index of s in words; the word "" cannot be chosen.
func choose[T ~uint8](what, s string, words []string) (T, fault) {
	for i, word := range words {
		if word == s && s != "" {
			return T(i), fault{}
		}
	}
	return 0, unknownValue(what, s, words)
}

func formOf(words []string) (what, tags string) { return oneOf(words), "!!str" }

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

func (w *whenExhausted) words() []string        { return []string{"", "Delay", "Refuse"} }
func (w *whenExhausted) form() (string, string) { return formOf(w.words()) }
func (w *whenExhausted) text() string           { return w.words()[*w] }
func (w *whenExhausted) parse(s string) (f fault) {
	*w, f = choose[whenExhausted]("whenExhausted", s, w.words())
	return f
}
