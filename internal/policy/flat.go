package policy

// flatFile is Armada's own form of a policy. It says less than ours: no names,
// no conditions, one category per rule; an absent retryLimit is 0, never.
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

// policy returns the same policy in our form.
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

// flatAction is an action in any of the spellings that Armada reads.
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
