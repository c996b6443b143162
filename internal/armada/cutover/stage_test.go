package cutover

import (
	"bytes"
	"compress/zlib"
	"context"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// TestStages: a republished run carries its stage in Armada's tables; an ended run
// carries none.
func TestStages(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if err := schema.Create(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	insert := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	insert(`INSERT INTO jobs (job_id, job_set, queue, user_id, submitted, priority, scheduling_info, last_modified)
		VALUES ('j', 's', 'q', 'u', 0, 0, '', now())`)
	insert("INSERT INTO job_metadata (job_id, submit_message) VALUES ('j', $1)", deflated(t))
	insert(`INSERT INTO runs (run_id, job_id, job_set, executor, node, last_modified, pending, running, failed, created) VALUES
		('running', 'j', 's', 'e', 'n', now(), true, true, false, 5),
		('unannounced', 'j', 's', 'e', 'n', now(), false, true, false, 4),
		('pending', 'j', 's', 'e', 'n', now(), true, false, false, 3),
		('leased', 'j', 's', 'e', 'n', now(), false, false, false, 2),
		('failed', 'j', 's', 'e', 'n', now(), true, true, true, 1)`)

	live, ended := map[string]uint32{}, map[string]uint32{}
	republish := republisher{now: time.Now(), message: &pb.EventSequence{}, append: func(m eventlog.Message) error {
		var seq pb.EventSequence
		if err := proto.Unmarshal(m.Payload, &seq); err != nil {
			return err
		}
		for _, ev := range seq.Events {
			if run := ev.GetKnownRun(); run != nil {
				live[run.RunId] = run.Stage
			}
			if run := ev.GetEndedRun(); run != nil {
				ended[run.RunId] = run.Stage
			}
		}
		return nil
	}}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := republish.all(t.Context(), tx, &State{Partitions: make([]Partition, 1)}); err != nil {
		t.Fatal(err)
	}
	if err := republish.unread(); err != nil {
		t.Fatal(err)
	}
	if want := map[string]uint32{"running": 2, "unannounced": 2, "pending": 1, "leased": 0}; !maps.Equal(live, want) {
		t.Errorf("stages %v, want %v", live, want)
	}
	if want := map[string]uint32{"failed": 0}; !maps.Equal(ended, want) {
		t.Errorf("stages of ended runs %v, want %v", ended, want)
	}
}

// deflated is an empty SubmitJob as stored in job_metadata.
func deflated(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := zlib.NewWriter(&b).Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
