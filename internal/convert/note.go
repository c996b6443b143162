package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind says how much a Note matters.
type Kind uint8

// The kinds of notes.
const (
	Changed Kind = iota // the field has an effect, and not the one it had
	Lost                // the field has no effect any more
	Error               // the manifest is not converted
)

// String returns changed, lost or error.
func (k Kind) String() string {
	switch k {
	case Changed:
		return "changed"
	case Lost:
		return "lost"
	case Error:
		return "error"
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// Note is one difference between a manifest and what it became, and its position.
type Note struct {
	Kind         Kind
	File         string
	Line, Column int    // from 1; 0: no position
	Object       string // kind and name, such as JobSet training
	Path         string // of the field, such as spec.replicatedJobs[0].replicas
	Was          string // the value, or what it means if it is not set
	Now          string // what it is here; "" if nothing
	Why          string // of an Error, what is wrong
	Fix          string // of an Error, how to fix it
}

// String formats n in one line, in the form that editors recognise.
func (n Note) String() string {
	var b strings.Builder
	if n.File != "" {
		fmt.Fprintf(&b, "%s:", n.File)
		if n.Line > 0 {
			fmt.Fprintf(&b, "%d:%d:", n.Line, n.Column)
		}
		b.WriteByte(' ')
	}
	fmt.Fprintf(&b, "%s: ", n.Kind)
	if n.Object != "" {
		b.WriteString(n.Object + ": ")
	}
	text := strings.TrimSpace(n.Path + " " + n.Was)
	if n.Kind != Error {
		text = strings.TrimSpace(text + " → " + cmp.Or(n.Now, "nothing"))
	}
	if text != "" && n.Why != "" {
		text += ": "
	}
	b.WriteString(text + n.Why)
	if n.Fix != "" {
		b.WriteString(". fix: " + n.Fix)
	}
	return b.String()
}

// sortNotes sorts by position, in the order of the files as they were given.
func sortNotes(notes []Note, files []File) {
	order := make(map[string]int, len(files))
	for i, f := range files {
		order[f.Name] = i
	}
	slices.SortStableFunc(notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// withoutDoubts leaves out what becomes of a value that is an Error anyway.
func withoutDoubts(notes []Note) []Note {
	wrong := map[[3]string]bool{}
	for _, n := range notes {
		if n.Kind == Error {
			wrong[[3]string{n.File, n.Object, n.Path}] = true
		}
	}
	return slices.DeleteFunc(notes, func(n Note) bool { return n.Kind != Error && wrong[[3]string{n.File, n.Object, n.Path}] })
}

// shown quotes what a manifest says for a line of text, made safe and short.
func shown(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%.60q…", s)
	}
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) || strings.TrimSpace(s) != s {
		return strconv.Quote(s)
	}
	return s
}
