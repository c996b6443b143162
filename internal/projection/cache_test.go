package projection

import (
	"errors"
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
