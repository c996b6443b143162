package sink_test

import (
	"errors"
	"math"
	"path/filepath"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/jobdbtest"
	"github.com/refloat/refloat/internal/test/model"
)

// decide runs the evaluator over a random history and writes its chain, one
// envelope per message. Nothing is forgotten.
func decide(t *testing.T, h model.History) (events, decisions *memTopic) {
	t.Helper()
	return decideBy(t, h, 1)
}

// decideBy decides by a version of the semantics.
func decideBy(t *testing.T, h model.History, version uint32) (events, decisions *memTopic) {
	t.Helper()
	const forever = math.MaxInt64 / 1_000_000 / 16
	state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, forever*1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	var files []policyfile.File
	for _, f := range h.YAML() {
		files = append(files, policyfile.File{Name: f.Name, Data: f.Data})
	}
	set, err := policyfile.Parse(files)
	if err != nil {
		t.Fatal(err)
	}
	p := &evaluator.Processor{State: state, Rules: evaluator.Rules{Generation: 1, Set: set.Set}}
	p.Activate([]chain.Record{&chain.PolicyActivated{Generation: 1, Digest: set.Digest(), HorizonMS: forever}, &chain.SemanticsActivated{Version: version}})
	events, decisions = newTopic(1), newTopic(1)
	c := newChain(t, decisions, 0)
	for _, m := range h.Messages {
		msg := eventlog.Message{
			Position: eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}, Publish: m.Publish, Payload: m.Payload,
		}
		out, err := p.Step(&msg)
		if err != nil {
			t.Fatal(err)
		}
		events.append(0, msg)
		c.answer(msg.Position, 1, out.Records...)
	}
	return events, decisions
}

// TestAgreesWithEvaluator: on random histories, the rows and the evaluator see
// the same jobs and runs, though they share no code: every failed run has what
// was made of it, and every decision that is not in shadow finds the job as the
// evaluator had it.
func TestAgreesWithEvaluator(t *testing.T) {
	t.Parallel()
	histories, decided := 300, 0
	if testing.Short() {
		histories = 50
	}
	for seed := range histories {
		events, decisions := decide(t, model.Generate(uint64(seed), model.Options{Republished: seed%4 == 1}))
		c, err := sink.Fold(events, decisions, 0, 0)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		jobs, runs := map[string]*jobdb.Job{}, map[jobdb.RunKey]*jobdb.Run{}
		for _, j := range c.Jobs {
			jobs[j.JobID] = j
		}
		for _, r := range c.Runs {
			runs[jobdb.RunKey{JobID: r.JobID, RunID: r.RunID}] = r
			if (r.State == jobdb.RunFailed) != (r.Outcome != jobdb.NoOutcome) {
				t.Errorf("seed %d: run %s/%s is %v, its outcome %v", seed, r.JobID, r.RunID, r.State, r.Outcome)
			}
			if jobs[r.JobID] == nil {
				t.Errorf("seed %d: run %s/%s has no job", seed, r.JobID, r.RunID)
			}
		}
		for _, d := range c.Decisions {
			decided++
			j, r := jobs[d.JobID], runs[jobdb.RunKey{JobID: d.JobID, RunID: d.RunID}]
			switch {
			case j == nil || r == nil:
				t.Errorf("seed %d: decision %d is on a run without row", seed, d.Number)
			case d.Acted == d.Shadow:
				t.Errorf("seed %d: decision %d: shadow %v, acted %v", seed, d.Number, d.Shadow, d.Acted)
			case d.RunIndex != r.Index || d.Queue != j.Queue || d.JobSet != j.JobSet || !j.Known || r.Decision != d.Number || r.Times.Ended != d.Time:
				t.Errorf("seed %d: decision %d %+v does not fit job %+v, run %+v", seed, d.Number, d.Decision, j, r)
			case !d.Requeue && !d.Shadow && (j.State != jobdb.JobFailed || !j.Final || j.Times.Ended != d.Time):
				t.Errorf("seed %d: decision %d failed the job, which is %v", seed, d.Number, j.State)
			}
		}
		checkReady(t, seed, c, runs)
		checkWriter(t, seed, events, decisions, c)
	}
	t.Logf("%d decisions in %d histories", decided, histories)
	if decided < histories {
		t.Errorf("only %d decisions in %d histories", decided, histories)
	}
}

// TestListsOfWrittenRows: whatever an evaluator decided and an ingester wrote, also of jobs that a cut-over republished, a list has the
// same rows in every order: each order is read only where such rows are (table/select.go).
func TestListsOfWrittenRows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, all, republished := openDB(t, path), &jobdb.Changes{}, 0
	for seed := range 60 {
		events, decisions := decide(t, model.Generate(uint64(seed), model.Options{Republished: seed%2 == 1}))
		c, err := sink.Fold(events, decisions, 0, 0)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, j := range c.Jobs {
			j.Partition = seed
		}
		for _, r := range c.Runs {
			if r.Partition = seed; r.State == jobdb.RunFailed && r.Times.Ended == 0 {
				republished++
			}
		}
		for _, d := range c.Decisions {
			d.Partition = seed
		}
		tx, err := db.Begin(t.Context(), seed)
		if err != nil {
			t.Fatal(err)
		}
		rows := &jobdb.Changes{Jobs: c.Jobs, Runs: c.Runs, Decisions: c.Decisions}
		if err := errors.Join(tx.Write(t.Context(), rows), tx.Commit(t.Context(), tx.Positions(), c.Positions)); err != nil {
			t.Fatal(err)
		}
		all.Runs, all.Decisions = append(all.Runs, c.Runs...), append(all.Decisions, c.Decisions...)
	}
	reader, err := sqlite.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	lists := jobdbtest.SameInEveryOrder(t, reader, all)
	t.Logf("%d lists of %d runs, %d decisions", lists, len(all.Runs), len(all.Decisions))
	if lists < 50 || republished == 0 {
		t.Errorf("%d lists, %d failed runs without a time: too few", lists, republished)
	}
}

// checkWriter: a writer that keeps next to nothing in memory comes to the same.
func checkWriter(t *testing.T, seed int, events, decisions *memTopic, want *jobdb.Contents) {
	t.Helper()
	store := newMemStore()
	w, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: store, MaxRows: 1 + seed%30, KeepRows: 1})
	if err != nil {
		t.Fatal(err)
	}
	drain(t, w, 1)
	for _, d := range sink.Compare(want, store.contents(0)) {
		t.Errorf("seed %d: %v", seed, d)
	}
}

// checkReady: a RetryReady acts unless the retry was in shadow.
func checkReady(t *testing.T, seed int, c *jobdb.Contents, runs map[jobdb.RunKey]*jobdb.Run) {
	t.Helper()
	for _, r := range c.Ready {
		run := runs[jobdb.RunKey{JobID: r.JobID, RunID: r.RunID}]
		if run == nil || run.Outcome != jobdb.Requeued || r.Acted == run.Shadow {
			t.Errorf("seed %d: RetryReady for %s/%s: acted %v, run %+v", seed, r.JobID, r.RunID, r.Acted, run)
		}
	}
}
