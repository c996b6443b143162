package doctor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/doctor"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// TestDatabase: problems of a job database are reported.
func TestDatabase(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.Database(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(ctx, query, args...); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	now := time.Now()
	inspect := func(ends map[int]eventlog.Position) string {
		var text strings.Builder
		for _, f := range doctor.CheckDatabase(doctor.GatherDatabase(ctx, url, now), ends) {
			text.WriteString(f.Severity.String() + " " + f.Code + " " + f.What + "\n")
		}
		return text.String()
	}
	want := func(text string, lines ...string) {
		t.Helper()
		for _, line := range lines {
			if !strings.Contains(text, line) {
				t.Errorf("no %q in\n%s", line, text)
			}
		}
	}
	want(inspect(nil), "error RD050 does not have our tables")
	if err := schema.Create(ctx, conn); err != nil {
		t.Fatal(err)
	}
	// Before a cut-over nothing is wrong, and none of our queries fails.
	if got := inspect(nil); got != "warn RD050 is Armada's scheduler database without our tables: Armada's own ingester still writes it\n"+
		fmt.Sprintf("ok RD051 is also Armada's scheduler database, at migration %d\n", pgstore.Migration) {
		t.Errorf("before a cut-over:\n%s", got)
	}
	exec(`DROP SCHEMA public CASCADE`)
	exec(`CREATE SCHEMA public`)

	db, err := postgres.Open(ctx, url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	want(inspect(nil), "ok RD050", "ok RD051 does not have Armada's tables", "ok RD053", "ok RD055")

	if err := schema.Create(ctx, conn); err != nil {
		t.Fatal(err)
	}
	want(inspect(nil), "ok RD051 is also Armada's scheduler database")
	exec(`SELECT setval('database_version', $1)`, pgstore.Migration+1)
	want(inspect(nil), "error RD051")
	exec(`SELECT setval('database_version', $1)`, pgstore.Migration)

	exec(`INSERT INTO refloat_positions VALUES (3, 1, '', 1, '', 1, 1, -1, 1, 1, -1, 9, 9, -1)`)
	want(inspect(map[int]eventlog.Position{3: {Ledger: 9, Entry: 9, Batch: -1}}), "ok RD052")
	want(inspect(map[int]eventlog.Position{3: {Ledger: 9, Entry: 8, Batch: -1}}), "error RD052 is ahead of events in partitions 3")

	want(inspect(nil), "ok RD057")
	exec(`UPDATE refloat_positions SET given_back = $1`, time.Unix(1_000_000, 0).UnixNano())
	want(inspect(nil), "warn RD057 the job database was rolled back to Armada's ingester at 1970-01-12T13:46:40Z")
	exec(`UPDATE refloat_positions SET given_back = NULL`)

	due := now.Add(-2 * time.Minute).UnixNano()
	exec(`INSERT INTO refloat_waits VALUES (3, 'j', 'r', 1, 'p', $1, '{}', false, false, true, 0, 0, $1)`, due)
	want(inspect(nil), "error RD054 1 retry is overdue, the oldest by 2m0s")
	exec(`UPDATE refloat_waits SET due = $1`, now.Add(time.Hour).UnixNano())
	want(inspect(nil), "ok RD054 1 job waits")

	other, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close(context.Background()) })
	tx, err := other.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(pgstore.LockKey)); err != nil {
		t.Fatal(err)
	}
	want(inspect(nil), "ok RD053") // not for long
}
