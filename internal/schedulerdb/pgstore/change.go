package pgstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/schedulerdb"
)

// changes are operations folded into at most one write per row, as far as that
// can be said without the rows. What depends on a row as it was before is left to
// the statements, which run in this order:
//
//	preemption requests, run patches, cancelled jobs' runs, job patches,
//	new jobs, new runs, ended preemption requests, errors, markers
//
// An operation on a whole set needs all before it in the tables.
//
// number counts the operations. Of two that may write the same run by different
// keys, by its id and by its job, the later one counts.
type changes struct {
	number int
	size   int // about the bytes of what is new

	jobs       map[string]*jobChange
	runs       map[string]*runChange
	cancelled  map[string]*cancelChange
	preemption map[string]*preemptChange
	unasked    map[string]bool // runs that are no more asked to be preempted
	errors     map[string]*schedulerdb.InsertRunError
	markers    []*schedulerdb.InsertMarker
	newRuns    map[string][]*runChange // by job
}

// jobChange is a job's new row, or a patch of the row that is there.
type jobChange struct {
	id     string
	insert *schedulerdb.InsertJob // what follows starts from its row

	queued      *schedulerdb.SetQueued
	info        *schedulerdb.SetSchedulingInfo
	validated   *schedulerdb.SetValidated
	cancelled   bool
	succeeded   bool
	failed      bool
	revived     bool // before succeeded and failed
	cancel      *schedulerdb.RequestCancel
	priority    *schedulerdb.SetPriority
	queue, set  string // what cancel and priority are for
	conditional bool   // there is one
}

// askCancel keeps who asked first, and why.
func (j *jobChange) askCancel(o *schedulerdb.RequestCancel) {
	if j.cancel == nil {
		j.cancel = o
		return
	}
	first := *j.cancel
	first.User, first.Reason = cmp.Or(first.User, o.User), cmp.Or(first.Reason, o.Reason)
	j.cancel = &first
}

func (j *jobChange) terminated() bool { return j.cancelled || j.succeeded || j.failed }

// runChange is a run's new row, or a patch of the row that is there.
type runChange struct {
	id     string
	insert *schedulerdb.InsertRun

	at          [schedulerdb.Preempted + 1]*time.Time // by stage; of Succeeded, only that it is there
	failed      bool
	returned    bool
	attempted   bool
	cancelled   bool // of a new run only
	end         *time.Time
	ended       int        // number of the operation that end is from
	stopped     *time.Time // by StopRun, unless its end is known
	unsucceeded bool       // by StopRun, whatever the row says
	firstEnd    int        // number of the first such operation; 0: none
	preemption  *schedulerdb.RequestPreemption
}

type cancelChange struct {
	at     time.Time
	first  int // number of the first such operation
	number int // and of the last
}

type preemptChange struct {
	*schedulerdb.RequestPreemption
	number int
}

func newChanges() *changes {
	return &changes{
		jobs: map[string]*jobChange{}, runs: map[string]*runChange{},
		cancelled: map[string]*cancelChange{}, preemption: map[string]*preemptChange{}, unasked: map[string]bool{},
		errors: map[string]*schedulerdb.InsertRunError{}, newRuns: map[string][]*runChange{},
	}
}

// add takes in an operation. It returns false, and has done nothing, where what
// was taken in before must be in the tables first.
func (c *changes) add(op schedulerdb.Op) bool {
	switch o := op.(type) {
	case *schedulerdb.InsertJob:
		c.insertJob(o)
	case *schedulerdb.SetQueued:
		if j := c.job(o.JobID); j.queued == nil && (j.insert == nil || o.Version > 0) || j.queued != nil && o.Version > j.queued.Version {
			j.queued = o
		}
	case *schedulerdb.SetSchedulingInfo:
		if j := c.job(o.JobID); j.info == nil && (j.insert == nil || o.Version > j.insert.SchedulingInfoVersion) || j.info != nil && o.Version > j.info.Version {
			j.info = o
			c.size += len(o.Info)
		}
	case *schedulerdb.SetValidated:
		c.job(o.JobID).validated = o
	case *schedulerdb.SucceedJob:
		c.job(o.JobID).succeeded = true
	case *schedulerdb.FailJob:
		c.job(o.JobID).failed = true
	case *schedulerdb.ReviveJob:
		j := c.job(o.JobID)
		j.revived, j.succeeded, j.failed = true, false, false
	case *schedulerdb.SetPriority:
		return c.condition(o.JobID, o.Queue, o.JobSet, func(j *jobChange) { j.priority = o })
	case *schedulerdb.RequestCancel:
		return c.condition(o.JobID, o.Queue, o.JobSet, func(j *jobChange) { j.askCancel(o) })
	case *schedulerdb.CancelJob:
		c.cancelJob(o)
	case *schedulerdb.RequestPreemption:
		return c.preempt(o)
	case *schedulerdb.EndPreemption:
		c.unasked[o.RunID] = true
	case *schedulerdb.SetSetPriority, *schedulerdb.RequestSetCancel:
		return false
	case *schedulerdb.StopRun:
		if len(c.cancelled) > 0 {
			return false // that may have ended the run
		}
		c.run(o.RunID).stop(o.At, c.number+1)
	case *schedulerdb.InsertRunError:
		c.errors[o.RunID] = o
		c.size += len(o.Error)
	case *schedulerdb.InsertMarker:
		c.markers = append(c.markers, o)
	default:
		c.runOp(op)
	}
	c.number++
	return true
}

func (c *changes) job(id string) *jobChange {
	j := c.jobs[id]
	if j == nil {
		j = &jobChange{id: id}
		c.jobs[id] = j
	}
	return j
}

func (c *changes) run(id string) *runChange {
	r := c.runs[id]
	if r == nil {
		r = &runChange{id: id}
		c.runs[id] = r
	}
	return r
}

func (c *changes) insertJob(o *schedulerdb.InsertJob) {
	c.jobs[o.JobID] = &jobChange{id: o.JobID, insert: o}
	c.size += len(o.SchedulingInfo) + len(o.SubmitMessage) + len(o.Groups)
}

// condition applies what holds only for a job of that queue and set which has
// not ended.
func (c *changes) condition(id, queue, set string, apply func(*jobChange)) bool {
	j := c.job(id)
	switch {
	case j.insert != nil && (j.insert.Queue != queue || j.insert.JobSet != set):
	case j.terminated(): // since before, whatever the row says
	case j.insert == nil && j.conditional && (j.queue != queue || j.set != set):
		return false // the row has one queue and set: only it can tell which counts
	case j.insert == nil && j.revived:
		return false // whether it has ended is not what the row says
	default:
		j.queue, j.set, j.conditional = queue, set, true
		apply(j)
	}
	c.number++
	return true
}

func (c *changes) cancelJob(o *schedulerdb.CancelJob) {
	c.job(o.JobID).cancelled = true
	n := c.number + 1
	if before := c.cancelled[o.JobID]; before != nil {
		before.at, before.number = o.At, n
	} else {
		c.cancelled[o.JobID] = &cancelChange{at: o.At, first: n, number: n}
	}
	for _, r := range c.newRuns[o.JobID] {
		r.cancelled, r.end = true, &o.At
	}
}

// preempt asks for the job's runs that have not ended. The rows that are there
// are told by the statement; one request per job is all that it can tell apart.
func (c *changes) preempt(o *schedulerdb.RequestPreemption) bool {
	if c.preemption[o.JobID] != nil || len(c.unasked) > 0 {
		return false
	}
	n := c.number + 1
	if c.cancelled[o.JobID] == nil {
		c.preemption[o.JobID] = &preemptChange{o, n}
	}
	for _, r := range c.newRuns[o.JobID] {
		if r.insert.Queue == o.Queue && r.insert.JobSet == o.JobSet && !r.terminated() {
			r.preemption = o
		}
	}
	c.number = n
	return true
}

// terminated says so of a new run.
func (r *runChange) terminated() bool {
	return r.cancelled || r.failed || r.at[schedulerdb.Succeeded] != nil
}

func (c *changes) runOp(op schedulerdb.Op) {
	n := c.number + 1
	switch o := op.(type) {
	case *schedulerdb.InsertRun:
		if before := c.runs[o.RunID]; before != nil && before.insert != nil {
			job := before.insert.JobID
			c.newRuns[job] = slices.DeleteFunc(c.newRuns[job], func(r *runChange) bool { return r == before })
		}
		r := &runChange{id: o.RunID, insert: o}
		c.runs[o.RunID] = r
		c.newRuns[o.JobID] = append(c.newRuns[o.JobID], r)
		c.size += len(o.PodRequirementsOverlay)
	case *schedulerdb.MarkRun:
		r := c.run(o.RunID)
		r.at[o.Stage] = &o.At
		if o.Stage == schedulerdb.Succeeded {
			r.over(o.At, n)
		}
	case *schedulerdb.FailRun:
		r := c.run(o.RunID)
		r.failed = true
		r.returned = r.returned || o.Returned
		r.attempted = r.attempted || o.Attempted
		r.over(o.At, n)
	}
}

func (r *runChange) stop(at time.Time, n int) {
	r.failed, r.unsucceeded, r.at[schedulerdb.Succeeded] = true, true, nil
	switch {
	case r.end != nil:
		return
	case r.insert != nil:
		r.end = &at
	case r.stopped == nil:
		r.stopped = &at
	}
	r.ended = n
	if r.firstEnd == 0 {
		r.firstEnd = n
	}
}

func (r *runChange) over(at time.Time, n int) {
	r.end, r.ended = &at, n
	if r.firstEnd == 0 {
		r.firstEnd = n
	}
}
