package store_test

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
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/armadadb"
	"github.com/refloat/refloat/internal/armadadb/schema"
	"github.com/refloat/refloat/internal/armadadb/store"
	"github.com/refloat/refloat/internal/pgtest"
	"github.com/refloat/refloat/internal/recording"
)

const recordings = "../../../testdata/recordings"

var names = []string{"plain", "chaos", "retried", "preempted"}

// keys are the tables of the oracle, and the column that a row is found by.
var keys = map[string]string{"jobs": "job_id", "runs": "run_id", "job_run_errors": "run_id", "job_metadata": "job_id"}

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

type row map[string]any

// oracleRows are the rows of Armada's own ingester, by table and key.
func oracleRows(t testing.TB, name string) map[string]map[string]row {
	t.Helper()
	f, err := os.Open(filepath.Join(recordings, name+".rows.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]map[string]row{}
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

func decodeRow(t testing.TB, text []byte) row {
	t.Helper()
	var r row
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // an int64 is no float64
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func put(t testing.TB, rows map[string]map[string]row, table string, r row) {
	t.Helper()
	if rows[table] == nil {
		rows[table] = map[string]row{}
	}
	key := r[keys[table]].(string)
	if rows[table][key] != nil {
		t.Fatalf("%s %s stands there twice", table, key)
	}
	rows[table][key] = r
}

// databaseRows are all rows of the four tables, as the oracle prints them, without
// serial and last_modified.
func databaseRows(t testing.TB, conn *pgx.Conn) map[string]map[string]row {
	t.Helper()
	all := map[string]map[string]row{}
	for table := range keys {
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

// tally counts columns: equal as they are, or once decoded.
type tally struct{ same, decoded int }

func compareRows(t *testing.T, want, got map[string]map[string]row) (n tally) {
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
					n.same++
					continue
				}
				a, isText := value.(string)
				b, alsoText := g[column].(string)
				_, isPacked := packed[column]
				if isText && alsoText && isPacked && cmp.Equal(unpack(t, column, a), unpack(t, column, b)) {
					n.decoded++
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

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// database is a fresh one with Armada's tables, and a connection to look at it.
func database(t testing.TB) (string, *pgx.Conn) {
	t.Helper()
	url := pgtest.Database(t)
	conn := connect(t, url)
	if err := schema.Create(context.Background(), conn); err != nil {
		t.Fatal(err)
	}
	return url, conn
}

func open(t testing.TB, url string) *store.DB {
	t.Helper()
	db, err := store.Open(context.Background(), store.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func apply(t testing.TB, db *store.DB, ops []armadadb.Op) {
	t.Helper()
	ctx := context.Background()
	tx, err := db.Begin(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}()
	if err := tx.Apply(ctx, ops); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
}

// convert turns messages into operations, which there must be without findings.
func convert(t testing.TB, c *armadadb.Converter, entries []recording.Entry) []armadadb.Op {
	t.Helper()
	var ops []armadadb.Op
	for i := range entries {
		effects, findings := c.Convert(&entries[i].Message)
		if len(findings) > 0 {
			t.Fatalf("%v: %v", entries[i].Message.Position, findings)
		}
		for _, e := range effects {
			ops = append(ops, e.Op)
		}
	}
	return ops
}

func readRecording(t testing.TB, name string) []recording.Entry {
	t.Helper()
	entries, err := recording.ReadFile(filepath.Join(recordings, name+".jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// TestArmadaRows gives the recordings to a database: its rows must be those of
// Armada's own ingester, all columns of all of them, and no others.
func TestArmadaRows(t *testing.T) {
	for _, name := range names {
		entries, want := readRecording(t, name), oracleRows(t, name)
		for _, way := range []struct {
			name  string
			batch int // messages in a transaction
			each  int // how often each message comes
			all   int // how often each batch comes
		}{
			{"batch=1", 1, 1, 1},
			{"batch=7", 7, 1, 1},
			{"batch=1000", 1000, 1, 1},
			{"batch=10000", 10_000, 1, 1},
			{"batch=7,each message twice", 7, 2, 1},
			{"batch=1000,each message twice", 1000, 2, 1},
			{"batch=7,each batch twice", 7, 1, 2},
			{"batch=1000,each batch twice", 1000, 1, 2},
		} {
			t.Run(name+"/"+way.name, func(t *testing.T) {
				if testing.Short() && way.batch < 1000 {
					t.Skip("SKIP: many transactions")
				}
				url, conn := database(t)
				db, c := open(t, url), armadadb.NewConverter()
				for batch := range slices.Chunk(entries, way.batch) {
					var messages []recording.Entry
					for _, e := range batch {
						messages = append(messages, slices.Repeat([]recording.Entry{e}, way.each)...)
					}
					for range way.all {
						apply(t, db, convert(t, c, messages))
					}
				}
				got := databaseRows(t, conn)
				n := compareRows(t, want, got)
				t.Logf("%d jobs, %d runs, %d errors, %d metadata: %d columns equal, %d more equal once decoded",
					len(got["jobs"]), len(got["runs"]), len(got["job_run_errors"]), len(got["job_metadata"]), n.same, n.decoded)
			})
		}
	}
}
