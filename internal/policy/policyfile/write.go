package policyfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// YAML returns resources of the set as a file that Parse reads back unchanged: fields in the order of semantics.md
// 13, one document each. The set must have them.
func (s *Set) YAML(ids ...ID) ([]byte, error) {
	var b bytes.Buffer
	for i, id := range ids {
		file, err := s.file(id)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString("---\n")
		}
		enc := yaml.NewEncoder(&b)
		enc.SetIndent(2)
		enc.CompactSeqIndent()
		if err := enc.Encode(nodeOf(reflect.ValueOf(file).Elem())); err != nil {
			return nil, fmt.Errorf("write %s: %w", id, err)
		}
		if err := enc.Close(); err != nil {
			return nil, fmt.Errorf("write %s: %w", id, err)
		}
	}
	return escapeHidden(b.Bytes()), nil
}

// JSON returns a resource of the set as a JSON file that Parse reads back unchanged. The set must have it.
func (s *Set) JSON(id ID) ([]byte, error) {
	file, err := s.file(id)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(jsonOf(nodeOf(reflect.ValueOf(file).Elem())))
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", id, err)
	}
	return b, nil
}

// jsonOf converts a node for encoding/json.
func jsonOf(n *yaml.Node) any {
	if n.Kind == yaml.MappingNode {
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = jsonOf(n.Content[i+1])
		}
		return m
	}
	if n.Kind == yaml.SequenceNode {
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = jsonOf(item)
		}
		return list
	}
	switch n.Tag {
	case "!!int", "!!float":
		return json.Number(n.Value)
	case "!!bool":
		return n.Value == "true"
	}
	return n.Value
}

// file converts a resource to the form of a file of its own: a pointer to a struct of spec.go.
func (s *Set) file(id ID) (any, error) {
	at, ok := s.find(id)
	if !ok {
		return nil, fmt.Errorf("%s does not exist", id)
	}
	h := header{APIVersion: apiVersion, Kind: plain(id.Kind)}
	switch id.Kind {
	case KindPolicy:
		p := s.content.policies[at]
		f := &policyFile{header: h, Spec: p.Spec}
		f.Metadata.Name = p.Name
		return f, nil
	case KindGroup:
		g := s.content.groups[at]
		h.APIVersion = apiVersionGroup
		f := &groupFile{header: h, Spec: g.Spec}
		f.Metadata.Name = g.Name
		return f, nil
	case KindBudget:
		b := s.content.budgets[at]
		h.APIVersion = apiVersionGroup
		f := &budgetFile{header: h, Spec: b.Spec}
		f.Metadata.Name = b.Name
		return f, nil
	case KindQueue:
		return &queueFile{h, s.content.bindings[at].queueSpec}, nil
	default:
		return &settingsFile{h, s.content.settings}, nil
	}
}

// nodeOf writes a value in its readable form.
func nodeOf(v reflect.Value) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if l, ok := reflect.TypeAssert[leaf](v.Addr()); ok {
		return scalarOf(l)
	}
	switch v.Kind() {
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
		for i := range v.Len() {
			item := nodeOf(v.Index(i))
			if item.Kind != yaml.ScalarNode {
				n.Style = 0
			}
			n.Content = append(n.Content, item)
		}
		return n
	case reflect.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v.Bool())}
	default:
		return mappingOf(v)
	}
}

// mappingOf writes the fields that are set, in the order of spec.go.
func mappingOf(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, f := range (schema{}).inOrder(v.Type()) {
		value := v.FieldByIndex(f.index)
		if value.IsZero() && !f.mustShow(value) {
			continue // not set
		}
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: f.name}, nodeOf(value))
	}
	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle // {}
	}
	return n
}

// scalarOf writes a scalar such that it is read back with the same type.
func scalarOf(l leaf) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: l.text()}
	_, tags := l.form()
	switch to := l.(type) {
	case *duration:
		n.Value = Short(to.duration())
	case *pattern:
		n.Style = yaml.SingleQuotedStyle
	}
	if strings.IndexFunc(n.Value, hidden) >= 0 {
		n.Style = yaml.DoubleQuotedStyle // which has escapes (escapeHidden)
	}
	switch {
	case strings.Contains(tags, "!!timestamp"):
		n.Tag = "!!timestamp"
	case strings.Contains(tags, "!!str"):
		n.Tag = "!!str"
	case strings.Contains(n.Value, "."):
		n.Tag = "!!float"
	default:
		n.Tag = "!!int"
	}
	return n
}

// hidden reports whether a terminal acts on a character, or does not show it.
func hidden(r rune) bool {
	return r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
}

// escapeHidden writes hidden characters, which are in scalars in double quotes only, as YAML's escapes: a terminal does
// not see them, and a file with them stays readable.
func escapeHidden(text []byte) []byte {
	if bytes.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if hidden(r) {
			fmt.Fprintf(&b, `\U%08x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

// Short formats a duration without zero units: 10m, not 10m0s.
func Short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
