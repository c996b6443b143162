package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// made creates and closes a database.
func made(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, err := Open(context.Background(), path, Options{})
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestClasses: SQLite's errors are classified.
func TestClasses(t *testing.T) {
	t.Parallel()
	path := made(t)
	for name, tt := range map[string]struct {
		dsn, setup string
		want       error
	}{
		"read-only": {"?mode=ro", "SELECT 1", jobdb.ErrReadOnly},
		"full":      {"", "PRAGMA max_page_count = 1", jobdb.ErrUnavailable},
	} {
		db, err := sql.Open("sqlite3", "file:"+path+tt.dsn)
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1)
		if _, err := db.Exec(tt.setup); err != nil {
			t.Fatal(err)
		}
		_, err = db.Exec("INSERT INTO parked VALUES (1, 1, 1, 1, 1, 1, '', 1, 1, 1, 1, 1, zeroblob(1000000), 0, X'', 0)")
		if got := classify(path, err); !errors.Is(got, tt.want) || !errors.Is(got, err) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := classify(path, nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}

// TestOutOfTime: SQLite's error about a query that was interrupted tells why.
func TestOutOfTime(t *testing.T) {
	t.Parallel()
	r, err := OpenReader(t.Context(), made(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	endless := table.Query{Columns: []string{"count(*) + (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) FROM n)"}, From: "jobs"}
	end, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	left, leave := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, leave)
	for want, ctx := range map[error]context.Context{context.DeadlineExceeded: end, context.Canceled: left} {
		err = r.View(ctx, func(q jobdb.Queries) error {
			var n int64
			return q.(table.Queries).Source.Find(endless, func() []any { return []any{&n} }, func() error { return nil })
		})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// TestFullDisk: a transaction on a full disk is rolled back, and the next one works
// when there is space again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	ctx, path := context.Background(), made(t)
	db, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	limit := func(query string) {
		if _, err := db.conn.ExecContext(ctx, query); err != nil {
			t.Fatal(err)
		}
	}
	positions := jobdb.Beginning
	positions.Chain.Seq = 1
	write := func() error {
		tx, err := db.Begin(ctx, 0)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after an error there is one already
		if err := tx.Write(ctx, &jobdb.Changes{Runs: []*jobdb.Run{{JobID: "j", RunID: "r", Error: jobdb.RunError{Raw: make([]byte, 1<<20)}}}}); err != nil {
			return err
		}
		return tx.Commit(ctx, jobdb.Beginning, positions)
	}
	limit("PRAGMA max_page_count = 1")
	if err := write(); !errors.Is(err, jobdb.ErrUnavailable) {
		t.Fatalf("on a full disk: %v, want ErrUnavailable", err)
	}
	limit("PRAGMA max_page_count = 1000000")
	if err := write(); err != nil {
		t.Fatalf("with room again: %v", err)
	}
}

// TestReaderThatMayNotWrite: the file for SQLite's shared memory cannot be created, as
// in a read-only directory.
func TestReaderThatMayNotWrite(t *testing.T) {
	t.Parallel()
	ctx, path := context.Background(), made(t)
	if err := os.Mkdir(path+"-shm", 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReader(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.View(ctx, func(q jobdb.Queries) error { _, err := q.Summary(); return err }); err != nil {
		t.Fatal(err)
	}
}
