package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Treatment is what becomes of a field.
type Treatment uint8

// The treatments of fields.
const (
	Kept      Treatment = iota + 1 // means the same here
	Differs                        // has an effect, and not the same: a Note of kind Changed
	Dropped                        // has no effect: a Note of kind Lost
	Ignored                        // says nothing about how the work runs, or is what happens anyway: no Note
	Inside                         // has rows of its own below
	Depends                        // one of the rows for the same path that have a value or a case
	Forbidden                      // the manifest is not converted: a Note of kind Error
)

// Field is a row of a system's table: what becomes of one field of its API. It covers all fields below it that have no
// row of their own, but for Inside and Depends, which cover none.
type Field struct {
	Path      string // from the document, without indices, such as spec.template.spec.containers
	Value     string // not empty: the row is for this value only
	Case      string // not empty: the row is for a case that the program recognises, in words; Path "" is a case of any field
	Treatment Treatment
	Here      string // what it is here, such as GroupPolicy spec.parts.members
	Why       string
	// Proposed: the API does not have the field; a proposal or an example does.
	Proposed bool
}

// Cases of any field.
var (
	rowDuplicate   = Field{Case: "the key occurs twice", Treatment: Differs, Why: "Kubernetes uses the last one too, and warns"}
	rowNothing     = Field{Case: "nothing to run", Treatment: Differs, Why: "it has no pods, so no jobs and no policies are made of it"}
	rowPlaceholder = Field{Case: "a placeholder such as {{name}}", Treatment: Differs, Why: "a template's placeholder, which YAML reads as a mapping, is taken as a text: replace it by its value"}
)

// under returns rows for fields that are below a path in another API.
func under(path string, rows []Field) []Field {
	out := slices.Clone(rows)
	for i := range out {
		out[i].Path = join(path, out[i].Path)
	}
	return out
}

// row finds the row for a field: the one for its value, else that for any.
func (s *system) row(path, value string) (found Field, ok bool) {
	for _, f := range s.table {
		if f.Path == path && f.Case == "" && (f.Value == value || f.Value == "") {
			if f.Value != "" {
				return f, true
			}
			found, ok = f, true
		}
	}
	return found, ok
}

// knows reports whether the table has a field that the type lacks: a proposed one.
func (s *system) knows(path string) bool {
	f, ok := s.row(path, "")
	return ok && f.Proposed
}

// caseOf returns the row of a case. The table must have it.
func (s *system) caseOf(path, name string) Field {
	for _, f := range s.table {
		if f.Path == path && f.Case == name {
			return f
		}
	}
	panic(fmt.Sprintf("convert: the table of %s has no case %q of %s", s.kind, name, path))
}

// review makes the notes that follow from the table alone.
func (d *document) review() {
	done := "\x00" // the field above, about which all is said
	for _, f := range d.set {
		if strings.HasPrefix(f.path, done) && len(f.path) > len(done) && strings.ContainsRune(".[", rune(f.path[len(done)])) {
			continue
		}
		value := ""
		if f.node.Kind == yaml.ScalarNode {
			value = f.node.Value
		} else if len(f.node.Content) == 0 {
			continue // an empty list or mapping says nothing
		}
		row, ok := d.system.row(f.row, value)
		if !ok {
			continue // the row above covers it
		}
		if row.Treatment == Differs || row.Treatment == Dropped || row.Treatment == Forbidden {
			d.noteRow(row, f.path, row.Here)
		}
		switch row.Treatment {
		case Dropped, Ignored:
			done = f.path
			f.clear()
		case Differs, Forbidden:
			done = f.path
		case Kept, Inside, Depends:
		}
	}
}

// note makes the note of a case: the table says what becomes of the field, and now what it is in this manifest.
func (d *document) note(path, name, now string) {
	d.noteRow(d.system.caseOf(rowOf(path), name), path, now)
}

// noteRow makes a note of a row.
func (d *document) noteRow(row Field, path, now string) {
	n := Note{Path: path, Was: d.was(path), Now: now, Why: row.Why}
	switch row.Treatment {
	case Differs:
		n.Kind = Changed
	case Dropped:
		n.Kind = Lost
	case Forbidden:
		n.Kind, n.Now, n.Fix = Error, "", row.Here
		d.failed = true
	case Kept, Ignored, Inside, Depends:
		return
	}
	d.report(n)
}

// fail reports a mistake in the manifest.
func (d *document) fail(path, why, fix string) {
	d.failed = true
	d.report(Note{Kind: Error, Path: path, Was: d.was(path), Why: why, Fix: fix})
}

const maxNotes = 1000

func (d *document) report(n Note) {
	if len(d.notes) > maxNotes {
		d.failed = d.failed || n.Kind == Error
		return
	}
	at := d.nearest(n.Path)
	n.File, n.Line, n.Column, n.Object = d.file, at.Line, at.Column, d.kind
	if d.name != "" {
		n.Object += " " + shown(d.name)
	}
	if len(d.notes) == maxNotes {
		n = Note{Kind: Error, File: d.file, Why: fmt.Sprintf("more than %d notes", maxNotes), Fix: "convert fewer manifests at a time"}
		d.failed = true
	}
	d.notes = append(d.notes, n)
}

// was says what a field is in the manifest.
func (d *document) was(path string) string {
	n := d.at[path]
	switch {
	case path == "":
		return ""
	case n == nil:
		return "(not set)"
	case n.Kind != yaml.ScalarNode:
		if text, ok := placeholder(n); ok {
			return text
		}
		const most = 60
		nodes := maxNodes - most // more than that are longer than most
		text, err := json.Marshal(plain(n, &nodes))
		if err != nil || len(text) > most {
			return ""
		}
		return string(text)
	}
	return shown(n.Value)
}

// nearest returns the node at the path, or at the nearest path above it.
func (d *document) nearest(path string) *yaml.Node {
	for path != "" {
		if n := d.at[path]; n != nil {
			return n
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return d.root
}

// rowOf is a path without the indices of lists.
func rowOf(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '[' {
			end := strings.IndexByte(path[i:], ']')
			if end > 0 && strings.Trim(path[i+1:i+end], "0123456789") == "" {
				i += end
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}
