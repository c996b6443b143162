package oracle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Row is one row of an oracle file. Its parts are as encoding/json decodes them
// into any, with numbers as json.Number, after Expand.
type Row struct {
	ID     string
	Wrong  []string // what breaks the schema of its file: such a row is not run
	fields map[string]any
}

// about lists the fields that describe a row, and are neither input nor expectation.
var about = []string{"id", "name", "note", "source", "representable"}

// Load reads the rows of a file of testdata/oracles.
func Load(file string) ([]Row, error) {
	dir, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "testdata", "oracles", file))
	if err != nil {
		return nil, err
	}
	schema, err := ReadSchema()
	if err != nil {
		return nil, err
	}
	return schema.read(file, data)
}

// read reads the text of a file.
func (s *Schema) read(file string, data []byte) ([]Row, error) {
	var all struct{ Rows []any }
	if err := decode(data, &all, false); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	rows, seen := make([]Row, len(all.Rows)), map[string]int{}
	for i, v := range all.Rows {
		fields, ok := v.(map[string]any)
		if !ok {
			rows[i] = Row{ID: fmt.Sprintf("rows[%d]", i), Wrong: []string{shown(v) + ", want an object"}}
			continue
		}
		rows[i] = s.row(file, fields)
		if rows[i].ID == "" {
			rows[i].ID = fmt.Sprintf("rows[%d]", i)
		} else if first, twice := seen[rows[i].ID]; twice {
			rows[i].Wrong = append(rows[i].Wrong, fmt.Sprintf("id: also the id of rows[%d], want one of its own", first))
			rows[i].ID = fmt.Sprintf("%s (rows[%d])", rows[i].ID, i)
		} else {
			seen[rows[i].ID] = i
		}
	}
	return rows, nil
}

// row is the row of these fields in a file.
func (s *Schema) row(file string, fields map[string]any) Row {
	r := NewRow(fields)
	r.Wrong = s.Check(file, r.fields)
	return r
}

// NewRow is the row of these fields.
func NewRow(fields map[string]any) Row {
	id, _ := fields["id"].(string)
	expanded, _ := Expand(fields).(map[string]any)
	return Row{ID: id, fields: expanded}
}

// ParseRow is the row of a JSON text.
func ParseRow(text string) (Row, error) {
	var fields map[string]any
	if err := decode([]byte(text), &fields, false); err != nil {
		return Row{}, err
	}
	return NewRow(fields), nil
}

// moduleRoot is the nearest directory upwards that has a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod in this directory or above it")
		}
		dir = up
	}
}

// decode reads one JSON value; strictly: with no field that v does not have.
func decode(data []byte, v any, strictly bool) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if strictly {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// read decodes a part of the row into v. It does not change v if the row lacks the part.
func (r *Row) read(part string, v any, strictly bool) error {
	field, ok := r.fields[part]
	if !ok {
		return nil
	}
	data, err := json.Marshal(field)
	if err != nil {
		return err
	}
	if err := decode(data, v, strictly); err != nil {
		return fmt.Errorf("%s: %s", part, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// parts are the names of what the row asks and expects.
func (r *Row) parts() []string {
	var names []string
	for name := range r.fields {
		if !slices.Contains(about, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
