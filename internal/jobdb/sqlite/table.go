package sqlite

import (
	"fmt"
	"strings"

	"github.com/refloat/refloat/internal/jobdb/table"
)

// insert returns the statement that writes n rows. If one that replaces none fails, some may stay: the transaction is to be rolled back. So
// SQLite need not copy what it changes.
func insert[T any](t *table.Of[T], n int) string {
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(t.Columns)), ", ") + ")"
	or := ""
	if len(t.Key) == 0 {
		or = "OR FAIL "
	}
	return fmt.Sprintf("INSERT %sINTO %s (%s) VALUES %s%s", or, t.Name, strings.Join(t.Columns, ", "),
		strings.TrimSuffix(strings.Repeat(row+", ", n), ", "), t.Replace(t.Name))
}

// targets converts pointers to fields into what database/sql can scan into.
func targets(fields []any) []any {
	for i, f := range fields {
		switch p := f.(type) {
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

type unsigned uint64

// Scan takes the bits of a signed number.
func (u *unsigned) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("got %T, want a number", v)
	}
	*u = unsigned(n)
	return nil
}

// encoded decodes a text into its field.
type encoded func(string) error

// Scan reads the text.
func (decode encoded) Scan(v any) error {
	t, ok := v.(string)
	if !ok {
		return fmt.Errorf("got %T, want text", v)
	}
	return decode(t)
}

type fixed []byte

// Scan reads bytes of a fixed length.
func (f fixed) Scan(v any) error {
	b, ok := v.([]byte)
	if !ok || len(b) != len(f) {
		return fmt.Errorf("want %d bytes", len(f))
	}
	copy(f, b)
	return nil
}
