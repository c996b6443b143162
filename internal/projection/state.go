package projection

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// KV is the store from which State loads what is not in memory.
type KV interface {
	// Get returns the value under key, or nil. The value is valid until the next call.
	Get(key []byte) ([]byte, error)
	// Scan visits the keys in [from, to) in order until visit returns false.
	Scan(from, to []byte, visit func(key, value []byte) bool) error
}

// Batch receives changes. They become visible in the KV when its owner commits the
// batch, which may be later but never out of order. Keys and values are copied.
type Batch interface {
	Set(key, value []byte) error
	Delete(key []byte) error
	DeleteRange(from, to []byte) error
}

// State is the projection of one partition: a write-back cache over a KV. Changes that
// were flushed into a batch stay in memory until Committed reports that the KV has them,
// so a reader of State always sees everything that was folded.
//
// State is not safe for concurrent use. After an error of the KV it must be discarded.
type State struct {
	// Watermark is the greatest event time folded, in Unix nanoseconds;
	// math.MinInt64 before the first event.
	Watermark int64
	// Horizon is how long a job is kept after its end, in nanoseconds.
	Horizon int64
	// CacheJobs, if set, returns the number of jobs in one generation of the cache, of which
	// there are two; nil: 65,536.
	CacheJobs func() int

	kv  KV
	err error

	recent, older map[string]*entry // two generations of the cache
	olderFlush    uint64            // the entries in older were last changed in this flush or before
	flushes       uint64            // batches written so far
	committed     uint64            // number of them that are in the KV

	dirty    []*entry       // changed since the last flush
	unkept   []*entry       // flushed as not kept, which the KV may not know yet
	touched  []*entry       // changed by the current message
	newInSet []setMember    // set members not in the KV yet
	forgets  [2]forgetIndex // by weight: 1, verdictWeight

	recentGroups, olderGroups map[string]*groupEntry // as recent and older, by key
	olderGroupsFlush          uint64
	dirtyGroups               []*groupEntry
	groupTerms                forgetIndex
	due                       []dueGroup        // whose horizon has passed, and that were not looked at yet
	refused                   btree.Set[string] // keys of groups of which something was refused
	recheck, recheckStored    recheck

	msg   message
	key   []byte            // scratch
	value []byte            // scratch
	names map[string]string // see intern

	places map[Place]*Place // see place

	accounts     []*account // by name
	endedBudgets []string   // that the store may still have
}

// entry is one job in the cache. If job is nil, the job is not kept.
type entry struct {
	id      string
	job     *Job
	runs    map[string]*Run // runs of the job except the latest; some may be only in the KV
	changed []*Run          // of runs, since the last flush

	obsolete []string   // runs whose records must be deleted from the KV: of a forgotten job, or the latest now
	whole    bool       // all runs of the job are here: what the KV has of them is the same, or obsolete
	inKV     bool       // something of the job, or of a forgotten one, may be in the KV
	indexed  term       // under which the job is in the forget index
	stored   term       // under which it is in the KV
	member   *setMember // the set under which it is in the KV
	flush    uint64     // the last that found it not kept
	dirty    bool
	touched  bool
}

type setMember struct {
	queue, set, job string
	flush           uint64
}

func (s *State) cacheJobs() int {
	if s.CacheJobs != nil {
		return s.CacheJobs()
	}
	return 1 << 16
}

// groupCacheSize is the number of groups in one generation of the cache.
const groupCacheSize = 1 << 12

// NewState opens the projection in kv, with the watermark and horizon that were
// committed with it.
func NewState(kv KV, watermark, horizon int64) (*State, error) {
	s := &State{
		Watermark: watermark, Horizon: horizon, kv: kv,
		recent: map[string]*entry{}, older: map[string]*entry{},
		recentGroups: map[string]*groupEntry{}, olderGroups: map[string]*groupEntry{},
	}
	if err := s.loadRefused(); err != nil {
		return nil, err
	}
	if err := s.loadBudgets(); err != nil {
		return nil, err
	}
	s.groupTerms.weight = groupWeight
	if err := s.groupTerms.findEarliest(kv, math.MinInt64); err != nil {
		return nil, err
	}
	for i, weight := range []uint8{1, verdictWeight} {
		s.forgets[i].weight = weight
		if err := s.forgets[i].findEarliest(kv, math.MinInt64); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// NoWatermark is the watermark before the first event.
const NoWatermark = math.MinInt64

// fail keeps the first error: folding continues with what it has, and the caller
// discards the state at the end of the message.
func (s *State) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// entry returns a job's entry in the cache, loading it if necessary.
func (s *State) entry(job string) *entry {
	if e := s.recent[job]; e != nil {
		return e
	}
	e := s.older[job]
	if e == nil {
		e = s.load(strings.Clone(job))
	}
	s.recent[e.id] = e
	return e
}

func (s *State) load(job string) *entry {
	e := &entry{id: job}
	s.key = appendJobKey(s.key[:0], job)
	b, err := s.kv.Get(s.key)
	if err != nil {
		s.fail(fmt.Errorf("read job %s: %w", job, err))
	}
	if b == nil {
		return e
	}
	j, err := decodeJob(job, b)
	if err != nil {
		s.fail(err)
		return e
	}
	e.job, e.inKV = j, true
	e.stored = j.term()
	e.indexed = e.stored
	if m := j.Member; m != nil {
		m.Place = s.place(m.Group, m.Part)
	}
	if j.Known {
		e.member = &setMember{queue: j.Queue, set: j.Set, job: job}
	}
	return e
}

// intern returns a shared copy of a name that many jobs have: a queue, a set, a node.
// It drops all names if there are too many.
func (s *State) intern(name string) string {
	if own, ok := s.names[name]; ok {
		return own
	}
	if s.names == nil || len(s.names) >= maxNames {
		s.names = map[string]string{}
	}
	own := strings.Clone(name)
	s.names[own] = own
	return own
}

const maxNames = 1 << 13

// run returns a run of an entry's job, or nil.
func (s *State) run(e *entry, id string) *Run {
	j := e.job
	switch {
	case j == nil:
		return nil
	case j.Latest != nil && j.Latest.ID == id:
		return j.Latest
	}
	if r := e.runs[id]; r != nil {
		return r
	}
	if !j.Older || e.whole {
		return nil
	}
	if j.Runs <= maxRunsLoaded {
		s.loadRuns(e)
		return e.runs[id]
	}
	s.key = append(appendRunPrefix(s.key[:0], e.id), id...)
	b, err := s.kv.Get(s.key)
	if err != nil {
		s.fail(fmt.Errorf("read run %s of job %s: %w", id, e.id, err))
	}
	if b == nil {
		return nil
	}
	r, err := decodeRun(strings.Clone(id), b)
	if err != nil {
		s.fail(err)
		return nil
	}
	e.keepRun(r)
	return r
}

// maxRunsLoaded is the number of runs up to which a job's runs are loaded together. Most runs that are looked for are
// new, and a store takes as long to find none as to find one: so it is asked once a job, not once a run.
const maxRunsLoaded = 32

// loadRuns loads the runs of an entry's job that are only in the KV.
func (s *State) loadRuns(e *entry) {
	prefix := appendRunPrefix(nil, e.id)
	var bad error
	err := s.kv.Scan(prefix, after(prefix), func(key, value []byte) bool {
		id := string(key[len(prefix):])
		if e.runs[id] != nil || e.job.Latest != nil && e.job.Latest.ID == id {
			return true // the KV has an older version
		}
		var r *Run
		if r, bad = decodeRun(id, value); bad == nil {
			e.keepRun(r)
		}
		return bad == nil
	})
	if err != nil {
		err = fmt.Errorf("read runs of job %s: %w", e.id, err)
	}
	if err := cmp.Or(bad, err); err != nil {
		s.fail(err)
	}
	e.whole = true
}

func (e *entry) keepRun(r *Run) {
	if e.runs == nil {
		e.runs = map[string]*Run{}
	}
	e.runs[r.ID] = r
}

// touch marks an entry as changed by the current message.
func (s *State) touch(e *entry) {
	if !e.dirty {
		e.dirty = true
		s.dirty = append(s.dirty, e)
	}
	if !e.touched {
		e.touched = true
		s.touched = append(s.touched, e)
	}
}

// touchRun marks a run as changed.
func (s *State) touchRun(e *entry, r *Run) {
	s.touch(e)
	if e.job.Latest != r {
		e.job.Older = true
		e.changed = append(e.changed, r)
	}
}

// Flush writes the changes since the last Flush to b and returns the flush's number.
// Pass this number to Committed when b is in the KV.
func (s *State) Flush(b Batch) (uint64, error) {
	s.flushes++
	for _, e := range s.dirty {
		if err := s.flushEntry(e, b); err != nil {
			return 0, fmt.Errorf("write job %s: %w", e.id, err)
		}
		if e.job == nil {
			e.flush = s.flushes
			s.unkept = append(s.unkept, e)
		}
	}
	clear(s.dirty)
	s.dirty = s.dirty[:0]
	for _, ge := range s.dirtyGroups {
		if err := s.flushGroup(ge, b); err != nil {
			return 0, fmt.Errorf("write a group: %w", err)
		}
	}
	if err := s.flushRecheck(b); err != nil {
		return 0, err
	}
	if err := s.flushBudgets(b); err != nil {
		return 0, err
	}
	clear(s.dirtyGroups)
	s.dirtyGroups = s.dirtyGroups[:0]
	if len(s.recentGroups) >= groupCacheSize && s.olderGroupsFlush <= s.committed {
		s.olderGroups, s.recentGroups = s.recentGroups, map[string]*groupEntry{}
		s.olderGroupsFlush = s.flushes
	}
	if size := s.cacheJobs(); len(s.recent) >= size && s.olderFlush <= s.committed {
		s.older, s.recent = s.recent, make(map[string]*entry, size)
		s.olderFlush = s.flushes
	}
	return s.flushes, nil
}

func (s *State) flushEntry(e *entry, b Batch) error {
	e.dirty = false
	if e.job == nil && !e.inKV {
		return nil // created and deleted between two flushes
	}
	for _, run := range e.obsolete {
		s.key = append(appendRunPrefix(s.key[:0], e.id), run...)
		if err := b.Delete(s.key); err != nil {
			return err
		}
	}
	e.obsolete = nil
	if err := s.flushIndexes(e, b); err != nil {
		return err
	}
	if e.job == nil {
		e.inKV = false
		s.key = appendJobKey(s.key[:0], e.id)
		return b.Delete(s.key)
	}
	e.inKV = true
	for _, r := range e.changed {
		if r == e.job.Latest {
			continue
		}
		s.key = append(appendRunPrefix(s.key[:0], e.id), r.ID...)
		s.value = appendRun(s.value[:0], r)
		if err := b.Set(s.key, s.value); err != nil {
			return err
		}
	}
	e.changed = nil
	s.key = appendJobKey(s.key[:0], e.id)
	s.value = appendJob(s.value[:0], e.job)
	return b.Set(s.key, s.value)
}

func (s *State) flushIndexes(e *entry, b Batch) error {
	if err := s.flushTerm(b, e.indexed, &e.stored, e.id); err != nil {
		return err
	}
	known := e.job != nil && e.job.Known
	if e.member != nil && (!known || e.member.queue != e.job.Queue || e.member.set != e.job.Set) {
		s.key = append(appendSetPrefix(s.key[:0], e.member.queue, e.member.set), e.id...)
		if err := b.Delete(s.key); err != nil {
			return err
		}
		e.member = nil
	}
	if known && e.member == nil {
		e.member = &setMember{queue: e.job.Queue, set: e.job.Set, job: e.id}
		s.key = append(appendSetPrefix(s.key[:0], e.job.Queue, e.job.Set), e.id...)
		return b.Set(s.key, nil)
	}
	return nil
}

// flushTerm writes under which term a job or group is found, if that changed.
func (s *State) flushTerm(b Batch, indexed term, stored *term, id string) error {
	if *stored == indexed {
		return nil
	}
	if stored.weight != 0 {
		s.key = appendForgetKey(s.key[:0], *stored, id)
		if err := b.Delete(s.key); err != nil {
			return err
		}
	}
	if indexed.weight != 0 {
		s.key = appendForgetKey(s.key[:0], indexed, id)
		if err := b.Set(s.key, nil); err != nil {
			return err
		}
	}
	*stored = indexed
	return nil
}

// Unflushed returns the number of jobs that changed since the last Flush.
func (s *State) Unflushed() int { return len(s.dirty) }

// Committed records that the KV has every flush up to this one.
func (s *State) Committed(flush uint64) {
	s.committed = flush
	s.dropUnkept()
	members := s.newInSet[:0]
	for _, m := range s.newInSet {
		if m.flush > flush {
			members = append(members, m)
		}
	}
	clear(s.newInSet[len(members):])
	s.newInSet = members
	for i := range s.forgets {
		s.forgets[i].committed(flush)
	}
	s.groupTerms.committed(flush)
}

// dropUnkept drops the jobs from the cache of which neither the state nor the KV has anything.
func (s *State) dropUnkept() {
	s.unkept = slices.DeleteFunc(s.unkept, func(e *entry) bool {
		if e.job != nil || e.dirty {
			return true // the next flush writes it
		}
		if e.flush > s.committed {
			return false
		}
		delete(s.recent, e.id)
		delete(s.older, e.id)
		return true
	})
}
