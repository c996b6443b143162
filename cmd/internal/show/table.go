// Package show prints what commands answer: columns, JSON lines, YAML, and the progress of what takes long. It decides
// nothing about what is answered.
package show

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/refloat/refloat/cmd/internal/terminal"
	"github.com/refloat/refloat/internal/query"
)

// Table aligns columns. The last column may be long.
type Table struct{ w *tabwriter.Writer }

// NewTable begins a table with its headings.
func NewTable(w io.Writer, columns ...string) *Table {
	t := &Table{w: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	t.Row(columns...)
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = query.OneLine(c)
		if i < len(cells)-1 {
			cells[i] = Cut(cells[i], maxCell)
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

// maxCell bounds a cell: each row is as wide as the widest cells of its columns. JSON has all of it.
const maxCell = 100

// Cut shortens a text to a number of characters.
func Cut(s string, longest int) string {
	n := 0
	for i := range s {
		if n++; n > longest {
			return s[:i] + "…"
		}
	}
	return s
}

// Flush prints the table.
func (t *Table) Flush() error { return t.w.Flush() }

// Buffer collects what is printed. It is a terminal where the writer below it is one.
type Buffer struct {
	*bufio.Writer
	below io.Writer
}

// NewBuffer returns a buffer before w.
func NewBuffer(w io.Writer) *Buffer { return &Buffer{Writer: bufio.NewWriter(w), below: w} }

// Bold formats headings, if the output is a terminal and NO_COLOR is not set.
func Bold(w io.Writer, s string) string {
	if b, ok := w.(*Buffer); ok {
		w = b.below
	}
	f, ok := w.(interface{ Fd() uintptr })
	if !ok || os.Getenv("NO_COLOR") != "" || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	return terminal.Bold + s + terminal.Plain
}
