package pgstore_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
	"github.com/refloat/refloat/internal/test/rowtest"
)

const recordings = "../../../testdata/recordings"

var names = []string{"plain", "chaos", "retried", "preempted"}

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

func apply(t testing.TB, db *db, ops []schedulerdb.Op) {
	t.Helper()
	ctx := context.Background()
	tx, err := db.Begin(ctx)
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
func convert(t testing.TB, c *schedulerdb.Converter, entries []recording.Entry) []schedulerdb.Op {
	t.Helper()
	var ops []schedulerdb.Op
	for i := range entries {
		effects, findings := c.Convert(&entries[i].Message, nil)
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
		entries, want := readRecording(t, name), rowtest.Oracle(t, filepath.Join(recordings, name+".rows.jsonl.gz"))
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
				db, c := open(t, url), schedulerdb.NewConverter()
				for batch := range slices.Chunk(entries, way.batch) {
					var messages []recording.Entry
					for _, e := range batch {
						messages = append(messages, slices.Repeat([]recording.Entry{e}, way.each)...)
					}
					for range way.all {
						apply(t, db, convert(t, c, messages))
					}
				}
				got := rowtest.Database(t, conn)
				n := rowtest.Compare(t, want, got)
				t.Logf("%d jobs, %d runs, %d errors, %d metadata: %d columns equal, %d more equal once decoded",
					len(got["jobs"]), len(got["runs"]), len(got["job_run_errors"]), len(got["job_metadata"]), n.Same, n.Decoded)
			})
		}
	}
}
