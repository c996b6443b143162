package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// TestVerifyAfterBack: after an ordinary cut-over and roll-back, our ingester's subscription is deleted, and the broker
// deletes what everybody else has acknowledged. verify then says which ways are left, and is green by that of the
// checkpoints; doctor says that the database was rolled back.
func TestVerifyAfterBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	db := pgtest.Database(t)
	conn, err := pgx.Connect(t.Context(), db)
	w.must(err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	w.must(schema.Create(t.Context(), conn))
	const events, armada = "events-partition-0", "/subscription/scheduler-ingester"
	w.admin(http.MethodPost, w.path("events")+"/retention", `{"retentionTimeInMinutes":0,"retentionSizeInMB":0}`)
	w.admin(http.MethodPut, w.path(events)+armada, `{"ledgerId":-1,"entryId":-1}`)
	logs, err := w.Open()
	w.must(err)
	defer logs.Close()
	ctl := func(code int, want []string, args ...string) {
		t.Helper()
		out, err := w.Ctl(w.ctx, args...)
		if exitCode(err) != code {
			t.Fatalf("%v: %v, want exit code %d\n%s", args, err, code, out)
		}
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%v does not say %q:\n%s", args, text, out)
			}
		}
	}

	ctl(0, []string{"our ingester starts at the beginning"}, "cutover", "start", "--job-db", db)
	w.live(1, w.evaluator("a"))
	in := w.started(w.Ingester("one", "--job-db", db, "--mode", "holdback"))
	w.feedOne("c0001")
	w.until("all events are in the job database", func() bool {
		end, err := logs.Events.End(0)
		w.must(err)
		var at eventlog.Position
		err = conn.QueryRow(w.ctx, "SELECT event_ledger, event_entry, event_batch FROM refloat_positions").Scan(&at.Ledger, &at.Entry, &at.Batch)
		w.must(err)
		return at == end
	})
	w.must(in.Term(w.ctx))
	ctl(0, []string{"move subscription scheduler-ingester to just after"}, "cutover", "back", "--job-db", db)
	ctl(0, []string{"the job database was rolled back to Armada's ingester at 20"}, "doctor", "--job-db", db)

	// Armada's ingester goes on.
	last, err := logs.Events.End(0)
	w.must(err)
	w.admin(http.MethodDelete, w.path(events)+"/subscription/refloat-ingester", "")
	w.feedOne("c0002")
	w.turnOver(logs)
	w.until("the broker deletes what was decided before", func() bool {
		w.nudge()
		w.admin(http.MethodPost, w.path(events)+armada+"/skip_all", "")
		w.admin(http.MethodPost, w.path(events)+"/trim", "")
		at, err := logs.Events.Beginning(0)
		w.must(err)
		return at.Compare(last) > 0
	})
	ctl(1, []string{"input-gone", "--archive DIR", "--checkpoints URL"}, "verify", "--allow-waiting")
	ctl(0, []string{"decisions before the checkpoints were not read"}, "verify", "--allow-waiting", "--checkpoints", "file://"+w.Checkpoints())
}
