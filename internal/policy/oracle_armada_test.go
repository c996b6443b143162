package policy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/oracle"
)

// armadaError is an error as Armada's rows write it.
type armadaError struct {
	KubernetesReason, FailureCategory, FailureSubcategory string
	Containers                                            []struct {
		Name, Reason, Message string
		ExitCode              int32
	}
	ExitCode         int32
	Message          string
	PodLeaseReturned any // the message of it, or true
	RunAttempted     *bool
	LeaseExpired     bool
	Preempted        bool
}

// failure is how the run failed. attempted and preempted are what the row says of
// the run outside of its error.
func (e *armadaError) failure(attempted, preempted bool) suite.Failure {
	f := suite.Failure{}
	if preempted || e != nil && e.Preempted {
		f.Conditions = append(f.Conditions, policy.Preempted)
	}
	if e == nil {
		return f
	}
	f.Category, f.Sub = e.FailureCategory, e.FailureSubcategory
	switch {
	case e.returned():
		c := policy.Unschedulable
		if attempted || e.RunAttempted != nil && *e.RunAttempted {
			c = policy.LeaseReturned
		}
		f.Conditions = append(f.Conditions, c)
		return f
	case e.LeaseExpired:
		f.Conditions = append(f.Conditions, policy.LeaseExpired)
		return f
	}
	switch e.KubernetesReason {
	case "Evicted":
		f.Conditions = append(f.Conditions, policy.Evicted)
	case "DeadlineExceeded":
		f.Conditions = append(f.Conditions, policy.DeadlineExceeded)
	case "OOM":
		f.PodOOM = true
	}
	for _, c := range e.Containers {
		f.Containers = append(f.Containers, policy.Container{Name: or2(c.Name, suite.MainContainer), ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message})
	}
	if e.ExitCode != 0 {
		f.Containers = append(f.Containers, policy.Container{Name: suite.MainContainer, ExitCode: e.ExitCode, Message: e.Message})
	}
	return f
}

func or2(s, missing string) string {
	if s == "" {
		return missing
	}
	return s
}

func (e *armadaError) returned() bool {
	return e != nil && e.PodLeaseReturned != nil && e.PodLeaseReturned != false && e.PodLeaseReturned != ""
}

// withoutMutate is a policy of Armada without what changes the next run: we
// refuse that by name (semantics.md 13 has no such field). It reports whether there
// was any, and that we do refuse it.
func withoutMutate(c *oracle.Check, p obj) (plain obj, mutates bool) {
	plain, mutates = oracle.WithoutMutate(p)
	if !mutates {
		return p, false
	}
	if _, err := parseDocs(flatDoc(p)); !hasProblem(err, unsupported) {
		c.Errorf("a policy with mutate: got %v, want %s", err, unsupported)
	}
	c.Adapt("mutate is left away: we refuse it by name")
	return plain, true
}

// Armada's words for why it decided as it did, and the codes that say the same.
var armadaReasons = []struct {
	words string
	codes []policy.Code
}{
	{"matched rule: Fail", []policy.Code{policy.RuleFail}},
	{"matched rule: Retry", []policy.Code{policy.RuleRetry}},
	{"no rule matched, using default action", []policy.Code{policy.DefaultRetry, policy.DefaultFail}},
	{"policy retry limit exceeded", []policy.Code{policy.PolicyLimit}},
	{"global max retries is 0", []policy.Code{policy.KillSwitch}},
	{"global max retries exceeded", []policy.Code{policy.GlobalLimit}},
	{"no error information available", nil},
}

// reasonKind is the number of a reason's words among them, -1 for others.
func reasonKind(reason any) int {
	for i, r := range armadaReasons {
		if strings.HasPrefix(fmt.Sprint(reason), r.words) {
			return i
		}
	}
	return -1
}

// armadaDecisions are Armada's own codes.
var armadaDecisions = map[string][]policy.Code{
	"retry":             {policy.RuleRetry, policy.DefaultRetry},
	"fail_rule":         {policy.RuleFail},
	"fail_default":      {policy.DefaultFail},
	"fail_policy_limit": {policy.PolicyLimit},
	"fail_global_limit": {policy.KillSwitch, policy.GlobalLimit},
}

// usedOf is the (3/3) of a reason.
var usedOf = regexp.MustCompile(`\((\d+)/(\d+)\)`)

func TestOracleArmadaEngine(t *testing.T) {
	t.Parallel()
	oracleArmadaEngine().Test(t)
}

func oracleArmadaEngine() *oracle.Suite {
	return &oracle.Suite{File: "armada_engine.json", Silent: map[string]string{"expected.mutation": "we refuse mutate by name"}, Run: func(c *oracle.Check) {
		var p struct {
			GlobalMaxRetries number
			RetryPolicy      obj
		}
		var observed struct{ Error *armadaError }
		var prior struct{ FailuresIncludingThisOne number }
		if !c.Inputs(map[string]any{"policy": &p, "observed": &observed, "prior": &prior}) {
			return
		}
		failures := or(prior.FailuresIncludingThisOne, 0)
		if c.CannotRun(
			oracle.Reason{Holds: observed.Error == nil, Why: "no error: for us a failure is a run that ended, and always has its facts"},
			oracle.Reason{Holds: p.RetryPolicy == nil, Why: "no policy"},
			oracle.Reason{Holds: failures <= 0, Why: "no failure"},
			oracle.Reason{Holds: failures > 1000, Why: "more failures than a test lets fail"},
		) || c.LeaveOut(oracle.Reason{Holds: observed.Error.returned(), Why: "a returned lease: no policy of Armada is asked"}) {
			return
		}
		var expected struct {
			Decision, Reason string
			ShouldRetry      bool
		}
		if !c.Expected(&expected) {
			return
		}
		plain, _ := withoutMutate(c, p.RetryPolicy)
		doc := flatDoc(plain)
		lastBut := func(limit int64) decided {
			settings := func(limit int64) obj {
				return settingsDoc(obj{"globalMaxRetries": min(limit, most), "defaultPolicyName": plain["name"]})
			}
			n := newJob(c, suite.Job{}, generous(doc), settings(most))
			n.before(failures-1, observed.Error.failure(true, false))
			n.use(doc, settings(limit))
			return n.fail(observed.Error.failure(true, false))
		}
		limit := or(p.GlobalMaxRetries, 0)
		d := lastBut(limit)
		oracle.Equal(c, "retried", d.Requeue, expected.ShouldRetry)
		code := d.Code
		if limit > 0 && failures-1 >= limit && !d.Requeue {
			// Armada asks for its cap before the rules, we after them: what fails without
			// the cap as well may say so.
			if without := lastBut(most); without.Code == code {
				c.Adapt("at the cap, what fails for another reason too says the other one: we ask the rules first (semantics.md 5)")
				code = policy.GlobalLimit
			}
		}
		compareArmada(c, code, expected.Decision, expected.Reason)
		if m := usedOf.FindStringSubmatch(expected.Reason); m != nil {
			used, of := d.RuleUsed, d.RuleLimit
			if code == policy.GlobalLimit {
				used, of = d.GlobalUsed, d.GlobalLimit
			}
			oracle.Equal(c, "used", strconv.Itoa(int(used)), m[1])
			oracle.Equal(c, "limit", strconv.Itoa(int(of)), m[2])
		}
	}, Same: func(path string, a, b any) bool { // words that are not known, or of one kind with the same numbers
		x, y := reasonKind(a), reasonKind(b)
		return path == "expected.reason" && (x < 0 || y < 0 || x == y && usedOf.FindString(fmt.Sprint(a)) == usedOf.FindString(fmt.Sprint(b)))
	}}
}

func compareArmada(c *oracle.Check, code policy.Code, decision, reason string) {
	if codes := armadaDecisions[decision]; !slices.Contains(codes, code) {
		c.Errorf("decided %s, the row says %s", code, decision)
	}
	for _, r := range armadaReasons {
		if strings.HasPrefix(reason, r.words) && !slices.Contains(r.codes, code) {
			c.Errorf("decided %s, the row says %s", code, reason)
		}
	}
}

func TestOracleArmadaMatchers(t *testing.T) {
	t.Parallel()
	oracleArmadaMatchers().Test(t)
}

func oracleArmadaMatchers() *oracle.Suite {
	return &oracle.Suite{File: "armada_matchers.json", Run: func(c *oracle.Check) {
		var p, observed map[string]any
		if !c.Inputs(map[string]any{"policy": &p, "observed": &observed}) {
			return
		}
		rule, f, why := matcher(p, observed)
		if c.CannotRun(oracle.Reason{Holds: why != "", Why: why}) {
			return
		}
		var expected struct{ Match *bool }
		if !c.Expected(&expected) {
			return
		}
		if expected.Match == nil {
			c.Errorf("the row expects nothing")
			return
		}
		if rule == nil {
			c.Adapt("a matcher that we refuse, because it matches nothing")
			oracle.Equal(c, "matches", false, *expected.Match)
			return
		}
		d := newJob(c, suite.Job{}, policyDoc(obj{"rules": []any{rule}}), settingsDoc(obj{"defaultPolicyName": "p"})).fail(f)
		oracle.Equal(c, "matches", d.Code == policy.RuleFail, *expected.Match)
	}}
}

// matcher is a rule with the row's matcher, nil where it can match nothing, and
// the failure that it looks at; or why there is none. Rows name a pattern and its
// text in more than one way.
func matcher(p, observed map[string]any) (rule obj, f suite.Failure, why string) {
	main := policy.Container{Name: suite.MainContainer, ExitCode: 1}
	m := p["matcher"]
	fields, isMap := m.(map[string]any)
	if !isMap && m == nil {
		fields = p
	}
	var pattern any
	for _, name := range []string{"pattern", "regex", "regexp"} {
		if v, ok := fields[name]; ok {
			pattern = v
		}
	}
	if s, ok := m.(string); ok {
		pattern = s
	}
	if expression, ok := pattern.(string); ok && len(observed) == 1 {
		for _, v := range observed {
			main.Message, ok = v.(string)
		}
		_, err := regexp.Compile(expression)
		if ok && err == nil && expression != "" {
			return obj{"action": "Fail", "onTerminationMessage": obj{"pattern": expression}}, suite.Failure{Containers: []policy.Container{main}}, ""
		}
		return nil, f, "a pattern that we refuse, or no text"
	}
	code, err := strconv.ParseInt(fmt.Sprint(observed["exitCode"]), 10, 32)
	operator, isText := fields["operator"].(string)
	values, isList := fields["values"].([]any)
	if err != nil || !isText || !isList && fields["values"] != nil || len(observed) != 1 {
		return nil, f, "no matcher, or nothing that it looks at"
	}
	var codes []int32
	for _, v := range values {
		n, err := strconv.ParseInt(fmt.Sprint(v), 10, 32)
		if err != nil {
			return nil, f, "an exit code that is no number"
		}
		codes = append(codes, int32(n))
	}
	main.ExitCode = int32(code)
	f.Containers = []policy.Container{main}
	codes = exitCodeList(operator, codes)
	if operator != "In" && operator != "NotIn" || len(codes) == 0 {
		return nil, f, ""
	}
	return obj{"action": "Fail", "onExitCodes": obj{"operator": operator, "values": codes}}, f, ""
}

// Armada's words for why it refuses a policy, and what we say then.
var armadaErrors = []struct {
	words, path string // in the path
	codes       []string
}{
	{"static", "", []string{}}, // of a mutate, and such rows are left out
	{"factor", "", []string{}},
	{"OnCategory must be set", "onCategory", []string{empty, required}},
	{"on_category", "onCategory", []string{empty, required}},
	{"unknown action", "ction", []string{unknownValue, required}},
	{"action must be", "ction", []string{unknownValue, required}},
	{"default_action", "defaultAction", []string{unknownValue, required}},
	{noName, "name", []string{required, empty, badName}},
	{"name", "name", []string{badName, outOfRange}},
	{"is invalid", "name", []string{badName, outOfRange}},
}

const noName = "name must not be empty"

// armadaErrorKind is the number of an error's words among them, -1 for others.
func armadaErrorKind(text string) int {
	for i, e := range armadaErrors {
		if strings.Contains(text, e.words) {
			return i
		}
	}
	return -1
}

func TestOracleArmadaPolicyValidation(t *testing.T) {
	t.Parallel()
	oracleArmadaPolicyValidation().Test(t)
}

func oracleArmadaPolicyValidation() *oracle.Suite {
	return &oracle.Suite{
		File: "armada_policy_validation.json",
		Run: func(c *oracle.Check) {
			var p obj
			if !c.Inputs(map[string]any{"policy": &p}) {
				return
			}
			var expected struct {
				Error, ExpectError *string
				Expected           obj
			}
			if !c.Expected(&expected) {
				return
			}
			refused := oracle.Refusal(c, expected.Error, expected.ExpectError)
			plain, _ := withoutMutate(c, p)
			limit, _ := plain["retryLimit"].(json.Number)
			n, err := strconv.ParseInt(or2(limit.String(), "0"), 10, 64)
			if c.LeaveOut(
				oracle.Reason{Holds: oracle.BadMutate(p), Why: "a mutate that Armada refuses: we refuse every one by name"},
				oracle.Reason{Holds: err != nil || n > most, Why: "a limit above 1,000,000: we refuse it"},
				oracle.Reason{Holds: oracle.LongestLabel(plain) > 253, Why: "a category or subcategory of more than 253 bytes: we refuse it"},
			) {
				return
			}
			set, err := parseDocs(flatDoc(plain))
			if refused != nil {
				compareRefusal(c, problems(err), *refused)
				return
			}
			if err != nil {
				c.Errorf("the row says valid, and we refuse: %v", err)
				return
			}
			if expected.Expected == nil {
				return
			}
			converted, _ := withoutMutate(&oracle.Check{}, expected.Expected)
			same, err := parseDocs(flatDoc(converted))
			if err != nil || same.Digest() != set.Digest() {
				c.Errorf("the row says it is the same as %v (%v)", converted, err)
			}
		},
		Silent:   map[string]string{"expected.expected.rules[].mutation": "we refuse mutate by name"},
		Optional: []string{"expected.error", "expected.expectError"},
		Same: func(path string, a, b any) bool {
			x, _ := a.(string)
			y, _ := b.(string)
			return x != "" && y != "" && sameRefusal(x, y)
		},
	}
}

// sameRefusal: of words that are not known, only that they refuse is compared.
func sameRefusal(a, b string) bool {
	x, y := armadaErrorKind(a), armadaErrorKind(b)
	return x == y || x < 0 || y < 0
}

func compareRefusal(c *oracle.Check, found policyfile.Problems, refused string) {
	if len(found) == 0 {
		c.Errorf("valid, the row says %s", refused)
		return
	}
	i := armadaErrorKind(refused)
	if i < 0 {
		return // any refusal will do
	}
	e := armadaErrors[i]
	found = slices.Clone(found)
	slices.SortStableFunc(found, func(a, b policyfile.Problem) int { return cmp.Compare(armadaOrder(a.Path), armadaOrder(b.Path)) })
	if p := found[0]; !strings.Contains(p.Path, e.path) || !slices.Contains(e.codes, p.Code) || e.path == "name" && (strings.Trim(p.Value, `"`) == "") != (e.words == noName) {
		c.Errorf("got %v, the row says %s", found, refused)
	}
}

// armadaOrder returns the index of a field in the order in which Armada validates a policy; it stops at the first
// error.
func armadaOrder(path string) string {
	switch {
	case path == "name":
		return "0"
	case strings.HasSuffix(path, ".action"):
		return "1" + strings.TrimSuffix(path, "action") + "0"
	case strings.HasPrefix(path, "rules"):
		return "1" + path
	}
	return "2"
}
