package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// longKeys is an extra column, not in package table, of tables whose rows have keys.
const longKeys = "long_keys"

// stored returns the columns of a table as stored here.
func stored(columns []string) []string {
	if slices.ContainsFunc(columns, searched) {
		return append(slices.Clip(columns), longKeys)
	}
	return columns
}

// array is one column of many rows; exactly one of its slices is used.
type array struct {
	sql   string // type of its elements
	key   bool
	ints  []int64
	texts []string
	bools []bool
	bytes [][]byte
}

// arrays converts rows into columns, up to a limit in bytes. It returns the number of
// rows that it converted.
func arrays[T any](t *table.Of[T], rows []*T, limit int) (columns []array, taken int) {
	names := stored(t.Columns)
	columns = make([]array, len(names))
	var fields []any
	for i, f := range t.Fields(new(T), nil) {
		columns[i].prepare(f, len(rows))
		columns[i].key = searched(names[i])
	}
	for size := 0; taken < len(rows) && size < limit; taken++ {
		fields = t.Fields(rows[taken], fields[:0])
		var long []string
		for i, f := range fields {
			text, n := columns[i].add(f)
			size += n
			if text != "" {
				long = append(long, names[i], text)
			}
		}
		if len(names) > len(fields) {
			last := &columns[len(fields)]
			last.sql, last.texts = "text", append(last.texts, jobdb.EncodeStrings(long))
		}
	}
	for i := range columns[1:] { // the first one has as many elements as there are rows
		a := &columns[1+i]
		a.ints, a.texts, a.bools = shortened(a.ints), shortened(a.texts), shortened(a.bools)
	}
	return columns, taken
}

func (a *array) prepare(field any, n int) {
	switch field.(type) {
	case *bool:
		a.sql, a.bools = "boolean", make([]bool, 0, n)
	case *[]byte, *[16]byte, *[32]byte:
		a.sql, a.bytes = "bytea", make([][]byte, 0, n)
	case *string:
		a.sql, a.texts = "text", make([]string, 0, n)
	case *uint8:
		a.sql, a.ints = "smallint", make([]int64, 0, n)
	case *int, *int32:
		a.sql, a.ints = "integer", make([]int64, 0, n)
	default:
		if table.Decoder(field) != nil {
			a.sql, a.texts = "text", make([]string, 0, n)
			return
		}
		a.sql, a.ints = "bigint", make([]int64, 0, n)
	}
}

// add appends a field. It returns a key that is too long to be stored, and the
// approximate size of the field in bytes.
func (a *array) add(field any) (long string, size int) {
	switch p := field.(type) {
	case *string:
		s, cut := *p, false
		if a.key {
			s, cut = key(s)
		} else {
			s = escape(s)
		}
		a.texts = append(a.texts, s)
		if cut {
			return *p, len(*p)
		}
		return "", len(s)
	case *bool:
		a.bools = append(a.bools, *p)
		return "", 1
	}
	switch v := table.Plain(field).(type) {
	case int64:
		a.ints = append(a.ints, v)
	case string:
		a.texts = append(a.texts, escape(v))
		return "", len(v)
	case []byte:
		a.bytes = append(a.bytes, v)
		return "", len(v)
	}
	return "", 8
}

// shortened leaves one element of a column whose rows all have the same, which insert repeats.
func shortened[T comparable](s []T) []T {
	if len(s) == 0 || slices.ContainsFunc(s[1:], func(v T) bool { return v != s[0] }) {
		return s
	}
	return s[:1]
}

// arg returns the array as an argument for pgx.
func (a *array) arg() any {
	switch a.sql {
	case "boolean":
		return a.bools
	case "bytea":
		return a.bytes
	case "text":
		return a.texts
	}
	return a.ints
}

// insert returns the statement that inserts rows from one array per column. From the second row on, unnest has NULL for what shortened
// leaves out; else only bytes are ever NULL.
func insert[T any](t *table.Of[T], columns []array) string {
	var b strings.Builder
	names := stored(t.Columns)
	list := strings.Join(names, ", ")
	values, from := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		from[i] = fmt.Sprintf("$%d::%s[]", i+1, c.sql)
		values[i] = "r." + names[i]
		if c.sql != "bytea" {
			values[i] = fmt.Sprintf("coalesce(%s, (%s)[1])", values[i], from[i])
		}
	}
	fmt.Fprintf(&b, "INSERT INTO refloat_%s (%s) SELECT %s FROM unnest(%s) AS r (%s)", t.Name, list, strings.Join(values, ", "), strings.Join(from, ", "), list)
	b.WriteString(t.Replace("refloat_" + t.Name))
	if len(t.Key) > 0 && len(columns) > len(t.Columns) {
		b.WriteString(", long_keys = excluded.long_keys")
	}
	return b.String()
}

// targets converts pointers to fields into what pgx can scan into.
func targets(fields []any) []any {
	for i, f := range fields {
		switch p := f.(type) {
		case *string:
			fields[i] = (*text)(p)
		case *uint64:
			fields[i] = (*unsigned)(p)
		case *[16]byte:
			fields[i] = fixed(p[:])
		case *[32]byte:
			fields[i] = fixed(p[:])
		default:
			if decode := table.Decoder(f); decode != nil {
				fields[i] = encoded(decode)
			}
		}
	}
	return fields
}

// restore puts back the long keys that a row's columns only abbreviate. names are the
// columns; fields are the results of targets.
func restore(long string, names []string, fields []any) error {
	pairs, err := jobdb.DecodeStrings(long)
	if err != nil {
		return err
	}
	for ; len(pairs) >= 2; pairs = pairs[2:] {
		i := slices.Index(names, pairs[0])
		if i < 0 || !searched(pairs[0]) {
			return fmt.Errorf("long_keys has an unknown column %q", pairs[0])
		}
		*fields[i].(*text) = text(pairs[1])
	}
	return nil
}

type text string

// ScanText scans a text. An abbreviated key stays as it is; see restore.
func (t *text) ScanText(v pgtype.Text) error {
	if isName(v.String) {
		*t = text(v.String)
		return nil
	}
	s, err := unescape(v.String)
	*t = text(s)
	return err
}

type unsigned uint64

// ScanInt64 takes the bits of a signed number.
func (u *unsigned) ScanInt64(v pgtype.Int8) error {
	*u = unsigned(v.Int64)
	return nil
}

// encoded decodes a text into its field.
type encoded func(string) error

// ScanText reads the text.
func (decode encoded) ScanText(v pgtype.Text) error {
	plain, err := unescape(v.String)
	if err != nil {
		return err
	}
	return decode(plain)
}

type fixed []byte

// ScanBytes scans bytes of a fixed length.
func (f fixed) ScanBytes(v []byte) error {
	if len(v) != len(f) {
		return fmt.Errorf("got %d bytes, want %d", len(v), len(f))
	}
	copy(f, v)
	return nil
}
