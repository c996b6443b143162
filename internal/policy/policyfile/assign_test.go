package policyfile_test

import (
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

func TestAssign(t *testing.T) {
	t.Parallel()
	const text = `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: a-b}
spec:
  rules:
  - {name: oom, action: Retry, onConditions: [OOMKilled], retryLimit: LIMIT}
  - {action: Fail, onConditions: [Evicted]}
---
{kind: Queue, name: q, mode: MODE}
---
{kind: RetrySettings, spec: {globalMaxRetries: GLOBAL}}
`
	set := func(limit, mode, global string) *policyfile.Set {
		s, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(strings.NewReplacer("LIMIT", limit, "MODE", mode, "GLOBAL", global).Replace(text))}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	from := set("5", "Enforce", "9")
	for _, c := range []struct {
		assign string
		want   *policyfile.Set
	}{
		{"policies.a-b.rules[oom].retryLimit=2", set("2", "Enforce", "9")},
		{"policies.a-b.rules[0].retryLimit=2", set("2", "Enforce", "9")},
		{"policies.a-b.rules[#0].retryLimit=2", set("2", "Enforce", "9")},
		{"queues.q.mode=Shadow", set("5", "Shadow", "9")},
		{"settings.globalMaxRetries=3", set("5", "Enforce", "3")},
	} {
		got, err := from.Assign(c.assign)
		if err != nil || got.Digest() != c.want.Digest() {
			t.Errorf("%s: %v", c.assign, err)
		}
	}
	one, err := from.Assign(`policies.a-b.rules[+]={"name":"new","action":"Retry","onConditions":["Preempted"],"retryLimit":2}`)
	if err != nil || one.Field("policies.a-b.rules[2].name") != `"new"` || from.Field("policies.a-b.rules[2].name") != "" {
		t.Errorf("one more rule: %v", err)
	}
	if got, err := from.Assign("policies.a-b.rules[1].backoff.initialDelay=10s"); err != nil || got.Digest() == from.Digest() {
		t.Errorf("a field that was not there: %v", err)
	}
	for _, bad := range []string{
		"", "policies.a-b.rules[oom].retryLimit", "policies.x.rules[oom].retryLimit=2", "policies.a-b.rules[none].retryLimit=2", "policies.a-b=2",
		"settings.none=1", "queues.q.mode=Sometimes", "policies.a-b.rules[7].retryLimit=2", "rules[oom].retryLimit=2", "policies.a-b.rules[oom].retryLimit.x=2", "queues.q.=1",
		"policies.a-b.rules[+].retryLimit=2", "policies.a-b.rules[+]=2",
	} {
		if _, err := from.Assign(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	const bad = "policies.a-b.rules[oom].retryLimit=-2"
	_, err = from.Assign(bad)
	if want := bad + ": RP032 spec.rules[0].retryLimit: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the error is %q, want %q without a position, and so on", err, want)
	}
	for path, want := range map[string]string{
		"policies.a-b.rules[oom].action": "a-b/oom", "policies.a-b.rules[0].action": "a-b/oom", "policies.a-b.rules[1].action": "a-b/#1", "policies.a-b.rules[#1].action": "a-b/#1",
		"policies.a-b.rules[2].action": "/", "policies.a-b.retryLimit": "/", "settings.globalMaxRetries": "/",
	} {
		if policy, rule := from.RuleOf(path); policy+"/"+rule != want {
			t.Errorf("%s is a field of rule %s/%s, want %s", path, policy, rule, want)
		}
	}
	for path, want := range map[string]string{
		"policies.a-b.rules[oom].retryLimit": "5", "policies.a-b.rules[0].name": `"oom"`, "policies.a-b.rules[1].retryLimit": "", "policies.a-b.rules[2].name": "",
		"queues.q.mode": `"Enforce"`, "settings.globalMaxRetries": "9", "settings.globalMaxRetries.x": "", "policies.none.rules": "", "": "",
	} {
		if got := from.Field(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

// TestAssignSuggests: what does not exist is named with what does, also in another policy.
func TestAssignSuggests(t *testing.T) {
	t.Parallel()
	s, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(`
{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: infra}, spec: {rules: [{name: lost, action: Retry, onConditions: [Evicted]}, {name: gpu, action: Fail, onConditions: [OOMKilled]}]}}
---
{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: training}, spec: {rules: [{name: oom, action: Retry, onConditions: [OOMKilled]}]}}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	for assign, want := range map[string]string{
		"policies.infra.rules[oom].retryLimit=2":     `policies.infra.rules[oom].retryLimit: rules: there is no "oom": want lost, gpu; policies.training.rules[oom] exists`,
		"policies.infra.rules[lots].retryLimit=2":    `policies.infra.rules[lots].retryLimit: rules: there is no "lots": did you mean lost?`,
		"policies.trainin.rules[oom].retryLimit=2":   `policies.trainin.rules[oom].retryLimit: there is no RetryPolicy "trainin", or no field behind its name: did you mean training?`,
		"queues.ml.mode=Shadow":                      `queues.ml.mode: there is no Queue "ml", or no field behind its name`,
		"policies.training.rules[9].retryLimit=2":    `policies.training.rules[9].retryLimit: rules: there is no "9": want oom`,
		"policies.training.rules[0].name.x=1":        `policies.training.rules[0].name.x: x: there is no such field`,
		"policies.training.rules[oom][0].retryLimit": `"policies.training.rules[oom][0].retryLimit": want FIELD=VALUE, such as policies.infra.rules[lost].retryLimit=2`,
	} {
		if _, err := s.Assign(assign); err == nil || err.Error() != want {
			t.Errorf("%s:\n%v, want\n%s", assign, err, want)
		}
	}
}
