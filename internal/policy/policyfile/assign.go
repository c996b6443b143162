package policyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/suggest"
)

// Assign returns the set with one field changed, as people write it on a command line:
//
//	policies.infra.rules[lost].retryLimit=2
//	settings.globalMaxRetries=9
//	queues.ml.mode=Shadow
//	groups.training.maxRestarts=1
//	budgets.ml.ratio=0.2
//
// A rule or part is named, or counted from 0, or + for one more at the end. The value is JSON, or else text.
func (s *Set) Assign(text string) (*Set, error) {
	path, value, ok := strings.Cut(text, "=")
	if !ok {
		return nil, fmt.Errorf("%q: want FIELD=VALUE, such as policies.infra.rules[lost].retryLimit=2", text)
	}
	id, field, err := s.named(path)
	if err != nil {
		return nil, err
	}
	doc, at, err := s.document(id)
	if err != nil {
		return nil, err
	}
	if err := assign(at, strings.Split(field, "."), parseValue(value)); err != nil {
		return nil, fmt.Errorf("%s: %w%s", path, err, s.elsewhere(id, field))
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	set, _, err := s.With(File{Name: text, Data: b})
	if problems, ok := errors.AsType[Problems](err); ok { // nobody knows the text in which their positions are
		for i := range problems {
			problems[i].Line, problems[i].Column = 0, 0
		}
	}
	return set, err
}

// Field returns the value of a field that Assign would change, as JSON; "": it is not set, or there is none.
func (s *Set) Field(path string) string {
	id, field, err := s.named(path)
	if err != nil {
		return ""
	}
	_, at, err := s.document(id)
	if err != nil {
		return ""
	}
	for step := range strings.SplitSeq(field, ".") {
		name, index, indexed := strings.Cut(strings.TrimSuffix(step, "]"), "[")
		m, _ := at.(map[string]any)
		if at = m[name]; indexed {
			list, _ := at.([]any)
			i := entryOf(list, index)
			if i < 0 {
				return ""
			}
			at = list[i]
		}
	}
	if at == nil {
		return ""
	}
	b, err := json.Marshal(at)
	if err != nil {
		return ""
	}
	return string(b)
}

// RuleOf returns the policy and the rule, as decisions name them, that has a field that Assign would change; "": it is the
// field of no rule.
func (s *Set) RuleOf(path string) (policy, rule string) {
	id, field, err := s.named(path)
	entry, _, ok := strings.Cut(field, "]")
	if err != nil || id.Kind != KindPolicy || !ok || !strings.HasPrefix(entry, "rules[") {
		return "", ""
	}
	_, at, err := s.document(id)
	if err != nil {
		return "", ""
	}
	spec, _ := at.(map[string]any)
	list, _ := spec["rules"].([]any)
	i := entryOf(list, strings.TrimPrefix(entry, "rules["))
	if i < 0 {
		return "", ""
	}
	one, _ := list[i].(map[string]any)
	if rule, _ = one["name"].(string); rule == "" {
		rule = fmt.Sprintf("#%d", i)
	}
	return id.Name, rule
}

// document decodes a resource, and returns it with the part of it whose fields paths name.
func (s *Set) document(id ID) (doc map[string]any, at any, err error) {
	b, err := s.JSON(id)
	if err != nil {
		return nil, nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return nil, nil, err
	}
	if spec, ok := doc["spec"]; ok && id.Kind != KindQueue {
		return doc, spec, nil
	}
	return doc, doc, nil
}

// elsewhere says which other resource of the kind has an entry of a list that a path names and its resource lacks; "": none.
func (s *Set) elsewhere(id ID, field string) string {
	entry, _, found := strings.Cut(field, "]")
	if !found || s.Field(prefixes[id.Kind]+id.Name+"."+entry+"]") != "" {
		return ""
	}
	for _, other := range s.Resources() {
		if other.Kind == id.Kind && other != id && s.Field(prefixes[id.Kind]+other.Name+"."+entry+"]") != "" {
			return fmt.Sprintf("; %s%s.%s] exists", prefixes[id.Kind], other.Name, entry)
		}
	}
	return ""
}

// prefixes begin the paths to fields of resources with names.
var prefixes = map[string]string{KindPolicy: "policies.", KindGroup: "groups.", KindQueue: "queues.", KindBudget: "budgets."}

// entryOf returns the index of the entry that is named so, or has that index, also as decisions name a rule without a
// name (#2); -1: there is none.
func entryOf(list []any, index string) int {
	for i, item := range list {
		if entry, _ := item.(map[string]any); entry["name"] == index {
			return i
		}
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(index, "#")); err == nil && n >= 0 && n < len(list) {
		return n
	}
	return -1
}

// named finds the resource that a path begins with, and returns it with the rest of the
// path. Names may have dots: the longest name wins.
func (s *Set) named(path string) (found ID, field string, err error) {
	if rest, ok := strings.CutPrefix(path, "settings."); ok {
		found = ID{Kind: KindSettings}
		if _, ok := s.Body(found); !ok {
			return found, "", fmt.Errorf("%s: the policies have no settings", path)
		}
		return found, rest, nil
	}
	for _, kind := range []string{KindPolicy, KindGroup, KindQueue, KindBudget} {
		rest, ok := strings.CutPrefix(path, prefixes[kind])
		if !ok {
			continue
		}
		var names []string
		for _, id := range s.Resources() {
			if id.Kind != kind {
				continue
			}
			names = append(names, id.Name)
			if tail, ok := strings.CutPrefix(rest, id.Name+"."); ok && len(id.Name) > len(found.Name) {
				found, field = id, tail
			}
		}
		if found.Name == "" {
			name, _, _ := strings.Cut(rest, ".")
			return found, "", fmt.Errorf("%s: there is no %s %q, or no field behind its name%s", path, kind, name, known(name, names))
		}
		return found, field, nil
	}
	return found, "", fmt.Errorf("%s: want policies.NAME.FIELD, groups.NAME.FIELD, queues.NAME.FIELD, budgets.NAME.FIELD or settings.FIELD", path)
}

// assign sets a field below a value. Missing objects on the way are made.
func assign(at any, path []string, value any) error {
	name, index, indexed := strings.Cut(strings.TrimSuffix(path[0], "]"), "[")
	m, ok := at.(map[string]any)
	if !ok || name == "" {
		return fmt.Errorf("%s: there is no such field", path[0])
	}
	if !indexed && len(path) == 1 {
		m[name] = value
		return nil
	}
	if !indexed {
		if m[name] == nil {
			m[name] = map[string]any{}
		}
		return assign(m[name], path[1:], value)
	}
	list, _ := m[name].([]any)
	if index == "+" && len(path) == 1 {
		m[name] = append(list, value)
		return nil
	}
	i := entryOf(list, index)
	if i < 0 {
		var names []string
		for _, item := range list {
			entry, _ := item.(map[string]any)
			if text, ok := entry["name"].(string); ok {
				names = append(names, text)
			}
		}
		return fmt.Errorf("%s: there is no %q%s", name, index, known(index, names))
	}
	if len(path) == 1 {
		list[i] = value
		return nil
	}
	return assign(list[i], path[1:], value)
}

// known names what there is, or what was probably meant.
func known(name string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ": " + suggest.Fix(name, names, "want "+strings.Join(names[:min(len(names), 10)], ", "))
}

func parseValue(text string) any {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return text
	}
	return v
}
