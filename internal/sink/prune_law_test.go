package sink_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/sink"
)

// pruneHorizon is the horizon in histories that are pruned.
const pruneHorizon = 3 * time.Second

var inForce = &chain.PolicyActivated{Generation: 1, HorizonMS: pruneHorizon.Milliseconds()}

// TestPruneLaws: whatever is pruned and when, whatever is released, and whoever overtakes
// whom or crashes, a database holds what Want says; and if a row that must be there is
// missing, it does not. Three jobs and short ids make most events about pruned jobs late
// ones.
func TestPruneLaws(t *testing.T) {
	t.Parallel()
	var runs, prunes, pruned, again, lost, twice int
	rapid.Check(t, func(r *rapid.T) {
		runs++
		events, decisions := historyOf(t, r, 60, inForce)
		x := &world{
			r: r, events: all(events), decisions: &gated{memTopic: decisions}, store: newMemStore(),
			limit: 5, seqs: seqs(decisions), final: map[string]jobdb.Job{},
		}
		x.prune = func(p sink.Prune) {
			prunes++
			pruned += p.Jobs
		}
		x.retain = sink.Retention{For: time.Duration(x.n(1, 12, "retain")) * time.Second}
		x.events.readable = 0
		x.writers = []*sink.Writer{x.open(), x.open()}
		for range x.n(100, 250, "steps") {
			if x.n(0, 1, "what") == 0 {
				x.pass()
			} else {
				x.advance(x.n(0, 1, "writer"))
			}
			x.complete()
		}
		x.events.readable = x.events.durable
		x.decisions.show(len(decisions.parts[0].messages))
		for idle := 0; idle < 2; {
			if x.advance(x.n(0, 1, "writer")) && x.store.positions(0).Chain.Seq == x.seqs[len(x.seqs)-1] {
				idle++
			}
			x.complete()
		}
		got := x.store.contents(0)
		if prunedTwice(r, events, decisions, got) {
			twice++
			return
		}
		for _, d := range differences(r, events, decisions, got) {
			r.Errorf("%v", d)
		}
		for _, j := range got.Jobs {
			if got.Positions.Pruned.Jobs > 0 && j.Since.Compare(got.Positions.Pruned.Through) > 0 {
				again++
			}
		}
		lost += x.lose(events, decisions, got)
	})
	t.Logf("%d histories, %d prunings of %d jobs, %d jobs that began later, %d losses noticed, %d left out", runs, prunes, pruned, again, lost, twice)
	// Of fewer histories, as -short has, too many have none of these by chance.
	if runs >= 100 && (pruned < runs/10 || again == 0 || lost < runs/10 || twice > runs/2) {
		t.Errorf("too few prunings, late events or losses")
	}
}

// prunedTwice reports whether a job was pruned, came back by a late event, and was pruned again. A database says only how
// many it pruned, so Want may miss the row of such a job, as known there.
func prunedTwice(r *rapid.T, events, decisions *memTopic, got *jobdb.Contents) bool {
	whole, err := sink.Fold(events, decisions, 0, 0, got.Releases...)
	if err != nil {
		r.Fatal(err)
	}
	since := map[string]eventlog.Position{}
	for _, j := range got.Jobs {
		since[j.JobID] = j.Since
	}
	gone := uint64(0)
	for _, j := range whole.Jobs {
		if at, there := since[j.JobID]; !there || at != j.Since {
			gone++
		}
	}
	return got.Positions.Pruned.Jobs > gone
}

func differences(r *rapid.T, events, decisions *memTopic, got *jobdb.Contents) []sink.Difference {
	want, err := sink.Want(events, decisions, got)
	if err != nil {
		r.Fatal(err)
	}
	return sink.Compare(want, got)
}

// lose takes a job that must be there out of a database, and reports whether there was
// one. If that goes unnoticed it is an error.
func (x *world) lose(events, decisions *memTopic, got *jobdb.Contents) int {
	p := got.Positions.Pruned
	whole, err := sink.Fold(events, decisions, 0, 0, got.Releases...)
	if err != nil {
		x.r.Fatal(err)
	}
	since := map[string]eventlog.Position{}
	for _, j := range whole.Jobs {
		since[j.JobID] = j.Since
	}
	i := slices.IndexFunc(got.Jobs, func(j *jobdb.Job) bool {
		if j.Since != since[j.JobID] {
			return false // it came back: it may as well have been pruned before
		}
		// One that is over may have been pruned before its last event, if that one creates no row.
		return !j.Final && !j.State.Terminal() && j.Known || p.Jobs == 0 || j.Updated.Compare(p.Through) > 0 && j.Times.Ended > p.Ended
	})
	if i < 0 {
		return 0
	}
	id, less := got.Jobs[i].JobID, *got
	less.Jobs = slices.DeleteFunc(slices.Clone(got.Jobs), func(j *jobdb.Job) bool { return j.JobID == id })
	less.Runs = slices.DeleteFunc(slices.Clone(got.Runs), func(j *jobdb.Run) bool { return j.JobID == id })
	less.Decisions = slices.DeleteFunc(slices.Clone(got.Decisions), func(d *jobdb.Decision) bool { return d.JobID == id })
	less.NotDecided = slices.DeleteFunc(slices.Clone(got.NotDecided), func(d *jobdb.NotDecided) bool { return d.JobID == id })
	less.Ready = slices.DeleteFunc(slices.Clone(got.Ready), func(d *jobdb.Ready) bool { return d.JobID == id })
	if len(differences(x.r, events, decisions, &less)) == 0 {
		x.r.Errorf("nobody notices that job %s is missing: %+v, pruned %+v", id, got.Jobs[i], p)
	}
	return 1
}

// complete: there are no runs or records without their job, and no jobs without theirs.
func (x *world) complete() {
	runs := map[string]int{}
	for _, run := range x.store.runs {
		runs[run.JobID]++
		if _, ok := x.store.jobs[jobKey(0, run.JobID)]; !ok {
			x.r.Errorf("run %s of job %s has no job", run.RunID, run.JobID)
		}
	}
	for _, j := range x.store.jobs {
		if uint32(runs[j.JobID]) < j.Queueing.Runs {
			x.r.Errorf("job %s has %d of %d runs", j.JobID, runs[j.JobID], j.Queueing.Runs)
		}
	}
	if rest := x.store.rest[0]; rest != nil {
		for _, d := range rest.Decisions {
			if _, ok := x.store.jobs[jobKey(0, d.JobID)]; !ok {
				x.r.Errorf("decision %d on job %s has no job", d.Seq, d.JobID)
			}
		}
	}
}

// TestPruneCrashImages: whatever a crash at any label leaves of the files, between
// transactions that prune and within them, a new writer on them, which prunes on, comes to
// rows that are right.
func TestPruneCrashImages(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	images, pruned := 0, uint64(0)
	for seed := range 4 {
		var events, decisions *memTopic
		rapid.Custom(func(r *rapid.T) int { events, decisions = historyOf(t, r, 60, inForce); return 0 }).Example(seed + 20)
		clock := int64(1000)
		dir := t.TempDir()
		db := openDB(t, filepath.Join(dir, "jobs.db"))
		var copies []string
		open := func(db jobdb.Store, hit func(string) error) *sink.Writer {
			w, err := sink.New(sink.Config{
				Events: events, Decisions: decisions, DB: db, MaxRows: 10, Hit: hit,
				Retain: sink.Retention{For: time.Second}, Now: func() time.Time { clock++; return time.Unix(clock, 0) },
			})
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		finish := func(w *sink.Writer) {
			for range 200 { // there is always something due: the clock runs
				if _, err := w.Advance(ctx, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		finish(open(db, func(label string) error {
			if label == "pruning" || label == "pruned" {
				copies = append(copies, image(t, dir, label))
			}
			return nil
		}))
		for _, path := range append(copies, filepath.Join(dir, "jobs.db")) {
			images++
			again, err := sqlite.Open(ctx, path, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			finish(open(again, nil))
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
			got := contents(t, path, 0)
			want, err := sink.Want(events, decisions, got)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range sink.Compare(want, got) {
				t.Errorf("seed %d, %s: %v", seed, path, d)
			}
			pruned += got.Positions.Pruned.Jobs
		}
	}
	t.Logf("%d images, %d jobs pruned", images, pruned)
	if images < 5 || pruned == 0 {
		t.Error("too little was pruned")
	}
}

// TestRetentionConfig: a retention needs a clock, and Armada's tables if it follows them.
func TestRetentionConfig(t *testing.T) {
	t.Parallel()
	topic, now := newTopic(1), func() time.Time { return time.Unix(0, 0) }
	for _, cfg := range []sink.Config{
		{Retain: sink.Retention{For: -1}, Now: now},
		{Retain: sink.Retention{For: time.Hour}},
		{Retain: sink.Retention{FollowArmada: true}, Now: now},
	} {
		cfg.Events, cfg.Decisions, cfg.DB = topic, topic, newMemStore()
		if _, err := sink.New(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg.Retain)
		}
	}
}
