package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/suggest"
)

// document is one manifest, with the position of each of its fields.
type document struct {
	*conversion
	system *system
	file   string
	root   *yaml.Node
	kind   string
	name   string
	value  any                   // a pointer to the system's type
	at     map[string]*yaml.Node // by path
	set    []setField            // what the manifest sets, in its order
	extra  map[string]*yaml.Node // fields that the type does not have and the system knows
	nodes  int
	failed bool
}

// kubernetes is the version of Kubernetes whose API the types are: that of k8s.io/api in go.mod.
const kubernetes = "1.37"

// setField is a field that a manifest sets.
type setField struct {
	path string // spec.rules[2].action
	row  string // spec.rules.action: as tables have it
	node *yaml.Node
	// clear takes the value away again: what a table drops has no effect later.
	clear func()
}

// decode reads a node into out, which must be settable, strictly: unknown fields and wrong types are errors, and it goes
// on after one to find them all. Null is the same as not set, as for Kubernetes.
func (d *document) decode(n *yaml.Node, path, row string, out reflect.Value) {
	n = d.follow(n, path)
	if n == nil {
		return
	}
	d.at[path] = n
	if n.ShortTag() == "!!null" {
		return
	}
	if path != "" {
		d.set = append(d.set, setField{path, row, n, out.SetZero})
	}
	for out.Kind() == reflect.Pointer {
		out.Set(reflect.New(out.Type().Elem()))
		out = out.Elem()
	}
	if to, ok := reflect.TypeAssert[json.Unmarshaler](out.Addr()); ok {
		d.custom(n, path, to)
		return
	}
	switch out.Kind() {
	case reflect.Struct:
		d.mapping(n, path, row, out)
	case reflect.Slice:
		if out.Type().Elem().Kind() == reflect.Uint8 {
			d.bytes(n, path, out)
			return
		}
		if !d.is(n, path, yaml.SequenceNode, "a list") {
			return
		}
		out.Set(reflect.MakeSlice(out.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.decode(item, fmt.Sprintf("%s[%d]", path, i), row, out.Index(i))
		}
	case reflect.Map:
		d.dictionary(n, path, row, out)
	default:
		d.scalar(n, path, out)
	}
}

// follow returns what an alias stands for; nil if the document is too large with all of its aliases.
func (d *document) follow(n *yaml.Node, path string) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.fail(path, "too large with all aliases expanded", "write out less")
		}
		return nil
	}
	return n
}

func (d *document) is(n *yaml.Node, path string, kind yaml.Kind, want string) bool {
	if n.Kind == kind {
		return true
	}
	d.wrongType(n, path, want)
	return false
}

func (d *document) wrongType(n *yaml.Node, path, want string) {
	d.at[path] = n
	what := map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list"}[n.Kind]
	if n.Kind == yaml.ScalarNode {
		what = fmt.Sprintf("YAML reads %s as %s", shown(n.Value), shown(strings.TrimPrefix(n.ShortTag(), "!!")))
	}
	d.fail(path, what, "write "+want)
}

// mapping reads the fields of a struct.
func (d *document) mapping(n *yaml.Node, path, row string, out reflect.Value) {
	if !d.is(n, path, yaml.MappingNode, "a mapping of fields") {
		return
	}
	fields := fieldsOf(out.Type())
	for _, e := range d.entries(n, path) {
		at, rowAt := join(path, shown(e.key.Value)), join(row, e.key.Value)
		if i := slices.IndexFunc(fields, func(f structField) bool { return f.name == e.key.Value }); i >= 0 {
			if f, ok := d.system.row(rowAt, ""); ok && f.Treatment == Ignored {
				continue // not even read: what a server writes there changes with its version
			}
			d.decode(e.value, at, rowAt, out.FieldByIndex(fields[i].index))
			continue
		}
		d.at[at] = e.key
		if d.system.knows(rowAt) {
			if v := d.follow(e.value, at); v != nil && v.ShortTag() != "!!null" {
				d.at[at], d.extra[at] = v, v
				d.set = append(d.set, setField{at, rowAt, v, func() { delete(d.extra, at) }})
			}
			continue
		}
		names := make([]string, len(fields))
		for i, f := range fields {
			names[i] = f.name
		}
		d.failed = true
		why := "unknown field"
		if strings.HasPrefix(out.Type().PkgPath(), "k8s.io/") {
			why = "unknown field: neither Kubernetes " + kubernetes + " nor an earlier version has it"
		}
		d.report(Note{Kind: Error, Path: at, Why: why, Fix: suggest.Fix(e.key.Value, names, "remove it, or correct its name or indentation")})
	}
}

type entry struct{ key, value *yaml.Node }

// entries returns the entries of a mapping. Of a key that occurs twice, Kubernetes uses the last one.
func (d *document) entries(n *yaml.Node, path string) (out []entry) {
	last := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		at := join(path, shown(key.Value))
		switch first, twice := last[key.Value]; {
		case key.ShortTag() == "!!merge":
			d.at[at] = key
			d.fail(at, "a merge key", "write out the fields")
		case key.Kind != yaml.ScalarNode:
			d.at[path+"{}"] = key
			d.fail(path+"{}", "a key that is not a plain word", "write the field's name")
		case twice:
			d.at[at] = out[first].value
			d.noteRow(rowDuplicate, at, fmt.Sprintf("the one at %d:%d", n.Content[i+1].Line, n.Content[i+1].Column))
			out[first].value = n.Content[i+1]
		default:
			last[key.Value] = len(out)
			out = append(out, entry{key, n.Content[i+1]})
		}
	}
	return out
}

// dictionary reads a map, whose keys are texts.
func (d *document) dictionary(n *yaml.Node, path, row string, out reflect.Value) {
	if !d.is(n, path, yaml.MappingNode, "a mapping") {
		return
	}
	out.Set(reflect.MakeMap(out.Type()))
	for _, e := range d.entries(n, path) {
		value, first := reflect.New(out.Type().Elem()).Elem(), len(d.set)
		key := reflect.ValueOf(e.key.Value).Convert(out.Type().Key())
		d.decode(e.value, fmt.Sprintf("%s[%s]", path, shown(e.key.Value)), fmt.Sprintf("%s[%s]", row, e.key.Value), value)
		out.SetMapIndex(key, value)
		if len(d.set) > first {
			d.set[first].clear = func() { out.SetMapIndex(key, reflect.Value{}) }
		}
	}
}

// custom reads what has its own way of reading JSON: quantities, times, and numbers that may be texts.
func (d *document) custom(n *yaml.Node, path string, to json.Unmarshaler) {
	if _, ok := to.(*unread); ok {
		return
	}
	text, err := json.Marshal(plain(n, &d.nodes))
	if err == nil {
		err = to.UnmarshalJSON(text)
	}
	if m, ok := errors.AsType[*mistake](err); ok {
		d.fail(path, m.why, m.fix)
		return
	}
	if err != nil {
		d.fail(path, fmt.Sprintf("%s: %.200v", shown(n.Value), err), "write a value of the type that the API asks for")
	}
}

// plain converts a node to what encoding/json writes. It stops after maxNodes.
func plain(n *yaml.Node, nodes *int) any {
	if *nodes++; *nodes > maxNodes {
		return nil
	}
	if n.Kind == yaml.AliasNode {
		return plain(n.Alias, nodes)
	}
	if n.Kind == yaml.MappingNode {
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = plain(n.Content[i+1], nodes)
		}
		return m
	}
	if n.Kind == yaml.SequenceNode {
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = plain(item, nodes)
		}
		return list
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int":
		if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			return i
		}
	case "!!float":
		if json.Valid([]byte(n.Value)) {
			return json.Number(n.Value)
		}
	}
	return n.Value
}

// bytes reads what JSON holds in base64.
func (d *document) bytes(n *yaml.Node, path string, out reflect.Value) {
	text, err := json.Marshal(n.Value)
	if err == nil && d.is(n, path, yaml.ScalarNode, "a text in base64") {
		if err = json.Unmarshal(text, out.Addr().Interface()); err != nil {
			d.wrongType(n, path, "a text in base64")
		}
	}
}

func (d *document) scalar(n *yaml.Node, path string, out reflect.Value) {
	tag := n.ShortTag()
	switch out.Kind() {
	case reflect.String:
		if text, ok := placeholder(n); ok {
			out.SetString(text)
			d.noteRow(rowPlaceholder, path, text)
			return
		}
		if n.Kind != yaml.ScalarNode || tag != "!!str" && tag != "!!timestamp" {
			d.wrongType(n, path, "a text in quotes")
			return
		}
		out.SetString(n.Value)
	case reflect.Bool:
		if tag != "!!bool" {
			d.wrongType(n, path, "true or false")
			return
		}
		out.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int, reflect.Int32, reflect.Int64:
		i, err := strconv.ParseInt(n.Value, 0, out.Type().Bits())
		if tag != "!!int" || err != nil {
			want := "a whole number"
			if out.Type().Bits() == 32 {
				want = fmt.Sprintf("a whole number up to %d", math.MaxInt32)
			}
			d.wrongType(n, path, want)
			return
		}
		out.SetInt(i)
	default:
		panic("convert: no way to read a " + out.Type().String())
	}
}

// placeholder recognises {{name}}, which a template has in place of a value and YAML reads as a mapping.
func placeholder(n *yaml.Node) (string, bool) {
	for depth := range 2 {
		if n.Kind != yaml.MappingNode || len(n.Content) != 2 || n.Content[1].ShortTag() != "!!null" {
			return "", false
		}
		n = n.Content[0]
		if depth == 1 && n.Kind == yaml.ScalarNode {
			return "{{" + n.Value + "}}", true
		}
	}
	return "", false
}

// structField is a field of a type as JSON names it.
type structField struct {
	name  string
	index []int
	typ   reflect.Type
}

// fieldsOf lists the fields of a struct, and those of the structs that it embeds.
func fieldsOf(t reflect.Type) (fields []structField) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && (name == "" || strings.Contains(options, "inline")):
			for _, inner := range fieldsOf(f.Type) {
				fields = append(fields, structField{inner.name, append([]int{i}, inner.index...), inner.typ})
			}
		case name != "" && name != "-":
			fields = append(fields, structField{name, []int{i}, f.Type})
		}
	}
	return fields
}

// join appends a field, or a path below it, to a path.
func join(path, field string) string {
	if path == "" || field == "" {
		return path + field
	}
	return path + "." + field
}
