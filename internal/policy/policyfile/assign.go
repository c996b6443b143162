package policyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Assign returns the set with one field changed, as people write it on a command line:
//
//	policies.infra.rules[oom].retryLimit=2
//	settings.globalMaxRetries=9
//	queues.ml.mode=Shadow
//	groups.training.maxRestarts=1
//
// A rule or part is named, or counted from 0. The value is JSON, or else text.
func (s *Set) Assign(text string) (*Set, error) {
	path, value, ok := strings.Cut(text, "=")
	if !ok {
		return nil, fmt.Errorf("%q: want FIELD=VALUE, such as policies.infra.rules[oom].retryLimit=2", text)
	}
	id, field, err := s.named(path)
	if err != nil {
		return nil, err
	}
	doc := map[string]any{}
	b, err := s.JSON(id)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		err = d.Decode(&doc)
	}
	if err != nil {
		return nil, err
	}
	at := any(doc)
	if spec, ok := doc["spec"]; ok && id.Kind != KindQueue {
		at = spec
	}
	if err := assign(at, strings.Split(field, "."), parseValue(value)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if b, err = json.Marshal(doc); err != nil {
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

// named finds the resource that a path begins with, and returns it with the rest of the
// path. Names may have dots: the longest name wins.
func (s *Set) named(path string) (found ID, field string, err error) {
	kinds := []struct{ prefix, kind string }{{"policies.", KindPolicy}, {"groups.", KindGroup}, {"queues.", KindQueue}}
	if rest, ok := strings.CutPrefix(path, "settings."); ok {
		found = ID{Kind: KindSettings}
		if _, ok := s.Body(found); !ok {
			return found, "", fmt.Errorf("%s: the policies have no settings", path)
		}
		return found, rest, nil
	}
	for _, k := range kinds {
		rest, ok := strings.CutPrefix(path, k.prefix)
		if !ok {
			continue
		}
		for _, id := range s.Resources() {
			if tail, ok := strings.CutPrefix(rest, id.Name+"."); ok && id.Kind == k.kind && len(id.Name) > len(found.Name) {
				found, field = id, tail
			}
		}
		if found.Name == "" {
			return found, "", fmt.Errorf("%s: there is no such %s with a field behind its name", path, k.kind)
		}
		return found, field, nil
	}
	return found, "", fmt.Errorf("%s: want policies.NAME.FIELD, groups.NAME.FIELD, queues.NAME.FIELD or settings.FIELD", path)
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
	for i, item := range list {
		entry, _ := item.(map[string]any)
		if n, err := strconv.Atoi(index); entry["name"] != index && (err != nil || n != i) {
			continue
		}
		if len(path) == 1 {
			list[i] = value
			return nil
		}
		return assign(item, path[1:], value)
	}
	return fmt.Errorf("%s: there is no %q", name, index)
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
