package suite

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// updated returns the suite's file with failed expectations replaced by the actual outcomes, and outcomes added
// where nothing was expected. Everything else, including comments and layout, stays: only values change in the
// text.
func (s *Suite) updated(results []Result) ([]byte, error) {
	u := &update{file: s.File, data: s.data}
	for i := range results {
		r := &results[i]
		if r.Err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", s.File, r.Test.Line, r.Test.Name, r.Err)
		}
		for k := range r.Steps {
			u.step(&r.Steps[k], r.Test.Start)
		}
	}
	if u.err != nil {
		return nil, u.err
	}
	return u.apply(), nil
}

// update collects changes of a text.
type update struct {
	file  string
	data  []byte
	edits []edit
	err   error
}

type edit struct {
	from, to int
	text     string
}

func (u *update) step(s *Step, start int64) {
	if s.Event.expect == nil || len(s.Event.expect.Content) == 0 {
		u.append(s.Event, "expect: "+Expectation(&s.Outcome, start))
		return
	}
	for _, d := range s.Diffs {
		i := slices.IndexFunc(s.Event.Expect, func(w Want) bool { return w.Field == d.Field })
		u.replace(s.Event.Expect[i].node, written(d.Field, d.Got))
	}
}

// Expectation formats an outcome as a test expects it, in YAML's flow style.
func Expectation(o *Outcome, start int64) string {
	var fields []string
	add := func(name, field string) { fields = append(fields, name+": "+written(field, o.value(field, start))) }
	if o.Decision != nil || o.NotDecided != nil {
		add("decision", "decision")
		add("code", "code")
	}
	if o.Decision != nil {
		if o.value("rule", start) != none {
			add("rule", "rule")
		}
		if o.Decision.Requeue {
			add("delay", "delay")
			add("retryAfter", "retryAfter")
			if len(o.Decision.AvoidNodes) > 0 {
				add("avoidNodes", "avoidNodes")
			}
		}
		left := "left: {"
		if o.value("left.rule", start) != none {
			left += "rule: " + o.value("left.rule", start) + ", "
		}
		fields = append(fields, left+"global: "+o.value("left.global", start)+"}")
		if u := o.Decision.Budget; u != nil && u.Effect != policy.BudgetGranted {
			add("budget", "budget")
		}
	}
	if o.Group != nil {
		fields = append(fields, o.Group.expectation()...)
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// written formats a value as YAML.
func written(field, value string) string {
	if isMembers(field) && value != "" && !strings.Contains(value, ", ") {
		return quoted(value)
	}
	if field == "avoidNodes" || field == "skippedPolicies" || isMembers(field) {
		var items []string
		for item := range strings.SplitSeq(value, ", ") {
			if item != "" {
				items = append(items, quoted(item))
			}
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	if field == "shadow" || strings.HasPrefix(field, "left.") || strings.HasPrefix(field, "generations.") {
		return value
	}
	return quoted(value)
}

// plainly matches what YAML reads as a string without quotes, also in flow style.
var (
	plainly  = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_./#-]*|[0-9]+(\.[0-9]+)?(ms|s|m|h)([0-9]+(\.[0-9]+)?(ms|s|m|h))*)$`)
	reserved = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
)

func quoted(s string) string {
	if plainly.MatchString(s) && !slices.Contains(reserved, strings.ToLower(s)) {
		return s
	}
	return strconv.Quote(strings.ToValidUTF8(s, "\uFFFD")) // of a byte, YAML would read a character
}

// offset returns where a node begins in the text.
func (u *update) offset(n *yaml.Node) int {
	at := 0
	for range n.Line - 1 {
		at += bytes.IndexByte(u.data[at:], '\n') + 1
	}
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(u.data[at:])
		at += size
	}
	return at
}

var errLayout = errors.New("cannot be replaced in this layout: write it on one line, with lists as [a, b]")

// end returns where a node ends in the text.
func (u *update) end(n *yaml.Node) (int, error) {
	from := u.offset(n)
	switch {
	case n.Kind == yaml.ScalarNode && n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return 0, errLayout
	case n.Kind == yaml.ScalarNode && n.Style&yaml.DoubleQuotedStyle != 0:
		for i := from + 1; i < len(u.data); i++ {
			switch u.data[i] {
			case '\\':
				i++
			case '"':
				return i + 1, nil
			}
		}
	case n.Kind == yaml.ScalarNode && n.Style&yaml.SingleQuotedStyle != 0:
		for i := from + 1; i < len(u.data); i++ {
			if u.data[i] != '\'' {
				continue
			}
			if i+1 < len(u.data) && u.data[i+1] == '\'' {
				i++
				continue
			}
			return i + 1, nil
		}
	case n.Kind == yaml.ScalarNode && bytes.HasPrefix(u.data[from:], []byte(n.Value)):
		return from + len(n.Value), nil
	case n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode:
		return u.collectionEnd(n, from)
	}
	return 0, errLayout
}

func (u *update) collectionEnd(n *yaml.Node, from int) (int, error) {
	at := from + 1
	if len(n.Content) > 0 {
		var err error
		if at, err = u.end(n.Content[len(n.Content)-1]); err != nil {
			return 0, err
		}
	}
	if n.Style&yaml.FlowStyle == 0 {
		return at, nil
	}
	for ; at < len(u.data); at++ { // what is allowed before the closing bracket
		switch c := u.data[at]; {
		case c == '}' || c == ']':
			return at + 1, nil
		case c == '#':
			at += max(0, bytes.IndexByte(u.data[at:], '\n')-1)
		case c != ' ' && c != '\n' && c != '\r' && c != '\t' && c != ',':
			return 0, errLayout
		}
	}
	return 0, errLayout
}

func (u *update) replace(n *yaml.Node, text string) {
	to, err := u.end(n)
	if err == nil && n.Kind != yaml.ScalarNode && n.Style&yaml.FlowStyle == 0 {
		err = errLayout
	}
	if err != nil {
		u.refuse(n, err)
		return
	}
	u.edits = append(u.edits, edit{u.offset(n), to, text})
}

// append adds a field to an event, or fills in its empty one.
func (u *update) append(e *Event, text string) {
	if e.expect != nil {
		u.replace(e.expect, strings.TrimPrefix(text, "expect: "))
		return
	}
	at, err := u.end(e.node.Content[len(e.node.Content)-1])
	if err != nil {
		u.refuse(e.node, err)
		return
	}
	if e.node.Style&yaml.FlowStyle != 0 {
		u.edits = append(u.edits, edit{at, at, ", " + text})
		return
	}
	if eol := bytes.IndexByte(u.data[at:], '\n'); eol >= 0 {
		at += eol
	} else {
		at = len(u.data)
	}
	u.edits = append(u.edits, edit{at, at, "\n" + strings.Repeat(" ", e.node.Content[0].Column-1) + text})
}

func (u *update) refuse(n *yaml.Node, err error) {
	u.err = errors.Join(u.err, fmt.Errorf("%s:%d:%d: %w", u.file, n.Line, n.Column, err))
}

func (u *update) apply() []byte {
	slices.SortStableFunc(u.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out []byte
	at := 0
	for _, e := range u.edits {
		out = append(out, u.data[at:e.from]...)
		out = append(out, e.text...)
		at = e.to
	}
	return append(out, u.data[at:]...)
}

// Update returns the suite's file with failed expectations replaced by the actual outcomes, keeping comments and
// layout, and verifies that the new file passes.
func (s *Suite) Update(results []Result, policies Policies) ([]byte, error) {
	data, err := s.updated(results)
	if err != nil || bytes.Equal(data, s.data) {
		return data, err
	}
	again, err := Parse(policyfile.File{Name: s.File, Data: data})
	if err != nil {
		return nil, fmt.Errorf("the updated file would be invalid: %w", err)
	}
	for i := range again.Tests {
		if r := again.Run(&again.Tests[i], policies); r.Failed() {
			return nil, fmt.Errorf("the updated file would not pass:\n%s", r.Explain(s.File))
		}
	}
	return data, nil
}
