package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

// The forms of an answer, as -o names them. ListForms are those of a list.
const (
	FormTable  = "table"
	FormWide   = "wide"
	FormJSON   = "json"
	FormYAML   = "yaml"
	FormName   = "name"
	FormCustom = "custom-columns"
)

// ListForms returns the values of -o of a list.
func ListForms() []string {
	return []string{FormTable, FormWide, FormJSON, FormYAML, FormName, FormCustom}
}

// ListHelp explains them.
const ListHelp = "table (for people), wide, json (one object a line, stable), yaml, name, or custom-columns=HEADING:.field,… with fields of the JSON form"

// UnknownForm is a value of -o that a command does not have.
func UnknownForm(form string, of ...string) error { return suggest.Unknown("-o", form, of...) }

// Rows describes how the rows of a list are printed. Their JSON form is that of the values.
type Rows[T any] struct {
	Columns []Column[T]
	Name    func(T) string // what -o name prints
}

// Column is one column of a table.
type Column[T any] struct {
	Heading string
	Wide    bool // only with -o wide
	Cell    func(T) string
}

// Printer returns the function that prints a row, and the one that ends what was printed
// since it was last called.
func (r *Rows[T]) Printer(w io.Writer, form string) (row func(T) error, end func() error, err error) {
	nothing := func() error { return nil }
	switch {
	case form == FormJSON:
		enc := JSONLines(w)
		return func(v T) error { return enc.Encode(v) }, nothing, nil
	case form == FormYAML:
		return func(v T) error { return WriteYAML(w, v) }, nothing, nil
	case form == FormName:
		return func(v T) error {
			_, err := fmt.Fprintln(w, query.OneLine(r.Name(v)))
			return err
		}, nothing, nil
	case form == FormTable || form == FormWide:
		return tableOf(w, r.shown(form == FormWide))
	case strings.HasPrefix(form, FormCustom+"="):
		columns, err := r.custom(strings.TrimPrefix(form, FormCustom+"="))
		if err != nil {
			return nil, nil, err
		}
		return tableOf(w, columns)
	}
	return nil, nil, UnknownForm(form, ListForms()...)
}

func (r *Rows[T]) shown(wide bool) (columns []Column[T]) {
	for _, c := range r.Columns {
		if wide || !c.Wide {
			columns = append(columns, c)
		}
	}
	return columns
}

func tableOf[T any](w io.Writer, columns []Column[T]) (row func(T) error, end func() error, err error) {
	var headings []string
	for _, c := range columns {
		headings = append(headings, c.Heading)
	}
	t := NewTable(w, headings...)
	return func(v T) error {
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.Cell(v))
		}
		t.Row(cells...)
		return nil
	}, t.Flush, nil
}

// custom reads columns such as JOB:.jobId,NODE:.attempts[0].node.
func (r *Rows[T]) custom(spec string) (columns []Column[T], err error) {
	for part := range strings.SplitSeq(spec, ",") {
		heading, path, ok := strings.Cut(part, ":")
		path = strings.TrimPrefix(path, ".")
		if !ok || heading == "" || path == "" {
			return nil, fmt.Errorf("-o custom-columns: %q is no column: write HEADING:.field", part)
		}
		steps := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
		columns = append(columns, Column[T]{Heading: heading, Cell: func(v T) string { return fieldText(v, steps) }})
	}
	return columns, nil
}

// fieldText finds a field of an object's JSON form; "": there is none.
func fieldText(object any, steps []string) string {
	raw, err := json.Marshal(object)
	if err != nil {
		return ""
	}
	for _, step := range steps {
		var fields map[string]json.RawMessage
		var list []json.RawMessage
		var n int
		switch {
		case json.Unmarshal(raw, &fields) == nil:
			raw = fields[step]
		case json.Unmarshal(raw, &list) == nil && json.Unmarshal([]byte(step), &n) == nil && n >= 0 && n < len(list):
			raw = list[n]
		default:
			return ""
		}
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// WriteYAML writes the JSON form of an object as a YAML document.
func WriteYAML(w io.Writer, object any) error {
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(raw, &node); err != nil {
		return err
	}
	blockStyle(&node)
	var b bytes.Buffer
	b.WriteString("---\n")
	enc := yaml.NewEncoder(&b)
	if err := enc.Encode(&node); err != nil {
		return err
	}
	if err := enc.Close(); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

// blockStyle removes the style of JSON.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}
