package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/suggest"
)

const (
	outputWide    = "wide"
	outputName    = "name"
	customColumns = "custom-columns="
)

// listOutputs are the values of -o of a list.
var listOutputs = []string{outputTable, outputWide, outputJSON, outputYAML, outputName, "custom-columns"}

const listOutputHelp = "table (for people), wide, json (one object a line, stable), yaml, name, or custom-columns=HEADING:.field,… with fields of the JSON form"

// rows describes how the rows of a list are printed.
type rows[T any] struct {
	columns []column[T]
	name    func(T) string // what -o name prints
	object  func(T) any    // the JSON form
}

// column is one column of a table.
type column[T any] struct {
	heading string
	wide    bool // only with -o wide
	cell    func(T) string
}

// printer returns the function that prints a row, and the one that ends what was printed
// since it was last called.
func (r *rows[T]) printer(w io.Writer, output string) (row func(T) error, end func() error, err error) {
	nothing := func() error { return nil }
	switch {
	case output == outputJSON:
		enc := jsonLines(w)
		return func(v T) error { return enc.Encode(r.object(v)) }, nothing, nil
	case output == outputYAML:
		return func(v T) error { return writeYAML(w, r.object(v)) }, nothing, nil
	case output == outputName:
		return func(v T) error {
			_, err := fmt.Fprintln(w, oneLine(r.name(v)))
			return err
		}, nothing, nil
	case output == outputTable || output == outputWide:
		return tableOf(w, r.shown(output == outputWide))
	case strings.HasPrefix(output, customColumns):
		columns, err := r.custom(strings.TrimPrefix(output, customColumns))
		if err != nil {
			return nil, nil, err
		}
		return tableOf(w, columns)
	}
	return nil, nil, badListOutput(output)
}

func badListOutput(output string) error {
	return usageError{suggest.Unknown("-o", output, listOutputs...)}
}

func (r *rows[T]) shown(wide bool) (columns []column[T]) {
	for _, c := range r.columns {
		if wide || !c.wide {
			columns = append(columns, c)
		}
	}
	return columns
}

func tableOf[T any](w io.Writer, columns []column[T]) (row func(T) error, end func() error, err error) {
	var headings []string
	for _, c := range columns {
		headings = append(headings, c.heading)
	}
	t := newTable(w, headings...)
	return func(v T) error {
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.cell(v))
		}
		t.row(cells...)
		return nil
	}, t.flush, nil
}

// custom reads columns such as JOB:.jobId,NODE:.attempts[0].node.
func (r *rows[T]) custom(spec string) (columns []column[T], err error) {
	for part := range strings.SplitSeq(spec, ",") {
		heading, path, ok := strings.Cut(part, ":")
		path = strings.TrimPrefix(path, ".")
		if !ok || heading == "" || path == "" {
			return nil, usageError{fmt.Errorf("-o custom-columns: %q is no column: write HEADING:.field", part)}
		}
		steps := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
		columns = append(columns, column[T]{heading: heading, cell: func(v T) string { return fieldText(r.object(v), steps) }})
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

// writeYAML writes the JSON form of an object as a YAML document.
func writeYAML(w io.Writer, object any) error {
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
