package policyfile

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/refloat/refloat/internal/policy"
)

// matchers are the matchers of a rule, one a field. The tag `needs` names another one without which the field says
// nothing. Lists have no order.
type matchers struct {
	OnConditions         conditions    `file:"onConditions" must:"nonempty unique"`
	OnExitCodes          exitCodes     `file:"onExitCodes"`
	OnTerminationMessage message       `file:"onTerminationMessage"`
	OnFailureCategory    categories    `file:"onFailureCategory" must:"nonempty unique"`
	OnFailureSubcategory subcategories `file:"onFailureSubcategory" must:"nonempty unique" needs:"onFailureCategory"`
	OnRunDuration        runDuration   `file:"onRunDuration" must:"nonempty"`
}

// A matcher is the type of a field of matchers.
type matcher interface{ requirement() policy.Requirement }

// matcherSpec is what determines the identity of an unnamed rule (semantics.md 5).
type matcherSpec struct {
	matchers
	ContainerName         label `file:"containerName"`
	IncludeInitContainers bool  `file:"includeInitContainers"`
}

// matcherTexts document the fields (fields.go).
var matcherTexts = [...]fieldText{
	{"rules.onConditions", "any", "no value twice", "Matches if one of these conditions holds: OOMKilled, Evicted, DeadlineExceeded, Preempted, Unschedulable (a lease returned before the run was tried), LeaseReturned (after), LeaseExpired."},
	{"rules.onExitCodes", "any", "", "Matches by the exit code of the targeted container: the first container in the report that the rule considers and that did not exit with 0. If there is none, it does not match."},
	{"onExitCodes.operator", "", "In or NotIn", "Whether the exit code must be one of the values, or none of them."},
	{"onExitCodes.values", "", "no value twice; not 0 with In", "The exit codes. Only the size of the file limits their number: a long list does not slow down decisions, and containers on Windows exit with codes above 255."},
	{"rules.onTerminationMessage", "any", "", "Matches by the termination message of any container that the rule considers. An empty message never matches."},
	{"onTerminationMessage.pattern", "", "RE2; at most 4096 bytes, 5000 nodes with repetitions expanded, and 50000 nodes in one policy", "The regular expression. It matches anywhere in the message, unless it is anchored by ^ or $. Write it in single quotes."},
	{"rules.onFailureCategory", "any", "no value twice", "Matches if the executor's failure category is one of these. The comparison is exact and case-sensitive."},
	{"rules.onFailureSubcategory", "any", "only with onFailureCategory", "Restricts onFailureCategory to these subcategories. The comparison is exact."},
	{"rules.onRunDuration", "any", "at least one bound; lessThan above atLeast", "Matches by how long the run was running: from its first JobRunRunning until it failed, in event time. It tells a bad start from a crash late in a run. It never matches a run that was not running."},
	{"onRunDuration.lessThan", "no upper bound", "whole milliseconds; more than atLeast", "The run was running for less than this."},
	{"onRunDuration.atLeast", "0s", "whole milliseconds", "The run was running for at least this."},
}

type (
	conditions    []condition
	categories    []label
	subcategories []label
)

func (c conditions) requirement() policy.Requirement {
	var set policy.Conditions
	for _, condition := range c {
		set = set.With(policy.Condition(condition))
	}
	return set
}

func (l categories) requirement() policy.Requirement { return policy.Categories(textsOf(l)) }

func (l subcategories) requirement() policy.Requirement { return policy.Subcategories(textsOf(l)) }

type exitCodes struct {
	Operator operator   `file:"operator" must:"required"`
	Values   []exitCode `file:"values" must:"required nonempty unique"`
}

func (e exitCodes) requirement() policy.Requirement {
	r := policy.ExitCodes{NotIn: e.Operator == notIn}
	for _, code := range e.Values {
		r.Codes = append(r.Codes, int32(code))
	}
	return r
}

func (e *exitCodes) check(i *inspection) {
	for n, v := range e.Values {
		if field := fmt.Sprintf("values[%d]", n); v == 0 && e.Operator == in && i.clean(field) {
			i.fault(field, fault{codeNeverMatches, "exit code 0 never matches", "remove it: a container that exits with 0 did not fail"})
			return // others are reported as duplicates
		}
	}
}

func (e *exitCodes) restrict(s map[string]any) {
	s["if"] = map[string]any{"properties": map[string]any{"operator": map[string]any{"const": "In"}}}
	s["then"] = map[string]any{"properties": map[string]any{"values": map[string]any{"items": map[string]any{"not": map[string]any{"const": 0}}}}}
}

type message struct {
	Pattern pattern `file:"pattern" must:"required"`
}

func (m message) requirement() policy.Requirement {
	return policy.TerminationMessage{Pattern: m.Pattern.compiled}
}

type runDuration struct {
	LessThan *duration `file:"lessThan"`
	AtLeast  *duration `file:"atLeast"`
}

func (d runDuration) requirement() policy.Requirement {
	return policy.RunDuration{AtLeast: or(d.AtLeast, 0).duration(), LessThan: or(d.LessThan, 0).duration()}
}

func (d *runDuration) check(i *inspection) {
	if d.LessThan != nil && *d.LessThan <= or(d.AtLeast, 0) && i.clean("") {
		i.fault("lessThan", fault{codeConflict, "no duration is at least " + shownDuration(or(d.AtLeast, 0)) + " and less than " + shownDuration(*d.LessThan), "raise lessThan, or lower or remove atLeast"})
	}
}

func shownDuration(d duration) string { return Short(d.duration()) }

// empty reports whether the rule has no matcher.
func (m *matchers) empty() bool { return reflect.ValueOf(m).Elem().IsZero() }

// requirements converts the matchers for the engine.
func (m *matchers) requirements() []policy.Requirement {
	var all []policy.Requirement
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		one := v.Field(i).Addr().Interface().(matcher) // also of a field that is not set, so that none lacks the method
		if !v.Field(i).IsZero() {
			all = append(all, one.requirement())
		}
	}
	return all
}

// needs returns which matchers need which other one.
func needs() map[string]string {
	all := make(map[string]string)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[matchers]()) {
		if other, ok := f.Tag.Lookup("needs"); ok {
			all[f.Tag.Get("file")] = other
		}
	}
	return all
}

// sufficient names the matchers of which a rule must have one: those that need no other.
func sufficient() []string {
	var names []string
	needs := needs()
	for _, f := range (schema{}).inOrder(reflect.TypeFor[matchers]()) {
		if needs[f.name] == "" {
			names = append(names, f.name)
		}
	}
	return names
}

// sortLists sorts the lists in a value, numbers by size and everything else by its text.
func sortLists(v reflect.Value) {
	if _, scalar := reflect.TypeAssert[leaf](v.Addr()); scalar {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			sortLists(v.Field(i))
		}
	case reflect.Slice:
		for i := 1; i < v.Len(); i++ {
			if compareLeaves(v.Index(i-1), v.Index(i)) > 0 {
				sort.Slice(v.Interface(), func(i, j int) bool { return compareLeaves(v.Index(i), v.Index(j)) < 0 })
				break
			}
		}
	default: // one value
	}
}

func compareLeaves(a, b reflect.Value) int {
	if a.CanInt() {
		return cmp.Compare(a.Int(), b.Int())
	}
	return strings.Compare(a.Addr().Interface().(leaf).text(), b.Addr().Interface().(leaf).text())
}

// MatcherField is a field by which a rule says what it matches, for programs that change rules.
type MatcherField struct {
	Path     []string // in the rule
	Required bool     // in the mapping that it is in
	Words    []string // the values that it can have; nil: many
	Duration bool
}

// String returns the path in the rule, such as onExitCodes.values.
func (f MatcherField) String() string { return strings.Join(f.Path, ".") }

// MatcherFields lists the fields by which rules say what they match, in order, with those in mappings behind these.
// It leaves out flags, which match nothing by themselves.
func MatcherFields() []MatcherField {
	return matcherFields(nil, nil, reflect.TypeFor[matcherSpec]())
}

func matcherFields(all []MatcherField, path []string, t reflect.Type) []MatcherField {
	for _, f := range (schema{}).inOrder(t) {
		of := t.FieldByIndex(f.index).Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		m := MatcherField{Path: append(slices.Clone(path), f.name), Required: f.required, Duration: of == reflect.TypeFor[duration]()}
		if words, ok := reflect.TypeAssert[interface{ words() []string }](reflect.New(of)); ok {
			m.Words = slices.DeleteFunc(words.words(), func(word string) bool { return word == "" })
		}
		if of.Kind() != reflect.Bool {
			all = append(all, m)
		}
		if _, scalar := reflect.TypeAssert[leaf](reflect.New(of)); !scalar && of.Kind() == reflect.Struct {
			all = matcherFields(all, m.Path, of)
		}
	}
	return all
}
