package pgstore_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
)

func aJob(id string) *schedulerdb.InsertJob {
	return &schedulerdb.InsertJob{
		JobID: id, Queue: "q", JobSet: "s", UserID: "u",
		SchedulingInfo: []byte{}, SubmitMessage: []byte{}, Groups: []byte{},
	}
}

func TestCheckRefuses(t *testing.T) {
	address, conn := database(t)
	other, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	other.Path = "/no_such_database"
	for _, tt := range []struct {
		name, url, sql string
		want           error
	}{
		{"empty database", pgtest.Database(t), "", pgstore.ErrForeign},
		{"no database", other.String(), "", pgstore.ErrForeign},
		{"no server", "postgres:///x?host=/nowhere&user=x", "", pgstore.ErrUnavailable},
		{"older", address, "SELECT setval('database_version', 40)", pgstore.ErrOlder},
		{"newer", address, "SELECT setval('database_version', 42)", pgstore.ErrNewer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.sql != "" {
				if _, err := conn.Exec(t.Context(), tt.sql); err != nil {
					t.Fatal(err)
				}
			}
			db, err := openDB(t.Context(), tt.url)
			if !errors.Is(err, tt.want) {
				t.Errorf("Check = %v, want %v", err, tt.want)
			}
			if err == nil {
				db.pool.Close()
			}
		})
	}
}

// attempt applies and commits, and returns the first error.
func attempt(t *testing.T, db *db, ops ...schedulerdb.Op) error {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		return err
	}
	defer func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}()
	if err := tx.Apply(t.Context(), ops); err != nil {
		return err
	}
	return tx.Commit(t.Context())
}

func TestReadOnly(t *testing.T) {
	address, _ := database(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("default_transaction_read_only", "on")
	u.RawQuery = q.Encode()
	if err := attempt(t, open(t, u.String()), aJob("a")); !errors.Is(err, pgstore.ErrReadOnly) {
		t.Errorf("Apply = %v, want %v", err, pgstore.ErrReadOnly)
	}
}

// TestLock: one writer at a time, and who waits too long may try again.
func TestLock(t *testing.T) {
	address, conn := database(t)
	db := open(t, address)
	db.wait = 100 * time.Millisecond
	armada, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := armada.Exec(t.Context(), "SELECT pg_advisory_xact_lock(8741339439634283896)"); err != nil {
		t.Fatal(err)
	}
	if err := attempt(t, db, aJob("a")); !errors.Is(err, pgstore.ErrUnavailable) {
		t.Errorf("Apply = %v, want %v", err, pgstore.ErrUnavailable)
	}
	if err := attempt(t, db); err != nil {
		t.Errorf("a transaction that changes no table of Armada's waits for its lock: %v", err)
	}
	if err := armada.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := attempt(t, db, aJob("a")); err != nil {
		t.Errorf("Apply = %v once the lock is free", err)
	}
}

// TestKilledServer: what was not committed is not there, and a DB goes on once
// the server is back.
func TestKilledServer(t *testing.T) {
	server := pgtest.Start(t, true)
	address := server.Database(t)
	conn := connect(t, address)
	if err := schema.Create(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	db := open(t, address)
	if err := attempt(t, db, aJob("kept")); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Apply(t.Context(), []schedulerdb.Op{aJob("lost")}); err != nil {
		t.Fatal(err)
	}
	server.Kill(t)
	if err := tx.Commit(t.Context()); !errors.Is(err, pgstore.ErrUnavailable) {
		t.Errorf("Commit = %v, want %v", err, pgstore.ErrUnavailable)
	}
	if err := tx.Rollback(); err != nil {
		t.Errorf("Rollback = %v", err)
	}
	if _, err := db.Begin(t.Context()); !errors.Is(err, pgstore.ErrUnavailable) {
		t.Errorf("Begin = %v, want %v", err, pgstore.ErrUnavailable)
	}
	server.Restart(t)
	if err := attempt(t, db, aJob("next")); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if got := jobIDs(t, connect(t, address)); got != "kept next" {
		t.Errorf("jobs %q, want kept and next", got)
	}
}

// TestConnectionCut is the same for one connection, in the middle of a transaction.
func TestConnectionCut(t *testing.T) {
	address, conn := database(t)
	db := open(t, address)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend($1)", tx.conn.Conn().PgConn().PID()); err != nil {
		t.Fatal(err)
	}
	if err := tx.Apply(t.Context(), []schedulerdb.Op{aJob("lost")}); !errors.Is(err, pgstore.ErrUnavailable) {
		t.Errorf("Apply = %v, want %v", err, pgstore.ErrUnavailable)
	}
	if err := tx.Rollback(); err != nil {
		t.Errorf("Rollback = %v", err)
	}
	if err := attempt(t, db, aJob("next")); err != nil {
		t.Errorf("on another connection: %v", err)
	}
	if got := jobIDs(t, conn); got != "next" {
		t.Errorf("jobs %q, want next", got)
	}
}

func TestCancelledContext(t *testing.T) {
	address, _ := database(t)
	db := open(t, address)
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	err = tx.Apply(ctx, []schedulerdb.Op{aJob("lost")})
	if !errors.Is(err, context.Canceled) || errors.Is(err, pgstore.ErrUnavailable) {
		t.Errorf("Apply = %v, want the context's error alone", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Errorf("Rollback = %v", err)
	}
}

func jobIDs(t *testing.T, conn *pgx.Conn) (ids string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT COALESCE(string_agg(job_id, ' ' ORDER BY job_id), '') FROM jobs").Scan(&ids); err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestRefusedValues: what the converter holds back is what PostgreSQL refuses,
// and a refused transaction leaves nothing.
func TestRefusedValues(t *testing.T) {
	address, conn := database(t)
	db := open(t, address)
	long, random := strings.Repeat("ü", 513), incompressible(4000)
	at := time.Unix(1_700_000_000, 0)
	named := func(change func(*schedulerdb.InsertJob)) *schedulerdb.InsertJob {
		job := aJob("x")
		change(job)
		return job
	}
	for name, op := range map[string]schedulerdb.Op{
		"NUL in a job id":       aJob("a\x00b"),
		"invalid UTF-8":         named(func(j *schedulerdb.InsertJob) { j.UserID = "\xff" }),
		"queue over an index":   named(func(j *schedulerdb.InsertJob) { j.Queue = random }),
		"run id over an index":  &schedulerdb.InsertRun{RunID: random, JobID: "x", Leased: at, PodRequirementsOverlay: []byte{}},
		"executor over one":     &schedulerdb.InsertRun{RunID: "r", JobID: "x", Executor: random, Leased: at, PodRequirementsOverlay: []byte{}},
		"cancel_reason":         &schedulerdb.RequestCancel{JobID: "kept", Queue: "q", JobSet: "s", Reason: long},
		"cancel_user of a set":  &schedulerdb.RequestSetCancel{Queue: "q", JobSet: "s", Queued: true, User: long},
		"reprioritise_user":     &schedulerdb.SetPriority{JobID: "kept", Queue: "q", JobSet: "s", User: long},
		"NUL in a pool":         &schedulerdb.SetValidated{JobID: "kept", Pools: []string{"\x00"}},
		"NUL in an unknown run": &schedulerdb.FailRun{RunID: "\x00", At: at},
		"time out of range":     &schedulerdb.CancelJob{JobID: "kept", At: time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		t.Run(name, func(t *testing.T) {
			if schedulerdb.Refused(op) == nil {
				t.Error("the converter lets it through")
			}
			if err := attempt(t, db, aJob("kept")); err != nil {
				t.Fatal(err)
			}
			if err := attempt(t, db, aJob("other"), op); !errors.Is(err, pgstore.ErrRefused) {
				t.Errorf("Apply = %v, want %v", err, pgstore.ErrRefused)
			}
			if got := jobIDs(t, conn); got != "kept" {
				t.Errorf("jobs %q, want kept", got)
			}
		})
	}
	if op := (&schedulerdb.RequestCancel{JobID: "kept", Queue: "q", JobSet: "s", Reason: long[:1024]}); schedulerdb.Refused(op) != nil {
		t.Error("512 characters of two bytes are refused")
	} else if err := attempt(t, db, op); err != nil {
		t.Errorf("512 characters of two bytes: %v", err)
	}
}

// incompressible is text that PostgreSQL cannot make fit by compressing it.
func incompressible(n int) string {
	b, state := make([]byte, n), uint32(1)
	for i := range b {
		state = state*1664525 + 1013904223
		b[i] = '!' + byte(state>>24)%90
	}
	return string(b)
}

// TestHugeValues: a message's worth of bytes in one column is no difficulty.
func TestHugeValues(t *testing.T) {
	address, conn := database(t)
	huge := make([]byte, 40<<20)
	job := aJob("huge")
	job.SubmitMessage, job.SchedulingInfo = huge, huge[:5<<20]
	if err := attempt(t, open(t, address), job, aJob("next"), &schedulerdb.SucceedJob{JobID: "huge"}); err != nil {
		t.Fatal(err)
	}
	var size int
	var succeeded bool
	err := conn.QueryRow(t.Context(), "SELECT length(submit_message), succeeded FROM jobs JOIN job_metadata USING (job_id) WHERE job_id = 'huge'").Scan(&size, &succeeded)
	if err != nil || size != len(huge) || !succeeded {
		t.Errorf("%d bytes, succeeded %v, %v; want %d and true", size, succeeded, err, len(huge))
	}
}

// TestPlace: positions are compared and set, and tables of one's own written, in
// the transaction of the rows.
func TestPositions(t *testing.T) {
	address, conn := database(t)
	if _, err := conn.Exec(t.Context(), "CREATE TABLE place (partition int PRIMARY KEY, at int); INSERT INTO place VALUES (3, 0)"); err != nil {
		t.Fatal(err)
	}
	var at int
	db, partition := open(t, address), 3
	db.begun = func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT at FROM place WHERE partition = $1 FOR UPDATE", partition).Scan(&at)
	}
	for i, id := range []string{"a", "b"} {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if at != 0 {
			t.Fatalf("the place is %d in transaction %d, want 0: the one before was taken back", at, i)
		}
		if err := tx.Apply(t.Context(), []schedulerdb.Op{aJob(id)}); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.conn.Exec(t.Context(), "UPDATE place SET at = at + 1 WHERE partition = 3"); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			err = tx.Rollback()
		} else {
			err = tx.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	partition = 4
	if _, err := db.Begin(t.Context()); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("Begin = %v, want the hook's error", err)
	}
	if err := conn.QueryRow(t.Context(), "SELECT at FROM place").Scan(&at); err != nil || at != 1 {
		t.Errorf("the place is %d, %v; want 1", at, err)
	}
	if got := jobIDs(t, conn); got != "b" {
		t.Errorf("jobs %q, want b", got)
	}
}
