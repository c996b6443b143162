package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/authoring/lint"
	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/oracle"
)

// classifier is the executor's categories, read as our rules: the category is
// that of the rule that matches.
type classifier struct {
	Enabled                             unread
	Categories                          []category
	DefaultCategory, DefaultSubcategory string
}

type category struct {
	Name   string
	Action string // what becomes of the pod: Retain or Delete
	Rules  []classifierRule
}

type classifierRule struct {
	Subcategory, ContainerName string
	Hint                       unread
	OnConditions               []string
	OnExitCodes                *struct {
		Operator string
		Values   []int32
	}
	OnTerminationMessage *struct{ Pattern string }
	OnPodEvents          unread
	OnPodError           unread
}

func (c *classifier) rules() (all []classifierRule) {
	for i := range c.Categories {
		all = append(all, c.Categories[i].Rules...)
	}
	return all
}

// notOurs are the facts that no rule of ours sees.
func (c *classifier) notOurs() []oracle.Reason {
	return []oracle.Reason{
		{Holds: slices.ContainsFunc(c.rules(), func(r classifierRule) bool { return r.OnPodEvents != nil }), Why: "pod events are no fact of ours"},
		{Holds: slices.ContainsFunc(c.rules(), func(r classifierRule) bool { return r.OnPodError != nil }), Why: "the kubelet's error is no fact of ours"},
	}
}

// rule is a rule in our words, as it is written.
func (r *classifierRule) rule() obj {
	rule := obj{"action": "Fail", "includeInitContainers": true}
	if r.ContainerName != "" {
		rule["containerName"] = r.ContainerName
	}
	if r.OnConditions != nil {
		rule["onConditions"] = r.OnConditions
	}
	if r.OnExitCodes != nil {
		rule["onExitCodes"] = obj{"operator": r.OnExitCodes.Operator, "values": append([]int32{}, r.OnExitCodes.Values...)}
	}
	if r.OnTerminationMessage != nil {
		rule["onTerminationMessage"] = obj{"pattern": r.OnTerminationMessage.Pattern}
	}
	return rule
}

// another says whether the executor would match by another container than the
// first that failed.
func (r *classifierRule) another(failed []k8sContainer) bool {
	var holds []bool
	for _, c := range failed {
		if r.ContainerName != "" && r.ContainerName != c.Name {
			continue
		}
		switch {
		case r.OnExitCodes != nil:
			holds = append(holds, slices.Contains(r.OnExitCodes.Values, c.ExitCode) == (r.OnExitCodes.Operator == "In"))
		case slices.Contains(r.OnConditions, "OOMKilled"):
			holds = append(holds, c.Reason == "OOMKilled")
		}
	}
	return len(holds) > 1 && !holds[0] && slices.Contains(holds, true)
}

func TestOracleArmadaClassify(t *testing.T) {
	t.Parallel()
	oracleArmadaClassify().Test(t)
}

func oracleArmadaClassify() *oracle.Suite {
	return &oracle.Suite{File: "armada_classify.json", Run: func(c *oracle.Check) {
		var p struct{ ErrorCategories *classifier }
		var observed struct {
			Pod *struct {
				Phase                      string
				Containers, InitContainers []k8sContainer
				PodStatusReason            string `json:"podStatus_reason"`
			}
			PodEvents, PodErrorMessage unread
		}
		if !c.Inputs(map[string]any{"policy": &p, "observed": &observed}) {
			return
		}
		if p.ErrorCategories == nil {
			p.ErrorCategories = &classifier{}
		}
		if c.CannotRun(oracle.Reason{Holds: observed.Pod == nil, Why: "no pod"}) || c.CannotRun(p.ErrorCategories.notOurs()...) {
			return
		}
		pod := k8sPod{Containers: observed.Pod.Containers, InitContainers: observed.Pod.InitContainers}
		failed := slices.DeleteFunc(pod.statuses(), func(c k8sContainer) bool { return c.ExitCode == 0 })
		if c.LeaveOut(oracle.Reason{
			Holds: slices.ContainsFunc(p.ErrorCategories.rules(), func(r classifierRule) bool { return r.another(failed) }),
			Why:   "several containers failed: the executor asks any of them, we ask the first (semantics.md 4)",
		}) {
			return
		}
		var expected struct{ Category, Subcategory, Action *string }
		if !c.Expected(&expected) {
			return
		}
		j, f := pod.classified(c, observed.Pod.PodStatusReason)
		got, sub, action := p.ErrorCategories.classify(c, j, f)
		oracle.Equal(c, "category", got, text(expected.Category))
		oracle.Equal(c, "subcategory", sub, text(expected.Subcategory))
		if expected.Action != nil {
			oracle.Equal(c, "action", action, *expected.Action)
		}
	}, Silent: map[string]string{"expected.action": "what becomes of the pod; compared where a row says it"}}
}

// classified is the pod as a job and a failure of ours.
func (p *k8sPod) classified(c *oracle.Check, podReason string) (suite.Job, suite.Failure) {
	var j suite.Job
	var f suite.Failure
	for _, init := range p.InitContainers {
		j.InitContainers = append(j.InitContainers, init.Name)
	}
	for _, s := range p.statuses() {
		if s.ExitCode == 0 && s.Message != "" {
			c.Adapt("the message of a container that exited with 0 is left away: for us it counts (semantics.md 4)")
			s.Message = ""
		}
		f.Containers = append(f.Containers, policy.Container{Name: s.Name, ExitCode: s.ExitCode, Reason: s.Reason, Message: s.Message})
	}
	switch podReason {
	case "Evicted":
		f.Conditions = append(f.Conditions, policy.Evicted)
	case "DeadlineExceeded":
		f.Conditions = append(f.Conditions, policy.DeadlineExceeded)
	}
	return j, f
}

// classify is the category of the first rule that matches, else the default.
func (c *classifier) classify(check *oracle.Check, j suite.Job, f suite.Failure) (name, sub, action string) {
	type of struct{ name, sub, action string }
	var places []of
	rules := []any{}
	for i := range c.Categories {
		for k := range c.Categories[i].Rules {
			r := &c.Categories[i].Rules[k]
			if e := r.OnExitCodes; e != nil {
				codes := exitCodeList(e.Operator, e.Values)
				if len(codes) == 0 {
					continue // it matches nothing, and we refuse it
				}
				e.Values = codes
			}
			rules = append(rules, r.rule())
			places = append(places, of{c.Categories[i].Name, r.Subcategory, or2(c.Categories[i].Action, "Retain")})
		}
	}
	d := newJob(check, j, policyDoc(obj{"rules": rules}), settingsDoc(obj{"defaultPolicyName": "p"})).fail(f)
	if i := d.place(); d.Code == policy.RuleFail && i >= 0 && i < len(places) {
		return places[i].name, places[i].sub, places[i].action
	}
	return c.DefaultCategory, c.DefaultSubcategory, ""
}

// The executor's words for why it refuses a classifier, and what we say then.
var classifierErrors = []classifierError{
	{"must specify only one of", "", []string{}}, // valid for us: all matchers of a rule must hold
	{"must specify one of", "", []string{noMatcher}},
	{"unknown condition", "onConditions", []string{unknownValue}},
	{"invalid action", "action", []string{unknownValue}},
	{"operator", "operator", []string{unknownValue, required}},
	{"requires at least one value", "values", []string{empty, required}},
	{"ategory", "onFailure", []string{outOfRange, empty, longLabelCode}},
}

type classifierError struct {
	words, path string // in the path
	codes       []string
}

func classifierErrorKind(words string) int {
	return slices.IndexFunc(classifierErrors, func(e classifierError) bool { return strings.Contains(words, e.words) })
}

// longLabelCode is a warning: a set of policies may hold such a name, and no run can.
const longLabelCode = "RP115"

// linted are the errors of these documents, and names that are too long.
func linted(docs ...obj) error {
	files, err := filesOf(docs...)
	if err != nil {
		return err
	}
	found, err := lint.Lint(files, nil)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(p policyfile.Problem) bool { return p.Severity != policyfile.Error && p.Code != longLabelCode })
	if len(found) == 0 {
		return nil
	}
	return found
}

// in says whether a problem of ours is that error.
func (e *classifierError) in(found policyfile.Problems) bool {
	return slices.ContainsFunc(found, func(p policyfile.Problem) bool {
		return strings.Contains(p.Path, e.path) && slices.Contains(e.codes, p.Code)
	})
}

// files are what the classifier says, as a policy of ours each: its rules, and
// its names as what a rule asks for.
func (c *classifier) files() []obj {
	rules := []any{}
	label := func(name, sub string) {
		rule := obj{"action": "Fail", categoryField: []string{name}}
		if sub != "" {
			rule["onFailureSubcategory"] = []string{sub}
		}
		rules = append(rules, rule)
	}
	for i := range c.Categories {
		category := &c.Categories[i]
		label(category.Name, "")
		for k := range category.Rules {
			rule := category.Rules[k].rule()
			if a := category.Action; a != "" && a != "Retain" && a != "Delete" {
				rule["action"] = a
			}
			rules = append(rules, rule)
			if sub := category.Rules[k].Subcategory; sub != "" {
				label(or2(category.Name, "any"), sub)
			}
		}
	}
	if c.DefaultCategory != "" || c.DefaultSubcategory != "" {
		label(or2(c.DefaultCategory, "any"), c.DefaultSubcategory)
	}
	return []obj{policyDoc(obj{"rules": rules})}
}

func TestOracleArmadaClassifierValidation(t *testing.T) {
	t.Parallel()
	oracleArmadaClassifierValidation().Test(t)
}

func oracleArmadaClassifierValidation() *oracle.Suite {
	return &oracle.Suite{
		File:     "armada_classifier_validation.json",
		Optional: []string{"expected.errContains"},
		Run: func(c *oracle.Check) {
			var p classifier
			if !c.Inputs(map[string]any{"policy": &p}) || c.CannotRun(p.notOurs()...) {
				return
			}
			names, twice, noRules := map[string]bool{}, false, false
			for _, category := range p.Categories {
				twice, noRules = twice || names[category.Name], noRules || len(category.Rules) == 0
				names[category.Name] = true
			}
			if c.LeaveOut(
				oracle.Reason{Holds: twice, Why: "a category twice: our rules may name one as often as they like"},
				oracle.Reason{Holds: noRules, Why: "a category without rules: ours are no categories"},
				oracle.Reason{Holds: p.DefaultSubcategory != "" && p.DefaultCategory == "" && len(p.DefaultSubcategory) <= 63, Why: "defaults of a classification"},
			) {
				return
			}
			var expected struct{ ErrContains *string }
			if !c.Expected(&expected) {
				return
			}
			err := linted(p.files()...)
			several := slices.ContainsFunc(p.rules(), classifierRule.several)
			if expected.ErrContains == nil {
				if err != nil || several {
					c.Errorf("the row says valid: %v", err)
				}
				return
			}
			kind := classifierErrorKind(*expected.ErrContains)
			if several && err == nil {
				c.Adapt("valid for us: all matchers of a rule must hold (semantics.md 4)")
				oracle.Equal(c, "error", "must specify only one of", *expected.ErrContains)
				return
			}
			if err == nil || kind >= 0 && !classifierErrors[kind].in(problems(err)) {
				c.Errorf("got %v, the row says %s", err, *expected.ErrContains)
			}
		},
		Same: func(path string, a, b any) bool {
			x, _ := a.(string)
			y, _ := b.(string)
			i, k := classifierErrorKind(x), classifierErrorKind(y)
			return x != "" && y != "" && (i == k || i < 0 || k < 0)
		},
	}
}

// several matchers in one rule.
func (r classifierRule) several() bool {
	n := 0
	for _, has := range []bool{r.OnConditions != nil, r.OnExitCodes != nil, r.OnTerminationMessage != nil} {
		if has {
			n++
		}
	}
	return n > 1
}
