package policyfile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/suggest"
)

// Field describes one field of the files.
type Field struct {
	Kind     string // RetryPolicy, RetryPolicy/v1beta1, GroupPolicy, Queue, RetryBudget or RetrySettings
	Path     string // such as spec.rules.backoff; "" is the whole document
	Type     string
	Required bool
	Default  string // the effective value if it is not set
	Limits   string
	Text     string
}

// Name is the last part of the path.
func (f *Field) Name() string { return f.Path[strings.LastIndex(f.Path, ".")+1:] }

// kinds lists the documents of the files, by the kind of Field.
func kinds() []struct {
	name string
	file reflect.Type
} {
	return []struct {
		name string
		file reflect.Type
	}{
		{"RetryPolicy", reflect.TypeFor[policyFile]()},
		{"RetryPolicy/v1beta1", reflect.TypeFor[flatFile]()},
		{KindGroup, reflect.TypeFor[groupFile]()},
		{"Queue", reflect.TypeFor[queueFile]()},
		{KindBudget, reflect.TypeFor[budgetFile]()},
		{"RetrySettings", reflect.TypeFor[settingsFile]()},
	}
}

// Fields describes every field of the files, by kind and path.
func Fields() []Field {
	var all []Field
	for _, k := range kinds() {
		all = append(all, describe(k.name, "", k.file, false))
		all = fieldsBelow(all, k.name, "", k.file)
	}
	return all
}

func fieldsBelow(all []Field, kind, path string, t reflect.Type) []Field {
	for _, f := range (schema{}).of(t) {
		if f.unsupported {
			continue
		}
		at := join(path, f.name)
		sub := t.FieldByIndex(f.index).Type
		all = append(all, describe(kind, at, sub, f.required))
		if item := itemOf(sub); item.Kind() == reflect.Struct {
			all = fieldsBelow(all, kind, at, item)
		}
	}
	return all
}

// itemOf returns the element type of a pointer or a list.
func itemOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

func describe(kind, path string, t reflect.Type, required bool) Field {
	f := Field{Kind: kind, Path: path, Type: typeText(t), Required: required}
	text, _ := textOf(kind, path)
	f.Default, f.Limits, f.Text = text.unset, text.limits, text.meaning
	if required {
		f.Default = "none: required"
	}
	return f
}

// textOf finds the text of a field by the longest matching suffix of its path.
func textOf(kind, path string) (fieldText, bool) {
	texts := slices.Concat(fieldTexts[:], groupTexts[:], budgetTexts[:], matcherTexts[:])
	for end := path; ; {
		for _, at := range []string{kind + ":" + end, end} {
			for _, text := range texts {
				if text.at == at && (end == path || !strings.HasPrefix(text.at, kind+":")) {
					return text, true
				}
			}
		}
		_, below, more := strings.Cut(end, ".")
		if !more {
			return fieldText{}, false
		}
		end = below
	}
}

func typeText(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice {
		return "list of " + strings.TrimPrefix(strings.TrimPrefix(typeText(t.Elem()), "a "), "one of ")
	}
	t = itemOf(t)
	if l, ok := reflect.TypeAssert[leaf](reflect.New(t)); ok {
		what, _ := l.form()
		return what
	}
	if t.Kind() == reflect.Bool {
		return "true or false"
	}
	return "a mapping"
}

// Describe returns the requested field, given as KIND, KIND.path or a path in RetryPolicy, and the fields directly
// below it.
func Describe(asked string) (Field, []Field, error) {
	all := Fields()
	const retryPolicy = "RetryPolicy"
	kind, path := retryPolicy, asked
	for _, k := range kinds() {
		if rest, ok := strings.CutPrefix(asked, k.name); ok && (rest == "" || rest[0] == '.') {
			kind, path = k.name, strings.TrimPrefix(rest, ".")
		}
	}
	path = strings.ReplaceAll(path, "[]", "")
	var paths []string
	for i := range all {
		if all[i].Kind != kind {
			continue
		}
		if all[i].Path != path {
			paths = append(paths, all[i].Path)
			continue
		}
		var below []Field
		for _, f := range all {
			if name, ok := strings.CutPrefix(f.Path, join(path, "x")[:len(join(path, "x"))-1]); f.Kind == kind && ok && name != "" && !strings.Contains(name, ".") {
				below = append(below, f)
			}
		}
		return all[i], below, nil
	}
	fix := "`refloatctl explain field " + kind + "` lists them"
	prefix := "" // what is asked without a kind is in a RetryPolicy
	if kind != retryPolicy {
		prefix = kind + "."
	}
	if i := slices.IndexFunc(all, func(f Field) bool { return f.Path == path && !strings.Contains(f.Kind, "/") }); i >= 0 && kind == retryPolicy {
		fix = "did you mean " + all[i].Kind + "." + path + "?"
	} else if near := suggest.Nearest(path, paths); near != "" {
		fix = "did you mean " + prefix + near + "?"
	} else if i := slices.IndexFunc(paths, func(p string) bool { return strings.HasSuffix(p, "."+path) }); i >= 0 {
		fix = "did you mean " + prefix + paths[i] + "?"
	}
	return Field{}, nil, fmt.Errorf("unknown field %s in %s: %s", shown(path), kind, fix)
}

// JSONSchema returns the JSON Schema (2020-12) of one kind, or of all kinds with "".
func JSONSchema(kind string) ([]byte, error) {
	var of []map[string]any
	var names []string
	for _, k := range kinds() {
		if name, _, _ := strings.Cut(k.name, "/"); !slices.Contains(names, name) {
			names = append(names, name)
		}
		if kind == "" || kind == k.name || strings.HasPrefix(k.name, kind+"/") {
			of = append(of, schemaOfKind(k.name, k.file))
		}
	}
	if of == nil {
		return nil, fmt.Errorf("unknown kind %s: %s", shown(kind), suggest.Fix(kind, names, "use "+oneOf(names)))
	}
	root := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "Refloat policy files",
	}
	if len(of) == 1 {
		for _, name := range []string{"type", "description", "properties", "required", "additionalProperties"} {
			root[name] = of[0][name]
		}
	} else {
		root["oneOf"] = of
	}
	return json.MarshalIndent(root, "", "  ")
}

func schemaOfKind(kind string, t reflect.Type) map[string]any {
	s := schemaOf(kind, "", t)
	word, flat := strings.CutSuffix(kind, "/v1beta1")
	versions := []string{apiVersion, apiVersionFlat}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]string)
	required = append(required, "kind")
	switch {
	case flat:
		versions, required = versions[1:], append(required, "apiVersion")
	case word == "RetryPolicy":
		versions, required = versions[:1], append(required, "apiVersion")
	case word == KindGroup || word == KindBudget:
		versions, required = []string{apiVersionGroup}, append(required, "apiVersion")
	case word == "RetrySettings":
		versions = versions[:1]
	}
	slices.Sort(required)
	s["required"] = required
	for name, words := range map[string][]string{"kind": {word}, "apiVersion": versions} { //house:sorted each sets its own field
		properties[name] = map[string]any{"enum": words, "description": describe(kind, name, reflect.TypeFor[plain](), true).Text}
	}
	return s
}
