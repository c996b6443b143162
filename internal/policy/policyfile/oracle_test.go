package policyfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy"
)

// The oracle rows: other systems' own tests (testdata/oracles/README.md), put
// into our files and facts. A row is run, or left out for a reason that stands
// here. Where a row says something else than SEMANTICS, SEMANTICS wins: the
// test of its file names the row and what we expect instead.

type obj = map[string]any

// row is one row of an oracle file.
type row struct {
	ID, Name  string
	Policy    json.RawMessage
	Prior     json.RawMessage
	Observed  json.RawMessage
	Expected  json.RawMessage
	Steps     json.RawMessage
	Now, Note string
}

// oracle runs every row of a file that is not left out.
func oracle(t *testing.T, file string, leftOut map[string]string, run func(t *testing.T, r *row)) {
	data, err := os.ReadFile("../../../testdata/oracles/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var suite struct {
		RowCount int `json:"row_count"`
		Rows     []row
	}
	if err := json.Unmarshal(data, &suite); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	ran := 0
	for i := range suite.Rows {
		r := &suite.Rows[i]
		seen[r.ID] = true
		if leftOut[r.ID] != "" {
			continue
		}
		ran++
		t.Run(r.ID, func(t *testing.T) { run(t, r) })
	}
	for id := range leftOut {
		if !seen[id] {
			t.Errorf("%s is left out, but there is no such row", id)
		}
	}
	if len(suite.Rows) != suite.RowCount || ran+len(leftOut) != suite.RowCount {
		t.Errorf("%d rows run and %d left out of %d", ran, len(leftOut), suite.RowCount)
	}
	t.Logf("%s: %d rows run, %d left out", file, ran, len(leftOut))
}

// into decodes what we use of a part of a row.
func into[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	if len(raw) == 0 {
		return v
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

// parseDocs parses one JSON file for each document.
func parseDocs(t *testing.T, docs ...obj) (*Set, error) {
	t.Helper()
	var files []File
	for i, doc := range docs {
		data, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{fmt.Sprintf("%d.json", i), data})
	}
	return Parse(files)
}

// decide evaluates a failure under one policy "p" with that spec.
func decide(t *testing.T, spec obj, settings obj, f *policy.Failure, c *policy.Counts) policy.Verdict {
	t.Helper()
	if settings == nil {
		settings = obj{}
	}
	settings["defaultPolicyName"] = "p"
	s, err := parseDocs(t,
		obj{"apiVersion": apiVersion, "kind": "RetryPolicy", "metadata": obj{"name": "p"}, "spec": spec},
		obj{"kind": "RetrySettings", "spec": settings})
	if err != nil {
		t.Fatal(err)
	}
	return s.Evaluate(f, c)
}

// wantCode fails unless the verdict has the code.
func wantCode(t *testing.T, v policy.Verdict, want policy.Code) {
	t.Helper()
	if v.Code != want {
		t.Errorf("code %s (%+v), want %s", v.Code, v, want)
	}
}

// wantProblem fails unless err has a problem with the code; "" wants no error.
func wantProblem(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	var problems Problems
	errors.As(err, &problems)
	if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Code == want }) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// armadaError is an error as Armada's rows write it.
type armadaError struct {
	KubernetesReason, FailureCategory, FailureSubcategory string
	Containers                                            []struct {
		ExitCode int32
		Message  string
	}
	ExitCode         int32
	PodLeaseReturned string
	LeaseExpired     bool
}

func (e *armadaError) failure() *policy.Failure {
	f := &policy.Failure{Queue: "q", Category: e.FailureCategory, Subcategory: e.FailureSubcategory}
	for _, c := range e.Containers {
		f.Containers = append(f.Containers, policy.Container{Name: "main", ExitCode: c.ExitCode, Message: c.Message})
	}
	if e.ExitCode != 0 {
		f.Containers = append(f.Containers, policy.Container{Name: "main", ExitCode: e.ExitCode})
	}
	if e.PodLeaseReturned != "" {
		f.Conditions = f.Conditions.With(policy.LeaseReturned)
	}
	if e.LeaseExpired {
		f.Conditions = f.Conditions.With(policy.LeaseExpired)
	}
	return f
}

// flat makes Armada's flat file of a policy in Armada's JSON.
func flat(policy obj) obj {
	doc := obj{"apiVersion": apiVersionFlat, "kind": "RetryPolicy"}
	maps.Copy(doc, policy)
	return doc
}

func TestOracleArmadaEngine(t *testing.T) {
	leftOut := map[string]string{
		"TestEngine_Evaluate#10": "no error at all: for us a failure is a run that ended, and always has its facts",
	}
	oracle(t, "armada_engine.json", leftOut, func(t *testing.T, r *row) {
		p := into[struct {
			GlobalMaxRetries int
			RetryPolicy      obj
		}](t, r.Policy)
		observed := into[struct{ Error armadaError }](t, r.Observed)
		prior := into[struct{ FailuresIncludingThisOne uint32 }](t, r.Prior)
		expected := into[struct {
			Decision, Reason string
			ShouldRetry      bool
		}](t, r.Expected)
		s, err := parseDocs(t, flat(p.RetryPolicy), obj{"kind": "RetrySettings", "spec": obj{"globalMaxRetries": p.GlobalMaxRetries, "defaultPolicyName": "test"}})
		if err != nil {
			t.Fatal(err)
		}
		// Armada has one count for the job; all of it was granted by what decides here.
		n := prior.FailuresIncludingThisOne - 1
		v := s.Evaluate(observed.Error.failure(), &policy.Counts{Granted: n, Rules: []policy.RuleCount{{Key: policy.RuleKey{Policy: "test", Rule: "default"}, Granted: n}}})
		want := map[string]policy.Code{
			"fail_rule": policy.RuleFail, "fail_default": policy.DefaultFail, "fail_policy_limit": policy.PolicyLimit,
			"fail_global_limit": policy.KillSwitch, // the only such row has a global limit of 0
			"retry":             policy.RuleRetry,
		}[expected.Decision]
		if expected.Decision == "retry" && strings.Contains(expected.Reason, "default") {
			want = policy.DefaultRetry
		}
		wantCode(t, v, want)
		if v.Requeue != expected.ShouldRetry {
			t.Errorf("requeue %v, want %v", v.Requeue, expected.ShouldRetry)
		}
	})
}

func TestOracleArmadaMatchers(t *testing.T) {
	oracle(t, "armada_matchers.json", nil, func(t *testing.T, r *row) {
		p := into[struct{ Matcher obj }](t, r.Policy)
		observed := into[struct{ ExitCode int32 }](t, r.Observed)
		expected := into[struct{ Match bool }](t, r.Expected)
		v := decide(t, obj{"rules": []any{obj{"action": "Fail", "onExitCodes": p.Matcher}}}, nil,
			&policy.Failure{Containers: []policy.Container{{Name: "main", ExitCode: observed.ExitCode}}}, nil)
		if got := v.Code == policy.RuleFail; got != expected.Match {
			t.Errorf("matches %v, want %v", got, expected.Match)
		}
	})
}

func TestOracleArmadaPolicyValidation(t *testing.T) {
	leftOut := map[string]string{
		"TestConvertPolicy#02":         "the policy is a Go expression, about the memory that mutate gives",
		"server.TestValidatePolicy#06": "no policy at all: a file without a document is not an error for us",
	}
	// What we say where Armada says an error; "" is valid.
	want := map[string]string{
		"TestValidatePolicy#05":        codeEmpty,
		"TestConvertPolicy#03":         codeUnknownValue,
		"TestConvertPolicy#04":         codeUnknownValue,
		"server.TestValidatePolicy#01": codeUnsupported,
		"server.TestValidatePolicy#04": codeUnsupported,
		"server.TestValidatePolicy#07": codeRequired,
		"server.TestValidatePolicy#08": codeBadName,
		"server.TestValidatePolicy#09": codeBadName,
		"server.TestValidatePolicy#10": codeBadName,
		"server.TestValidatePolicy#14": codeRequired,
	}
	// Valid for Armada, not for us: mutate is refused by name (SEMANTICS 13 has no such field).
	differs := map[string]string{
		"TestConvertPolicy#01":         codeUnsupported,
		"server.TestValidatePolicy#05": codeUnsupported,
	}
	oracle(t, "armada_policy_validation.json", leftOut, func(t *testing.T, r *row) {
		s, err := parseDocs(t, flat(into[obj](t, r.Policy)))
		expected := into[struct {
			Error, ExpectError *string
			Expected           obj
		}](t, r.Expected)
		if refused := expected.Error != nil || expected.ExpectError != nil; refused != (want[r.ID] != "") {
			t.Fatalf("the row says refused %v, the table %q", refused, want[r.ID])
		}
		if code := differs[r.ID]; code != "" {
			wantProblem(t, err, code)
			return
		}
		wantProblem(t, err, want[r.ID])
		if expected.Expected != nil {
			same, err := parseDocs(t, flat(expected.Expected))
			if err != nil || same.Digest() != s.Digest() {
				t.Errorf("converted to %s, want %s (%v)", s.Canonical(), same.Canonical(), err)
			}
		}
	})
}

func TestOracleArmadaScheduler(t *testing.T) {
	codes := map[string]policy.Code{
		"armada-scheduler#01": policy.NoPolicy,
		"armada-scheduler#03": policy.LegacyReturn, // Armada's own rule, as for Armada
		"armada-scheduler#06": policy.RuleRetry,
		"armada-scheduler#07": policy.RuleFail,
		"armada-scheduler#11": policy.RuleRetry,
		"armada-scheduler#20": policy.NoPolicy,
		"armada-scheduler#21": policy.NoPolicy,
		"armada-scheduler#24": policy.GangFail,
		"armada-scheduler#25": policy.NoPolicy,

		// For Armada a preemption uses no budget. For us every granted retry does
		// (SEMANTICS 5), so three of them are over a cap of two; a rule that is to
		// cost nothing says Ignore.
		"armada-scheduler#09": policy.GlobalLimit,
	}
	// mutate is refused by name.
	refused := map[string]bool{"armada-scheduler#13": true, "armada-scheduler#15": true, "armada-scheduler#18": true}
	oracle(t, "armada_scheduler_scenarios.json", nil, func(t *testing.T, r *row) {
		p := into[struct {
			Enabled          bool
			GlobalMaxRetries *int
			GangCardinality  string
			Policies         []obj
		}](t, r.Policy)
		settings := obj{"enabled": p.Enabled}
		if p.GlobalMaxRetries != nil {
			settings["globalMaxRetries"] = *p.GlobalMaxRetries
		}
		docs := []obj{{"kind": "RetrySettings", "spec": settings}}
		for _, policy := range p.Policies {
			docs = append(docs, flat(policy))
			settings["defaultPolicyName"] = policy["name"]
		}
		s, err := parseDocs(t, docs...)
		if refused[r.ID] {
			wantProblem(t, err, codeUnsupported)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		prior := into[struct {
			PreemptedRuns    uint32
			PreemptRequested bool
		}](t, r.Prior)
		observed := into[struct{ Error armadaError }](t, r.Observed)
		f := observed.Error.failure()
		f.Gang = p.GangCardinality != ""
		if prior.PreemptRequested {
			f.Conditions = f.Conditions.With(policy.Preempted)
		}
		v := s.Evaluate(f, &policy.Counts{Granted: prior.PreemptedRuns})
		wantCode(t, v, codes[r.ID])
		expected := into[struct{ Requeued *bool }](t, r.Expected)
		if expected.Requeued != nil && *expected.Requeued != v.Requeue && r.ID != "armada-scheduler#09" {
			t.Errorf("requeue %v, want %v", v.Requeue, *expected.Requeued)
		}
	})
}

// classifier is the executor's categories, read as our rules: the name of the
// rule that matches is the category.
type classifier struct {
	Categories []struct {
		Name, Action string
		Rules        []obj
	}
	DefaultCategory string
}

func (c *classifier) spec() (spec obj, categories []string) {
	rules := []any{}
	for _, category := range c.Categories {
		for _, r := range category.Rules {
			rule := obj{"action": "Fail"}
			if category.Action != "" {
				rule["action"] = category.Action
			}
			for k, v := range r {
				if k != "subcategory" {
					rule[k] = v
				}
			}
			rules = append(rules, rule)
			categories = append(categories, category.Name)
		}
	}
	return obj{"rules": rules}, categories
}

func TestOracleArmadaClassify(t *testing.T) {
	leftOut := map[string]string{
		"TestClassify#01": "pod events are no fact of ours",
		"TestClassify#02": "pod events are no fact of ours",
		"TestClassify#03": "pod events are no fact of ours",
		"TestClassify#24": "the kubelet's error is no fact of ours",
		"TestClassify#26": "the kubelet's error is no fact of ours",
	}
	// A message counts whatever the exit code (SEMANTICS 4: each of those left).
	differs := map[string]string{"TestClassify#19": "msg_match"}
	oracle(t, "armada_classify.json", leftOut, func(t *testing.T, r *row) {
		p := into[struct{ ErrorCategories classifier }](t, r.Policy)
		observed := into[struct {
			Pod struct {
				Containers []struct {
					Name, State, Reason, Message string
					ExitCode                     int32
				}
				PodStatusReason string `json:"podStatus_reason"`
			}
		}](t, r.Observed)
		f := &policy.Failure{}
		for _, c := range observed.Pod.Containers {
			if c.State == "terminated" {
				f.Containers = append(f.Containers, policy.Container{Name: c.Name, ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message})
			}
		}
		if c, ok := policy.ParseCondition(observed.Pod.PodStatusReason); ok {
			f.Conditions = f.Conditions.With(c)
		}
		spec, categories := p.ErrorCategories.spec()
		v := decide(t, spec, nil, f, nil)
		got := p.ErrorCategories.DefaultCategory
		if v.Code == policy.RuleFail {
			var n int
			if _, err := fmt.Sscanf(v.Rule, "#%d", &n); err != nil {
				t.Fatal(err)
			}
			got = categories[n]
		}
		want := into[struct{ Category string }](t, r.Expected).Category
		if differs[r.ID] != "" {
			want = differs[r.ID]
		}
		if got != want {
			t.Errorf("category %q, want %q", got, want)
		}
	})
}

func TestOracleArmadaClassifierValidation(t *testing.T) {
	leftOut := map[string]string{
		"TestNewClassifier_ValidationErrors#07": "pod events are no fact of ours",
		"TestNewClassifier_ValidationErrors#17": "built by a Go expression; our files have no defaultSubcategory",
	}
	want := map[string]string{
		"TestNewClassifier_ValidationErrors#01": codeNoMatcher,
		"TestNewClassifier_ValidationErrors#02": "", // differs: for us a rule may have several matchers, all must hold
		"TestNewClassifier_ValidationErrors#03": codeUnknownValue,
		"TestNewClassifier_ValidationErrors#04": codeUnknownValue,
		"TestNewClassifier_ValidationErrors#09": codeEmpty,
	}
	oracle(t, "armada_classifier_validation.json", leftOut, func(t *testing.T, r *row) {
		c := into[classifier](t, r.Policy)
		spec, _ := c.spec()
		_, err := parseDocs(t, obj{"apiVersion": apiVersion, "kind": "RetryPolicy", "metadata": obj{"name": "p"}, "spec": spec})
		code, known := want[r.ID]
		if !known {
			t.Fatal("the row is neither in the table nor left out")
		}
		wantProblem(t, err, code)
	})
}
