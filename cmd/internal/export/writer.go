package export

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
)

// rowGroup is how many rows a Parquet file keeps in memory at a time.
const rowGroup = 50_000

// Parquet writes rows as Parquet.
func Parquet[R any](w io.Writer) (write func(*R) error, end func() error) {
	schema := parquet.NewSchema("exported"+reflect.TypeFor[R]().Name(), parquet.SchemaOf(new(R))) // its name is in the file
	p := parquet.NewGenericWriter[R](w, schema, parquet.Compression(&parquet.Zstd), parquet.CreatedBy("refloat", "", ""))
	pending := 0
	return func(row *R) error {
		if _, err := p.Write([]R{*row}); err != nil {
			return fmt.Errorf("write Parquet: %w", err)
		}
		if pending++; pending < rowGroup {
			return nil
		}
		pending = 0
		return p.Flush()
	}, p.Close
}

// CSV writes rows as CSV. Unless raw, a text that a spreadsheet would take for a formula is defused.
func CSV[R any](w io.Writer, raw bool) (write func(*R) error, end func() error) {
	buffered := bufio.NewWriter(w)
	c := csv.NewWriter(buffered)
	var names []string
	for field := range reflect.TypeFor[R]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("parquet"), ",")
		names = append(names, name)
	}
	headed := false
	head := func() error {
		if headed {
			return nil
		}
		headed = true
		return c.Write(names)
	}
	return func(row *R) error {
			if err := head(); err != nil {
				return err
			}
			cells := make([]string, len(names))
			for i, v := range reflect.ValueOf(row).Elem().Fields() {
				cells[i.Index[0]] = cellText(v)
				if !raw && v.Kind() == reflect.String {
					cells[i.Index[0]] = defused(v.String())
				}
			}
			return c.Write(cells)
		}, func() error {
			err := head()
			c.Flush()
			return errors.Join(err, c.Error(), buffered.Flush())
		}
}

// defused puts an apostrophe before a text that a spreadsheet would take for a formula: users choose names and messages
// (https://owasp.org/www-community/attacks/CSV_Injection).
func defused(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

func cellText(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	if at, ok := reflect.TypeAssert[time.Time](v); ok {
		return at.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v.Interface())
}
