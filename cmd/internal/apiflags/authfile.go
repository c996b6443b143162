package apiflags

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/suggest"
)

// readAuth reads users and permissions. Its errors name fields, users and tokens, and never repeat any other
// content of the file.
func readAuth(file string) (*api.Auth, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		if at := (*yaml.LoadError)(nil); errors.As(err, &at) {
			return nil, fmt.Errorf("line %d: invalid YAML", at.Mark.Line)
		}
		return nil, errors.New("not YAML")
	}
	if len(root.Content) == 0 {
		return nil, errors.New("the file is empty: give basic, tokens or oidc")
	}
	if err := fits(root.Content[0], "", reflect.TypeFor[api.Auth]()); err != nil {
		return nil, err
	}
	var doc any
	if root.Decode(&doc) != nil {
		return nil, errors.New("not YAML")
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, errors.New("want a mapping of fields")
	}
	a := &api.Auth{}
	if json.Unmarshal(b, a) != nil {
		return nil, errors.New("want a mapping of fields")
	}
	return a, a.Check()
}

// fits reports where a node does not fit a type, by the type's JSON names.
func fits(n *yaml.Node, path string, t reflect.Type) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	wrong := func(want string) error {
		return fmt.Errorf("line %d: %s: want %s", n.Line, strings.TrimPrefix(path, "."), want)
	}
	switch t.Kind() {
	case reflect.String:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			return wrong("a string, in quotes")
		}
		return nil
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return wrong("a list, like [ops]")
		}
		for i, item := range n.Content {
			if err := fits(item, fmt.Sprintf("%s[%d]", path, i), t.Elem()); err != nil {
				return err
			}
		}
		return nil
	default:
		if n.Kind != yaml.MappingNode {
			return wrong("a mapping")
		}
		return fieldsFit(n, path, t)
	}
}

// fieldsFit does the work of fits for a mapping: a map, whose keys are free, or a struct.
func fieldsFit(n *yaml.Node, path string, t reflect.Type) error {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		switch {
		case key.ShortTag() != "!!str":
			return fmt.Errorf("line %d: %s: put the name in quotes", key.Line, at)
		case seen[key.Value]:
			return fmt.Errorf("line %d: %s: duplicate field", key.Line, at)
		}
		seen[key.Value] = true
		next, names := t, []string(nil)
		if t.Kind() == reflect.Map {
			next = t.Elem()
		} else {
			for f := range t.Fields() {
				name := f.Tag.Get("json")
				if name == key.Value {
					next = f.Type
				}
				if name != "" {
					names = append(names, name)
				}
			}
		}
		if next == t {
			fix := suggest.Fix(key.Value, names, "use one of "+strings.Join(names, ", "))
			return fmt.Errorf("line %d: %s: unknown field: %s", key.Line, at, fix)
		}
		if err := fits(value, at, next); err != nil {
			return err
		}
	}
	return nil
}
