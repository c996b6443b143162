package suite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"

	"github.com/refloat/refloat/internal/policy"
)

// Mutant is a policy set with one defect.
type Mutant struct {
	Kind   string // policyfile.KindPolicy, KindGroup, KindBudget or KindSettings
	Policy string // "": the settings
	Rule   string // name or "#index"; "": the policy itself
	Field  string // of a group policy, where that says more
	What   string // the defect
	Set    *policyfile.Set
}

// Mutants returns the mutants of a set: each rule dropped, swapped with the next one if both can match the same
// failure, or inverted; each matcher loosened and tightened; each limit raised by one, each delay doubled, each
// anti-affinity changed; of each retry budget too. It leaves out mutants that the parser rejects or that behave the same.
func Mutants(set *policyfile.Set) ([]Mutant, error) {
	m := &mutator{set: set}
	c, err := m.fresh()
	if err != nil {
		return nil, err
	}
	m.kind = policyfile.KindPolicy
	for pi := range c.list("policies") {
		name, _ := c.policy(pi)["name"].(string)
		m.policy(name, pi)
	}
	m.kind = policyfile.KindGroup
	for gi := range c.list("groupPolicies") {
		name, _ := c.list("groupPolicies")[gi].(map[string]any)["name"].(string)
		m.groupPolicy(set.GroupPolicy(name), gi)
	}
	m.kind, m.field = policyfile.KindBudget, ""
	for _, b := range set.Budgets() {
		m.budget(&b)
	}
	m.kind = policyfile.KindSettings
	for _, field := range []string{"globalMaxRetries", "policyMaxRetries"} {
		m.try("", "", field+" is one more", func(c content) { c.mapping("settings").more(field) })
	}
	return m.all, m.err
}

// content is the canonical encoding as JSON, or an object in it.
type content map[string]any

func (o content) mapping(field string) content {
	v, _ := o[field].(map[string]any)
	return v
}

func (o content) list(field string) []any {
	v, _ := o[field].([]any)
	return v
}

func (o content) policy(i int) content { return o.list("policies")[i].(map[string]any) }

func (o content) rule(p, i int) content {
	return o.policy(p).mapping("spec").list("rules")[i].(map[string]any)
}

// more adds one to a number, if present.
func (o content) more(field string) {
	if n, ok := o[field].(json.Number); ok {
		whole, decimals, ok := strings.Cut(n.String(), ".")
		v, _ := strconv.ParseInt(whole, 10, 64)
		if whole = strconv.FormatInt(v+1, 10); ok {
			whole += "." + decimals
		}
		o[field] = json.Number(whole)
	}
}

// double doubles a duration, if present.
func (o content) double(field string) {
	if s, ok := o[field].(string); ok {
		d, _ := time.ParseDuration(s)
		o[field] = (2 * d).String()
	}
}

// other replaces a word, if present, by the next one.
func (o content) other(field string, words ...string) {
	if s, ok := o[field].(string); ok {
		if i := slices.Index(words, s); i >= 0 {
			o[field] = words[(i+1)%len(words)]
		}
	}
}

type mutator struct {
	set *policyfile.Set
	all []Mutant
	err error

	kind, field string // of the next ones
}

// fresh returns a copy of the set's content.
func (m *mutator) fresh() (content, error) {
	d := json.NewDecoder(bytes.NewReader(m.set.Canonical()))
	d.UseNumber()
	var c content
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("read canonical policies: %w", err)
	}
	return c, nil
}

// try keeps the mutant, if it is one.
func (m *mutator) try(policyName, rule, what string, change func(c content)) {
	c, err := m.fresh()
	if err != nil {
		m.err = errors.Join(m.err, err)
		return
	}
	change(c)
	files, err := filesOf(c)
	if err != nil {
		m.err = errors.Join(m.err, err)
		return
	}
	set, err := policyfile.Parse(files)
	if err != nil || rule+policyName != "" && m.kind != policyfile.KindBudget && equivalent(m.set, set) {
		return
	}
	if set.Digest() == m.set.Digest() {
		return
	}
	if m.kind == policyfile.KindGroup && slices.ContainsFunc(m.all, func(o Mutant) bool { return o.Set.Digest() == set.Digest() }) {
		return // the last of a list lacks it, and the list is dropped
	}
	m.all = append(m.all, Mutant{Kind: m.kind, Policy: policyName, Rule: rule, Field: m.field, What: what, Set: set})
}

// Files returns files with the content of the set: JSON, one document each.
func Files(set *policyfile.Set) ([]policyfile.File, error) {
	c, err := (&mutator{set: set}).fresh()
	if err != nil {
		return nil, err
	}
	return filesOf(c)
}

func filesOf(c content) ([]policyfile.File, error) {
	var files []policyfile.File
	add := func(doc map[string]any) error {
		b, err := json.Marshal(doc)
		files = append(files, policyfile.File{Name: fmt.Sprintf("document%d.json", len(files)), Data: b})
		return err
	}
	var errs []error
	for i := range c.list("policies") {
		p := c.policy(i)
		spec := p.mapping("spec")
		if spec == nil {
			spec = content{}
		}
		errs = append(errs, add(map[string]any{"apiVersion": "armadaproject.io/v1", "kind": "RetryPolicy", "metadata": map[string]any{"name": p["name"]}, "spec": spec}))
	}
	for _, g := range c.list("groupPolicies") {
		g := content(g.(map[string]any))
		spec := g.mapping("spec")
		if spec == nil {
			spec = content{}
		}
		errs = append(errs, add(map[string]any{"apiVersion": "refloat.github.io/v1", "kind": policyfile.KindGroup, "metadata": map[string]any{"name": g["name"]}, "spec": spec}))
	}
	for _, b := range c.list("retryBudgets") {
		b := content(b.(map[string]any))
		errs = append(errs, add(map[string]any{"apiVersion": "refloat.github.io/v1", "kind": policyfile.KindBudget, "metadata": map[string]any{"name": b["name"]}, "spec": b.mapping("spec")}))
	}
	for _, q := range c.list("queues") {
		doc := map[string]any{"kind": "Queue"}
		maps.Copy(doc, q.(map[string]any))
		errs = append(errs, add(doc))
	}
	if s := c.mapping("settings"); s != nil {
		errs = append(errs, add(map[string]any{"kind": "RetrySettings", "spec": s}))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return files, nil
}

func (m *mutator) policy(name string, pi int) {
	var outline policy.Outline
	for _, o := range m.set.Outlines() {
		if o.Name == name {
			outline = o
		}
	}
	m.grants(name, "", func(c content) content { return c.policy(pi).mapping("spec") })
	m.try(name, "", "maxRetries is one more", func(c content) { c.policy(pi).mapping("spec").more("maxRetries") })
	m.try(name, "", "defaultAction is the opposite", func(c content) {
		spec := c.policy(pi).mapping("spec")
		switch spec["defaultAction"] {
		case "Retry":
			spec["defaultAction"] = "Fail"
		case "Fail", "FailUnit":
			spec["defaultAction"] = "Retry"
		}
	})
	for i := range outline.Rules {
		m.rule(name, pi, i, outline.Rules)
	}
}

func (m *mutator) rule(name string, pi, i int, rules []policy.Rule) {
	shown := rules[i].Shown
	at := func(c content) content { return c.rule(pi, i) }
	m.try(name, shown, "is dropped", func(c content) {
		spec := c.policy(pi).mapping("spec")
		spec["rules"] = slices.Delete(spec.list("rules"), i, i+1)
	})
	if i+1 < len(rules) && !rules[i].Disjoint(&rules[i+1].Matchers) {
		m.try(name, shown, "is swapped with "+rules[i+1].Shown, func(c content) {
			list := c.policy(pi).mapping("spec").list("rules")
			list[i], list[i+1] = list[i+1], list[i]
		})
	}
	for _, action := range []string{"Retry", "Fail"} {
		if action != rules[i].Action {
			m.try(name, shown, "has action "+action, func(c content) { at(c)["action"] = action })
		}
	}
	m.try(name, shown, "unitReason is another", func(c content) {
		at(c).other("unitReason", "PodFailurePolicy", "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded")
	})
	m.grants(name, shown, at)
	m.matchers(name, shown, at)
}

// grants mutates how retries are granted, where the rule or policy sets it.
func (m *mutator) grants(name, rule string, at func(content) content) {
	m.try(name, rule, "retryLimit is one more", func(c content) { at(c).more("retryLimit") })
	m.try(name, rule, "initialDelay is doubled", func(c content) { at(c).mapping("backoff").double("initialDelay") })
	m.try(name, rule, "maxDelay is doubled", func(c content) { at(c).mapping("backoff").double("maxDelay") })
	m.try(name, rule, "multiplier is one more", func(c content) { at(c).mapping("backoff").more("multiplier") })
	m.try(name, rule, "antiAffinity is changed", func(c content) { at(c).mapping("antiAffinity").other("mode", "none", "node", "allNodes") })
	m.try(name, rule, "replacement is inverted", func(c content) { at(c).other("replacement", "WhenFailed", "WhenTerminated") })
}

// matchers loosens each matcher (drops it if others are left), changes its words and durations, and tightens each list by
// one item.
func (m *mutator) matchers(name, rule string, at func(content) content) {
	fields := policyfile.MatcherFields()
	// change mutates the field in the mapping that has it.
	change := func(f *policyfile.MatcherField, what string, in func(holder content, field string)) {
		m.try(name, rule, what, func(c content) { in(holderOf(at(c), f), last(f)) })
	}
	for _, f := range fields {
		if !f.Required {
			change(&f, f.String()+" is dropped", func(c content, field string) { delete(c, field) })
		}
	}
	for _, f := range fields {
		switch {
		case f.Words != nil:
			change(&f, last(&f)+" of "+f.Path[0]+" is inverted", func(c content, field string) { c.other(field, f.Words...) })
		case f.Duration:
			change(&f, f.String()+" is doubled", content.double)
		}
	}
	now, err := m.fresh()
	if err != nil {
		return // try reports the error
	}
	for _, f := range fields {
		for i, item := range holderOf(at(now), &f).list(last(&f)) {
			change(&f, fmt.Sprintf("%s lacks %v", f, item), func(c content, field string) {
				c[field] = slices.Delete(c.list(field), i, i+1)
			})
		}
	}
}

// holderOf returns the mapping of a rule that has the field.
func holderOf(rule content, f *policyfile.MatcherField) content {
	for _, above := range f.Path[:len(f.Path)-1] {
		rule = rule.mapping(above)
	}
	return rule
}

func last(f *policyfile.MatcherField) string { return f.Path[len(f.Path)-1] }

// equivalent reports whether the policies of both sets behave alike, so that no test could tell them apart: a
// maxDelay that no delay reaches, a limit that every rule overrides.
func equivalent(a, b *policyfile.Set) bool {
	groups := groupPoliciesOf(a)
	same := func(x, y policy.Rule) bool { return actsAlike(&x, &y, len(groups) > 0) }
	return slices.EqualFunc(a.Outlines(), b.Outlines(), func(x, y policy.Outline) bool {
		return same(x.Default, y.Default) && slices.EqualFunc(x.Rules, y.Rules, same)
	}) && slices.EqualFunc(groups, groupPoliciesOf(b), func(x, y *policy.GroupPolicy) bool {
		return behaviourOf(a, x).equal(behaviourOf(b, y))
	})
}

// manyRetries is the maximum number of delays of a rule that are compared.
const manyRetries = 100

// actionOf is what an action does: without group policies, all jobs of tests are in no group.
func actionOf(r *policy.Rule, groups bool) string {
	if r.Action == "FailUnit" && !groups {
		return "Fail"
	}
	return r.Action
}

func actsAlike(a, b *policy.Rule, groups bool) bool {
	if a.Key != b.Key || actionOf(a, groups) != actionOf(b, groups) || !reflect.DeepEqual(a.Matchers, b.Matchers) {
		return false
	}
	retries := uint64(manyRetries)
	switch a.Action {
	case "Retry":
		if a.Limit != b.Limit || a.LimitFrom != b.LimitFrom {
			return false
		}
		retries = min(retries, uint64(a.Limit), uint64(a.MaxRetries), uint64(b.MaxRetries))
	case "Ignore":
	default:
		return a.UnitReason == b.UnitReason || !groups // nothing is granted
	}
	for n := uint64(1); n <= retries; n++ {
		if a.Delay(n) != b.Delay(n) {
			return false
		}
	}
	return retries == 0 || a.Avoid == b.Avoid && a.WhenTerminated == b.WhenTerminated
}

// Case is a passed test with its suite and policies.
type Case struct {
	Suite    *Suite
	Test     *Test
	Policies Policies
}

// Killed reports whether one of the cases fails with the mutant in place of the set.
func (m *Mutant) Killed(set *policyfile.Set, cases []Case) bool {
	return slices.ContainsFunc(cases, func(c Case) bool {
		r := c.Suite.Run(c.Test, func(paths []string) (*policyfile.Set, error) {
			s, err := c.Policies(paths)
			if err == nil && s.Digest() == set.Digest() {
				s = m.Set
			}
			return s, err
		})
		return r.Failed()
	})
}
