package sink_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// TestTakenInElsewhere: a release of no messages says that another ingester took
// in what stands before it. It changes no row, and neither does what the chain says
// of it, be it said before or later; what comes after counts, also for jobs that were
// submitted before. What was taken in elsewhere need not be there any more, nor need
// the decisions on it.
func TestTakenInElsewhere(t *testing.T) {
	t.Parallel()
	const failed = "j queued, not known: r 100000000000"
	for _, tt := range []struct {
		to, trimmed int
		jobs        string
	}{
		{1, 0, failed},
		{1, 1, failed}, // up to the message itself
		{2, 0, ""},
		{2, 1, ""}, // the next envelope answers more, and some of it is gone
		{2, 2, ""},
		{3, 0, ""},
		{3, 2, ""},
		{3, 3, ""}, // all is gone
	} {
		for _, answered := range []int{0, 1, 2} { // envelopes before ours begins
			t.Run(fmt.Sprintf("taken %d, trimmed %d, answered %d", tt.to, tt.trimmed, answered), func(t *testing.T) {
				t.Parallel()
				events, decisions, c, records := small(t)
				answer := []func(){func() { c.answer(position(1), 1) }, func() { c.answer(position(3), 2, records...) }}
				for _, do := range answer[:answered] {
					do()
				}
				store := begunAt(t, decisions, position(tt.to))
				events.trim(0, tt.trimmed)
				clock := int64(0)
				drain(t, impatient(t, events, decisions, store, &clock, sink.Hooks{}), 1)
				for _, do := range answer[answered:] {
					do()
				}
				drain(t, impatient(t, events, decisions, store, &clock, sink.Hooks{}), 1) // begun anew
				got := mustFold(t, events, decisions, store)
				jobs := ""
				for _, j := range got.Jobs {
					known := "known"
					if !j.Known {
						known = "not known"
					}
					jobs += fmt.Sprintf("%s %s, %s: %s %d", j.JobID, strings.ToLower(j.State.String()), known, j.Queueing.LatestRun, j.Queueing.RetryAfter)
				}
				if jobs != tt.jobs || (len(got.Decisions) == 1) != (jobs != "") || len(got.Releases) != 1 || got.Positions.Events != position(3) {
					t.Errorf("jobs %q, %d decisions, %d releases, up to %v", jobs, len(got.Decisions), len(got.Releases), got.Positions.Events)
				}
			})
		}
	}
}

// begunAt is a store whose rows begin where another ingester stopped, as package
// cutover begins them.
func begunAt(t *testing.T, decisions eventlog.Topic, at eventlog.Position) *memStore {
	t.Helper()
	from, _, err := follow.Seek(t.Context(), decisions, 0, follow.Beginning, func(a *chain.Accepted) bool { return a.End.InTo.Compare(at) > 0 })
	if err != nil {
		t.Fatal(err)
	}
	store := newMemStore()
	tx, err := store.Begin(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	positions := jobdb.Positions{Chain: from.Chain, Decisions: from.Decisions, Events: at}
	release := &jobdb.Release{Seq: from.Chain.Seq, From: eventlog.Start, To: at, When: 7}
	if err := errors.Join(tx.Write(t.Context(), &jobdb.Changes{Releases: []*jobdb.Release{release}}), tx.Commit(t.Context(), jobdb.Beginning, positions)); err != nil {
		t.Fatal(err)
	}
	return store
}

// TestLostBehindOrigin: what is lost after the position where the rows begin is missed.
func TestLostBehindOrigin(t *testing.T) {
	t.Parallel()
	events, decisions, c, records := small(t)
	c.answer(position(1), 1)
	store := begunAt(t, decisions, position(1))
	c.answer(position(3), 2, records...)
	events.trim(0, 2)
	clock := int64(0)
	_, err := impatient(t, events, decisions, store, &clock, sink.Hooks{}).Advance(t.Context(), 0)
	if !errors.Is(err, chain.ErrMissing) {
		t.Errorf("error %v, want ErrMissing", err)
	}
}
