package sink_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/sink"
)

// openDB makes a database in a directory of the test.
func openDB(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// drain advances all partitions until there is nothing to do.
func drain(t testing.TB, w *sink.Writer, partitions int) {
	t.Helper()
	for p := range partitions {
		for {
			progress, err := w.Advance(context.Background(), p)
			if err != nil {
				t.Fatal(err)
			}
			if !progress {
				break
			}
		}
	}
}

func contents(t testing.TB, path string, partition int) *jobdb.Contents {
	t.Helper()
	r, err := sqlite.OpenReader(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var c *jobdb.Contents
	err = r.View(context.Background(), func(q jobdb.Queries) error {
		c, err = q.Contents(partition)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mustEqualFold compares a database with the fold of the logs.
func mustEqualFold(t testing.TB, path string, events, decisions *memTopic) {
	t.Helper()
	for p := range events.Partitions() {
		want, err := sink.Fold(events, decisions, p, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range sink.Compare(want, contents(t, path, p)) {
			t.Errorf("partition %d: %v", p, d)
		}
	}
}

// TestRecordingsIntoSQLite writes each recording, in small and large batches.
func TestRecordingsIntoSQLite(t *testing.T) {
	for _, name := range recordings {
		for _, rows := range []int{1, 1000} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				events := readRecording(t, name)
				decisions := cover(t, events, 20)
				path := filepath.Join(t.TempDir(), "jobs.db")
				w, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: openDB(t, path), MaxRows: rows, KeepRows: 50})
				if err != nil {
					t.Fatal(err)
				}
				drain(t, w, events.Partitions())
				mustEqualFold(t, path, events, decisions)
			})
		}
	}
}
