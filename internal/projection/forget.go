package projection

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
)

// forgetIndex finds the jobs of one weight that can be forgotten. It covers entries in
// the KV and those not there yet; an entry that no longer matches its job is ignored.
type forgetIndex struct {
	weight  uint8
	pending termHeap // not in the KV yet
	inKV    int64    // no entry in the KV has a smaller base
}

// pendingTerm is a term that is not in the KV yet.
type pendingTerm struct {
	base  int64
	job   string
	flush uint64
}

// termHeap is a heap with the smallest base on top.
type termHeap []pendingTerm

func (h termHeap) Len() int           { return len(h) }
func (h termHeap) Less(i, j int) bool { return h[i].base < h[j].base }
func (h termHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

func (h *termHeap) Push(x any) { *h = append(*h, x.(pendingTerm)) }

func (h *termHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	*h = old[:len(old)-1]
	return t
}

// findEarliest finds the smallest base in the KV that is not less than from.
func (x *forgetIndex) findEarliest(kv KV, from int64) error {
	x.inKV = math.MaxInt64
	low := appendForgetBound(nil, term{weight: x.weight, base: from})
	err := kv.Scan(low, []byte{forgetKey, x.weight + 1}, func(key, _ []byte) bool {
		t, _, _ := splitForgetKey(key)
		x.inKV = t.base
		return false
	})
	if err != nil {
		return fmt.Errorf("find the earliest job to forget: %w", err)
	}
	return nil
}

// committed records that the entries of a flush are now in the KV.
func (x *forgetIndex) committed(flush uint64) {
	kept := x.pending[:0]
	for _, t := range x.pending {
		if t.flush > flush {
			kept = append(kept, t)
		} else {
			x.inKV = min(x.inKV, t.base)
		}
	}
	clear(x.pending[len(kept):])
	x.pending = kept
	heap.Init(&x.pending)
}

// take removes and returns the jobs with a base below the cutoff. The caller must check
// each of them again, because the job may have changed.
func (x *forgetIndex) take(kv KV, cutoff int64) ([]string, error) {
	var jobs []string
	for len(x.pending) > 0 && x.pending[0].base < cutoff {
		jobs = append(jobs, heap.Pop(&x.pending).(pendingTerm).job)
	}
	if x.inKV >= cutoff {
		return jobs, nil
	}
	low := appendForgetBound(nil, term{weight: x.weight, base: x.inKV})
	high := appendForgetBound(nil, term{weight: x.weight, base: cutoff})
	err := kv.Scan(low, high, func(key, _ []byte) bool {
		_, job, _ := splitForgetKey(key)
		jobs = append(jobs, job)
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("find jobs to forget: %w", err)
	}
	return jobs, x.findEarliest(kv, cutoff)
}

// forget removes the jobs whose horizon has passed at the watermark of the current
// message (semantics.md 1: before the message is folded).
func (s *State) forget() {
	for i := range s.forgets {
		x := &s.forgets[i]
		cutoff := subtractSaturating(s.Watermark, saturatingTimes(s.Horizon, int64(x.weight)))
		if x.inKV >= cutoff && (len(x.pending) == 0 || x.pending[0].base >= cutoff) {
			continue
		}
		jobs, err := x.take(s.kv, cutoff)
		if err != nil {
			s.fail(err)
			return
		}
		for _, job := range jobs {
			e := s.entry(job)
			if e.indexed.weight == x.weight && e.indexed.base < cutoff {
				s.drop(e)
			}
		}
	}
	s.takeDueGroups()
}

func (s *State) drop(e *entry) {
	s.touch(e)
	if e.inKV && e.job != nil && e.job.Older {
		s.dropRuns(e)
	}
	e.job, e.runs, e.changed = nil, nil, nil
	e.whole = true
	e.indexed = term{}
}

// dropRuns marks the records of a job's runs as obsolete, one by one: a range that is deleted makes Pebble go through
// all of them that its memtable has, at the next read.
func (s *State) dropRuns(e *entry) {
	for id := range e.runs { //house:sorted below
		e.obsolete = append(e.obsolete, id)
	}
	if !e.whole {
		prefix := appendRunPrefix(nil, e.id)
		err := s.kv.Scan(prefix, after(prefix), func(key, _ []byte) bool {
			e.obsolete = append(e.obsolete, string(key[len(prefix):]))
			return true
		})
		if err != nil {
			s.fail(fmt.Errorf("read runs of job %s: %w", e.id, err))
		}
	}
	slices.Sort(e.obsolete)
	e.obsolete = slices.Compact(e.obsolete)
}

// reindex updates the forget index for the jobs that the message touched.
func (s *State) reindex() {
	if len(s.msg.groups) > 0 {
		s.reindexGroups()
	}
	for _, e := range s.touched {
		e.touched = false
		t := term{}
		if e.job != nil {
			t = e.job.term()
		}
		if t == e.indexed {
			continue
		}
		e.indexed = t
		for i := range s.forgets {
			if x := &s.forgets[i]; x.weight == t.weight {
				heap.Push(&x.pending, pendingTerm{base: t.base, job: e.id, flush: s.flushes + 1})
			}
		}
	}
	clear(s.touched)
	s.touched = s.touched[:0]
}

func saturatingTimes(v, n int64) int64 {
	if v > math.MaxInt64/n {
		return math.MaxInt64
	}
	return v * n
}
