package model

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// File is one file of a policy set.
type File struct {
	Name string
	Data []byte
}

// YAML renders a policy set as files in the format of §13: one file, or one for
// each document.
func (p Policies) YAML(split bool) []File {
	var docs []File
	for i, policy := range p.Policies {
		name := fmt.Sprintf("policy-%d-%s.yaml", i, policy.Name)
		if policy.Flat {
			docs = append(docs, File{name, []byte(policy.flatYAML())})
		} else {
			docs = append(docs, File{name, []byte(policy.yaml())})
		}
	}
	for i, g := range p.Groups {
		docs = append(docs, File{fmt.Sprintf("group-%d-%s.yaml", i, g.Name), []byte(g.yaml())})
	}
	for i, q := range p.Queues {
		docs = append(docs, File{fmt.Sprintf("queue-%d-%s.yaml", i, q.Name), []byte(q.yaml())})
	}
	for i, b := range p.Budgets {
		docs = append(docs, File{fmt.Sprintf("budget-%d-%s.yaml", i, b.Name), []byte(b.yaml())})
	}
	if p.Settings != nil {
		docs = append(docs, File{"settings.yaml", []byte(p.Settings.yaml())})
	}
	if split || len(docs) == 0 {
		return docs
	}
	var all []string
	for _, doc := range docs {
		all = append(all, string(doc.Data))
	}
	return []File{{"policies.yaml", []byte(strings.Join(all, "---\n"))}}
}

// flow collects the members of a mapping in flow style.
type flow []string

func (f *flow) add(key, value string) { *f = append(*f, key+": "+value) }

func (f flow) String() string { return "{" + strings.Join(f, ", ") + "}" }

func addText(f *flow, key, value string) {
	if value != "" {
		f.add(key, quote(value))
	}
}

func addInt[T int | int64](f *flow, key string, value *T) {
	if value != nil {
		f.add(key, fmt.Sprint(*value))
	}
}

func addBool(f *flow, key string, value *bool) {
	if value != nil {
		f.add(key, fmt.Sprint(*value))
	}
}

func addDuration(f *flow, key string, ms *int64) {
	if ms != nil {
		f.add(key, duration(*ms))
	}
}

func addTime(f *flow, key string, t int64) {
	if t != 0 {
		f.add(key, time.Unix(0, t).UTC().Format(time.RFC3339Nano))
	}
}

func addList(f *flow, key string, list []string) {
	if len(list) == 0 {
		return
	}
	var quoted []string
	for _, s := range list {
		quoted = append(quoted, quote(s))
	}
	f.add(key, "["+strings.Join(quoted, ", ")+"]")
}

func addMode(f *flow, key, mode string) {
	if mode != "" {
		f.add(key, flow{"mode: " + mode}.String())
	}
}

// quote writes plain words as they are and anything else as JSON, which is YAML.
func quote(s string) string {
	plain := s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") == "" && s[0] != '-'
	if plain {
		return s
	}
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// duration writes milliseconds with a unit, in several ways.
func duration(ms int64) string {
	switch {
	case ms%3 == 0 && ms < 1_000_000_000_000:
		return (time.Duration(ms) * time.Millisecond).String()
	case ms%1000 == 0:
		return fmt.Sprintf("%ds", ms/1000)
	default:
		return fmt.Sprintf("%dms", ms)
	}
}

func milli(n int64) string { return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) }

func addBackoff(f *flow, key string, b Backoff) {
	var members flow
	addDuration(&members, "initialDelay", b.InitialDelayMs)
	addDuration(&members, "maxDelay", b.MaxDelayMs)
	if b.Constant {
		members.add("type", "Constant")
	}
	if b.MultiplierMilli != nil {
		members.add("multiplier", milli(*b.MultiplierMilli))
	}
	if b.JitterMilli != nil {
		members.add("jitter", milli(*b.JitterMilli))
	}
	if len(members) > 0 {
		f.add(key, members.String())
	}
}

func (p Policy) yaml() string {
	var spec flow
	addInt(&spec, "retryLimit", p.RetryLimit)
	addText(&spec, "defaultAction", p.DefaultAction)
	addBackoff(&spec, "backoff", p.Backoff)
	addMode(&spec, "antiAffinity", p.AntiAffinity)
	addText(&spec, "replacement", p.Replacement)
	addBool(&spec, "selectableByJobs", p.SelectableByJobs)
	addInt(&spec, "maxRetries", p.MaxRetries)
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: %s}\nspec:\n", p.Name)
	for _, member := range spec {
		fmt.Fprintf(&b, "  %s\n", member)
	}
	if len(p.Rules) == 0 {
		b.WriteString("  rules: []\n")
		return b.String()
	}
	b.WriteString("  rules:\n")
	for _, r := range p.Rules {
		fmt.Fprintf(&b, "  - %s\n", r.yaml())
	}
	return b.String()
}

func (r Rule) yaml() string {
	var f flow
	addText(&f, "name", r.Name)
	f.add("action", r.Action)
	addText(&f, "unitReason", r.UnitReason)
	addList(&f, "onConditions", r.OnConditions)
	if r.OnExitCodes != nil {
		var values []string
		for _, v := range r.OnExitCodes.Values {
			values = append(values, fmt.Sprint(v))
		}
		f.add("onExitCodes", flow{"operator: " + r.OnExitCodes.Operator, "values: [" + strings.Join(values, ", ") + "]"}.String())
	}
	if r.OnTerminationMessage != "" {
		f.add("onTerminationMessage", flow{"pattern: " + quote(r.OnTerminationMessage)}.String())
	}
	addList(&f, "onFailureCategory", r.OnFailureCategory)
	addList(&f, "onFailureSubcategory", r.OnFailureSubcategory)
	if d := r.OnRunDuration; d != nil {
		var bounds flow
		addDuration(&bounds, "atLeast", d.AtLeastMs)
		addDuration(&bounds, "lessThan", d.LessThanMs)
		f.add("onRunDuration", bounds.String())
	}
	addText(&f, "containerName", r.ContainerName)
	// §5: "false same as absent".
	if r.IncludeInitContainers || len(r.OnConditions) == 2 {
		f.add("includeInitContainers", fmt.Sprint(r.IncludeInitContainers))
	}
	addInt(&f, "retryLimit", r.RetryLimit)
	addBackoff(&f, "backoff", r.Backoff)
	addMode(&f, "antiAffinity", r.AntiAffinity)
	addText(&f, "replacement", r.Replacement)
	return f.String()
}

// flatYAML is Armada's own form.
func (p Policy) flatYAML() string {
	var top flow
	top.add("apiVersion", "armadaproject.io/v1beta1")
	top.add("kind", "RetryPolicy")
	addText(&top, "name", p.Name)
	addInt(&top, "retryLimit", p.RetryLimit)
	addText(&top, "defaultAction", p.DefaultAction)
	var b strings.Builder
	b.WriteString(strings.Join(top, "\n") + "\n")
	if len(p.Rules) > 0 {
		b.WriteString("rules:\n")
	}
	for _, r := range p.Rules {
		var f flow
		f.add("action", r.Action)
		addText(&f, "onCategory", r.OnFailureCategory[0])
		if len(r.OnFailureSubcategory) > 0 {
			addText(&f, "onSubcategory", r.OnFailureSubcategory[0])
		}
		b.WriteString("- " + f.String() + "\n")
	}
	return b.String()
}

func (q Queue) yaml() string {
	var f flow
	f.add("kind", "Queue")
	addText(&f, "name", q.Name)
	addList(&f, "retryPolicies", q.RetryPolicies)
	addText(&f, "mode", q.Mode)
	if q.Killed {
		f.add("killed", "true")
	}
	addTime(&f, "pausedUntil", q.PausedUntil)
	return strings.Join(f, "\n") + "\n"
}

func (s Settings) yaml() string {
	var f flow
	addBool(&f, "enabled", s.Enabled)
	addInt(&f, "globalMaxRetries", s.GlobalMaxRetries)
	addInt(&f, "policyMaxRetries", s.PolicyMaxRetries)
	addText(&f, "defaultPolicyName", s.DefaultPolicyName)
	addBackoff(&f, "defaultBackoff", s.DefaultBackoff)
	addInt(&f, "legacyMaxAttempts", s.LegacyMaxAttempts)
	addDuration(&f, "terminationSlack", s.TerminationSlackMs)
	addDuration(&f, "horizon", s.HorizonMs)
	addText(&f, "mode", s.Mode)
	addTime(&f, "pausedUntil", s.PausedUntil)
	addBool(&f, "jobsMaySelect", s.JobsMaySelect)
	if len(s.AvoidNodes) > 0 {
		var nodes []string
		for _, n := range s.AvoidNodes {
			one := flow{"name: " + quote(n.Name)}
			addTime(&one, "until", n.Until)
			nodes = append(nodes, one.String())
		}
		f.add("avoidNodes", "["+strings.Join(nodes, ", ")+"]")
	}
	if len(s.OpenBreakers) > 0 {
		var breakers []string
		for _, b := range s.OpenBreakers {
			breakers = append(breakers, b.yaml())
		}
		f.add("openBreakers", "["+strings.Join(breakers, ", ")+"]")
	}
	return "kind: RetrySettings\nspec: " + f.String() + "\n"
}
