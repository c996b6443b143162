package pgstore_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/schedulerdb"
)

// model is the tables as plain rows, one operation after the other: what the
// statements over batches must come to.
type model struct {
	jobs   map[string]*modelJob
	runs   map[string]*modelRun
	errors map[string]string
}

type modelJob struct {
	ID, Queue, Set, User                   string
	Queued                                 bool
	QueuedVersion, InfoVersion             int32
	Info, Submit                           string
	Validated                              bool
	Pools                                  []string
	Cancelled, Succeeded, Failed           bool
	CancelRequested, CancelBySet           bool
	CancelUser, CancelReason, PriorityUser string
	Priority                               int64
}

func (j *modelJob) over() bool { return j.Cancelled || j.Succeeded || j.Failed }

// asked keeps who asked first for a cancellation, and why.
func (j *modelJob) asked(user, reason string) {
	j.CancelUser, j.CancelReason = cmp.Or(j.CancelUser, user), cmp.Or(j.CancelReason, reason)
}

type modelRun struct {
	ID, Job, Queue, Set                               string
	Pending, Running, Preempted                       string
	Cancelled, Succeeded, Failed, Returned, Attempted bool
	End                                               string
	PreemptRequested                                  bool
	PreemptUser, PreemptReason                        string
}

func (r *modelRun) over() bool { return r.Cancelled || r.Succeeded || r.Failed }

func newModel() *model {
	return &model{jobs: map[string]*modelJob{}, runs: map[string]*modelRun{}, errors: map[string]string{}}
}

func clock(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func (m *model) apply(op schedulerdb.Op) {
	switch o := op.(type) {
	case *schedulerdb.InsertJob:
		m.jobs[o.JobID] = &modelJob{
			ID: o.JobID, Queue: o.Queue, Set: o.JobSet, User: o.UserID, Queued: true,
			Info: string(o.SchedulingInfo), InfoVersion: o.SchedulingInfoVersion, Submit: string(o.SubmitMessage), Priority: o.Priority,
		}
	case *schedulerdb.InsertRun:
		m.runs[o.RunID] = &modelRun{ID: o.RunID, Job: o.JobID, Queue: o.Queue, Set: o.JobSet}
	case *schedulerdb.InsertRunError:
		m.errors[o.RunID] = o.JobID + " " + string(o.Error)
	case *schedulerdb.SetSetPriority:
		m.inSet(o.Queue, o.JobSet, func(j *modelJob) { j.Priority, j.PriorityUser = o.Priority, o.User })
	case *schedulerdb.RequestSetCancel:
		m.inSet(o.Queue, o.JobSet, func(j *modelJob) {
			queued := j.Queued || slices.Contains(o.AsQueued, j.ID)
			if queued && o.Queued || !queued && o.Leased {
				j.CancelBySet = true
				j.asked(o.User, o.Reason)
			}
		})
	case *schedulerdb.RequestPreemption:
		for _, r := range m.runs {
			if r.Job == o.JobID && r.Queue == o.Queue && r.Set == o.JobSet && !r.over() {
				r.PreemptRequested, r.PreemptUser, r.PreemptReason = true, o.User, o.Reason
			}
		}
	case *schedulerdb.EndPreemption:
		if r := m.runs[o.RunID]; r != nil {
			r.PreemptRequested = false
		}
	case *schedulerdb.CancelJob:
		for _, r := range m.runs {
			if r.Job == o.JobID {
				r.Cancelled, r.End = true, clock(o.At)
			}
		}
		m.job(o.JobID, func(j *modelJob) { j.Cancelled = true })
	case *schedulerdb.MarkRun:
		if r := m.runs[o.RunID]; r != nil {
			r.mark(o.Stage, clock(o.At))
		}
	case *schedulerdb.FailRun:
		if r := m.runs[o.RunID]; r != nil {
			r.Failed, r.End = true, clock(o.At)
			r.Returned, r.Attempted = r.Returned || o.Returned, r.Attempted || o.Attempted
		}
	case *schedulerdb.StopRun:
		if r := m.runs[o.RunID]; r != nil {
			r.Failed, r.Succeeded, r.End = true, false, cmp.Or(r.End, clock(o.At))
		}
	default:
		m.jobOp(op)
	}
}

func (r *modelRun) mark(stage schedulerdb.Stage, at string) {
	switch stage {
	case schedulerdb.Pending:
		r.Pending = at
	case schedulerdb.Running:
		r.Running = at
	case schedulerdb.Preempted:
		r.Preempted = at
	case schedulerdb.Succeeded:
		r.Succeeded, r.End = true, at
	default:
		panic("no stage")
	}
}

func (m *model) jobOp(op schedulerdb.Op) {
	switch o := op.(type) {
	case *schedulerdb.SetQueued:
		m.job(o.JobID, func(j *modelJob) {
			if o.Version > j.QueuedVersion {
				j.Queued, j.QueuedVersion = o.Queued, o.Version
			}
		})
	case *schedulerdb.SetSchedulingInfo:
		m.job(o.JobID, func(j *modelJob) {
			if o.Version > j.InfoVersion {
				j.Info, j.InfoVersion = string(o.Info), o.Version
			}
		})
	case *schedulerdb.SetValidated:
		m.job(o.JobID, func(j *modelJob) { j.Validated, j.Pools = true, o.Pools })
	case *schedulerdb.SucceedJob:
		m.job(o.JobID, func(j *modelJob) { j.Succeeded = true })
	case *schedulerdb.FailJob:
		m.job(o.JobID, func(j *modelJob) { j.Failed = true })
	case *schedulerdb.ReviveJob:
		m.job(o.JobID, func(j *modelJob) { j.Succeeded, j.Failed = false, false })
	case *schedulerdb.SetPriority:
		m.job(o.JobID, func(j *modelJob) {
			if j.Queue == o.Queue && j.Set == o.JobSet && !j.over() {
				j.Priority, j.PriorityUser = o.Priority, o.User
			}
		})
	case *schedulerdb.RequestCancel:
		m.job(o.JobID, func(j *modelJob) {
			if j.Queue == o.Queue && j.Set == o.JobSet && !j.over() {
				j.CancelRequested = true
				j.asked(o.User, o.Reason)
			}
		})
	}
}

func (m *model) job(id string, change func(*modelJob)) {
	if j := m.jobs[id]; j != nil {
		change(j)
	}
}

func (m *model) inSet(queue, set string, change func(*modelJob)) {
	for _, j := range m.jobs {
		if j.Queue == queue && j.Set == set && !j.over() {
			change(j)
		}
	}
}

func (m *model) sorted() (jobs []modelJob, runs []modelRun) {
	for _, j := range m.jobs {
		jobs = append(jobs, *j)
	}
	for _, r := range m.runs {
		runs = append(runs, *r)
	}
	slices.SortFunc(jobs, func(a, b modelJob) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(runs, func(a, b modelRun) int { return cmp.Compare(a.ID, b.ID) })
	return jobs, runs
}
