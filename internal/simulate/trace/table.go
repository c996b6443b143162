package trace

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// maxRows limits what a wrong file costs.
const maxRows = 10_000_000

// table reads a CSV file with a heading.
type table struct {
	path    string
	csv     *csv.Reader
	columns map[string]int
	row     []string
	rows    int
	err     error // of the current row
}

// open reads the heading, and checks that it has columns. The file may be compressed with gzip.
func open(in io.Reader, path string, columns ...string) (*table, error) {
	b := bufio.NewReader(in)
	if head, _ := b.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		b = bufio.NewReader(z)
	}
	t := &table{path: path, csv: csv.NewReader(b), columns: map[string]int{}}
	t.csv.ReuseRecord = true
	heading, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: the file is empty: want CSV with a heading", path)
	}
	if err != nil {
		return nil, t.wrong(err)
	}
	for i, name := range heading {
		name = strings.Clone(strings.TrimPrefix(strings.TrimSpace(name), "\ufeff"))
		if _, ok := t.columns[name]; ok {
			return nil, fmt.Errorf("%s:1: there are two columns %q", path, name)
		}
		t.columns[name] = i
	}
	var missing []string
	for _, name := range columns {
		if _, ok := t.columns[name]; !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, fmt.Errorf("%s:1: columns are missing: %s", path, strings.Join(missing, ", "))
	}
	return t, nil
}

// wrong names the file; errors of package csv name the line themselves.
func (t *table) wrong(err error) error {
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("%s:%d: %w", t.path, parse.Line, parse.Err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s: the file is truncated after %d rows: %w", t.path, t.rows, err)
	}
	return fmt.Errorf("%s: after %d rows: %w", t.path, t.rows, err)
}

// next reads a row, and reports whether there is one.
func (t *table) next() (ok bool, err error) {
	t.row, err = t.csv.Read()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, t.wrong(err)
	}
	if t.rows++; t.rows > maxRows {
		return false, fmt.Errorf("%s: more than %d rows", t.path, maxRows)
	}
	return true, nil
}

// where names the line of the current row.
func (t *table) where() string {
	line, _ := t.csv.FieldPos(0)
	return fmt.Sprintf("%s:%d", t.path, line)
}

func (t *table) text(column string) string { return strings.Clone(t.row[t.columns[column]]) }

// number reads a column of the current row; the first mistake is kept.
func (t *table) number(column string, least, most int64) int64 {
	text := t.row[t.columns[column]]
	n, err := strconv.ParseInt(text, 10, 64)
	if (err != nil || n < least || n > most) && t.err == nil {
		t.err = fmt.Errorf("%s: %s is %q: want an integer from %d to %d", t.where(), column, text, least, most)
	}
	return n
}
