package writer_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/schedulerdb"
)

// TestEndHolds: a roll-back writes the rows of members that are held before their first start.
func TestEndHolds(t *testing.T) {
	t.Parallel()
	url, conn := database(t)
	db, err := postgres.Open(t.Context(), url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	holdRow(t, conn)
	for p, want := range []int{0, 1, 0} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			n, err := writer.EndRetries(t.Context(), tx, writer.Config{Partition: p, Mode: writer.HoldBack}, nil)
			if n != want {
				t.Errorf("%d members of partition %d were written, want %d", n, p, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var rows, held int
	const query = `SELECT (SELECT count(*) FROM jobs JOIN job_metadata USING (job_id) WHERE job_id = 'j' AND queued AND priority = 7 AND scheduling_info = 'info'),
		(SELECT count(*) FROM refloat_held)`
	if err := conn.QueryRow(t.Context(), query).Scan(&rows, &held); err != nil || rows != 1 || held != 0 {
		t.Errorf("%d rows, %d still held: %v", rows, held, err)
	}
}

// holdRow writes a held member j of queue q, in partition 1.
func holdRow(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	stored, err := json.Marshal(&schedulerdb.InsertJob{
		JobID: "j", Queue: "q", JobSet: "s", Priority: 7, SchedulingInfo: []byte("info"), SubmitMessage: []byte("submit"), Groups: []byte{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "INSERT INTO refloat_held VALUES (1, 'j', 'q', 's', $1)", stored); err != nil {
		t.Fatal(err)
	}
}

// TestSubmitHeldAtOnce: who writes the row of a held member second waits for the first, and
// then leaves it alone: it may have changed since.
func TestSubmitHeldAtOnce(t *testing.T) {
	t.Parallel()
	url, conn := database(t)
	holdRow(t, conn)
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	submit := func(conn *pgx.Conn, then func()) (n int, err error) {
		err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) (err error) {
			n, err = writer.SubmitHeld(t.Context(), tx, []string{"q"}, func([]byte) bool { return true })
			then()
			return err
		})
		return n, err
	}
	type result struct {
		n   int
		err error
	}
	second := make(chan result, 1)
	n, err := submit(conn, func() {
		go func() {
			n, err := submit(other, func() {})
			second <- result{n, err}
		}()
		watch, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Error(err)
			return
		}
		defer watch.Close(context.Background())
		const query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
		for waiting := 0; waiting == 0; {
			if err := watch.QueryRow(t.Context(), query).Scan(&waiting); err != nil || len(second) > 0 {
				t.Errorf("the second does not wait: %v", err)
				return
			}
		}
	})
	if n != 1 || err != nil {
		t.Errorf("the first writes %d rows: %v", n, err)
	}
	if r := <-second; r.n != 0 || r.err != nil {
		t.Errorf("the second writes %d rows: %v", r.n, r.err)
	}
}
