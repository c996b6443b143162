package policyfile

import (
	"fmt"
	"reflect"
	"slices"
)

// flatFile is Armada's own form of a policy. It expresses less than ours: no names, no conditions, one category
// per rule. An omitted retryLimit is 0: never.
type flatFile struct {
	header
	Name          policyName `file:"name" must:"required"`
	RetryLimit    limit      `file:"retryLimit"`
	DefaultAction flatAction `file:"defaultAction" must:"required"`
	Rules         []flatRule `file:"rules"`
}

type flatRule struct {
	Action        flatAction  `file:"action" must:"required"`
	OnCategory    label       `file:"onCategory" must:"required"`
	OnSubcategory label       `file:"onSubcategory"`
	Mutate        unsupported `file:"mutate"`
}

func (f *flatFile) check(i *inspection) { tooMany(len(f.Rules), i) }

// policy converts the policy to our form.
func (f *flatFile) policy() namedPolicy {
	p := namedPolicy{Name: f.Name}
	p.Spec.RetryLimit = &f.RetryLimit
	p.Spec.DefaultAction = action(f.DefaultAction)
	for _, r := range f.Rules {
		rule := ruleSpec{Action: action(r.Action)}
		rule.OnFailureCategory = []label{r.OnCategory}
		if r.OnSubcategory != "" {
			rule.OnFailureSubcategory = []label{r.OnSubcategory}
		}
		p.Spec.Rules = append(p.Spec.Rules, rule)
	}
	return p
}

// flatAction is an action in any of the spellings that Armada accepts.
type flatAction action

func (a *flatAction) form() (string, string) { return "Fail or Retry", "!!str !!int" }
func (a *flatAction) text() string           { return (*action)(a).text() }

func (a *flatAction) parse(s string) fault {
	switch s {
	case "Fail", "fail", "RETRY_ACTION_FAIL", "1":
		*a = flatAction(fail)
	case "Retry", "retry", "RETRY_ACTION_RETRY", "2":
		*a = flatAction(retry)
	default:
		return unknownValue("action", s, []string{"Fail", "Retry"})
	}
	return fault{}
}

// Flat is a policy in Armada's own form.
type Flat struct {
	Name          string
	RetryLimit    uint32
	DefaultAction string // Fail or Retry
	Rules         []FlatRule
}

// FlatRule is a rule in Armada's own form.
type FlatRule struct {
	Action                string // Fail or Retry
	Category, Subcategory string
}

// Flat returns a policy of the set in Armada's own form, or the paths of the fields that this form lacks. The set
// must have the policy.
func (s *Set) Flat(name string) (flat Flat, beyond []string) {
	at, ok := s.find(ID{KindPolicy, name})
	if !ok {
		return flat, []string{"metadata.name"}
	}
	spec := s.content.policies[at].Spec
	flat = Flat{Name: name, RetryLimit: uint32(or(spec.RetryLimit, 0)), DefaultAction: spec.DefaultAction.text()}
	for i, r := range spec.Rules {
		out := FlatRule{Action: r.Action.text()}
		switch {
		case r.Action == ignore || r.Action == failUnit:
			beyond = append(beyond, fmt.Sprintf("spec.rules[%d].action", i))
		case len(r.OnFailureCategory) > 1:
			beyond = append(beyond, fmt.Sprintf("spec.rules[%d].onFailureCategory", i))
		case len(r.OnFailureSubcategory) > 1:
			beyond = append(beyond, fmt.Sprintf("spec.rules[%d].onFailureSubcategory", i))
		}
		if len(r.OnFailureCategory) == 1 {
			out.Category = string(r.OnFailureCategory[0])
		}
		if len(r.OnFailureSubcategory) == 1 {
			out.Subcategory = string(r.OnFailureSubcategory[0])
		}
		flat.Rules = append(flat.Rules, out)
		r.Action, r.OnFailureCategory, r.OnFailureSubcategory = noAction, nil, nil
		beyond = append(beyond, setFields(fmt.Sprintf("spec.rules[%d]", i), &r)...)
	}
	if spec.RetryLimit == nil { // inherited here; in Armada's form it would be 0
		beyond = append(beyond, "spec.retryLimit")
	}
	if spec.DefaultAction == noAction || spec.DefaultAction == failUnit {
		beyond = append(beyond, "spec.defaultAction")
	}
	spec.RetryLimit, spec.DefaultAction, spec.Rules = nil, noAction, nil
	beyond = append(beyond, setFields("spec", &spec)...)
	slices.Sort(beyond)
	return flat, slices.Compact(beyond)
}

// setFields lists the paths of the fields that are set.
func setFields(path string, v any) (set []string) {
	value := reflect.ValueOf(v).Elem()
	for _, f := range (schema{}).of(value.Type()) {
		if !value.FieldByIndex(f.index).IsZero() {
			set = append(set, join(path, f.name))
		}
	}
	return set
}
