package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/refloat/refloat/cmd/internal/terminal"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

const (
	outputTable = "table"
	outputJSON  = "json"
)

func addOutput(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", outputTable, "table (for people) or json (one object a line, stable)")
	complete(cmd, "output", outputTable, outputJSON)
}

func badOutput(output string) error {
	return usageError{suggest.Unknown("-o", output, outputTable, outputJSON)}
}

// table aligns columns. The last column may be long.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, columns ...string) *table {
	t := &table{w: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	t.row(columns...)
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = oneLine(c)
		if i < len(cells)-1 {
			cells[i] = cut(cells[i], maxCell)
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

// maxCell bounds a cell: each row is as wide as the widest cells of its columns. JSON has all of it.
const maxCell = 100

// cut shortens a text to a number of characters.
func cut(s string, longest int) string {
	n := 0
	for i := range s {
		if n++; n > longest {
			return s[:i] + "…"
		}
	}
	return s
}

func (t *table) flush() error { return t.w.Flush() }

// oneLine removes control characters and line breaks.
func oneLine(s string) string { return query.OneLine(s) }

// bold formats headings, if the output is a terminal and NO_COLOR is not set.
func bold(w io.Writer, s string) string {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok || os.Getenv("NO_COLOR") != "" || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	return terminal.Bold + s + terminal.Plain
}
