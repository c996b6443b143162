package oracle

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Mutation is a row with one expected value changed.
type Mutation struct {
	Path string // such as expected.conditions[0].reason
	Row  Row
	From any
	To   any
}

// seenIn returns what rows expect, by path without indexes.
func seenIn(rows []Row) map[string][]any {
	seen := map[string][]any{}
	for i := range rows {
		if len(rows[i].Wrong) > 0 {
			continue
		}
		for _, n := range rows[i].expected() {
			if p := plain(n.path); !slices.ContainsFunc(seen[p], func(v any) bool { return reflect.DeepEqual(v, n.value) }) {
				seen[p] = append(seen[p], n.value)
			}
		}
	}
	return seen
}

// mutate changes each expected value of a row that passed in turn, also to
// what others of the file expect: the suite must report the row every time.
func (s *Suite) mutate(t *testing.T, r *Row, seen map[string][]any, forced bool) int {
	t.Helper()
	mutations := s.Mutations(r, seen)
	if len(mutations) == 0 {
		t.Errorf("%s: row %s: nothing that it expects is compared", s.File, r.ID)
	}
	for _, m := range mutations {
		if !s.noticed(&m, forced) {
			t.Errorf("%s: row %s: %s changed from %v to %v, and nobody noticed", s.File, r.ID, m.Path, m.From, m.To)
		}
	}
	return len(mutations)
}

// Mutations returns the row with each compared expected value changed: a bool inverted, a number incremented, a
// list removed, and a text or null replaced by each other value that rows of the file have in that field.
// An optional field is removed as well, or added where the row lacks it.
func (s *Suite) Mutations(r *Row, seen map[string][]any) []Mutation {
	var all []Mutation
	has := map[string]bool{}
	for _, n := range r.expected() {
		has[plain(n.path)] = true
		if s.silent(plain(n.path)) {
			continue
		}
		others := seen[plain(n.path)]
		to := changes(n.value, others)
		if slices.Contains(s.Optional, plain(n.path)) {
			to = append(to, nil)
		}
		for _, to := range to {
			if reflect.DeepEqual(n.value, to) || s.Same != nil && s.Same(plain(n.path), n.value, to) {
				continue
			}
			all = append(all, Mutation{Path: n.path, Row: r.with(n.steps, to), From: n.value, To: to})
		}
	}
	for _, path := range s.Optional {
		if has[path] {
			continue
		}
		var steps []any
		for name := range strings.SplitSeq(path, ".") {
			steps = append(steps, name)
		}
		for _, to := range seen[path] {
			if to != nil && (s.Same == nil || !s.Same(path, nil, to)) {
				all = append(all, Mutation{Path: path, Row: r.with(steps, to), To: to})
			}
		}
	}
	return all
}

func (s *Suite) silent(path string) bool {
	for p := range s.Silent {
		if path == p || strings.HasPrefix(path, p+".") || strings.HasPrefix(path, p+"[") {
			return true
		}
	}
	return false
}

// changes are other values for v.
func changes(v any, seen []any) []any {
	switch v := v.(type) {
	case bool:
		return []any{!v}
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, 64)
		if err != nil {
			return []any{json.Number("0")}
		}
		return []any{json.Number(strconv.FormatInt(n+1, 10))}
	case []any:
		if len(v) > 0 {
			return []any{nil}
		}
		return nil
	case map[string]any:
		return nil // its elements are changed
	}
	others := slices.DeleteFunc(slices.Clone(seen), func(o any) bool { return reflect.DeepEqual(o, v) })
	if len(others) == 0 {
		return []any{"x"}
	}
	return others
}

// node is one value below what a row expects.
type node struct {
	path  string
	steps []any // keys and indexes from the row
	value any
}

// expected are all values of the row that it expects: of the part expected, and
// of each step what is expected there.
func (r *Row) expected() []node {
	var all []node
	var walk func(n node)
	walk = func(n node) {
		all = append(all, n)
		switch v := n.value.(type) {
		case map[string]any:
			for _, k := range keys(v) {
				walk(node{n.path + "." + k, append(slices.Clip(n.steps), k), v[k]})
			}
		case []any:
			for i := range v {
				walk(node{n.path + "[" + strconv.Itoa(i) + "]", append(slices.Clip(n.steps), i), v[i]})
			}
		}
	}
	if v, ok := r.fields["expected"]; ok {
		walk(node{"expected", []any{"expected"}, v})
	}
	steps, _ := r.fields["steps"].([]any)
	for i, step := range steps {
		if m, ok := step.(map[string]any); ok && m["expect"] != nil {
			walk(node{"steps[" + strconv.Itoa(i) + "].expect", []any{"steps", i, "expect"}, m["expect"]})
		}
	}
	return all
}

// plain is a path without the indexes of its lists.
func plain(path string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(path, "[")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		b.WriteString("[]")
		_, path, _ = strings.Cut(rest, "]")
	}
}

// with is a copy of the row with another value at a path.
func (r *Row) with(steps []any, to any) Row {
	return Row{ID: r.ID, fields: set(r.fields, steps, to).(map[string]any)} //nolint:forcetypeassert // the first step is a key
}

func set(in any, steps []any, to any) any {
	if len(steps) == 0 {
		return to
	}
	switch step := steps[0].(type) {
	case string:
		old, _ := in.(map[string]any)
		out := map[string]any{}
		for _, k := range keys(old) {
			out[k] = old[k]
		}
		out[step] = set(old[step], steps[1:], to)
		return out
	case int:
		old, _ := in.([]any)
		out := slices.Clone(old)
		out[step] = set(old[step], steps[1:], to)
		return out
	}
	return in
}

func keys(m map[string]any) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}
