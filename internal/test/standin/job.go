package standin

import (
	"cmp"
	"maps"
	"slices"
)

// job is a job in the scheduler's memory.
type job struct {
	id, queue, set   string
	submitted        int64
	priority, wanted int64 // wanted: what the row says
	queued           bool
	queuedVersion    int32
	info             *schedulingInfo
	validated        bool
	wantedBy         string
	cancel           bool // requested
	cancelBySet      bool // requested
	cancelUser       string
	cancelReason     string

	cancelled, succeeded, failed bool

	dormant bool // taken in, and not looked at before a higher queued version (Config.SecondRaise)
	runs    []run
}

// run is a run in the scheduler's memory.
type run struct {
	id, executor, node string
	created            int64

	running, succeeded, failed, cancelled bool
	returned, attempted, preempted        bool
	preemptRequested                      bool
	preemptUser, preemptReason            string
}

func (j *job) over() bool { return j.cancelled || j.succeeded || j.failed }
func (r *run) over() bool { return r.cancelled || r.succeeded || r.failed }

// latest returns the current run, or nil.
func (j *job) latest() *run {
	if len(j.runs) == 0 {
		return nil
	}
	return &j.runs[len(j.runs)-1]
}

func (j *job) attempts() int {
	n := 0
	for i := range j.runs {
		if j.runs[i].attempted {
			n++
		}
	}
	return n
}

func (j *job) nodes() []string {
	var nodes []string
	for i := range j.runs {
		if r := &j.runs[i]; r.attempted && !slices.Contains(nodes, r.node) {
			nodes = append(nodes, r.node)
		}
	}
	return nodes
}

// gang identifies the gang; "" is none.
func (j *job) gang() string {
	if id, _ := j.info.gang(); id != "" {
		return j.queue + "\x00" + id
	}
	return ""
}

func (j *job) state() State {
	switch {
	case j.cancelled:
		return Cancelled
	case j.failed:
		return Failed
	case j.succeeded:
		return Succeeded
	case j.queued:
		return Queued
	}
	return Leased
}

// take takes over a row of runs. What a run once was it stays.
func (j *job) take(row *runRow) {
	i := slices.IndexFunc(j.runs, func(r run) bool { return r.id == row.ID })
	if i < 0 {
		j.runs = append(j.runs, run{id: row.ID, executor: row.Executor, node: row.Node, created: row.Created})
		slices.SortStableFunc(j.runs, func(a, b run) int { return cmp.Compare(a.created, b.created) })
		i = slices.IndexFunc(j.runs, func(r run) bool { return r.id == row.ID })
	}
	r := &j.runs[i]
	r.running = r.running || row.Running
	r.succeeded = r.succeeded || row.Succeeded
	r.failed = r.failed || row.Failed
	r.cancelled = r.cancelled || row.Cancelled
	r.returned = r.returned || row.Returned
	r.attempted = r.attempted || row.Attempted
	r.preempted = r.preempted || row.Preempted
	r.preemptRequested = r.preemptRequested || row.PreemptRequested
	if row.PreemptRequested {
		r.preemptUser, r.preemptReason = row.PreemptUser, row.PreemptReason
	}
}

// memory is the scheduler's jobs with the changes of one cycle over them, which
// count only when all of them do.
type memory struct {
	base    map[string]*job
	changed map[string]*job // nil: forgotten
}

// peek is the job, not to be changed, or nil.
func (m *memory) peek(id string) *job {
	if j, ok := m.changed[id]; ok {
		return j
	}
	return m.base[id]
}

// edit is the job for changing, or nil.
func (m *memory) edit(id string) *job {
	if j, ok := m.changed[id]; ok {
		return j
	}
	j := m.base[id]
	if j == nil {
		return nil
	}
	c := *j
	c.runs = slices.Clone(j.runs)
	m.changed[id] = &c
	return &c
}

func (m *memory) add(j *job)       { m.changed[j.id] = j }
func (m *memory) forget(id string) { m.changed[id] = nil }

// ids are those of all jobs, sorted.
func (m *memory) ids() []string {
	ids := make([]string, 0, len(m.base)+len(m.changed))
	for id := range m.base {
		if m.peek(id) != nil {
			ids = append(ids, id)
		}
	}
	for id, j := range m.changed {
		if m.base[id] == nil && j != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// others says whether a job besides this one is known.
func (m *memory) others(id string) bool {
	for other := range m.base {
		if other != id && m.peek(other) != nil {
			return true
		}
	}
	for other, j := range m.changed {
		if other != id && j != nil {
			return true
		}
	}
	return false
}

func (m *memory) commit() {
	maps.Copy(m.base, m.changed)
	maps.DeleteFunc(m.base, func(_ string, j *job) bool { return j == nil })
	m.changed = map[string]*job{}
}

func (m *memory) rollback() { m.changed = map[string]*job{} }
