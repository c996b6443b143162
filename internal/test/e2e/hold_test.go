package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// TestIngesterHoldsEvents: with no retention at all, what evaluators acknowledged
// while no ingester ran is still there when one comes back; and once that is in the
// job database, it goes.
func TestIngesterHoldsEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.admin(http.MethodPost, w.path("events")+"/retention", `{"retentionTimeInMinutes":0,"retentionSizeInMB":0}`)
	a, in := w.evaluator("a"), w.ingester("one")
	w.live(1, a)
	w.feedOne("c0001")
	w.must(w.Settled(w.ctx))
	w.must(in.Term(w.ctx))

	logs, err := w.Open()
	w.must(err)
	defer logs.Close()
	first, err := logs.Events.End(0)
	w.must(err)
	w.feedOne("c0002")
	w.turnOver(logs)
	if at, err := logs.Events.Beginning(0); err != nil || at.Compare(first) > 0 {
		t.Fatalf("events begin at %v (%v), and the ingester is at %v", at, err, first)
	}
	w.ingester("one")
	w.must(w.Settled(w.ctx)) // it is not refused: nothing that it needs was deleted

	w.turnOver(logs)
	w.until("what is in the job database goes", func() bool {
		w.nudge()
		w.admin(http.MethodPost, w.path("events-partition-0")+"/trim", "")
		at, err := logs.Events.Beginning(0)
		w.must(err)
		return at.Compare(first) > 0
	})
}

// turnOver begins a new ledger of events, waits until the evaluators have
// acknowledged what was before, and has the broker delete what nobody needs.
func (w *world) turnOver(logs *Logs) {
	w.t.Helper()
	old, err := logs.Events.End(0)
	w.must(err)
	w.must(w.broker.Unload(w.Topic("events-partition-0")))
	w.until("evaluators acknowledge what is in the new ledger", func() bool {
		w.nudge() // what was committed last is acknowledged with what comes after it
		ledger, _ := w.markDelete("refloat-evaluator")
		return ledger > old.Ledger
	})
	w.admin(http.MethodPost, w.path("events-partition-0")+"/trim", "")
}

// markDelete is up to where everything in the partition is acknowledged, as ledger:entry.
func (w *world) markDelete(subscription string) (ledger, entry int64) {
	w.t.Helper()
	var stats struct {
		Cursors map[string]struct{ MarkDeletePosition string }
	}
	w.must(json.Unmarshal(w.ask(w.path("events-partition-0")+"/internalStats"), &stats))
	_, err := fmt.Sscanf(stats.Cursors[subscription].MarkDeletePosition, "%d:%d", &ledger, &entry)
	w.must(err)
	return ledger, entry
}
