package policyfile

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// The canonical encoding of content is JSON in UTF-8 without white space: version, settings, policies, group policies,
// queues and retry budgets by name; keys sorted, only fields that were set, numbers and durations in their single canonical form.

// ParseCanonical parses the output of Canonical. It rejects any other bytes: the Set that it returns has exactly
// these canonical bytes. It reuses the parts of s that are the same in both.
func (s *Set) ParseCanonical(data []byte) (*Set, error) {
	r := newContentReader(string(data), s.content)
	if err := r.read(); err != nil {
		return nil, fmt.Errorf("parse canonical policies: %w", err)
	}
	if r.problems = append(r.problems, r.duplicates()...); len(r.problems) > 0 {
		return nil, fmt.Errorf("parse canonical policies: %w", r.problems)
	}
	set := build(&r.content)
	if set.Digest() != sha256.Sum256(data) {
		return nil, fmt.Errorf("parse canonical policies: %w", errNotCanonical)
	}
	return set, nil
}

// duplicates finds duplicate names for ParseCanonical. Parse finds them itself, with their positions.
func (c *content) duplicates() (problems Problems) {
	seen := make(map[ID]bool, len(c.policies)+len(c.groups)+len(c.bindings))
	once := func(list string, id ID) {
		if seen[id] {
			problems = append(problems, Problem{File: "canonical", Path: list, Code: codeDuplicateName, Message: "duplicate " + strconv.Quote(id.Name), Fix: "keep one"})
		}
		seen[id] = true
	}
	for _, p := range c.policies {
		once("policies", ID{KindPolicy, string(p.Name)})
	}
	for _, g := range c.groups {
		once("groupPolicies", ID{KindGroup, string(g.Name)})
	}
	for _, b := range c.bindings {
		once("queues", ID{KindQueue, string(b.Name)})
	}
	for _, b := range c.budgets {
		once("retryBudgets", ID{KindBudget, string(b.Name)})
	}
	return append(problems, c.tooManyBudgets("canonical")...)
}

// canonical returns the canonical encoding.
func (c *content) canonical() []byte {
	size := 64
	for _, p := range c.policies {
		size += len(p.text) + 1
	}
	for _, g := range c.groups {
		size += len(g.text) + 1
	}
	for _, b := range c.bindings {
		size += len(b.text) + 1
	}
	b := append(make([]byte, 0, size+256), '{')
	b = appendTexts(b, "groupPolicies", c.groups, func(g *compiledGroup) string { return g.text })
	b = appendTexts(b, "policies", c.policies, func(p *compiled) string { return p.text })
	b = appendTexts(b, "queues", c.bindings, func(b *binding) string { return b.text })
	b = appendTexts(b, "retryBudgets", c.budgets, func(b *compiledBudget) string { return b.text })
	if !c.settings.isUnset() {
		b = append(b, `"settings":`...)
		b = append(b, (schema{}).encode(&c.settings)...)
		b = append(b, ',')
	}
	return append(b, `"version":1}`...)
}

// appendTexts writes a list and a comma; for an empty list it writes nothing.
func appendTexts[T any](b []byte, key string, items []T, text func(T) string) []byte {
	if len(items) == 0 {
		return b
	}
	b = append(appendString(b, key), ':', '[')
	for _, item := range items {
		b = append(append(b, text(item)...), ',')
	}
	b[len(b)-1] = ']'
	return append(b, ',')
}

// encode returns the canonical encoding of what v, a pointer, points to.
func (s schema) encode(v any) []byte { return s.append(nil, reflect.ValueOf(v).Elem()) }

func (s schema) append(b []byte, v reflect.Value) []byte {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if l, ok := reflect.TypeAssert[leaf](v.Addr()); ok {
		if _, tags := l.form(); strings.Contains(tags, "!!str") {
			return appendString(b, l.text())
		}
		return append(b, l.text()...)
	}
	switch v.Kind() {
	case reflect.Struct:
		return s.appendStruct(b, v)
	case reflect.Slice:
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = s.append(b, v.Index(i))
		}
		return append(b, ']')
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	default:
		panic("policy: no way to write a " + v.Type().String())
	}
}

func (s schema) appendStruct(b []byte, v reflect.Value) []byte {
	b = append(b, '{')
	start := len(b)
	for _, f := range s.of(v.Type()) {
		value := v.FieldByIndex(f.index)
		if value.IsZero() && !f.mustShow(value) {
			continue // not set
		}
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(appendString(b, f.name), ':')
		b = s.append(b, value)
	}
	return append(b, '}')
}

// appendString writes a JSON string. No string of a Set contains a control character or invalid UTF-8, so only
// quotes and backslashes need escaping.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}
