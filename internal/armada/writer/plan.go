package writer

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb"
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
		grace       time.Duration // of the job's pods
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

// plan turns actions into operations.
type plan struct {
	mode    Mode
	label   string // of nodes
	now     int64
	slack   time.Duration // the termination slack
	atEnd   bool          // all existing events were processed
	copying bool          // copy decisions on messages after since
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
	extended := *o
	for _, id := range slices.Sorted(maps.Keys(p.jobs)) {
		if j := p.jobs[id]; j.retry != nil && j.retry.stage == forgetting && j.queue == o.Queue && j.set == o.JobSet {
			extended.AsQueued = append(extended.AsQueued, id)
		}
	}
	return &extended
}

func (p *plan) end(id string) {
	if j := p.jobs[id]; j != nil {
		j.over = true
		j.put(nil)
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
	if before != nil {
		w.podUntil = before.podUntil
	}
	if a.ofStoppedRun() && j.queued && !a.byScheduler {
		j.waitFor(before, a.RetryAfter) // the restart has queued it, and its next lease may be on its way
		return
	}
	p.apply(&schedulerdb.EndPreemption{RunID: w.runID}) // the run has ended, so drop requests to preempt it
	switch {
	case p.mode == Direct:
		p.queue(j, w, a.Time)
	case a.byScheduler || before != nil && before.stage == forgetting:
		w.forget(p.now)
		if !a.ofStoppedRun() { // else the restart has stopped the run
			w.podUntil = max(w.podUntil, p.podUntil(a.grace))
		}
	default:
		w.delayed = a.RetryAfter > a.Time
		p.queue(j, w, a.Time)
	}
	if before != nil && before.isHeld() {
		w.retryAfter = untilUnheld
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
		w.retryAfter = untilUnheld
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
	w.retryAfter, w.podUntil = r.RetryAfter, 0
	if j.retry.isHeld() {
		w.retryAfter = untilUnheld
	}
	j.put(&w)
}

// podUntil returns when pods have ended whose end begins with what this plan writes: their
// executor learns of it from the rows only, however late these are. grace is the longest of
// theirs; 0: there are none.
func (p *plan) podUntil(grace time.Duration) int64 {
	if grace == 0 {
		return 0
	}
	return p.now + int64(min(grace+p.slack, maxWait))
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
		w.delayed = w.ready() > p.now
		w.expectRun(p.now)
		if !p.queue(j, &w, p.now) {
			p.apply(&schedulerdb.FailJob{JobID: j.id}) // as the scheduler did, which has forgotten the job
		}
	case w.delayed && p.now >= w.ready():
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
		w.nextAt = p.now + int64(recheckAfter) // events that are not read yet may hold a lease
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
