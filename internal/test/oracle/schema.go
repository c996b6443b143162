package oracle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Schema is testdata/oracles/schema.yaml: what the rows of each file look like, and who reads them.
type Schema struct {
	shapes map[string]any
	Files  map[string]FileSchema
}

// FileSchema is what the schema says about one file.
type FileSchema struct {
	ReadBy []string `yaml:"read-by"` // directories of the packages that run each row, or leave it out with a reason
	Unread string   `yaml:"unread"`  // why no package does
	Row    any      `yaml:"row"`
}

// ReadSchema reads the schema of all files.
func ReadSchema() (*Schema, error) {
	dir, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "testdata", "oracles", "schema.yaml"))
	if err != nil {
		return nil, err
	}
	var read struct {
		Shapes map[string]any
		Files  map[string]FileSchema
	}
	if err := yaml.Unmarshal(data, &read); err != nil {
		return nil, fmt.Errorf("read schema.yaml: %w", err)
	}
	return &Schema{shapes: read.Shapes, Files: read.Files}, nil
}

// Check returns what is wrong with a row of a file: "path: what it is, what is wanted", one line each.
func (s *Schema) Check(file string, fields map[string]any) []string {
	f, ok := s.Files[file]
	if !ok {
		return []string{"no schema of this file; add it to schema.yaml"}
	}
	shape := map[string]any{"id": "text"}
	for _, name := range about[1:] {
		shape[name+"?"] = "any"
	}
	row, _ := f.Row.(map[string]any)
	maps.Copy(shape, row)
	c := &checker{schema: s}
	c.object("", fields, shape)
	return c.wrong
}

// checker compares one value with its type.
type checker struct {
	schema *Schema
	wrong  []string
}

func (c *checker) fail(path, format string, args ...any) {
	c.wrong = append(c.wrong, path+": "+fmt.Sprintf(format, args...))
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func (c *checker) object(path string, v, shape map[string]any) {
	if each, ok := shape["*"]; ok {
		for _, name := range keys(v) {
			c.value(join(path, name), v[name], each)
		}
		return
	}
	var names []string
	for _, declared := range keys(shape) {
		name, optional := strings.CutSuffix(declared, "?")
		names = append(names, name)
		value, has := v[name]
		switch {
		case value != nil:
			c.value(join(path, name), value, shape[declared])
		case optional:
		case has:
			c.fail(join(path, name), "null, want %s", c.wanted(shape[declared]))
		default:
			c.fail(join(path, name), "missing, want %s", c.wanted(shape[declared]))
		}
	}
	for _, name := range keys(v) {
		if !slices.Contains(names, name) {
			c.fail(join(path, name), "unknown field, want one of %s", strings.Join(names, ", "))
		}
	}
}

func (c *checker) value(path string, v, want any) {
	if m, ok := v.(map[string]any); ok && Unexpanded(m) != "" && len(m) == 1 {
		return // an expression: suites leave the row out
	}
	switch want := want.(type) {
	case map[string]any:
		if options, ok := want["one-of"].([]any); ok {
			c.oneOf(path, v, options)
			return
		}
		if m, ok := v.(map[string]any); ok {
			c.object(path, m, want)
			return
		}
	case []any:
		if list, ok := v.([]any); ok {
			for i := range list {
				c.value(fmt.Sprintf("%s[%d]", path, i), list[i], want[0])
			}
			return
		}
	case string:
		name, optional := strings.CutSuffix(want, "?")
		if shape, ok := c.schema.shapes[name]; ok && (v != nil || !optional) {
			c.value(path, v, shape)
			return
		}
		if optional && v == nil || slices.ContainsFunc(strings.Split(name, "|"), func(t string) bool { return isA(v, t) }) {
			return
		}
	}
	c.fail(path, "%s, want %s", shown(v), c.wanted(want))
}

// oneOf holds if the value fits one of the types; else what is wrong by the type that fits best.
func (c *checker) oneOf(path string, v any, options []any) {
	var best *checker
	for _, o := range options {
		try := &checker{schema: c.schema}
		try.value(path, v, o)
		if len(try.wrong) == 0 {
			return
		}
		if _, isText := o.(string); !isText && fmt.Sprintf("%T", o) == fmt.Sprintf("%T", v) {
			best = try
		}
	}
	if best == nil {
		c.fail(path, "%s, want %s", shown(v), c.wanted(map[string]any{"one-of": options}))
		return
	}
	c.wrong = append(c.wrong, best.wrong...)
}

// isA says whether a value has a basic type.
func isA(v any, basic string) bool {
	switch basic {
	case "any":
		return true
	case "text":
		_, ok := v.(string)
		return ok
	case "bool":
		_, ok := v.(bool)
		return ok
	case "interval":
		list, ok := v.([]any)
		return ok && len(list) == len(Interval{}) && isA(list[0], "int") && isA(list[1], "int")
	}
	number, ok := v.(json.Number)
	if !ok {
		return false
	}
	n, err := number.Int64()
	switch basic {
	case "decimal":
		_, err = number.Float64()
		return err == nil
	case "int":
		return err == nil
	case "int32":
		return err == nil && n == int64(int32(n))
	}
	return false
}

// wanted names a type for people.
func (c *checker) wanted(want any) string {
	switch want := want.(type) {
	case []any:
		return "a list"
	case map[string]any:
		options, ok := want["one-of"].([]any)
		if !ok {
			return "an object"
		}
		var names []string
		for _, o := range options {
			names = append(names, c.wanted(o))
		}
		return strings.Join(names, " or ")
	case string:
		name := strings.TrimSuffix(want, "?")
		if shape, ok := c.schema.shapes[name]; ok {
			return c.wanted(shape)
		}
		var names []string
		for t := range strings.SplitSeq(name, "|") {
			names = append(names, cmp.Or(map[string]string{
				"text": "a text", "bool": "true or false", "int": "a whole number", "int32": "a whole number of 32 bits", "decimal": "a number",
				"interval": "[first, last]",
			}[t], t))
		}
		return strings.Join(names, " or ")
	}
	return fmt.Sprint(want)
}

func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the text %.40q", v)
	}
	return fmt.Sprintf("%v", v)
}

// whole is a row with every field of a file's schema, filled with anything of its type: the first or the last of
// several types.
func (s *Schema) whole(file string, last bool) map[string]any {
	var fill func(want any) any
	fill = func(want any) any {
		switch want := want.(type) {
		case map[string]any:
			if options, ok := want["one-of"].([]any); ok && last {
				return fill(options[len(options)-1])
			} else if ok {
				return fill(options[0])
			}
			out := map[string]any{}
			for name, of := range want { //house:sorted a map again
				if name == "*" {
					continue
				}
				out[strings.TrimSuffix(name, "?")] = fill(of)
			}
			return out
		case []any:
			return []any{fill(want[0])}
		case string:
			name := strings.TrimSuffix(want, "?")
			if shape, ok := s.shapes[name]; ok {
				return fill(shape)
			}
			types := strings.Split(name, "|")
			name = types[0]
			if last {
				name = types[len(types)-1]
			}
			switch name {
			case "text":
				return "0"
			case "bool":
				return true
			case "interval":
				return []any{json.Number("0"), json.Number("0")}
			}
		}
		return json.Number("0")
	}
	out, _ := fill(s.Files[file].Row).(map[string]any)
	return out
}
