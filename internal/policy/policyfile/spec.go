package policyfile

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/policy"
)

// The format of the files (semantics.md 13) as Go types, which decode.go reads and canonical.go writes. The tag
// `file` is the name of a field in the files; `must` lists its constraints: required, nonempty, unique.
// Constraints between fields are in check methods. An unset field is the zero value of its type, so a field in
// which zero is a valid value is a pointer.

const (
	apiVersion     = "armadaproject.io/v1"
	apiVersionFlat = "armadaproject.io/v1beta1"
)

// namedPolicy is a policy in the canonical encoding.
type namedPolicy struct {
	Name policyName `file:"name" must:"required"`
	Spec policySpec `file:"spec"`
}

type header struct {
	APIVersion plain `file:"apiVersion"`
	Kind       plain `file:"kind"`
}

type policyFile struct {
	header
	Metadata struct {
		Name policyName `file:"name" must:"required"`
	} `file:"metadata" must:"required"`
	Spec policySpec `file:"spec" must:"required"`
}

type queueFile struct {
	header
	queueSpec
}

type settingsFile struct {
	header
	Spec settingsSpec `file:"spec" must:"required"`
}

// overrides are the fields that a rule inherits from its policy unless it sets them.
type overrides struct {
	RetryLimit   *limit      `file:"retryLimit"`
	Backoff      backoffSpec `file:"backoff"`
	AntiAffinity struct {
		Mode *avoidMode `file:"mode" must:"required"`
	} `file:"antiAffinity"`
	Replacement replacement `file:"replacement"`
}

type policySpec struct {
	overrides
	DefaultAction    action      `file:"defaultAction"`
	SelectableByJobs *bool       `file:"selectableByJobs"`
	MaxRetries       *limit      `file:"maxRetries"`
	Rules            []ruleSpec  `file:"rules"`
	Mutate           unsupported `file:"mutate"`
}

type ruleSpec struct {
	Name       ruleName   `file:"name"`
	Action     action     `file:"action" must:"required"`
	UnitReason unitReason `file:"unitReason"`
	matcherSpec
	overrides
	Mutate unsupported `file:"mutate"`
}

type backoffSpec struct {
	InitialDelay *duration `file:"initialDelay"`
	MaxDelay     *duration `file:"maxDelay"`
	Multiplier   *factor   `file:"multiplier"`
	Type         growth    `file:"type"` // cleared by settle
	Jitter       *fraction `file:"jitter"`
}

type queueSpec struct {
	Name          queueName    `file:"name" must:"required"`
	RetryPolicies []policyName `file:"retryPolicies"`
	Mode          mode         `file:"mode"`
	Killed        bool         `file:"killed"`
	PausedUntil   *instant     `file:"pausedUntil"`
}

type settingsSpec struct {
	Enabled           *bool       `file:"enabled"`
	GlobalMaxRetries  *limit      `file:"globalMaxRetries"`
	PolicyMaxRetries  *limit      `file:"policyMaxRetries"`
	DefaultPolicyName policyName  `file:"defaultPolicyName"`
	DefaultBackoff    backoffSpec `file:"defaultBackoff"`
	LegacyMaxAttempts *limit      `file:"legacyMaxAttempts"`
	TerminationSlack  *duration   `file:"terminationSlack"`
	Horizon           *duration   `file:"horizon"`
	Mode              mode        `file:"mode"`
	PausedUntil       *instant    `file:"pausedUntil"`
	JobsMaySelect     *bool       `file:"jobsMaySelect"`
	AvoidNodes        nodeList    `file:"avoidNodes"`
	OpenBreakers      breakerList `file:"openBreakers"`
	Protection        *protection `file:"protection"`
	Breakers          *breakers   `file:"breakers"`
}

type protection struct {
	Mode         mode      `file:"mode" must:"required"`
	SuspectAfter *limit    `file:"suspectAfter"`
	Queues       *limit    `file:"queues"`
	Window       *duration `file:"window"`
	Rest         *duration `file:"rest"`
	CertainRest  *duration `file:"certainRest"`
	LongestRest  *duration `file:"longestRest"`
	Share        *fraction `file:"share"`
}

func (p *protection) check(i *inspection) {
	d := p.definition()
	i.outside("suspectAfter", d.SuspectAfter < 2 || d.SuspectAfter > 100, "between 2 and 100")
	i.outside("queues", d.Queues < 1 || d.Queues > d.SuspectAfter, "between 1 and suspectAfter")
	i.outside("window", d.Window < time.Minute || d.Window > 4*time.Hour, "between 1m and 4h")
	i.outside("rest", d.Rest < time.Second || d.Rest > d.CertainRest, "between 1s and certainRest")
	i.outside("certainRest", d.CertainRest > d.LongestRest, "at most longestRest")
	i.outside("longestRest", d.LongestRest > 7*24*time.Hour, "at most 168h")
	i.outside("share", d.Share > 500, "at most 0.5")
}

// outside reports that a field is not within limits.
func (i *inspection) outside(field string, bad bool, limits string) {
	if bad && i.clean(field) {
		i.fault(field, fault{codeOutOfRange, "not " + limits, "choose a value in this range"})
	}
}

// definition converts the protection for the engine.
func (p *protection) definition() *policy.Protection {
	d := policy.DefaultProtection()
	d.Shadow = p.Mode == shadow
	d.SuspectAfter = uint32(or(p.SuspectAfter, limit(d.SuspectAfter)))
	d.Queues = uint32(or(p.Queues, limit(d.Queues)))
	setDurations(map[*time.Duration]*duration{&d.Window: p.Window, &d.Rest: p.Rest, &d.CertainRest: p.CertainRest, &d.LongestRest: p.LongestRest})
	d.Share = uint32(or(p.Share, fraction(d.Share)))
	return &d
}

// setDurations sets those that are set.
func setDurations(fields map[*time.Duration]*duration) {
	for field, to := range fields { //house:sorted each sets its own field
		if to != nil {
			*field = to.duration()
		}
	}
}

type breakers struct {
	Mode      mode      `file:"mode" must:"required"`
	OpenAfter *limit    `file:"openAfter"`
	Queues    *limit    `file:"queues"`
	Window    *duration `file:"window"`
	Hold      *duration `file:"hold"`
	Probe     *duration `file:"probe"`
	Canaries  *limit    `file:"canaries"`
	Ramp      *duration `file:"ramp"`
}

func (b *breakers) check(i *inspection) {
	d := b.definition()
	i.outside("openAfter", d.OpenAfter < 2 || d.OpenAfter > 10_000, "between 2 and 10000")
	i.outside("queues", d.Queues < 1 || d.Queues > d.OpenAfter, "between 1 and openAfter")
	i.outside("window", d.Window < 10*time.Second || d.Window > time.Hour, "between 10s and 1h")
	i.outside("hold", d.Hold < time.Minute || d.Hold > 24*time.Hour, "between 1m and 24h")
	i.outside("probe", d.Probe < time.Second || d.Probe > min(d.Hold, time.Hour), "between 1s and 1h, and at most hold")
	i.outside("canaries", d.Canaries < 1 || d.Canaries > 100, "between 1 and 100")
	i.outside("ramp", d.Ramp > time.Hour, "at most 1h")
}

// definition converts the breakers for the engine.
func (b *breakers) definition() *policy.Breakers {
	d := policy.DefaultBreakers()
	d.Shadow = b.Mode == shadow
	d.OpenAfter = uint32(or(b.OpenAfter, limit(d.OpenAfter)))
	d.Queues = uint32(or(b.Queues, limit(d.Queues)))
	setDurations(map[*time.Duration]*duration{&d.Window: b.Window, &d.Hold: b.Hold, &d.Probe: b.Probe, &d.Ramp: b.Ramp})
	d.Canaries = uint32(or(b.Canaries, limit(d.Canaries)))
	return &d
}

// nodeList is sorted by name in a Set.
type nodeList []avoidedNode

type avoidedNode struct {
	Name  nodeName `file:"name" must:"required"`
	Until *instant `file:"until" must:"required"`
}

// breakerList is sorted by cause in a Set.
type breakerList []openBreaker

type openBreaker struct {
	Category    label     `file:"category" must:"required"`
	Subcategory label     `file:"subcategory"`
	Queue       queueName `file:"queue"`
	Until       *instant  `file:"until" must:"required"`
}

// cause is what a breaker holds. A list has each once.
func (b *openBreaker) cause() [3]string {
	return [3]string{string(b.Category), string(b.Subcategory), string(b.Queue)}
}

func (b *openBreaker) before(other *openBreaker) int {
	x, y := b.cause(), other.cause()
	return slices.Compare(x[:], y[:])
}

// A checker validates the constraints between its fields.
type checker interface{ check(i *inspection) }

// tooMany reports more rules than a policy may have.
func tooMany(rules int, i *inspection) {
	if rules > policy.MaxRules {
		i.fault("rules", fault{codeTooMuch, fmt.Sprintf("%d rules, at most %d", rules, policy.MaxRules), "split the policy: a queue may name several"})
	}
}

func (p *policySpec) check(i *inspection) {
	tooMany(len(p.Rules), i)
	size := 0
	for n := range p.Rules {
		size += p.Rules[n].OnTerminationMessage.Pattern.size()
	}
	if size > maxPatternSizes {
		i.fault("rules", fault{
			codeTooMuch, fmt.Sprintf("patterns of %d nodes in total with repetitions expanded, at most %d", size, maxPatternSizes),
			"use fewer repetitions, or split the policy: a queue may name several",
		})
	}
	if p.DefaultAction == ignore {
		i.fault("defaultAction", fault{codeUnknownValue, "action Ignore is not allowed here", "use Fail, Retry or FailUnit; only a rule can ignore"})
	}
	first := make(map[ruleName]int, len(p.Rules))
	for n := range p.Rules {
		name := p.Rules[n].Name
		if earlier, dup := first[name]; dup && name != "" {
			i.fault(fmt.Sprintf("rules[%d].name", n), fault{
				codeDuplicateName, fmt.Sprintf("duplicate rule name %s (first: rules[%d])", shown(string(name)), earlier), "rename one of them: a rule is counted under its name",
			})
			continue
		}
		first[name] = n
	}
}

func (r *ruleSpec) check(i *inspection) {
	switch {
	case r.UnitReason == 0 || !i.clean("unitReason") || !i.clean("action"):
	case r.Action != failUnit:
		i.fault("unitReason", fault{codeConflict, "the action fails no unit", "remove it, or use the action FailUnit"})
	case policy.UnitReason(r.UnitReason) == policy.MemberCancelled:
		i.fault("unitReason", fault{codeUnknownValue, "no failure of a run is MemberCancelled", "use another reason, or remove it"})
	}
	if len(r.OnFailureSubcategory) > 0 && len(r.OnFailureCategory) == 0 && i.clean("onFailureCategory") {
		i.fault("onFailureSubcategory", fault{codeNoCategory, "a subcategory without onFailureCategory", "name the category that it belongs to"})
	} else if r.empty() && i.clean("") {
		i.fault("", fault{
			codeNoMatcher, "the rule has no matcher",
			"add " + oneOf(sufficient()) + "; to match everything else, use the policy's defaultAction",
		})
	}
}

func (b *backoffSpec) check(i *inspection) {
	if b.Type != noGrowth && b.Multiplier != nil {
		i.fault("type", fault{codeConflict, "both type and multiplier", "remove one: Constant means a multiplier of 1, Exponential one of 2"})
	}
}

func (s *settingsSpec) check(i *inspection) {
	if s.Horizon != nil && *s.Horizon == 0 && i.clean("horizon") {
		i.fault("horizon", fault{codeOutOfRange, "with 0s, jobs would be forgotten as soon as they end", "omit it for 24h"})
	}
	if n := len(s.AvoidNodes); n > policy.MaxAvoidNodes {
		i.fault("avoidNodes", fault{codeTooMuch, fmt.Sprintf("%d nodes, at most %d", n, policy.MaxAvoidNodes), "remove those whose time is over"})
	}
	first := make(map[nodeName]int, len(s.AvoidNodes))
	for n := range s.AvoidNodes {
		name := s.AvoidNodes[n].Name
		if earlier, dup := first[name]; dup {
			i.fault(fmt.Sprintf("avoidNodes[%d].name", n), fault{
				codeDuplicateName, fmt.Sprintf("duplicate node %s (first: avoidNodes[%d])", shown(string(name)), earlier), "keep one of them",
			})
			continue
		}
		first[name] = n
	}
	if n := len(s.OpenBreakers); n > policy.MaxOpenBreakers {
		i.fault("openBreakers", fault{codeTooMuch, fmt.Sprintf("%d breakers, at most %d", n, policy.MaxOpenBreakers), "remove those whose time is over"})
	}
	causes := make(map[[3]string]int, len(s.OpenBreakers))
	for n := range s.OpenBreakers {
		cause := s.OpenBreakers[n].cause()
		if earlier, dup := causes[cause]; dup {
			i.fault(fmt.Sprintf("openBreakers[%d].category", n), fault{
				codeDuplicateName, fmt.Sprintf("duplicate breaker of %s (first: openBreakers[%d])", shown(cause[0]), earlier), "keep one of them",
			})
			continue
		}
		causes[cause] = n
	}
}

// settle normalises settings, so that equal ones have the same form.
func (s *settingsSpec) settle() {
	s.DefaultBackoff.settle()
	s.AvoidNodes = unset(slices.SortedFunc(slices.Values(s.AvoidNodes), func(a, b avoidedNode) int { return cmp.Compare(a.Name, b.Name) }))
	s.OpenBreakers = unset(slices.SortedFunc(slices.Values(s.OpenBreakers), func(a, b openBreaker) int { return a.before(&b) }))
}

// isUnset says whether no field is set.
func (s *settingsSpec) isUnset() bool { return reflect.ValueOf(s).Elem().IsZero() }

// unset returns a list, or nil if it is empty.
func unset[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

// settle normalises a policy, so that equal policies have the same form.
func (p *policySpec) settle() {
	p.Backoff.settle()
	for i := range p.Rules {
		r := &p.Rules[i]
		r.Backoff.settle()
		sortLists(reflect.ValueOf(&r.matchers).Elem())
	}
}

func (b *backoffSpec) settle() {
	if b.Type != noGrowth {
		by := factor(1000)
		if b.Type == exponential {
			by = 2000
		}
		b.Type, b.Multiplier = noGrowth, &by
	}
}
