package sqlite

import (
	"fmt"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// insert returns the statement that writes n rows.
func insert[T any](t *table.Of[T], n int) string {
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(t.Columns)), ", ") + ")"
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES %s%s", t.Name, strings.Join(t.Columns, ", "),
		strings.TrimSuffix(strings.Repeat(row+", ", n), ", "), t.Replace())
}

// targets converts pointers to fields into what database/sql can scan into.
func targets(fields []any) []any {
	for i, f := range fields {
		switch p := f.(type) {
		case *uint64:
			fields[i] = (*unsigned)(p)
		case *[]string:
			fields[i] = (*strs)(p)
		case *[]jobdb.Container:
			fields[i] = (*containers)(p)
		case *[16]byte:
			fields[i] = fixed(p[:])
		case *[32]byte:
			fields[i] = fixed(p[:])
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

type strs []string

// Scan reads a list of texts.
func (s *strs) Scan(v any) error {
	t, ok := v.(string)
	if !ok {
		return fmt.Errorf("got %T, want text", v)
	}
	list, err := jobdb.DecodeStrings(t)
	*s = list
	return err
}

type containers []jobdb.Container

// Scan reads a list of containers.
func (c *containers) Scan(v any) error {
	t, ok := v.(string)
	if !ok {
		return fmt.Errorf("got %T, want text", v)
	}
	list, err := jobdb.DecodeContainers(t)
	*c = list
	return err
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
