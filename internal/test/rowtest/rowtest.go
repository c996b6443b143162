// Package rowtest compares rows of Armada's scheduler database with those that
// Armada's own ingester wrote, the oracle beside each recording. For tests only.
//
// Columns of bytes are equal if their content is: decompressed, and with the entries of
// protobuf maps in any order. serial and last_modified are not compared.
package rowtest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/protowire"
)

// Keys are the tables of the oracle, and the column that a row is found by.
var Keys = map[string]string{"jobs": "job_id", "runs": "run_id", "job_run_errors": "run_id", "job_metadata": "job_id"}

// packed are the columns that hold bytes. For those that hold protobuf, the paths
// of the maps in it: gogo writes the entries of a map in any order.
var packed = map[string]struct {
	zlib bool
	maps []string
}{
	"scheduling_info":          {maps: []string{"5.1.1", "5.1.7", "5.1.6.1", "5.1.6.2"}},
	"pod_requirements_overlay": {maps: []string{"1", "7", "6.1", "6.2"}},
	"error":                    {zlib: true, maps: []string{"8.1.5", "8.1.6", "8.5.1.5", "8.5.1.6", "9.1.5", "9.1.6"}},
	"submit_message": {zlib: true, maps: []string{
		"4.5", "4.6", "5.1.5", "5.1.6", "5.2.1.7", "5.2.1.2.8.1", "5.2.1.2.8.2", "5.2.1.20.8.1", "5.2.1.20.8.2",
	}},
	"groups": {zlib: true},
}

// Row is a row by its columns.
type Row map[string]any

// Rows are rows by table and key.
type Rows map[string]map[string]Row

// Oracle reads the rows of Armada's own ingester from NAME.rows.jsonl.gz.
func Oracle(t testing.TB, path string) Rows {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rows := Rows{}
	in := bufio.NewScanner(z)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		r := decodeRow(t, in.Bytes())
		table := r["table"].(string)
		delete(r, "table")
		put(t, rows, table, r)
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

func decodeRow(t testing.TB, text []byte) Row {
	t.Helper()
	var r Row
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // an int64 is no float64
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func put(t testing.TB, rows Rows, table string, r Row) {
	t.Helper()
	if rows[table] == nil {
		rows[table] = map[string]Row{}
	}
	key := r[Keys[table]].(string)
	if rows[table][key] != nil {
		t.Fatalf("%s %s stands there twice", table, key)
	}
	rows[table][key] = r
}

// Database is all rows of the four tables, as the oracle prints them, without
// serial and last_modified.
func Database(t testing.TB, conn *pgx.Conn) Rows {
	t.Helper()
	all := Rows{}
	for table := range Keys {
		rows, err := conn.Query(context.Background(), "SELECT to_jsonb(r)::text FROM "+table+" AS r")
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			r := decodeRow(t, []byte(text))
			delete(r, "serial")
			delete(r, "last_modified")
			for column := range packed {
				if s, ok := r[column].(string); ok {
					b, err := hex.DecodeString(strings.TrimPrefix(s, `\x`))
					if err != nil {
						t.Fatal(err)
					}
					r[column] = base64.StdEncoding.EncodeToString(b)
				}
			}
			put(t, all, table, r)
		}
	}
	return all
}

// unpack returns what a column of bytes means.
func unpack(t testing.TB, column, text string) any {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	p := packed[column]
	if p.zlib {
		z, err := zlib.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", column, err)
		}
		if b, err = io.ReadAll(z); err != nil {
			t.Fatalf("%s: %v", column, err)
		}
	}
	if column == "groups" {
		var groups []string
		if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&groups); err != nil {
			t.Fatalf("groups: %v", err)
		}
		return groups
	}
	return string(sortMaps(t, b, "", p.maps))
}

// sortMaps puts the entries of the maps at these paths into one order.
func sortMaps(t testing.TB, b []byte, path string, paths []string) []byte {
	t.Helper()
	type field struct {
		number protowire.Number
		raw    []byte
	}
	var fields []field
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		m := n + protowire.ConsumeFieldValue(number, kind, b[max(n, 0):])
		if n < 0 || m < n {
			t.Fatalf("%q is no protobuf at %s", b, path)
		}
		raw := b[:m]
		at := strings.TrimPrefix(fmt.Sprintf("%s.%d", path, number), ".")
		if kind == protowire.BytesType && slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, at+".") }) {
			inner, _ := protowire.ConsumeBytes(b[n:])
			raw = protowire.AppendBytes(slices.Clone(b[:n]), sortMaps(t, inner, at, paths))
		}
		fields, b = append(fields, field{number, raw}), b[m:]
	}
	slices.SortStableFunc(fields, func(a, b field) int {
		if a.number == b.number && slices.Contains(paths, strings.TrimPrefix(fmt.Sprintf("%s.%d", path, a.number), ".")) {
			return bytes.Compare(a.raw, b.raw)
		}
		return 0
	})
	var out []byte
	for _, f := range fields {
		out = append(out, f.raw...)
	}
	return out
}

// Tally counts columns: equal as they are, or once decoded.
type Tally struct{ Same, Decoded int }

// Compare says where rows differ from those that there are to be: a column, a row
// that is missing, or one too many.
func Compare(t testing.TB, want, got Rows) (n Tally) {
	t.Helper()
	t.Helper()
	for table, rows := range want {
		for key, w := range rows {
			g := got[table][key]
			if g == nil {
				t.Errorf("%s %s is missing", table, key)
				continue
			}
			for column := range g {
				if _, ok := w[column]; !ok {
					t.Errorf("%s %s: column %s is not Armada's", table, key, column)
				}
			}
			for column, value := range w {
				if cmp.Equal(value, g[column]) {
					n.Same++
					continue
				}
				a, isText := value.(string)
				b, alsoText := g[column].(string)
				_, isPacked := packed[column]
				if isText && alsoText && isPacked && cmp.Equal(unpack(t, column, a), unpack(t, column, b)) {
					n.Decoded++
					continue
				}
				t.Errorf("%s %s: %s is %v, Armada has %v", table, key, column, g[column], value)
			}
		}
	}
	for table, rows := range got {
		for key := range rows {
			if want[table][key] == nil {
				t.Errorf("%s %s is not Armada's", table, key)
			}
		}
	}
	return n
}
