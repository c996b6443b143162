package schedulerdb

import "time"

// Op is one change of Armada's tables, as one of its events makes it. An
// operation on rows that are not there changes nothing.
type Op interface{ op() }

// InsertJob adds a job, or replaces all of its row and its metadata.
type InsertJob struct {
	JobID, JobSet, Queue, UserID string
	Submitted                    int64 // Unix nanoseconds
	Priority                     int64
	PriceBand                    int32
	SchedulingInfo               []byte // JobSchedulingInfo
	SchedulingInfoVersion        int32
	SubmitMessage, Groups        []byte // of job_metadata, compressed
}

// SetQueued puts a job into the queue or takes it out, if the version is higher
// than that of the row.
type SetQueued struct {
	JobID   string
	Queued  bool
	Version int32
}

// SetSchedulingInfo replaces what the scheduler needs to know of a job, if the
// version is higher than that of the row.
type SetSchedulingInfo struct {
	JobID   string
	Info    []byte // JobSchedulingInfo
	Version int32
}

// SetValidated says that a job fits into these pools.
type SetValidated struct {
	JobID string
	Pools []string
}

// SetPriority changes a job's priority. Like all operations that name the queue
// and the set, it leaves alone what stands under others, and what has ended.
type SetPriority struct {
	JobID, Queue, JobSet string
	Priority             int64
	User                 string
}

// SetSetPriority changes the priority of all jobs of a set.
type SetSetPriority struct {
	Queue, JobSet string
	Priority      int64
	User          string
}

// RequestCancel notes that a job is asked to be cancelled.
type RequestCancel struct {
	JobID, Queue, JobSet string
	User, Reason         string
}

// RequestSetCancel notes that the jobs of a set are asked to be cancelled: those
// that are queued, those that are not, or both.
type RequestSetCancel struct {
	Queue, JobSet  string
	Queued, Leased bool
	User, Reason   string
	AsQueued       []string // jobs that count as queued, whatever their rows say
}

// RequestPreemption notes that a job's runs are asked to be preempted.
type RequestPreemption struct {
	JobID, Queue, JobSet string
	User, Reason         string
}

// EndPreemption ends the request to preempt a run. It comes with the requeue of a run
// that is over: Armada's scheduler, when it starts, preempts any run that is the
// latest of a job and asked for, also a dead one, and fails the job with it.
type EndPreemption struct{ RunID string }

// SucceedJob ends a job well.
type SucceedJob struct{ JobID string }

// FailJob ends a job.
type FailJob struct{ JobID string }

// CancelJob ends a job and all of its runs, those that have ended too.
type CancelJob struct {
	JobID string
	At    time.Time
}

// ReviveJob takes back that a job has succeeded or failed. One that was cancelled stays so.
type ReviveJob struct{ JobID string }

// StopRun makes a run a failed one, even if it succeeded. It does not change when the run
// ended, if it did.
type StopRun struct {
	RunID string
	At    time.Time
}

// InsertRun adds a run, or replaces all of its row.
type InsertRun struct {
	RunID, JobID, JobSet, Queue string
	Executor, Node, Pool        string
	Leased                      time.Time
	Created                     int64  // Leased, in Unix nanoseconds
	ScheduledAtPriority         *int32 // nil: not said
	PodRequirementsOverlay      []byte // PodRequirements
}

// MarkRun says how far a run has come. It takes nothing back.
type MarkRun struct {
	RunID string
	Stage Stage
	At    time.Time
}

// Stage is what MarkRun marks.
type Stage int

// The stages, in no order.
const (
	UnknownStage Stage = iota
	Pending
	Running
	Succeeded
	Preempted
)

// FailRun ends a run.
type FailRun struct {
	RunID               string
	At                  time.Time
	Returned, Attempted bool
}

// InsertRunError keeps why a run failed, in place of what was kept.
type InsertRunError struct {
	RunID, JobID string
	Error        []byte // Error, compressed
}

// InsertMarker says that a partition was read up to a marker of the scheduler's.
type InsertMarker struct {
	Group     [16]byte
	Partition int32
	Created   time.Time
}

func (*InsertJob) op()         {}
func (*SetQueued) op()         {}
func (*SetSchedulingInfo) op() {}
func (*SetValidated) op()      {}
func (*SetPriority) op()       {}
func (*SetSetPriority) op()    {}
func (*RequestCancel) op()     {}
func (*RequestSetCancel) op()  {}
func (*RequestPreemption) op() {}
func (*EndPreemption) op()     {}
func (*SucceedJob) op()        {}
func (*FailJob) op()           {}
func (*CancelJob) op()         {}
func (*ReviveJob) op()         {}
func (*StopRun) op()           {}
func (*InsertRun) op()         {}
func (*MarkRun) op()           {}
func (*FailRun) op()           {}
func (*InsertRunError) op()    {}
func (*InsertMarker) op()      {}
