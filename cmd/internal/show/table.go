// Package show prints what commands answer: columns, JSON lines, YAML, and the progress of what takes long. It decides
// nothing about what is answered.
package show

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/refloat/refloat/cmd/internal/terminal"
	"github.com/refloat/refloat/internal/query"
)

// Table aligns columns. The last column may be long.
type Table struct {
	w    *tabwriter.Writer
	rows io.Writer // w, or what is before it
}

// NewTable begins a table with its headings.
func NewTable(w io.Writer, columns ...string) *Table {
	aligned := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	t := &Table{aligned, aligned}
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
	fmt.Fprintln(t.rows, strings.Join(cells, "\t"))
}

// Write adds rows that a table made by Into wrote.
func (t *Table) Write(rows []byte) (int, error) { return t.w.Write(rows) }

// Into returns a table for some of the rows, which are written to w on their way to Write.
func (t *Table) Into(w io.Writer) *Table { return &Table{t.w, w} }

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

// JSONLines returns an encoder that writes one object a line.
func JSONLines(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

// Millis shortens a time to milliseconds, for people; JSON has it in full.
func Millis(text string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return at.Format("2006-01-02T15:04:05.000Z07:00")
}

// Rounded is a duration for people: to a second from a minute on, to a millisecond below.
func Rounded(text string) string {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return query.OneLine(text)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// Progress is a line that is rewritten in place on a terminal; into a pipe it prints nothing.
type Progress struct {
	mu   sync.Mutex
	on   bool
	last time.Time
	wide int
}

// NewProgress returns one on stderr.
func NewProgress() *Progress { return &Progress{on: term.IsTerminal(int(os.Stderr.Fd()))} }

// UpdateShared is Update for several goroutines.
func (p *Progress) UpdateShared(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Update(format, args...)
}

// Update shows a line, at most ten times a second.
func (p *Progress) Update(format string, args ...any) {
	if !p.on || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last = time.Now()
	line := fmt.Sprintf(format, args...)
	fmt.Fprintf(os.Stderr, "\r%s%s", line, strings.Repeat(" ", max(0, p.wide-len(line))))
	p.wide = len(line)
}

// Done removes the line.
func (p *Progress) Done() {
	if p.on && p.wide > 0 {
		fmt.Fprintf(os.Stderr, "\r%s\r", strings.Repeat(" ", p.wide))
		p.wide = 0
	}
}

// Quoted quotes a word for a shell.
func Quoted(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\n'\"\\$`!*?[]{}()<>|&;#~") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
