package jobdb

import (
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// Job is one job. Key: Partition, JobID.
type Job struct {
	Partition int
	JobID     string
	Queue     string // of its SubmitJob; before that, of the message that first named it
	JobSet    string // as Queue
	Known     bool   // its SubmitJob was processed
	State     JobState
	// Final: the job ended in the sense of docs/reference/semantics.md (succeeded, cancelled,
	// rejected or failed by us) or by Armada's verdict in a release, and its state no
	// longer changes. A failed job that is not final has only Armada's verdict, which a
	// decision overrides.
	Final           bool
	CancelRequested bool
	Times           JobTimes
	Queueing        Queueing
	Submit          Submit
	Armada          Verdict
	Member          Membership
	// Retry is the failure that the job's latest run is a retry after, or its next one if it waits for one; nil: neither is a retry
	// that we granted.
	Retry *Cause
	// Updated is the position, in our log, of the message that last changed the row.
	Updated eventlog.Position
	// Since is the position, in our log, of the message that created the row: the first
	// one that names the job, or the first one after an earlier row of it was pruned.
	// eventlog.Start: the row is older than this column.
	Since eventlog.Position
}

// JobTimes are the times of a job.
type JobTimes struct {
	Submitted int64
	Ended     int64
}

// Queueing is what a scheduler needs to know about a job.
type Queueing struct {
	Priority int64
	// Version increases by one with every change between queued and not queued, as
	// Armada's queued_version does.
	Version    int64
	RetryAfter int64    // the job may not be leased before; 0: no delay
	AvoidNodes []string // of its last requeue
	Runs       uint32   // run ids seen; the next run's index
	OpenRuns   uint32   // of them, those without a reported end
	LatestRun  string   // the run that became known last
	// Decision is the number of the effective decision on its latest run, which
	// overrides Armada's verdict on that run; 0: none.
	Decision uint64
}

// Submit is the part of a SubmitJob that explanations need.
type Submit struct {
	Namespace       string
	RetryPolicies   string // annotation armadaproject.io/retry-policy, unparsed
	FailFast        string // annotation armadaproject.io/failFast
	GangID          string // annotation armadaproject.io/gangId
	GangCardinality string // annotation armadaproject.io/gangCardinality
	InitContainers  []string
	GraceSeconds    int64     // terminationGracePeriodSeconds as submitted; 0 when unset
	Requests        *Requests // nil: unknown, because it names none, is unreadable, or the row is older than this column
}

// Verdict is Armada's own verdict: its last terminal JobErrors for the job.
type Verdict struct {
	Failed      bool
	At          int64
	RunID       string // the latest run at that time
	Reason      string // member of Armada's Error.reason
	Message     string
	Category    string
	Subcategory string
}

// Run is one attempt of a job. Key: Partition, JobID, RunID.
type Run struct {
	Partition int
	JobID     string
	RunID     string
	Index     uint32 // run ids of the job seen before it; meaningless while the state is UnknownRun
	State     RunState
	Executor  string
	Node      string // of its last JobRunRunning that names one, else of its lease
	Pool      string
	Times     RunTimes
	Flags     RunFlags
	Error     RunError
	Outcome   Outcome
	Shadow    bool   // the decision on it was made in shadow
	Decision  uint64 // number of the decision on it; 0: none
}

// RunTimes are the times of a run: of the first event of each kind.
type RunTimes struct {
	Leased    int64
	Pending   int64
	Running   int64
	Ended     int64
	Preempted int64
	Gone      int64 // of the first JobRunTerminated
}

// RunFlags describe how a run ended.
type RunFlags struct {
	Preempted bool // by event or error
	Returned  bool // its lease was returned
	Attempted bool // it failed, and an executor had attempted it
	Cancelled bool // its job was cancelled before the end of the run was reported
}

// RunError is the error with which a run ended; at most one per run.
type RunError struct {
	Reason           string // member of Armada's Error.reason; empty: preempted, without an error
	Message          string
	Category         string
	Subcategory      string
	KubernetesReason string // of a PodError
	Node             string // of a PodError
	PreemptReason    string // of a JobRunPreempted
	Containers       []Container
	Raw              []byte // Armada's Error as in the event
}

// Container is one terminated container of a failed run's pod.
type Container struct {
	Name     string
	ExitCode int32
	Reason   string
	Message  string
}

// Positions are those of a partition's rows: after this envelope and its input, and
// after what was released beyond it.
type Positions struct {
	Chain     chain.End
	Decisions eventlog.Position // of the last accepted envelope
	// Events is the last message that the rows include: Chain.InTo, or the end of a
	// release after it.
	Events eventlog.Position
	Pruned Pruned // what is not there any more
}

// Pruned records which rows of a partition are not there any more, although they follow
// from the logs: those of jobs that were over. Parked records, activations and releases
// are never pruned.
type Pruned struct {
	Jobs    uint64            // so many in all; a job that came back counts each time
	Through eventlog.Position // no pruned row of a job was changed after this message
	Ended   int64             // no pruned job ended later
	When    int64             // time of the last pruning transaction, by its writer's clock; 0: none
}

// Origin is the position at which rows with these releases start: a release of no
// messages from the beginning records what another ingester had applied.
// eventlog.Start: there is no such release.
func Origin(releases []*Release) eventlog.Position {
	for _, r := range releases {
		if r.From == eventlog.Start && r.Messages == 0 {
			return r.To
		}
	}
	return eventlog.Start
}

// Beginning is the position before everything.
var Beginning = Positions{Chain: chain.Beginning, Decisions: eventlog.Start, Events: eventlog.Start}

// Release is a range of events that the rows include although the chain had not
// answered them, as Armada handles them without us (protocol.md 13). Later decisions on
// them are superseded. Key: Partition, From.
type Release struct {
	Partition int
	Seq       uint64            // of the last accepted envelope at that time
	From      eventlog.Position // exclusive: the position of the rows before it
	To        eventlog.Position // inclusive
	Messages  uint64            // in (From, To]; 0: Armada's own ingester had applied them (package cutover)
	When      int64             // its time, by its writer's clock
}

// Where is the position of a row that was derived from a record. Key: Partition, Seq,
// Record.
type Where struct {
	Partition int
	Seq       uint64            // of the envelope
	Record    uint32            // index in the envelope, from 0
	Log       eventlog.Position // of the message in our log; the record has the origin position
	Recording string            // the recording that the message came from, if any
	// Superseded: the message was released before the chain answered it. The record is
	// kept and has no effect.
	Superseded bool
}

// Decision is one decision. Key also: Partition, Number.
type Decision struct {
	Where
	Acted   bool   // it changed the job: it was not made in shadow, and did not come too late
	GroupID string // of Member's group; "": none
	chain.Decision
}

// Late reports whether the decision came too late to have an effect: its message had been released, or its job had ended
// here, by a release or before the evaluator forgot it.
func (d *Decision) Late() bool { return d.Superseded || !d.Acted && !d.Shadow }

// NotDecided is a failed run without a decision.
type NotDecided struct {
	Where
	chain.NotDecided
}

// Parked is a message or event that could not be processed.
type Parked struct {
	Where
	chain.Parked
}

// Ready is a retry whose old run is known to have ended.
type Ready struct {
	Where
	Acted bool // it lowered the job's RetryAfter
	chain.RetryReady
}

// Activation puts a policy generation or a version of the semantics into force, from
// the message after From on.
type Activation struct {
	Partition  int
	Seq        uint64
	Record     uint32
	From       eventlog.Position
	Generation uint64   // 0 for a version of the semantics, as the next two; the policies log has the rest
	Digest     [32]byte // of the policy set
	HorizonMS  int64
	Semantics  uint32 // 0 for a policy generation
}
