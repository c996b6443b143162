package policyfile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/suggest"
)

// decoder reads the nodes of one document into the types of spec.go. It is strict, and continues after a problem
// to find them all.
type decoder struct {
	file     string
	problems *Problems
	schema   schema
	at       map[string]*yaml.Node // the node of each value, by path
	logged   bool                  // the text is in the log: names may have invisible characters, as in earlier versions
}

// maxDepth limits nesting: the files need 6.
const maxDepth = 32

func newDecoder(file string, problems *Problems, known schema) *decoder {
	return &decoder{file: file, problems: problems, schema: known, at: make(map[string]*yaml.Node)}
}

// maxProblems limits how many problems a hostile file can cause.
const maxProblems = 1000

// report adds a problem at a node.
func (d *decoder) report(n *yaml.Node, path string, f fault) {
	switch {
	case len(*d.problems) > maxProblems:
		return
	case len(*d.problems) == maxProblems:
		path, f = "", fault{codeTooBig, fmt.Sprintf("more than %d problems", maxProblems), "solve the others first"}
	}
	p := Problem{File: d.file, Line: n.Line, Column: n.Column, Path: path, Code: f.code, Message: f.message, Fix: f.fix}
	if n.Kind == yaml.ScalarNode {
		p.Value = n.Value
	}
	*d.problems = append(*d.problems, p)
}

// value reads a node into out, which must be settable.
func (d *decoder) value(n *yaml.Node, path string, out reflect.Value) {
	d.at[path] = n
	if f := fancy(n); f != (fault{}) {
		d.report(n, path, f)
		return
	}
	if out.Kind() == reflect.Pointer {
		out.Set(reflect.New(out.Type().Elem()))
		out = out.Elem()
	}
	before := len(*d.problems)
	switch to := out.Addr().Interface().(type) {
	case leaf:
		d.leaf(n, path, to)
	case *unsupported:
		d.report(n, path, fault{codeUnsupported, "not supported yet", "remove it"})
	default:
		switch out.Kind() {
		case reflect.Struct:
			d.mapping(n, path, out)
		case reflect.Slice:
			d.sequence(n, path, out)
		case reflect.Bool:
			out.SetBool(n.Value == "true")
			if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
				d.wrongType(n, path, "true or false")
			}
		default:
			panic("policy: no way to read a " + out.Type().String())
		}
	}
	if c, ok := reflect.TypeAssert[checker](out.Addr()); ok && n.Kind == yaml.MappingNode {
		c.check(&inspection{d, path, before})
	}
}

// inspection is how a checker reports problems, by fields below the value that it checks; "" is the value itself.
type inspection struct {
	*decoder
	path   string
	before int // number of problems of other values
}

// fault reports a problem of a field.
func (i *inspection) fault(field string, f fault) {
	at := join(i.path, field)
	i.report(i.nearest(at), at, f)
}

// clean reports whether a field and everything below it have no problem so far.
func (i *inspection) clean(field string) bool {
	at := join(i.path, field)
	return !slices.ContainsFunc((*i.problems)[i.before:], func(p Problem) bool {
		below, ok := strings.CutPrefix(p.Path, at)
		return ok && (below == "" || below[0] == '.' || below[0] == '[')
	})
}

// leaf reads a scalar.
func (d *decoder) leaf(n *yaml.Node, path string, to leaf) {
	what, tags := to.form()
	if n.Kind != yaml.ScalarNode || !slices.Contains(strings.Fields(tags), n.Tag) {
		d.wrongType(n, path, what)
		return
	}
	f := to.parse(n.Value)
	if _, ok := to.(*pattern); !ok && !d.logged { // a pattern may be about what is invisible
		if hidden := invisible(n.Value); hidden != (fault{}) {
			f = hidden
		}
	}
	if f != (fault{}) {
		d.report(n, path, f)
	}
}

// sequence reads a list.
func (d *decoder) sequence(n *yaml.Node, path string, out reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.wrongType(n, path, "a list")
		return
	}
	if len(n.Content) == 0 {
		return // the same as no list
	}
	out.Set(reflect.MakeSlice(out.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.value(item, fmt.Sprintf("%s[%d]", path, i), out.Index(i))
	}
}

// mapping reads the fields of a struct.
func (d *decoder) mapping(n *yaml.Node, path string, out reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.wrongType(n, path, "a mapping of fields")
		return
	}
	fields := d.schema.of(out.Type())
	seen := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		at := join(path, shown(key.Value))
		field, known := find(fields, key.Value)
		switch first := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode || fancy(key) != (fault{}) || key.Tag == "!!merge":
			d.report(key, path, fault{codeFancy, "a key that is not a plain word", "write the field's name"})
		case first != nil:
			d.report(key, at, fault{codeDuplicateKey, fmt.Sprintf("duplicate key (first at %d:%d)", first.Line, first.Column), "remove one of them"})
		case !known:
			d.report(key, at, unknownField(key.Value, fields))
		default:
			seen[key.Value] = key
			d.value(val, at, out.FieldByIndex(field.index))
			if field.nonempty && val.Kind == yaml.MappingNode && len(val.Content) == 0 {
				d.report(val, at, fault{codeEmpty, "an empty mapping", "omit the field or give it a value"})
			}
			if val.Kind == yaml.SequenceNode {
				d.list(val, at, field)
			}
		}
	}
	for _, field := range fields {
		if field.required && seen[field.name] == nil {
			d.report(n, join(path, field.name), fault{codeRequired, "missing", "add " + field.name})
		}
	}
}

// list checks the constraints between the items of a list.
func (d *decoder) list(n *yaml.Node, path string, field field) {
	if field.nonempty && len(n.Content) == 0 {
		d.report(n, path, fault{codeEmpty, "an empty list", "omit the field or give it a value"})
	}
	if !field.unique {
		return
	}
	seen := make(map[string]*yaml.Node, len(n.Content))
	for i, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			continue
		}
		if first := seen[item.Value]; first != nil {
			d.report(item, fmt.Sprintf("%s[%d]", path, i), fault{
				codeDuplicate, fmt.Sprintf("duplicate %s (first at %d:%d)", shown(item.Value), first.Line, first.Column), "remove it",
			})
			continue
		}
		seen[item.Value] = item
	}
}

// wrongType reports what the node is and what it should be.
func (d *decoder) wrongType(n *yaml.Node, path, want string) {
	f := fault{codeWrongType, "", "write " + want}
	switch {
	case n.Kind == yaml.MappingNode:
		f.message = "a mapping"
	case n.Kind == yaml.SequenceNode:
		f.message = "a list"
	case n.Tag == "!!null":
		f = fault{codeEmpty, "no value", "omit the field or give it a value"}
	case n.Tag == "!!str":
		f.message = shown(n.Value) + " is a string"
	default:
		f.message = fmt.Sprintf("YAML reads %s as %s", shown(n.Value), shown(strings.TrimPrefix(n.Tag, "!!")))
	}
	d.report(n, path, f)
}

// shown quotes user input for a message, made safe and short.
func shown(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%.60q...", s)
	}
	if s == "" || printable(s, 60) != (fault{}) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// nearest returns the node at the path, or at the nearest path above it.
func (d *decoder) nearest(path string) *yaml.Node {
	for {
		if n := d.at[path]; n != nil || path == "" {
			return n
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// fancy rejects YAML features that policies do not need.
func fancy(n *yaml.Node) fault {
	switch {
	case n.Kind == yaml.AliasNode:
		return fault{codeFancy, "an alias", "write out the value"}
	case n.Anchor != "":
		return fault{codeFancy, "an anchor", "remove " + shown("&"+n.Anchor)}
	case n.Style&yaml.TaggedStyle != 0:
		return fault{codeFancy, "a tag", "remove " + shown(n.Tag)}
	}
	return fault{}
}

func unknownField(name string, fields []field) fault {
	var names []string
	for _, f := range fields {
		if !f.unsupported {
			names = append(names, f.name)
		}
	}
	return fault{codeUnknownField, "unknown field", suggest.Fix(name, names, "use "+oneOf(names))}
}

// join appends a field, or a path below it, to a path.
func join(path, field string) string {
	if path == "" || field == "" {
		return path + field
	}
	return path + "." + field
}
