package writer_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// TestKeeps: jobs that Armada's tables have are kept.
func TestKeeps(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing is to stay
	over := func(id string) *jobdb.Job {
		return &jobdb.Job{JobID: id, Known: true, State: jobdb.JobFailed, Final: true, Times: jobdb.JobTimes{Ended: 7}}
	}
	if err := tx.Write(t.Context(), &jobdb.Changes{Jobs: []*jobdb.Job{over("a"), over("b")}}); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"CREATE TABLE jobs (job_id text)", "INSERT INTO jobs VALUES ('a'), ('other')"} {
		if _, err := tx.(*postgres.Tx).Conn().Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := writer.New(writer.Config{}).Keeps(t.Context(), tx, []string{"a", "b", "bad\x00text"})
	if err != nil || !slices.Equal(slices.Collect(maps.Keys(kept)), []string{"a"}) {
		t.Errorf("kept %v, %v", kept, err)
	}
}
