package writer_test

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/schedulerdb"
	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/jobdb/postgres"
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
	stored, err := json.Marshal(&schedulerdb.InsertJob{
		JobID: "j", Queue: "q", JobSet: "s", Priority: 7, SchedulingInfo: []byte("info"), SubmitMessage: []byte("submit"), Groups: []byte{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "INSERT INTO refloat_held VALUES (1, 'j', 'q', 's', $1)", stored); err != nil {
		t.Fatal(err)
	}
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
