package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// The canonical encoding of content is JSON in UTF-8 without white space:
// version, settings, policies by name, queues by name; keys sorted, only fields
// that were set, numbers and durations in their one canonical form.

// ParseCanonical reads what Canonical returned. Any other bytes are refused:
// the Set it returns has exactly these canonical bytes.
func ParseCanonical(data []byte) (*Set, error) {
	root, err := nodeOfJSON(data)
	if err != nil {
		return nil, fmt.Errorf("parse canonical policies: %w", err)
	}
	var problems Problems
	c := &content{}
	newDecoder("canonical", &problems, schema{}).value(root, "", reflect.ValueOf(c).Elem())
	problems = append(problems, c.duplicates()...)
	if len(problems) > 0 {
		return nil, fmt.Errorf("parse canonical policies: %w", problems)
	}
	s := build(c)
	if !bytes.Equal(s.canonical, data) {
		return nil, errors.New("parse canonical policies: not in canonical form")
	}
	return s, nil
}

// duplicates finds names that only ParseCanonical has to look for: Parse finds
// them with the place where they stand.
func (c *content) duplicates() (problems Problems) {
	seen := make(map[string]bool)
	once := func(kind, name string) {
		if seen[kind+name] {
			problems = append(problems, Problem{File: "canonical", Path: kind, Code: codeDuplicateName, Message: "duplicate " + strconv.Quote(name), Fix: "keep one"})
		}
		seen[kind+name] = true
	}
	for i := range c.Policies {
		once("policies", string(c.Policies[i].Name))
	}
	for i := range c.Queues {
		once("queues", string(c.Queues[i].Name))
	}
	return problems
}

// encode returns the canonical encoding of what v, a pointer, points to.
func encode(v any) []byte { return schema{}.append(nil, reflect.ValueOf(v).Elem()) }

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

// appendString writes a JSON string. No string of a Set holds a control
// character or invalid UTF-8, so quotes and backslashes are all there is.
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

// nodeOfJSON reads JSON into the nodes that the decoder takes, without places.
func nodeOfJSON(data []byte) (*yaml.Node, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	n, err := nextNode(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the end")
	}
	return n, nil
}

func nextNode(d *json.Decoder, depth int) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode}
	switch t := token.(type) {
	case string:
		n.Tag, n.Value = "!!str", t
	case json.Number:
		n.Tag, n.Value = "!!int", t.String()
		if strings.Contains(n.Value, ".") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(t)
	case nil:
		n.Tag = "!!null"
	case json.Delim:
		n.Kind = yaml.MappingNode
		if t == '[' {
			n.Kind = yaml.SequenceNode
		}
		if depth > maxDepth {
			return nil, errors.New("nested too deeply")
		}
		for d.More() {
			child, err := nextNode(d, depth+1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err = d.Token() // the closing bracket
	}
	return n, err
}
