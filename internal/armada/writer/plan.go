package writer

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/armada/schedulerdb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// Mode defines how decisions become rows in Armada's tables.
type Mode int

// The modes.
const (
	Passthrough Mode = iota
	Direct
	HoldBack
)

// String returns the mode's name in the ingester's --mode flag.
func (m Mode) String() string {
	switch m {
	case Passthrough:
		return "passthrough"
	case Direct:
		return "direct"
	case HoldBack:
		return "holdback"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}

// action is what a message changes, in the order of its events.
type action interface{ job() string }

type (
	// apply is an operation of Armada's own ingester.
	apply struct{ schedulerdb.Op }
	// lease takes a job out of the queue for its latest run.
	lease struct {
		*schedulerdb.SetQueued
		run string
	}
	// requeue is an enforced JobRequeued.
	requeue struct {
		*chain.Decision
		at eventlog.Position // of the message that it decides
		// byScheduler: the scheduler ended the run, and with it the job.
		byScheduler bool
	}
	// fail is an enforced JobFailed.
	fail struct {
		*chain.Decision
		at eventlog.Position
	}
	// overruled: the scheduler has failed a job although we retry it.
	overruled struct {
		jobID, runID string
		number       uint64
		policy       string // set when the rows are loaded
		retryAfter   int64
		avoid        []string
		held         bool
		at           eventlog.Position
	}
	// proven: the run before the retry is known to have ended.
	proven struct{ *chain.RetryReady }
)

// job returns the job that the operation ends, since that ends its pending retry too, or
// that may be held.
func (a apply) job() string {
	switch o := a.Op.(type) {
	case *schedulerdb.RequestCancel: // of a job that is held
		return o.JobID
	case *schedulerdb.SetPriority:
		return o.JobID
	case *schedulerdb.SucceedJob:
		return o.JobID
	case *schedulerdb.FailJob:
		return o.JobID
	case *schedulerdb.CancelJob:
		return o.JobID
	}
	return ""
}
func (a lease) job() string     { return a.JobID }
func (a requeue) job() string   { return a.JobID }
func (a fail) job() string      { return a.JobID }
func (a overruled) job() string { return a.jobID }
func (a proven) job() string    { return a.JobID }

// jobView is the part of a job's row in Armada's tables that plans need.
type jobView struct {
	id, queue, set string
	known          bool
	over           bool // it is finished
	cancelled      bool
	validated      bool // the scheduler has checked that it fits somewhere
	queued         bool
	version        int32         // queued_version
	infoVersion    int32         // scheduling_info_version
	submitted      []byte        // JobSchedulingInfo, version 0
	retry          *pendingRetry // nil: no retry is pending
	retryChanged   bool
	held           *schedulerdb.InsertJob // its row, while it is held before its first start
	heldChanged    bool
}

// pendingRetry is a row of refloat_waits: a pending retry with a step that is still due.
type pendingRetry struct {
	runID      string // the failed one
	number     uint64 // the decision's number
	policy     string
	retryAfter int64 // Unix nanoseconds
	avoid      []string
	copied     bool // publish a copy when the job is queued
	delayed    bool // its requirements match no node until retryAfter
	stage      stage
	nextAt     int64  // when the next step of its stage is due
	text       string // in place of the run's error; only until it is written
	checks     int    // expectingRun: the checks that are left; each but the last bumps the version
}

// stage is what a pending retry waits for, besides the end of a delay.
type stage int

const (
	settled      stage = iota // nothing: the scheduler starts the next run by itself
	forgetting                // the scheduler has failed the job and will have forgotten it at nextAt, when the job is queued
	expectingRun              // a new run, which is checked at nextAt
)

// stageOf returns the stage of a row.
func stageOf(isForgetting bool, checks int) stage {
	switch {
	case isForgetting:
		return forgetting
	case checks > 0:
		return expectingRun
	}
	return settled
}

func (w *pendingRetry) settle() { w.stage, w.checks = settled, 0 }

func (w *pendingRetry) forget(now int64) {
	w.stage, w.checks, w.nextAt = forgetting, 0, now+int64(forgetAfter)
}

func (w *pendingRetry) expectRun(now int64) {
	w.stage, w.checks, w.nextAt = expectingRun, maxChecks, now+int64(checkEvery)
}

// due returns when the next step is due, or never.
func (w *pendingRetry) due() int64 {
	at := never
	if w.stage != settled {
		at = w.nextAt
	}
	if w.delayed && w.stage != forgetting {
		at = min(at, w.retryAfter)
	}
	return at
}

const never = int64(1<<63 - 1)

// Times of the two steps; see docs/armada.md.
const (
	// forgetAfter is how long the scheduler has to read its own failure of a job back
	// from the database, and to forget the job: a few of its cycles.
	forgetAfter = 3 * time.Second
	// checkEvery is the timeout for a new run, after which the version is bumped again.
	// A scheduler that accepts the job starts a run within a cycle or two.
	checkEvery = 5 * time.Second
	// maxChecks is the number of these checks; each but the last bumps the version.
	maxChecks = 6
	// leaseWithin is how long a lease may take to arrive that the scheduler made before it
	// saw the last bump. Its version is not above that of the row, so the wait stays until
	// then: without it the job would stay queued beside its run.
	leaseWithin = time.Minute
	// lookAgain is the delay while newer events have not been read yet.
	lookAgain = time.Second
)

// plan turns actions into operations.
type plan struct {
	mode    Mode
	label   string // of nodes
	now     int64
	atEnd   bool // all existing events were processed
	copying bool // copy decisions on messages after since
	since   eventlog.Position
	jobs    map[string]*jobView
	ops     []schedulerdb.Op
	copies  []copyOf
	errors  map[string][]byte // of runs, written by ops
	unable  []error
}

func (p *plan) do(a action) {
	switch a := a.(type) {
	case apply:
		p.apply(a.Op)
	case lease:
		p.lease(a)
	case requeue:
		p.requeue(a)
	case fail:
		p.fail(a)
	case overruled:
		p.overruled(a)
	case proven:
		p.proven(a.RetryReady)
	default:
		p.member(a)
	}
}

// apply appends an operation, and applies it to the rows that the plan holds.
func (p *plan) apply(op schedulerdb.Op) {
	if o, ok := op.(*schedulerdb.RequestSetCancel); ok && narrowed(o) {
		op = p.asQueued(o)
	}
	if p.toHeld(op) {
		return
	}
	p.ops = append(p.ops, op)
	switch o := op.(type) {
	case *schedulerdb.InsertRunError:
		if p.copying {
			p.errors[o.RunID] = o.Error
		}
	case *schedulerdb.SetValidated:
		if j := p.jobs[o.JobID]; j != nil {
			j.validated = true
		}
	case *schedulerdb.InsertJob:
		if j := p.jobs[o.JobID]; j != nil {
			*j = jobView{
				id: o.JobID, queue: o.Queue, set: o.JobSet, known: true, queued: true,
				infoVersion: o.SchedulingInfoVersion, submitted: o.SchedulingInfo, retryChanged: j.retry != nil, heldChanged: j.heldChanged,
			}
		}
	case *schedulerdb.SetQueued:
		if j := p.jobs[o.JobID]; j != nil && o.Version > j.version {
			j.queued, j.version = o.Queued, o.Version
		}
	case *schedulerdb.SetSchedulingInfo:
		if j := p.jobs[o.JobID]; j != nil && o.Version > j.infoVersion {
			j.infoVersion = o.Version
		}
	case *schedulerdb.SucceedJob:
		p.end(o.JobID)
	case *schedulerdb.FailJob:
		p.end(o.JobID)
	case *schedulerdb.CancelJob:
		p.end(o.JobID)
		if j := p.jobs[o.JobID]; j != nil {
			j.cancelled = true
		}
	case *schedulerdb.ReviveJob:
		if j := p.jobs[o.JobID]; j != nil {
			j.over = false
		}
	}
}

// narrowed reports whether only jobs in some states are to be cancelled.
func narrowed(o *schedulerdb.RequestSetCancel) bool { return o.Queued != o.Leased }

// asQueued adds the jobs that are about to be requeued: their run has ended, but their
// rows are not queued yet.
func (p *plan) asQueued(o *schedulerdb.RequestSetCancel) *schedulerdb.RequestSetCancel {
	told := *o
	for _, id := range slices.Sorted(maps.Keys(p.jobs)) {
		if j := p.jobs[id]; j.retry != nil && j.retry.stage == forgetting && j.queue == o.Queue && j.set == o.JobSet {
			told.AsQueued = append(told.AsQueued, id)
		}
	}
	return &told
}

func (p *plan) end(id string) {
	if j := p.jobs[id]; j != nil {
		j.over = true
		j.put(nil)
	}
}

func (j *jobView) put(w *pendingRetry) {
	if w != nil && w.due() == never {
		w = nil
	}
	if j.retry != w || w != nil {
		j.retry, j.retryChanged = w, true
	}
}

// lease makes sure that the job leaves the queue even if its version was bumped while
// the lease was on its way. A repeated lease of the run that is retried is not a new
// one.
func (p *plan) lease(a lease) {
	op := a.SetQueued
	if j := p.jobs[op.JobID]; j != nil && j.retry != nil && j.retry.runID != a.run {
		if j.queued && op.Version <= j.version {
			op = &schedulerdb.SetQueued{JobID: op.JobID, Version: j.version + 1}
		}
		j.put(nil)
	}
	p.apply(op)
}

func (p *plan) requeue(a requeue) {
	j := p.jobs[a.JobID]
	if j == nil || !j.known || j.over {
		return
	}
	w := &pendingRetry{
		runID: a.RunID, number: a.Number, policy: a.Policy, retryAfter: a.RetryAfter, avoid: storableOf(a.AvoidNodes), copied: p.copied(a.at),
	}
	before := j.retry
	if before != nil && before.runID != a.RunID {
		before = nil
	}
	if a.told() && j.queued && !a.byScheduler {
		j.waitFor(before, a.RetryAfter) // the restart has queued it, and its next lease may be on its way
		return
	}
	p.apply(&schedulerdb.EndPreemption{RunID: w.runID}) // the run has ended, so drop requests to preempt it
	switch {
	case p.mode == Direct:
		p.queue(j, w, a.Time)
	case a.byScheduler || j.retry != nil && j.retry.stage == forgetting && j.retry.runID == a.RunID:
		w.forget(p.now)
		// The executor learns of the end only from these rows, possibly late: the pod's
		// time to terminate starts now.
		w.retryAfter = max(w.retryAfter, p.now+a.RetryAfter-a.Time)
	default:
		w.delayed = a.RetryAfter > a.Time
		p.queue(j, w, a.Time)
	}
	if before != nil && before.isHeld() {
		w.retryAfter = untilReleased
	}
	j.put(w)
}

func (p *plan) fail(a fail) {
	j := p.jobs[a.JobID]
	if p.mode != Direct || j == nil || !j.known || j.over {
		return // an unmodified scheduler fails it when it sees the failed run
	}
	p.apply(&schedulerdb.FailJob{JobID: a.JobID})
	if p.copied(a.at) {
		p.copy(copyOf{
			jobID: j.id, runID: a.RunID, queue: j.queue, set: j.set, number: a.Number, policy: a.Policy, at: a.Time,
		})
	}
}

func (p *plan) overruled(a overruled) {
	j := p.jobs[a.jobID]
	if j == nil || !j.known || j.over || p.mode == Direct {
		return
	}
	w := &pendingRetry{runID: a.runID, number: a.number, policy: a.policy, retryAfter: a.retryAfter, avoid: a.avoid, copied: p.copied(a.at)}
	if j.retry != nil && j.retry.runID == a.runID {
		*w = *j.retry
		w.copied = w.copied || p.copied(a.at) // the failure has been published since
	}
	if a.held {
		w.retryAfter = untilReleased
	}
	w.forget(p.now)
	p.apply(&schedulerdb.EndPreemption{RunID: w.runID})
	j.put(w)
}

func (p *plan) proven(r *chain.RetryReady) {
	j := p.jobs[r.JobID]
	if j == nil || j.retry == nil || j.retry.runID != r.RunID || r.RetryAfter >= j.retry.retryAfter {
		return
	}
	w := *j.retry
	w.retryAfter = r.RetryAfter
	j.put(&w)
}

// queue queues a job for a pending retry, and reports whether that was possible.
func (p *plan) queue(j *jobView, w *pendingRetry, at int64) bool {
	info, err := p.info(j, w)
	if err != nil {
		// Treat it as if there were no decision: the scheduler fails the job.
		p.unable = append(p.unable, &unableError{job: j.id, err: err})
		*w = pendingRetry{}
		return false
	}
	version := j.version + 1
	p.apply(&schedulerdb.SetQueued{JobID: j.id, Queued: true, Version: version})
	if w.copied {
		w.copied = false
		p.copy(copyOf{
			jobID: j.id, runID: w.runID, queue: j.queue, set: j.set, number: w.number, policy: w.policy, at: at,
			requeue: true, version: version, info: info, text: w.text,
		})
	}
	return true
}

// info rewrites a job's requirements, if they change.
func (p *plan) info(j *jobView, w *pendingRetry) ([]byte, error) {
	placement := schedulerdb.Placement{AvoidNodes: w.avoid, NodeLabel: p.label, Waiting: w.delayed, Version: j.infoVersion}
	changes := w.delayed || len(w.avoid) > 0 || j.infoVersion > 0
	if changes {
		placement.Version++
	}
	info, err := schedulerdb.Requirements(j.submitted, placement)
	if err == nil && changes {
		op := &schedulerdb.SetSchedulingInfo{JobID: j.id, Info: info, Version: placement.Version}
		if err = schedulerdb.Refused(op); err == nil {
			p.apply(op)
		}
	}
	return info, err
}

// advance performs the step that is due for a pending retry.
func (p *plan) advance(j *jobView) {
	if j.retry == nil {
		return
	}
	if !j.known || j.over {
		j.put(nil)
		return
	}
	w := *j.retry
	switch {
	case w.stage == forgetting:
		if p.now < w.nextAt {
			break
		}
		w.delayed = w.retryAfter > p.now
		w.expectRun(p.now)
		if !p.queue(j, &w, p.now) {
			p.apply(&schedulerdb.FailJob{JobID: j.id}) // as the scheduler did, which has forgotten the job
		}
	case w.delayed && p.now >= w.retryAfter:
		p.endDelay(j, &w)
	case w.stage == expectingRun && p.now >= w.nextAt:
		p.check(j, &w)
	}
	j.put(&w)
}

// endDelay gives a job its requirements without the delay.
func (p *plan) endDelay(j *jobView, w *pendingRetry) {
	w.delayed = false
	if _, err := p.info(j, w); err != nil {
		p.unable = append(p.unable, &unableError{job: j.id, err: err})
		p.apply(&schedulerdb.FailJob{JobID: j.id}) // it would stay pending for ever
		w.settle()
	}
	if w.stage == expectingRun {
		w.expectRun(p.now) // from now on
	}
}

// check bumps the version of a job that has no new run.
func (p *plan) check(j *jobView, w *pendingRetry) {
	switch {
	case !p.atEnd:
		w.nextAt = p.now + int64(lookAgain) // events that are not read yet may hold a lease
	case w.checks == 1:
		w.settle()
	default:
		w.checks, w.nextAt = w.checks-1, p.now+int64(checkEvery)
		if w.checks == 1 {
			w.nextAt = p.now + int64(leaseWithin)
		}
		p.apply(&schedulerdb.SetQueued{JobID: j.id, Queued: true, Version: j.version + 1})
	}
}
