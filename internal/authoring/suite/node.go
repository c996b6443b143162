package suite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/suggest"
)

// reader reads the nodes of a test file as strictly as policies are read, with the codes of package policyfile,
// and continues after a problem to find them all.
type reader struct {
	file     string
	problems policyfile.Problems
}

const (
	codeUnknownField  = "RP010"
	codeDuplicateKey  = "RP011"
	codeWrongType     = "RP012"
	codeRequired      = "RP013"
	codeDuplicateName = "RP022"
	codeUnknownValue  = "RP030"
	codeOutOfRange    = "RP032"
	codeBadDuration   = "RP034"
	codeBadTime       = "RP037"
	codeEmpty         = "RP038"
	codeConflict      = "RP042"
	codeImpossible    = "RP050" // a failure that no executor reports
)

// maxProblems limits how many problems a hostile file can cause.
const maxProblems = 200

func (r *reader) report(n *yaml.Node, path, code, message, fix string) {
	if len(r.problems) >= maxProblems {
		return
	}
	p := policyfile.Problem{File: r.file, Line: n.Line, Column: n.Column, Path: path, Code: code, Message: message, Fix: fix}
	if n.Kind == yaml.ScalarNode {
		p.Value = n.Value
	}
	r.problems = append(r.problems, p)
}

// object is a mapping with known fields.
type object struct {
	*reader
	node   *yaml.Node
	path   string
	fields map[string]*yaml.Node
}

// object reads a mapping that has only known fields.
func (r *reader) object(n *yaml.Node, path string, known ...string) object {
	o := object{reader: r, node: n, path: path, fields: map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		r.report(n, path, codeWrongType, kindOf(n), "write a mapping with "+strings.Join(known, ", "))
		return o
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := o.at(shown(key.Value))
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value):
			fix := suggest.Fix(key.Value, known, "use "+strings.Join(known, ", "))
			r.report(key, at, codeUnknownField, "unknown field", fix)
		case o.fields[key.Value] != nil:
			r.report(key, at, codeDuplicateKey, "duplicate key", "remove one of them")
		default:
			o.fields[key.Value] = n.Content[i+1]
		}
	}
	return o
}

func (o object) at(field string) string {
	if o.path == "" {
		return field
	}
	return o.path + "." + field
}

// need reports missing required fields.
func (o object) need(fields ...string) {
	for _, f := range fields {
		if o.fields[f] == nil && o.node.Kind == yaml.MappingNode {
			o.report(o.node, o.at(f), codeRequired, "missing", "add "+f)
		}
	}
}

// scalar returns the value of a field as written; "" if it is absent or invalid.
func (o object) scalar(field, what string, tags ...string) string {
	n := o.fields[field]
	if n == nil {
		return ""
	}
	return o.reader.scalar(n, o.at(field), what, tags...)
}

func (r *reader) scalar(n *yaml.Node, path, what string, tags ...string) string {
	switch {
	case n.Kind != yaml.ScalarNode || !slices.Contains(tags, n.Tag):
		r.report(n, path, codeWrongType, kindOf(n), "write "+what)
		return ""
	case n.Value == "":
		r.report(n, path, codeEmpty, "empty", "omit the field or give it a value")
	case n.Style&yaml.DoubleQuotedStyle != 0 && isFact(path): // written as an escape, and so meant
	case strings.ContainsFunc(n.Value, func(c rune) bool { return c < 0x20 && c != '\n' && c != '\t' || 0x7f <= c && c < 0xa0 }):
		r.report(n, path, codeWrongType, "a control character", "remove it")
	}
	return n.Value
}

// isFact reports whether a field says what happened, rather than what people call it: users' containers write control
// characters, and a recorded test has them.
func isFact(path string) bool {
	return strings.Contains(path, ".job.") || strings.Contains(path, ".fail.") || strings.Contains(path, ".avoidNodes[")
}

func (o object) text(field string) string { return o.scalar(field, "a string in quotes", "!!str") }

func (o object) bool(field string) bool {
	return o.scalar(field, "true or false", "!!bool") == "true"
}

// int reads a whole number; ok is false if it is absent or invalid.
func (o object) int(field string, least, most int64) (n int64, ok bool) {
	s := o.scalar(field, "a whole number", "!!int")
	if s == "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > most {
		o.report(o.fields[field], o.at(field), codeOutOfRange, fmt.Sprintf("not between %d and %d", least, most), "choose a number in this range")
		return 0, false
	}
	return n, true
}

func (o object) duration(field string) *time.Duration {
	s := o.scalar(field, `a duration with a unit, such as "10s"`, "!!str")
	if s == "" {
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		o.report(o.fields[field], o.at(field), codeBadDuration, "not a duration with units", `write a duration such as "500ms", "10s" or "1h30m"`)
		return nil
	}
	return &d
}

func (o object) time(field string) (time.Time, bool) {
	s := o.scalar(field, "a time such as 2026-12-01T06:00:00Z", "!!str", "!!timestamp")
	if s == "" {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || at.Year() < 1970 || at.Year() > 2200 {
		o.report(o.fields[field], o.at(field), codeBadTime, "not an RFC 3339 time", "write a time such as 2026-12-01T06:00:00Z")
		return time.Time{}, false
	}
	return at, true
}

// list returns the items of a list field.
func (o object) list(field string) []*yaml.Node {
	n := o.fields[field]
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		o.report(n, o.at(field), codeWrongType, kindOf(n), "write a list")
		return nil
	}
	return n.Content
}

func (o object) texts(field string) []string {
	var all []string
	for i, n := range o.list(field) {
		all = append(all, o.reader.scalar(n, fmt.Sprintf("%s[%d]", o.at(field), i), "a string in quotes", "!!str"))
	}
	return all
}

// kindOf describes a node.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "no value"
	}
	return fmt.Sprintf("YAML reads %s as %s", shown(n.Value), shown(strings.TrimPrefix(n.Tag, "!!")))
}

// shown quotes user input for a message, made safe and short.
func shown(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%.60q...", s)
	}
	if q := strconv.Quote(s); s == "" || q != `"`+s+`"` {
		return q
	}
	return s
}
