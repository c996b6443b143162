package table

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// Of maps the rows of one type to a table.
type Of[T any] struct {
	Name    string
	Key     []string // rows with the same key are replaced; none: rows are only inserted
	Columns []string
	Adds    int                   // so many columns at the end, of numbers, are added to those of the row with the same key
	Fields  func(*T, []any) []any // appends pointers to the row's fields, in the order of Columns
}

// Replace is the end of an INSERT into a table of this name that replaces the row with the
// same key, or adds to it; empty if rows are only inserted.
func (t *Of[T]) Replace(name string) string {
	if len(t.Key) == 0 {
		return ""
	}
	var set []string
	for _, c := range t.Columns {
		switch {
		case slices.Contains(t.Key, c):
		case t.Adds > 0:
			set = append(set, fmt.Sprintf("%[1]s = %[2]s.%[1]s + excluded.%[1]s", c, name))
		default:
			set = append(set, c+" = excluded."+c)
		}
	}
	return fmt.Sprintf(" ON CONFLICT (%s) DO UPDATE SET %s", strings.Join(t.Key, ", "), strings.Join(set, ", "))
}

// Plain returns the value that a pointer of Fields points to, as one of the types that
// every driver accepts: bool, int64, string or []byte.
func Plain(field any) any {
	switch p := field.(type) {
	case *string:
		return *p
	case *int64:
		return *p
	case *bool:
		return *p
	case *uint8:
		return int64(*p)
	case *int:
		return int64(*p)
	case *int32:
		return int64(*p)
	case *uint32:
		return int64(*p)
	case *uint64:
		return int64(*p)
	case *[]string:
		return jobdb.EncodeStrings(*p)
	case *[]jobdb.Container:
		return jobdb.EncodeContainers(*p)
	case **chain.Member:
		return jobdb.EncodeMember(*p)
	case **chain.GroupVerdict:
		return jobdb.EncodeVerdict(*p)
	case **policy.BudgetUse:
		return jobdb.EncodeBudget(*p)
	case *policy.Shape:
		return jobdb.EncodeShape(*p)
	case **jobdb.Requests:
		return jobdb.EncodeRequests(*p)
	case **jobdb.Cause:
		return jobdb.EncodeCause(*p)
	case *[]byte:
		return *p
	case *[16]byte:
		return p[:]
	case *[32]byte:
		return p[:]
	}
	panic(fmt.Sprintf("table: a field of type %T", field)) // a bug in the tables of this package
}

// Decoder returns the function that decodes the text of a field into it, as Plain encoded
// it; nil: the field is no text that was encoded.
func Decoder(field any) func(string) error {
	switch p := field.(type) {
	case *[]string:
		return into(p, jobdb.DecodeStrings)
	case *[]jobdb.Container:
		return into(p, jobdb.DecodeContainers)
	case **chain.Member:
		return into(p, jobdb.DecodeMember)
	case **chain.GroupVerdict:
		return into(p, jobdb.DecodeVerdict)
	case **policy.BudgetUse:
		return into(p, jobdb.DecodeBudget)
	case *policy.Shape:
		return into(p, jobdb.DecodeShape)
	case **jobdb.Requests:
		return into(p, jobdb.DecodeRequests)
	case **jobdb.Cause:
		return into(p, jobdb.DecodeCause)
	}
	return nil
}

func into[T any](field *T, decode func(string) (T, error)) func(string) error {
	return func(s string) (err error) {
		*field, err = decode(s)
		return err
	}
}

func columns(list string) []string { return strings.Fields(list) }

func at(p *eventlog.Position, v []any) []any {
	return append(v, &p.Ledger, &p.Entry, &p.Batch)
}
