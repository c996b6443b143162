package sink

import (
	"cmp"
	"slices"
	"strings"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/jobdb"
)

// fold is one message being applied.
type fold struct {
	*Rows
	*Message
	i int   // the event's index in the message
	t int64 // its time

	restarts map[groupKey]*jobdb.Cause // by restartedFor; nil: it was not asked
}

// Apply applies one message: its events in order, then its records in order. A decision
// in the message takes precedence over what Armada reports anywhere in the same message.
// Of a superseded message, only its records are new.
func (r *Rows) Apply(m *Message) {
	r.applied++
	f := fold{Rows: r, Message: m}
	applies := m.Events != nil && !m.Superseded && !IsCopy(&m.Log)
	if applies {
		for i := range m.Events.Events {
			ev := &m.Events.Events[i]
			f.i, f.t = i, ev.Time
			f.event(ev)
		}
	}
	if m.Superseded {
		f.joinLate()
	}
	f.records()
	if applies {
		f.runsFailed()
	}
}

func (f *fold) event(ev *events.Event) {
	if ev.Kind == events.CancelJobSet {
		f.cancelSet(ev.States)
		return
	}
	job, passing := named(f.Events, f.i)
	if job == "" {
		return
	}
	f.startAnew(job, f.Log.Position)
	switch {
	case ev.Kind.NamesRun():
		f.runEvent(ev, f.job(job))
	case !passing || f.find(job) != nil && !f.wasGone(job, f.Log.Position):
		f.jobEvent(ev, f.job(job))
	}
}

// full is all of the event.
func (f *fold) full() *pb.Event { return f.Events.Full(f.i) }

// job returns the job's row, creating one for a job that is not known yet, under the
// queue and set of the message that names it first.
func (f *fold) job(id string) *jobRow {
	j := f.find(id)
	if j == nil {
		j = &jobRow{runs: map[string]*runRow{}, complete: true}
		j.Partition, j.JobID, j.Queue, j.JobSet = f.partition, strings.Clone(id), strings.Clone(f.Events.Queue), strings.Clone(f.Events.JobSet)
		j.Since = f.Log.Position
		f.keep(j)
	}
	f.touch(j, f.Log.Position)
	return j
}

func (f *fold) jobEvent(ev *events.Event, j *jobRow) {
	switch ev.Kind {
	case events.SubmitJob:
		f.submit(j, ev.Submit, cmp.Or(f.full().GetSubmitJob(), f.full().GetKnownJob()))
	case events.CancelJob:
		j.CancelRequested = true
		j.memberCancelled()
	case events.CancelledJob:
		f.cancelled(j)
	case events.JobSucceeded:
		if j.Member.GroupID == "" { // of a member, its run tells
			j.end(jobdb.JobSucceeded, f.t)
		}
	case events.JobErrors:
		f.armadaFailed(j, f.full().GetJobErrors().GetErrors())
	default: // Other
		if p := f.full().GetReprioritisedJob(); p != nil {
			j.Queueing.Priority = int64(p.GetPriority())
		} else {
			f.armadaRequeued(j)
		}
	}
}

// submit makes a job known; a SubmitJob for a known job has no effect.
func (f *fold) submit(j *jobRow, s *events.Submit, full *pb.SubmitJob) {
	if j.Known {
		f.Again = append(f.Again, f.i)
		return
	}
	s = s.Clone() // the row outlives the message
	j.Known, j.Queue, j.JobSet = true, strings.Clone(f.Events.Queue), strings.Clone(f.Events.JobSet)
	j.Times.Submitted = f.t
	j.Queueing.Priority = int64(full.GetPriority())
	j.Submit = submitFacts(s, full)
	if j.State == jobdb.UnknownJob {
		j.State = jobdb.JobQueued
	}
	f.join(j, s)
	f.index(j)
}

// end ends a job for good; later ends have no effect.
func (j *jobRow) end(state jobdb.JobState, t int64) {
	if j.Final {
		return
	}
	j.Final = true
	j.over(state, t)
}

func (j *jobRow) over(state jobdb.JobState, t int64) {
	j.State, j.Times.Ended, j.Queueing.RetryAfter = state, t, 0
}

// queued puts a job into the queue.
func (j *jobRow) queued(retryAfter int64, avoid []string) {
	j.State, j.Times.Ended = jobdb.JobQueued, 0
	j.Queueing.Version++
	j.Queueing.RetryAfter, j.Queueing.AvoidNodes = retryAfter, avoid
}

// cancelled ends the job, and its known runs. Only of the latest one it is known when: the others were told to stop before.
func (f *fold) cancelled(j *jobRow) {
	j.end(jobdb.JobCancelled, f.t)
	j.memberCancelled()
	open := slices.DeleteFunc(j.open, func(r *runRow) bool { return !r.open() })
	slices.SortFunc(open, func(a, b *runRow) int { return cmp.Compare(a.Index, b.Index) })
	j.open = nil // a cancelled run has ended
	for _, run := range open {
		run.State, run.Flags.Cancelled = jobdb.RunCancelled, true
		if run.RunID == j.Queueing.LatestRun {
			run.Times.Ended = f.t
			f.retryEnded(j, run)
		}
		f.touchRun(run)
	}
}

// armadaFailed applies Armada's verdict on the job. It is effective if there is no
// enforced decision on the latest run; a rejection always is.
//
// In a release it ends the job for good: Armada acted as if we were not there, published
// the result, and cleaned up after the job. So a decision on another run of it must not
// revive the job, even if it is in time.
func (f *fold) armadaFailed(j *jobRow, errors []*pb.Error) {
	i := firstTerminal(errors)
	if i < 0 {
		return
	}
	if v := &j.Armada; !v.Failed || v.RunID != j.Queueing.LatestRun {
		*v = jobdb.Verdict{
			Failed: true, At: f.t, RunID: j.Queueing.LatestRun,
			Category: errors[i].GetFailureCategory(), Subcategory: errors[i].GetFailureSubcategory(),
		}
		v.Reason, v.Message = reasonOf(errors[i])
	}
	switch {
	case errors[i].GetJobRejected() != nil:
		j.end(jobdb.JobFailed, f.t)
		j.memberCancelled()
	case j.State.Terminal() || f.decided(j):
	case f.Released:
		j.end(jobdb.JobFailed, f.t)
	default:
		j.over(jobdb.JobFailed, f.t)
	}
}

// armadaRequeued applies Armada's own requeue, under the same conditions.
func (f *fold) armadaRequeued(j *jobRow) {
	if !j.State.Terminal() && !j.State.Waiting() && j.State != jobdb.JobStopping && !f.decided(j) {
		j.queued(0, nil)
	}
}

// decided reports whether there is an enforced decision on the job's latest run, from
// before or in this message, or it was told to stop.
func (f *fold) decided(j *jobRow) bool {
	if j.Queueing.Decision != 0 || j.Member.Restarting {
		return true
	}
	d := f.decisionOn(j.JobID, j.Queueing.LatestRun)
	return d != nil && !d.Shadow
}

// cancelSet requests cancellation of the submitted jobs of the set, restricted to
// states.
func (f *fold) cancelSet(states events.JobStates) {
	for _, j := range f.inSet(jobdb.SetKey{Queue: f.Events.Queue, JobSet: f.Events.JobSet}) {
		if j.in(states) {
			j.CancelRequested = true
			j.memberCancelled()
			f.touch(j, f.Log.Position)
		}
	}
}

// in reports whether the job is in one of the states that a CancelJobSet names.
func (j *jobRow) in(states events.JobStates) bool {
	switch {
	case states == 0:
		return true
	case j.Queueing.OpenRuns == 0:
		return states&events.Queued != 0
	default:
		return states&(events.Pending|events.Running) != 0
	}
}
