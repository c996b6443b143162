package policyfile

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// contentReader reads the canonical encoding. It reuses the policies, group policies and bindings of another content
// that have the same text, and decodes the others.
type contentReader struct {
	content
	problems Problems

	json     reader
	known    schema
	policies map[string]*compiled // those of the other content, by text
	groups   map[string]*compiledGroup
	bindings map[string]*binding
}

func newContentReader(text string, other *content) *contentReader {
	r := &contentReader{
		json: reader{text: text}, known: schema{},
		policies: make(map[string]*compiled, len(other.policies)),
		groups:   make(map[string]*compiledGroup, len(other.groups)),
		bindings: make(map[string]*binding, len(other.bindings)),
	}
	for _, p := range other.policies {
		r.policies[p.text] = p
	}
	for _, g := range other.groups {
		r.groups[g.text] = g
	}
	for _, b := range other.bindings {
		r.bindings[b.text] = b
	}
	return r
}

// read reads everything. Its error is a syntax error; problems holds all other problems.
func (r *contentReader) read() error {
	j := &r.json
	rest := &yaml.Node{Kind: yaml.MappingNode} // everything but the lists
	err := j.items('{', '}', func() error {
		key, err := j.key()
		switch {
		case err != nil:
			return err
		case key.Value == "policies" && j.next() == '[':
			return j.items('[', ']', listed(r, key.Value, r.policies, &r.content.policies, newPolicy))
		case key.Value == "groupPolicies" && j.next() == '[':
			return j.items('[', ']', listed(r, key.Value, r.groups, &r.content.groups, newGroup))
		case key.Value == "queues" && j.next() == '[':
			return j.items('[', ']', listed(r, key.Value, r.bindings, &r.content.bindings, newBinding))
		case key.Value == "retryBudgets" && j.next() == '[':
			return j.items('[', ']', listed(r, key.Value, nil, &r.budgets, newBudget))
		}
		value, err := j.value(0)
		rest.Content = append(rest.Content, key, value)
		return err
	})
	if err != nil {
		return err
	}
	if j.at < len(j.text) {
		return fmt.Errorf("%w: data after the end", errNotCanonical)
	}
	var envelope struct {
		Version  version      `file:"version" must:"required"`
		Settings settingsSpec `file:"settings"`
	}
	r.decode(rest, "", &envelope)
	r.settings = envelope.Settings
	return nil
}

// listed returns what reads an item of a list: one of the other content if that has it, else as what was written is compiled.
func listed[Written, Compiled any](r *contentReader, list string, known map[string]*Compiled, to *[]*Compiled, compile func(*Written, schema) *Compiled) func() error {
	return func() error {
		text, err := r.json.extent()
		if err != nil {
			return err
		}
		item := known[text]
		if item == nil {
			var written Written
			ok, err := r.decodeText(text, fmt.Sprintf("%s[%d]", list, len(*to)), &written)
			if err != nil || !ok {
				return err
			}
			item = compile(&written, r.known)
		}
		*to = append(*to, item)
		return nil
	}
}

// decodeText decodes a text into out, a pointer. It copies the text, so that the result does not keep the whole
// input alive.
func (r *contentReader) decodeText(text, path string, out any) (ok bool, err error) {
	part := reader{text: strings.Clone(text)}
	n, err := part.value(0)
	if err != nil {
		return false, err
	}
	return r.decode(n, path, out), nil
}

func (r *contentReader) decode(n *yaml.Node, path string, out any) (ok bool) {
	before := len(r.problems)
	d := newDecoder("canonical", &r.problems, r.known)
	d.logged = true
	d.value(n, path, reflect.ValueOf(out).Elem())
	return len(r.problems) == before
}

// reader reads JSON as Canonical writes it: no white space, and in strings no escapes but \" and \\. It checks
// only as much as it needs for parsing.
type reader struct {
	text string
	at   int
}

var errNotCanonical = errors.New("not in canonical form")

// next returns the next byte, 0 at the end.
func (r *reader) next() byte {
	if r.at >= len(r.text) {
		return 0
	}
	return r.text[r.at]
}

// skip consumes an expected byte.
func (r *reader) skip(c byte) error {
	if r.next() != c {
		return fmt.Errorf("%w: no %c at byte %d", errNotCanonical, c, r.at)
	}
	r.at++
	return nil
}

// items iterates over an object or a list, calling item for each item.
func (r *reader) items(first, last byte, item func() error) error {
	if err := r.skip(first); err != nil {
		return err
	}
	if r.next() == last {
		return r.skip(last)
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if r.next() != ',' {
			return r.skip(last)
		}
		r.at++
	}
}

// extent consumes an object and returns its text.
func (r *reader) extent() (string, error) {
	start, depth := r.at, 0
	for ; r.at < len(r.text); r.at++ {
		switch r.text[r.at] {
		case '"':
			r.toQuote()
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth == 0 {
			break
		}
	}
	if err := r.skip('}'); err != nil {
		return "", err
	}
	return r.text[start:r.at], nil
}

// toQuote moves from a string's opening quote to its closing one, and reports whether there are escapes in
// between.
func (r *reader) toQuote() (escapes bool) {
	for r.at++; r.at < len(r.text) && r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			escapes = true
			r.at++
		}
	}
	r.at = min(r.at, len(r.text))
	return escapes
}

// key reads an object key and its colon.
func (r *reader) key() (*yaml.Node, error) {
	n, err := r.string()
	if err != nil {
		return nil, err
	}
	return n, r.skip(':')
}

func (r *reader) string() (*yaml.Node, error) {
	if r.next() != '"' {
		return nil, r.skip('"')
	}
	start := r.at + 1
	escapes := r.toQuote()
	text := r.text[start:r.at]
	if escapes {
		text = unescaped(text)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}, r.skip('"')
}

// unescaped removes the backslashes that escape.
func unescaped(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}

// value reads any value into nodes for the decoder, without positions.
func (r *reader) value(depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deeply")
	}
	n := &yaml.Node{}
	item := func() error {
		value, err := r.value(depth + 1)
		n.Content = append(n.Content, value)
		return err
	}
	switch r.next() {
	case '"':
		return r.string()
	case '[':
		n.Kind = yaml.SequenceNode
		return n, r.items('[', ']', item)
	case '{':
		n.Kind = yaml.MappingNode
		return n, r.items('{', '}', func() error {
			key, err := r.key()
			n.Content = append(n.Content, key)
			if err != nil {
				return err
			}
			return item()
		})
	}
	rest := r.text[r.at:]
	n.Kind, n.Value = yaml.ScalarNode, rest[:len(rest)-len(strings.TrimLeft(rest, "+-.0123456789abcdefghijklmnopqrstuvwxyz"))]
	r.at += len(n.Value)
	switch {
	case n.Value == "":
		return nil, fmt.Errorf("%w: no value at byte %d", errNotCanonical, r.at)
	case n.Value == "null":
		n.Tag = "!!null"
	case n.Value == "true" || n.Value == "false":
		n.Tag = "!!bool"
	case strings.Contains(n.Value, "."):
		n.Tag = "!!float"
	default:
		n.Tag = "!!int"
	}
	return n, nil
}
