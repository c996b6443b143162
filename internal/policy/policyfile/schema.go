package policyfile

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// unsupported is a field that is known but rejected.
type unsupported struct{}

// field is a field of the files, from the tags of spec.go.
type field struct {
	name                       string
	index                      []int
	required, nonempty, unique bool
	unsupported                bool
}

// schema caches the fields of the structs of spec.go.
type schema map[reflect.Type][]field

// of lists the fields of a struct by name, including those of embedded structs.
func (s schema) of(t reflect.Type) []field {
	if fields, ok := s[t]; ok {
		return fields
	}
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		name, ok := f.Tag.Lookup("file")
		if !ok {
			continue
		}
		must := f.Tag.Get("must")
		fields = append(fields, field{
			name: name, index: f.Index,
			required: strings.Contains(must, "required"),
			nonempty: strings.Contains(must, "nonempty"),
			unique:   strings.Contains(must, "unique"),

			unsupported: f.Type == reflect.TypeFor[unsupported](),
		})
	}
	slices.SortFunc(fields, func(a, b field) int { return cmp.Compare(a.name, b.name) })
	s[t] = fields
	return fields
}

// inOrder lists the fields of a struct in the order of spec.go.
func (s schema) inOrder(t reflect.Type) []field {
	fields := slices.Clone(s.of(t))
	slices.SortFunc(fields, func(a, b field) int { return slices.Compare(a.index, b.index) })
	return fields
}

// mustShow reports whether a zero value is written: the spec of a file may be empty.
func (f *field) mustShow(v reflect.Value) bool { return f.required && v.Kind() == reflect.Struct }

func find(fields []field, name string) (field, bool) {
	for _, f := range fields {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}
