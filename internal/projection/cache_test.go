package projection

import (
	"errors"
	"strconv"
	"testing"
)

// TestUnkeptJobsLeaveTheCache: a job that is no longer kept stays in the cache until the KV knows that, so that it is
// not read back from there, and leaves it then, unless it is kept again.
func TestUnkeptJobsLeaveTheCache(t *testing.T) {
	t.Parallel()
	kv := NewMemory()
	s, err := NewState(kv, NoWatermark, 1)
	if err != nil {
		t.Fatal(err)
	}
	cached := func(id string) bool { return s.recent[id] != nil || s.older[id] != nil }
	set := func(id string, job *Job) {
		e := s.entry(id)
		e.job = job
		s.touch(e)
		s.touched = nil
	}
	flush := func() (Batch, uint64) {
		b := kv.NewBatch()
		n, err := s.Flush(b)
		if err != nil {
			t.Fatal(err)
		}
		return b, n
	}
	commit := func(b Batch, n uint64) {
		if err := errors.Join(kv.Commit(b, nil), s.err); err != nil {
			t.Fatal(err)
		}
		s.Committed(n)
	}
	names := []string{"gone", "again", "later", "next"}
	for _, id := range names {
		set(id, &Job{ID: id})
	}
	commit(flush())
	for _, id := range names[:3] {
		set(id, nil)
	}
	first, n := flush()
	set("again", &Job{ID: "again"})
	set("next", nil)
	for _, id := range names {
		if !cached(id) {
			t.Errorf("%s left the cache before the KV knows that it is not kept", id)
		}
	}
	if s.entry("gone").job != nil {
		t.Error("a job that is not kept was read back")
	}
	second, m := flush()
	set("later", &Job{ID: "later"})
	commit(first, n)
	if cached("gone") {
		t.Error("a job that is not kept, as the KV knows, stays in the cache")
	}
	if !cached("next") || s.entry("again").job == nil {
		t.Error("what the KV will know after the next commit has left the cache")
	}
	commit(second, m)
	commit(flush())
	for _, id := range []string{"again", "later"} {
		if e := s.entry(id); e.job == nil || e.dirty {
			t.Errorf("%s is kept again, but is not in the cache", id)
		}
	}
	if s.entry("gone").job != nil || len(s.unkept) != 0 {
		t.Errorf("the KV has a job that is not kept; or %d are still watched", len(s.unkept))
	}
}

// asked counts how often a store is asked for a run, or for all runs of a job.
type asked struct {
	KV
	run, all int
}

func (a *asked) Get(key []byte) ([]byte, error) {
	if key[0] == runKey {
		a.run++
	}
	return a.KV.Get(key)
}

func (a *asked) Scan(from, to []byte, visit func(key, value []byte) bool) error {
	if from[0] == runKey {
		a.all++
	}
	return a.KV.Scan(from, to, visit)
}

// oneJob is a state with one job, whose store is asked.
type oneJob struct {
	t     *testing.T
	kv    *Memory
	asked *asked
	*State
}

func newOneJob(t *testing.T, runs int) *oneJob {
	t.Helper()
	kv := NewMemory()
	o := &oneJob{t: t, kv: kv, asked: &asked{KV: kv}}
	o.restart()
	o.entry("job").job = &Job{ID: "job"}
	for i := range runs {
		o.start(i)
	}
	o.flush()
	o.restart()
	return o
}

func (o *oneJob) restart() {
	o.t.Helper()
	var err error
	if o.State, err = NewState(o.asked, NoWatermark, 1<<62); err != nil {
		o.t.Fatal(err)
	}
	o.asked.run, o.asked.all = 0, 0
}

func (o *oneJob) flush() {
	o.t.Helper()
	b := o.kv.NewBatch()
	n, err := o.Flush(b)
	if err := errors.Join(err, o.kv.Commit(b, nil), o.err); err != nil {
		o.t.Fatal(err)
	}
	o.Committed(n)
}

// start makes the i-th run known.
func (o *oneJob) start(i int) *Run {
	e := o.entry("job")
	o.touch(e)
	return o.see(e, strconv.Itoa(i))
}

// TestRunsAreLoadedTogether: the store is asked once for the runs of a job, whatever new runs come, unless it has too
// many.
func TestRunsAreLoadedTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ runs, all, each int }{
		{runs: 1, all: 1}, {runs: 2, all: 1}, {runs: maxRunsLoaded, all: 1}, {runs: maxRunsLoaded + 1, each: 1},
	} {
		o := newOneJob(t, c.runs)
		const more = 3
		for i := range more {
			o.start(c.runs + i)
			o.flush()
		}
		if got := *o.asked; got.run != c.each*more || got.all != c.all {
			t.Errorf("%d runs: the store was asked %d times for one of them, and %d times for all; want %d and %d",
				c.runs, got.run, got.all, c.each*more, c.all)
		}
		for i := range c.runs + more {
			if r := o.start(i); r.ID != strconv.Itoa(i) || r.Index != uint32(i) {
				t.Errorf("%d runs: run %d is %s with number %d", c.runs, i, r.ID, r.Index)
			}
		}
	}
}

// TestChangedRunsAreNotLoaded: a run that is in memory takes precedence over what the store has of it.
func TestChangedRunsAreNotLoaded(t *testing.T) {
	t.Parallel()
	o := newOneJob(t, 1)
	o.start(1)
	o.flush()
	e := o.entry("job")
	first := o.run(e, "0")
	first.RunningNode = "changed"
	o.touchRun(e, first)
	o.start(2)
	if o.asked.all != 1 {
		t.Fatalf("the store was asked %d times for all runs, want 1", o.asked.all)
	}
	if r := o.run(e, "0"); r != first {
		t.Errorf("a changed run was loaded again: %+v", r)
	}
}
