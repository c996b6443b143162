package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/test/jobdbtest"
)

func open(t *testing.T, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestConformance(t *testing.T) {
	t.Parallel()
	jobdbtest.Run(t, func(t *testing.T) jobdbtest.Database {
		path := filepath.Join(t.TempDir(), "odd ?name&%20#.db")
		db := jobdbtest.Database{Writer: open(t, path), Other: open(t, path)}
		r, err := sqlite.OpenReader(context.Background(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		db.Reader = r
		return db
	})
}

// both opens a file for writing and for reading.
func both(path string) []error {
	db, werr := sqlite.Open(context.Background(), path, sqlite.Options{})
	if werr == nil {
		_ = db.Close()
	}
	r, rerr := sqlite.OpenReader(context.Background(), path)
	if rerr == nil {
		_ = r.Close()
	}
	return []error{werr, rerr}
}

// exec changes a file without the package's knowledge.
func exec(t *testing.T, path, query string) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(query); err != nil {
		t.Fatal(err)
	}
}

// TestForeign: a foreign file is refused, and stays unchanged.
func TestForeign(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "foreign.db")
	exec(t, foreign, "CREATE TABLE jobs (x)")
	marked := filepath.Join(dir, "marked.db")
	exec(t, marked, "PRAGMA application_id = 17")
	for _, path := range []string{text, foreign, marked} {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range both(path) {
			if !errors.Is(err, jobdb.ErrForeign) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: error %v, want ErrForeign", filepath.Base(path), err)
			}
		}
		after, err := os.ReadFile(path)
		if err != nil || string(before) != string(after) {
			t.Errorf("%s was changed (%v)", filepath.Base(path), err)
		}
	}
}

// TestRefused: errors of Open explain the reason.
func TestRefused(t *testing.T) {
	t.Parallel()
	ctx, dir := context.Background(), t.TempDir()
	newer := filepath.Join(dir, "newer.db")
	db, err := sqlite.Open(ctx, newer, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, newer, "UPDATE refloat_schema SET version = 99")
	if _, err := db.Begin(ctx, 0); !errors.Is(err, jobdb.ErrNewer) {
		t.Errorf("a writer that was there before: %v, want ErrNewer", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, err := range both(newer) {
		if !errors.Is(err, jobdb.ErrNewer) || !strings.Contains(err.Error(), "99") {
			t.Errorf("newer schema: error %v, want ErrNewer", err)
		}
	}
	exec(t, newer, "UPDATE refloat_schema SET version = 1")
	if _, err := sqlite.OpenReader(ctx, newer); !errors.Is(err, jobdb.ErrOlder) {
		t.Errorf("older schema: error %v, want ErrOlder", err)
	}

	if _, err := sqlite.OpenReader(ctx, filepath.Join(dir, "none.db")); !errors.Is(err, jobdb.ErrAbsent) {
		t.Errorf("no file: error %v, want ErrAbsent", err)
	}
	if _, err := sqlite.Open(ctx, filepath.Join(dir, "no", "such", "dir.db"), sqlite.Options{}); err == nil {
		t.Error("opened a file in a directory that is not there")
	}
}

// TestReadWhileCreated: until a new database has its tables, it is absent; a reader finds
// it without tables or with all of them.
func TestReadWhileCreated(t *testing.T) {
	t.Parallel()
	for range 50 {
		path := filepath.Join(t.TempDir(), "jobs.db")
		created := make(chan error, 1)
		go func() {
			db, err := sqlite.Open(context.Background(), path, sqlite.Options{})
			if err == nil {
				err = db.Close()
			}
			created <- err
		}()
		for {
			r, err := sqlite.OpenReader(t.Context(), path)
			if err == nil {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				break
			}
			if !errors.Is(err, jobdb.ErrAbsent) {
				t.Errorf("while the database is created: error %v, want ErrAbsent", err)
				break
			}
		}
		if err := <-created; err != nil {
			t.Fatal(err)
		}
	}
}

// TestLocked: a lock held by another writer has its own error class.
func TestLocked(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "jobs.db")
	first := open(t, path)
	second, err := sqlite.Open(ctx, path, sqlite.Options{Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	tx, err := first.Begin(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Begin(ctx, 0); !errors.Is(err, jobdb.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	tx, err = second.Begin(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}
