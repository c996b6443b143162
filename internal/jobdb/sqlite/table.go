package sqlite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
)

// table says how rows of one type stand in a table.
type table[T any] struct {
	name    string
	key     []string // to replace rows under; none: rows are only ever added
	columns []string
	values  func(*T, []any) []any // in the order of columns
	targets func(*T, []any) []any // likewise, to scan into
}

func columns(list string) []string { return strings.Fields(list) }

// selects is the beginning of a query for rows.
func (t *table[T]) selects() string {
	return "SELECT " + strings.Join(t.columns, ", ") + " FROM " + t.name
}

// insert is the statement that writes n rows.
func (t *table[T]) insert(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "INSERT INTO %s (%s) VALUES ", t.name, strings.Join(t.columns, ", "))
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(t.columns)), ", ") + ")"
	b.WriteString(strings.TrimSuffix(strings.Repeat(row+", ", n), ", "))
	if len(t.key) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, " ON CONFLICT (%s) DO UPDATE SET ", strings.Join(t.key, ", "))
	first := true
	for _, c := range t.columns {
		if slices.Contains(t.key, c) {
			continue
		}
		if !first {
			b.WriteString(", ")
		}
		first = false
		fmt.Fprintf(&b, "%s = excluded.%s", c, c)
	}
	return b.String()
}

// Scan targets for what database/sql cannot convert.

type unsigned struct{ to *uint64 }

// Scan takes the bits of a signed number.
func (u unsigned) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("a number was expected, not %T", v)
	}
	*u.to = uint64(n)
	return nil
}

type strs struct{ to *[]string }

// Scan reads a list of texts.
func (s strs) Scan(v any) error {
	t, ok := v.(string)
	if !ok {
		return fmt.Errorf("a text was expected, not %T", v)
	}
	list, err := jobdb.DecodeStrings(t)
	*s.to = list
	return err
}

type containers struct{ to *[]jobdb.Container }

// Scan reads a list of containers.
func (c containers) Scan(v any) error {
	t, ok := v.(string)
	if !ok {
		return fmt.Errorf("a text was expected, not %T", v)
	}
	list, err := jobdb.DecodeContainers(t)
	*c.to = list
	return err
}

type fixed struct{ to []byte }

// Scan reads bytes of a fixed length.
func (f fixed) Scan(v any) error {
	b, ok := v.([]byte)
	if !ok || len(b) != len(f.to) {
		return fmt.Errorf("%d bytes were expected", len(f.to))
	}
	copy(f.to, b)
	return nil
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
