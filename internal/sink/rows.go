package sink

import (
	"sort"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/jobdb"
)

// Rows holds rows of one partition in memory: those that a fold may read, and its
// changes. Before a message is applied, everything that it names must have been admitted,
// or not exist.
type Rows struct {
	partition int

	recent, older map[string]*jobRow // two generations, so that a writer can evict idle jobs
	sets          map[jobdb.SetKey][]*jobRow

	groups kept[groupRow]
	units  kept[unitRow]

	changedGroups []*groupRow
	changedUnits  []*unitRow
	changedJobs   []*jobRow
	changedRuns   []*runRow
	fresh         jobdb.Changes // records; jobs and runs are in the lists above

	past *past  // of rows that are being derived again; nil: nothing is
	only string // the only job that a fold keeps; empty: all
	// until ends a fold before the first message for which it is not true; nil: it ends with its envelopes.
	until func(*eventlog.Message) bool
	ended bool // until was not true

	applied uint64 // number of messages, to recognize what happened in the current one
	size    int    // jobs and runs admitted or created since the last generation
}

type jobRow struct {
	jobdb.Job
	runs     map[string]*runRow // nil entry: there is no such run
	complete bool               // runs has all runs of the job
	open     []*runRow          // among them all that a cancellation ends, so that its cost does not grow with the others
	dirty    bool
	indexed  bool              // in sets
	stored   *jobdb.CountedJob // what the database has counted of it; nil: it has no row
}

type runRow struct {
	jobdb.Run
	dirty    bool
	failedIn uint64 // the message in which it failed, while in memory
}

type groupRow struct {
	jobdb.Group
	dirty   bool
	boundIn uint64 // the message in which it was bound, while in memory
}

type unitRow struct {
	jobdb.Unit
	dirty bool
}

// kept holds rows by id in two generations, so that a writer can evict idle ones.
type kept[R any] struct{ recent, older map[string]*R }

// find returns the row in memory, or nil.
func (k *kept[R]) find(id string) *R {
	if row := k.recent[id]; row != nil {
		return row
	}
	row := k.older[id]
	if row != nil {
		k.put(id, row)
	}
	return row
}

func (k *kept[R]) put(id string, row *R) {
	if k.recent == nil {
		k.recent = map[string]*R{}
	}
	k.recent[id] = row
}

func (k *kept[R]) drop(id string) {
	delete(k.recent, id)
	delete(k.older, id)
}

func (k *kept[R]) forget() { k.older, k.recent = k.recent, nil }

func (r *Rows) findGroup(id string) *groupRow { return r.groups.find(id) }

func (r *Rows) touchGroup(g *groupRow) {
	if !g.dirty {
		g.dirty = true
		r.changedGroups = append(r.changedGroups, g)
	}
}

func (r *Rows) touchUnit(u *unitRow) {
	if !u.dirty {
		u.dirty = true
		r.changedUnits = append(r.changedUnits, u)
	}
}

// NewRows returns an empty set of rows.
func NewRows(partition int) *Rows {
	return &Rows{partition: partition, recent: map[string]*jobRow{}, sets: map[jobdb.SetKey][]*jobRow{}}
}

// Keys returns the keys of rows that applying these messages may read and that are not
// in memory, each once.
func (r *Rows) Keys(messages ...[]Message) jobdb.Keys {
	n := needs{
		rows: r, jobs: map[string]bool{}, runs: map[jobdb.RunKey]bool{}, open: map[string]bool{}, sets: map[jobdb.SetKey]bool{},
		groups: map[string]bool{}, units: map[string]bool{},
	}
	for _, list := range messages {
		for i := range list {
			n.message(&list[i])
		}
	}
	return n.keys
}

type needs struct {
	rows *Rows
	jobs map[string]bool
	runs map[jobdb.RunKey]bool
	open map[string]bool
	sets map[jobdb.SetKey]bool
	keys jobdb.Keys

	groups, units map[string]bool
}

// message requests what a message needs.
func (n *needs) message(m *Message) {
	n.members(m)
	if m.Superseded {
		return // it changes no row, but those of groups
	}
	for i := range m.eventCount() {
		n.event(m.Events, i)
	}
	for _, rec := range m.Records {
		switch rec := rec.(type) {
		case *chain.Decision:
			n.named(rec.JobID, rec.RunID)
		case *chain.NotDecided:
			n.named(rec.JobID, rec.RunID)
		case *chain.RetryReady:
			n.named(rec.JobID, rec.RunID)
		case *chain.OrderAnswered:
			n.named(rec.JobID, rec.RunID)
		}
	}
}

// members requests what the submissions and the records of groups in a message need.
func (n *needs) members(m *Message) {
	for i := range m.eventCount() {
		ev := &m.Events.Events[i]
		if ev.Submit == nil || ev.JobID == "" {
			continue
		}
		if at, ok := group.MembershipOf(m.Events.Queue, m.Events.JobSet, ev.Submit); ok {
			n.unit(groupKey{at.Queue, at.Set, at.Name}, at.Part, at.Replica)
			n.named(ev.JobID, "")
		}
	}
	for _, r := range m.Records {
		switch r := r.(type) {
		case *chain.Decision:
			if r.Member != nil {
				n.member(r.Queue, r.JobSet, r.JobID, r.Member)
			}
		case *chain.MemberChange:
			n.member(r.Queue, r.JobSet, r.JobID, &r.Member)
		case *chain.UnitEnded:
			n.member(r.Queue, r.JobSet, "", &r.Member)
		case *chain.GroupBound:
			n.group(groupKey{r.Queue, r.JobSet, r.Group}.id())
		case *chain.GroupEnded:
			n.group(groupKey{r.Queue, r.JobSet, r.Group}.id())
		}
	}
}

func (n *needs) member(queue, set, job string, m *chain.Member) {
	n.unit(groupKey{queue, set, m.Group}, m.Part, m.Replica)
	if job != "" {
		n.named(job, "")
	}
}

func (n *needs) group(id string) {
	if !n.groups[id] && n.rows.groups.find(id) == nil {
		n.groups[id] = true
		n.keys.Groups = append(n.keys.Groups, id)
	}
}

func (n *needs) unit(key groupKey, part string, replica uint32) {
	group := key.id()
	n.group(group)
	if id := jobdb.UnitID(group, part, replica); !n.units[id] && n.rows.units.find(id) == nil {
		n.units[id] = true
		n.keys.Units = append(n.keys.Units, id)
	}
}

func (n *needs) event(m *events.Message, i int) {
	ev := &m.Events[i]
	job, _ := named(m, i)
	switch {
	case ev.Kind == events.CancelJobSet:
		set := jobdb.SetKey{Queue: m.Queue, JobSet: m.JobSet}
		if !n.sets[set] {
			n.sets[set] = true
			n.keys.Sets = append(n.keys.Sets, set)
		}
		return
	case job == "":
		return
	}
	complete := n.named(job, ev.RunID)
	if ev.Kind == events.CancelledJob && !complete && !n.open[job] {
		n.open[job] = true
		n.keys.OpenRunsOf = append(n.keys.OpenRunsOf, job)
	}
}

// named requests a job and one of its runs, and reports whether both are in memory.
func (n *needs) named(job, run string) bool {
	j := n.rows.find(job)
	if j != nil && j.complete {
		return true
	}
	if j == nil && !n.jobs[job] {
		n.jobs[job] = true
		n.keys.Jobs = append(n.keys.Jobs, job)
	}
	if key := (jobdb.RunKey{JobID: job, RunID: run}); run != "" && !n.runs[key] && !j.holds(run) {
		n.runs[key] = true
		n.keys.Runs = append(n.keys.Runs, key)
	}
	return false
}

// open reports whether the run was leased and has not ended.
func (r *runRow) open() bool { return r.State >= jobdb.RunLeased && r.State <= jobdb.RunRunning }

func (j *jobRow) holds(run string) bool {
	if j == nil {
		return false
	}
	_, ok := j.runs[run]
	return ok
}

// Admit adds what a database found for keys. Rows already in memory are newer.
func (r *Rows) Admit(keys jobdb.Keys, found *jobdb.Found) {
	for i := range found.Jobs {
		if r.find(found.Jobs[i].JobID) == nil {
			counted := found.Jobs[i].Counted()
			j := &jobRow{Job: found.Jobs[i], runs: map[string]*runRow{}, stored: &counted}
			r.keep(j)
			r.index(j)
		}
	}
	for i := range found.Groups {
		if g := &found.Groups[i]; r.groups.find(g.ID) == nil {
			r.groups.put(g.ID, &groupRow{Group: *g})
			r.size++
		}
	}
	for i := range found.Units {
		if u := &found.Units[i]; r.units.find(u.ID) == nil {
			r.units.put(u.ID, &unitRow{Unit: *u})
			r.size++
		}
	}
	for i := range found.Runs {
		run := &found.Runs[i]
		if j := r.find(run.JobID); j != nil && j.runs[run.RunID] == nil {
			row := &runRow{Run: *run}
			j.runs[run.RunID] = row
			if row.open() {
				j.open = append(j.open, row)
			}
			r.size++
		}
	}
	for _, key := range keys.Runs {
		if j := r.find(key.JobID); j != nil && !j.holds(key.RunID) {
			j.runs[key.RunID] = nil
		}
	}
}

// Forget evicts jobs that were not used for a while, once more than limit rows came in
// since the last time. Changes must have been taken before.
func (r *Rows) Forget(limit int) {
	if r.size < limit {
		return
	}
	r.older, r.recent, r.size = r.recent, map[string]*jobRow{}, 0
	r.groups.forget()
	r.units.forget()
	r.sets = map[jobdb.SetKey][]*jobRow{}
	for _, j := range r.older { // the order within a set does not matter: it is sorted when used
		j.indexed = false
		r.index(j)
	}
}

// find returns the job's row in memory, or nil.
func (r *Rows) find(job string) *jobRow {
	if j := r.recent[job]; j != nil {
		return j
	}
	j := r.older[job]
	if j != nil {
		r.recent[job] = j
		r.size += 1 + len(j.runs)
	}
	return j
}

func (r *Rows) keep(j *jobRow) {
	r.recent[j.JobID] = j
	r.size++
}

// index adds a submitted job to its set.
func (r *Rows) index(j *jobRow) {
	if !j.Known || j.indexed {
		return
	}
	j.indexed = true
	set := jobdb.SetKey{Queue: j.Queue, JobSet: j.JobSet}
	r.sets[set] = append(r.sets[set], j)
}

// inSet returns the unfinished submitted jobs of a set whose cancellation was not requested before, by job id.
func (r *Rows) inSet(set jobdb.SetKey) []*jobRow {
	var jobs []*jobRow
	for _, j := range r.sets[set] {
		if !j.State.Terminal() && !j.CancelRequested {
			jobs = append(jobs, j)
		}
	}
	sort.Slice(jobs, func(a, b int) bool { return jobs[a].JobID < jobs[b].JobID })
	return jobs
}

// touch marks a job as changed.
func (r *Rows) touch(j *jobRow, at eventlog.Position) {
	j.Updated = at
	if !j.dirty {
		j.dirty = true
		r.changedJobs = append(r.changedJobs, j)
	}
}

func (r *Rows) touchRun(run *runRow) {
	if !run.dirty {
		run.dirty = true
		r.changedRuns = append(r.changedRuns, run)
	}
}

// Put adds what an envelope puts in force.
func (r *Rows) Put(acts []*jobdb.Activation) {
	r.fresh.Activations = append(r.fresh.Activations, acts...)
}

// putRelease adds the row of a release; its messages are applied separately.
func (r *Rows) putRelease(release *jobdb.Release) {
	r.fresh.Releases = append(r.fresh.Releases, release)
}

// Take returns the changes since the last Take, in the order in which they were first
// made. The next Apply may change their jobs and runs again.
func (r *Rows) Take() *jobdb.Changes {
	c := r.fresh
	r.fresh = jobdb.Changes{}
	for _, j := range r.changedJobs {
		j.dirty = false
		c.Jobs = append(c.Jobs, &j.Job)
		if now := j.Counted(); j.stored == nil {
			j.stored = &now
		} else {
			c.Replaced = append(c.Replaced, *j.stored)
			*j.stored = now
		}
	}
	for _, run := range r.changedRuns {
		run.dirty = false
		c.Runs = append(c.Runs, &run.Run)
	}
	for _, g := range r.changedGroups {
		g.dirty = false
		c.Groups = append(c.Groups, &g.Group)
	}
	for _, u := range r.changedUnits {
		u.dirty = false
		c.Units = append(c.Units, &u.Unit)
	}
	r.changedJobs, r.changedRuns = r.changedJobs[:0], r.changedRuns[:0]
	r.changedGroups, r.changedUnits = r.changedGroups[:0], r.changedUnits[:0]
	return &c
}

// where returns the position of a record of a message.
func (r *Rows) where(m *Message, i int) jobdb.Where {
	return jobdb.Where{
		Partition: r.partition, Seq: m.Seq, Record: m.FirstRecord + uint32(i),
		Log: m.Log.Position, Recording: m.Log.Origin.Recording, Superseded: m.Superseded,
	}
}
