package policy_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/oracle"
)

// k8sError is a Kubernetes error of a field: where, and of what kind.
type k8sError struct{ path, text string }

func parseK8sError(text string) k8sError {
	path, rest, _ := strings.Cut(text, ":")
	return k8sError{strings.TrimSpace(path), strings.TrimSpace(rest)}
}

// k8sKinds are the kinds of error, the first that fits, and what we say then.
var k8sKinds = []struct {
	words string
	codes []string // nil: any
}{
	{"at least one value is required", []string{empty, required}},
	{"Required value", []string{required, empty, unknownValue, noMatcher}},
	{"Unsupported value", []string{unknownValue}},
	{"Duplicate value", []string{duplicate}},
	{"Too many", []string{tooMuch}},
	{"must be greater than or equal to", []string{outOfRange}},
	{"must not be 0", []string{neverMatches}},
	{"specifying both", []string{}}, // never an error of ours, as the next two
	{"must be ordered", []string{}},
	{"must be one of the container", []string{}},
	{"", nil},
}

// kind is the number of the error's kind among them.
func (e k8sError) kind() int {
	for i, k := range k8sKinds {
		if strings.Contains(e.text, k.words) {
			return i
		}
	}
	return len(k8sKinds) - 1
}

// ours is the field of ours that the error is about, "" where we have none.
func (e k8sError) ours() string {
	switch e.path {
	case "spec.backoffLimit", "spec.backoffLimitPerIndex":
		return "spec.retryLimit"
	case "spec.podReplacementPolicy":
		return "spec.replacement"
	}
	rest, ok := strings.CutPrefix(e.path, "spec.podFailurePolicy.rules")
	if !ok {
		return ""
	}
	rest = strings.Replace(rest, ".onExitCodes.containerName", ".containerName", 1)
	rest = strings.Replace(rest, ".onPodConditions", ".onConditions", 1)
	return "spec.rules" + strings.TrimSuffix(rest, ".type")
}

// is says whether a problem of ours is that error.
func (e k8sError) is(p policyfile.Problem) bool {
	codes := k8sKinds[e.kind()].codes
	if p.Path != e.ours() || codes != nil && !slices.Contains(codes, p.Code) {
		return false
	}
	if e.path == "spec.backoffLimitPerIndex" != (p.File == perIndexFile) {
		return false
	}
	if m := unsupportedValue.FindStringSubmatch(e.text); m != nil {
		return p.Value == m[1]
	}
	return !strings.Contains(e.text, "Required value") || p.Value == ""
}

// rowContainer is the only container of the Jobs that rows are about.
const rowContainer = "ctr"

// perIndexFile is the document of written with the limit per index.
const perIndexFile = "1.json"

var unsupportedValue = regexp.MustCompile(`^Unsupported value: "(.*?)"`)

var qualified = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$`)

// written is the Job's policy with every value as the row has it, right or wrong.
func (p *k8sPolicy) written() []obj {
	spec := obj{}
	if p.BackoffLimit != nil {
		spec["retryLimit"] = min(*p.BackoffLimit, most)
	}
	if p.PodReplacementPolicy != "" {
		spec["replacement"] = p.PodReplacementPolicy
		if ours, ok := map[string]string{"Failed": "WhenTerminated", "TerminatingOrFailed": "WhenFailed"}[p.PodReplacementPolicy]; ok {
			spec["replacement"] = ours
		}
	}
	names := &k8sJob{}
	var rules []any
	for _, r := range p.rules() {
		rule := obj{"action": r.Action}
		if ours, ok := map[string]string{"Count": "Retry", "FailJob": "Fail", "FailIndex": "Fail", "Ignore": "Ignore"}[r.Action]; ok {
			rule["action"] = ours
		}
		if e := r.OnExitCodes; e != nil {
			rule["onExitCodes"] = obj{"operator": e.Operator, "values": append([]int32{}, e.Values...)}
			if e.ContainerName != "" {
				rule["containerName"] = e.ContainerName
			}
		}
		if r.OnPodConditions != nil {
			conditions := []string{}
			for _, c := range r.OnPodConditions {
				if qualified.MatchString(c.Type) {
					c.Type = names.condition(c.Type).String()
				}
				conditions = append(conditions, c.Type)
			}
			rule["onConditions"] = conditions
		}
		rules = append(rules, rule)
	}
	if rules != nil {
		spec["rules"] = rules
	}
	docs := []obj{policyDoc(spec)}
	if p.BackoffLimitPerIndex != nil {
		docs = append(docs, obj{"apiVersion": v1, "kind": "RetryPolicy", "metadata": obj{"name": "per-index"}, "spec": obj{"retryLimit": min(*p.BackoffLimitPerIndex, most)}})
	}
	return docs
}

// allowed are the errors of Kubernetes that are none for us, by what the Job says.
func (p *k8sPolicy) allowed() []struct {
	holds bool
	path  string // its end
	words string
	why   string
} {
	both, unordered, failIndex, named, manyCodes := false, false, false, false, false
	for _, r := range p.rules() {
		both = both || r.OnExitCodes != nil && r.OnPodConditions != nil
		unordered = unordered || r.OnExitCodes != nil && !slices.IsSorted(r.OnExitCodes.Values)
		failIndex = failIndex || r.Action == "FailIndex"
		manyCodes = manyCodes || r.OnExitCodes != nil && len(r.OnExitCodes.Values) > 255
		named = named || r.OnExitCodes != nil && r.OnExitCodes.ContainerName != "" && r.OnExitCodes.ContainerName != rowContainer
	}
	return []struct {
		holds bool
		path  string // its end
		words string
		why   string
	}{
		{both, "]", "specifying both", "valid for us: all matchers of a rule must hold (semantics.md 4)"},
		{unordered, ".onExitCodes.values", "must be ordered", "valid for us: lists may be in any order"},
		{failIndex && p.BackoffLimitPerIndex == nil, "", "backoffLimitPerIndex", "valid for us: every job has its own limit"},
		{named, ".containerName", "container", "valid for us: a policy does not know the containers of its jobs"},
		{p.PodReplacementPolicy != "" && p.PodFailurePolicy != nil, "spec.podReplacementPolicy", "Unsupported value: \"TerminatingOrFailed\"", "valid for us: replacement and rules are independent (semantics.md 8)"},
		{manyCodes, ".onExitCodes.values", "Too many", "valid for us: a rule may list any number of exit codes"},
		{len(p.rules()) > 20, "spec.podFailurePolicy.rules", "Too many", "valid for us: a policy has up to 1000 rules"},
	}
}

func TestOracleK8sValidateJob(t *testing.T) {
	t.Parallel()
	oracleK8sValidateJob().Test(t)
}

func oracleK8sValidateJob() *oracle.Suite {
	return &oracle.Suite{
		File: "k8s_validate_job.json",
		Run: func(c *oracle.Check) {
			var p k8sPolicy
			var prior struct{ RestartPolicyOfPod string }
			if !c.Inputs(map[string]any{"policy": &p, "prior": &prior}) {
				return
			}
			status, kinds := false, map[string]bool{}
			for _, r := range p.rules() {
				for _, condition := range r.OnPodConditions {
					status = status || condition.Status != "True"
					kinds[condition.Type] = true
				}
			}
			if c.LeaveOut(
				oracle.Reason{Holds: status, Why: "the status of a condition: ours have none"},
				oracle.Reason{Holds: len(kinds) > len(k8sConditions), Why: "more kinds of condition in one row than a pod of ours can have at once"},
				oracle.Reason{Holds: prior.RestartPolicyOfPod == "OnFailure", Why: "restarts of a container in its pod are no runs"},
				oracle.Reason{
					Holds: p.BackoffLimit == nil && p.BackoffLimitPerIndex == nil && p.PodFailurePolicy == nil && p.PodReplacementPolicy == "",
					Why:   "nothing of the Job is in a policy of ours",
				},
			) {
				return
			}
			var expected struct {
				Valid *bool
				Error *string
			}
			if !c.Expected(&expected) {
				return
			}
			if expected.Valid == nil || *expected.Valid != (expected.Error == nil) {
				c.Errorf("the row says both that the Job is valid and that it is not")
				return
			}
			compareValidity(c, &p, expected.Error)
		},
		Same: func(path string, a, b any) bool {
			x, y := parseK8sError(fmt.Sprint(a)), parseK8sError(fmt.Sprint(b))
			return path == "expected.error" && x.path == y.path && x.kind() == y.kind()
		},
	}
}

func compareValidity(c *oracle.Check, p *k8sPolicy, refused *string) {
	_, err := parseDocs(p.written()...)
	if refused == nil {
		if err != nil {
			c.Errorf("the row says valid, and we refuse: %v", err)
		}
		return
	}
	e := parseK8sError(*refused)
	for _, a := range p.allowed() {
		if a.holds && strings.HasSuffix(e.path, a.path) && strings.Contains(e.text, a.words) && e.ours() != "" {
			c.Adapt(a.why)
			if err != nil {
				c.Errorf("%s, and yet we refuse: %v", a.why, err)
			}
			return
		}
	}
	indexed := p.CompletionMode != "" || p.MaxFailedIndexes != nil || p.BackoffLimitPerIndex != nil
	if c.LeaveOut(oracle.Reason{Holds: err == nil && indexed && (e.ours() == "" || e.path == "spec.backoffLimitPerIndex"), Why: "about the indexes of a Job"}) {
		return
	}
	if !slices.ContainsFunc(problems(err), e.is) {
		c.Errorf("got %v, the row says %s", err, *refused)
	}
}
