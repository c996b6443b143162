package sink

import (
	"bytes"
	"slices"
	"strings"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/jobdb"
)

func (f *fold) runEvent(ev *events.Event, j *jobRow) {
	switch ev.Kind {
	case events.RunTerminated:
		run := f.runOrNote(j, ev.RunID)
		if run.Times.Gone == 0 {
			run.Times.Gone = f.t
		}
		f.touchRun(run)
		return
	case events.KnownRun, events.EndedRun:
		f.imported(j, ev)
		return
	default:
	}
	run := f.see(j, ev.RunID)
	f.touchRun(run)
	switch ev.Kind {
	case events.RunLeased:
		f.leased(run, ev.Node, f.full().GetJobRunLeased())
	case events.RunAssigned:
		f.forward(j, run, jobdb.RunPending)
	case events.RunRunning:
		f.running(j, run, ev.Node)
	case events.RunSucceeded:
		if !run.State.Ended() {
			f.ended(j, run, jobdb.RunSucceeded)
			f.memberSucceeded(j, run)
		}
	case events.RunErrors:
		if ev.Error != nil {
			f.failed(j, run)
		}
	case events.RunPreempted:
		f.preempted(j, run, f.full().GetJobRunPreempted().GetReason())
	default:
	}
}

// runOrNote returns a run, or creates one that no event has made known yet.
func (f *fold) runOrNote(j *jobRow, id string) *runRow {
	run := j.runs[id]
	if run == nil {
		id = strings.Clone(id)
		run = &runRow{Run: jobdb.Run{Partition: f.partition, JobID: j.JobID, RunID: id}}
		j.runs[id] = run
		f.size++
	}
	return run
}

// imported applies a run that a cut-over republished: it is older than the known ones.
// The outcome of a finished run is unknown here; it was not decided.
func (f *fold) imported(j *jobRow, ev *events.Event) {
	run, state, q := f.runOrNote(j, ev.RunID), j.State, &j.Queueing
	if run.State != jobdb.UnknownRun {
		return
	}
	if q.Runs == 0 {
		f.see(j, run.RunID)
	} else {
		run.State, run.Index = jobdb.RunLeased, q.Runs
		q.Runs++
		q.OpenRuns++
		j.open = append(j.open, run)
	}
	f.recount(run)
	run.Node = strings.Clone(ev.Node)
	if ev.Kind == events.EndedRun {
		run.State, run.Outcome = jobdb.RunFailed, jobdb.LeftAlone
		q.OpenRuns--
		j.State = state
	} else {
		f.advance(j, run, reached(f.full().GetKnownRun().GetStage()))
	}
	f.touchRun(run)
}

// reached is the state of an imported run that has not ended. Builds from before there
// were stages publish 0. The run's times stay unknown.
func reached(stage uint32) jobdb.RunState {
	switch stage {
	case 1:
		return jobdb.RunPending
	case 2:
		return jobdb.RunRunning
	}
	return jobdb.RunLeased
}

// see returns a run, making it known as the job's latest if necessary. A job that has
// ended stays ended: the run is only a row.
func (f *fold) see(j *jobRow, id string) *runRow {
	run := f.runOrNote(j, id)
	if run.State != jobdb.UnknownRun {
		return run
	}
	q := &j.Queueing
	run.State, run.Index = jobdb.RunLeased, q.Runs
	q.Runs++
	q.OpenRuns++
	j.open = append(j.open, run)
	if q.Decision == 0 && !j.Member.Restarting || run.Index == 0 {
		j.Retry = nil // nobody granted this run
	}
	q.LatestRun, q.Decision, j.Member.Restarting = run.RunID, 0, false
	if j.State.Terminal() || j.State == jobdb.JobStopping {
		return run
	}
	if j.State.Waiting() || j.State == jobdb.UnknownJob {
		q.Version++
	}
	j.State, q.RetryAfter = jobdb.JobLeased, 0
	return run
}

// leased sets the fields that only the lease has; it may come after other reports.
func (f *fold) leased(run *runRow, node string, m *pb.JobRunLeased) {
	if run.Times.Leased != 0 {
		return
	}
	run.Times.Leased, run.Executor, run.Pool = f.t, m.GetExecutorId(), m.GetPool()
	if run.Node == "" {
		f.recount(run)
		run.Node = strings.Clone(node)
	}
}

func (f *fold) running(j *jobRow, run *runRow, node string) {
	if run.State.Ended() {
		return
	}
	if node != "" {
		f.recount(run)
		run.Node = strings.Clone(node)
	}
	f.forward(j, run, jobdb.RunRunning)
}

// recount notes that the node or category of a run changes. What was decided on it before, if anything, is counted by them.
func (f *fold) recount(run *runRow) {
	if key := (jobdb.RunKey{JobID: run.JobID, RunID: run.RunID}); run.Decision != 0 && !slices.Contains(f.fresh.Recounted, key) {
		f.fresh.Recounted = append(f.fresh.Recounted, key)
	}
}

// forward applies a report on the progress of a run. Late reports, after the run's end
// or after newer ones, have no effect.
func (f *fold) forward(j *jobRow, run *runRow, to jobdb.RunState) {
	if run.State.Ended() {
		return
	}
	at := &run.Times.Pending
	if to == jobdb.RunRunning {
		at = &run.Times.Running
	}
	if *at == 0 {
		*at = f.t
	}
	f.advance(j, run, to)
}

// advance moves a run that has not ended on to a state, and its job if it is the latest
// run. Neither goes back.
func (f *fold) advance(j *jobRow, run *runRow, to jobdb.RunState) {
	job := jobdb.JobLeased
	switch to {
	case jobdb.RunPending:
		job = jobdb.JobPending
	case jobdb.RunRunning:
		job = jobdb.JobRunning
	default: // a lease
	}
	run.State = max(run.State, to)
	if latest := j.Queueing.LatestRun == run.RunID; latest && j.State >= jobdb.JobLeased && j.State < job {
		j.State = job
	}
}

// ended ends a run. A decision on a failure in a release comes too late, which is
// recorded at once.
func (f *fold) ended(j *jobRow, run *runRow, state jobdb.RunState) {
	run.State, run.Times.Ended = state, f.t
	if state == jobdb.RunFailed && f.Released && run.Outcome == jobdb.NoOutcome {
		run.Outcome = jobdb.Released
	}
	j.Queueing.OpenRuns--
	f.retryEnded(j, run)
}

// failed applies a terminal error. The first end of a run is effective; a preemption and
// an error in one message are one end.
func (f *fold) failed(j *jobRow, run *runRow) {
	switch {
	case !run.State.Ended():
		f.ended(j, run, jobdb.RunFailed)
		run.failedIn = f.applied
	case run.State == jobdb.RunSucceeded || run.failedIn != f.applied || run.Error.Reason != "":
		return
	}
	list := f.full().GetJobRunErrors().GetErrors()
	first := firstTerminal(list)
	e := list[first]
	f.recount(run)
	fill(&run.Error, e, bytes.Clone(f.Events.RawError(f.i, first)))
	run.Flags.Returned = e.GetPodLeaseReturned() != nil
	run.Flags.Attempted = !run.Flags.Returned || e.GetPodLeaseReturned().GetRunAttempted()
	if e.GetJobRunPreemptedError() != nil {
		run.Flags.Preempted = true
	}
}

func (f *fold) preempted(j *jobRow, run *runRow, reason string) {
	switch {
	case !run.State.Ended():
		f.ended(j, run, jobdb.RunFailed)
		run.failedIn = f.applied
		run.Flags.Attempted = true
	case run.State == jobdb.RunSucceeded || run.failedIn != f.applied:
		return
	}
	run.Flags.Preempted = true
	if run.Times.Preempted == 0 {
		run.Times.Preempted, run.Error.PreemptReason = f.t, reason
	}
}
