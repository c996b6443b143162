package pgtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/test/pgtest"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func count(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDatabaseIsFresh(t *testing.T) {
	for range 2 {
		conn := connect(t, pgtest.Database(t))
		if n := count(t, conn); n != 0 {
			t.Errorf("a fresh database has %d tables", n)
		}
		if _, err := conn.Exec(t.Context(), "CREATE TABLE here (n int)"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKillAndRestart(t *testing.T) {
	s := pgtest.Start(t, true)
	url := s.Database(t)
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), "CREATE TABLE here (n int); INSERT INTO here VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	s.Kill(t)
	if _, err := conn.Exec(t.Context(), "INSERT INTO here VALUES (2)"); err == nil {
		t.Fatal("a killed server took a row")
	}
	s.Restart(t)
	var n int
	if err := connect(t, url).QueryRow(t.Context(), "SELECT sum(n) FROM here").Scan(&n); err != nil || n != 1 {
		t.Fatalf("after the restart the sum is %d, %v; want 1", n, err)
	}
}
