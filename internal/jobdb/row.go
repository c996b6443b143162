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
	JobSet    string // likewise
	Known     bool   // its SubmitJob was seen
	State     JobState
	// Final: it ended in SEMANTICS' sense (succeeded, cancelled, rejected or
	// failed by us) or by Armada's verdict in a release, and nothing moves it any
	// more. A failed job that is not final has only Armada's verdict against it,
	// which a decision overrules.
	Final           bool
	CancelRequested bool
	Times           JobTimes
	Queueing        Queueing
	Submit          Submit
	Armada          Verdict
	// Updated is where the message that changed the row last stands in our log.
	Updated eventlog.Position
}

// JobTimes are the times of a job.
type JobTimes struct {
	Submitted int64
	Ended     int64
}

// Queueing is what a scheduler goes by.
type Queueing struct {
	Priority int64
	// Version rises by one with every change between queued and not queued, as
	// Armada's queued_version does.
	Version    int64
	RetryAfter int64    // not to be leased before; 0: no wait
	AvoidNodes []string // of its last requeue
	Runs       uint32   // run ids seen; the next run's index
	OpenRuns   uint32   // of them, those whose end was not reported
	LatestRun  string   // the run that became known last
	// Decision is the number of the enforced decision on its latest run, which
	// stands above what Armada says of that run; 0: none.
	Decision uint64
}

// Submit is what explaining needs of a SubmitJob.
type Submit struct {
	Namespace       string
	RetryPolicies   string // annotation armadaproject.io/retry-policy, as it stands
	FailFast        string // annotation armadaproject.io/failFast
	GangID          string // annotation armadaproject.io/gangId
	GangCardinality string // annotation armadaproject.io/gangCardinality
	InitContainers  []string
	GraceSeconds    int64 // terminationGracePeriodSeconds as submitted; 0 when unset
}

// Verdict is Armada's own: its last terminal JobErrors for the job.
type Verdict struct {
	Failed      bool
	At          int64
	RunID       string // the latest run when it came
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
	Decision  uint64 // its number; 0: none
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

// RunFlags say how a run ended.
type RunFlags struct {
	Preempted bool // by event or error
	Returned  bool // its lease was returned
	Attempted bool // it failed, and not before it was tried
	Cancelled bool // its job was cancelled before its end was reported
}

// RunError is the error with which a run ended, once per run.
type RunError struct {
	Reason           string // member of Armada's Error.reason; empty: preempted, and no error came with it
	Message          string
	Category         string
	Subcategory      string
	KubernetesReason string // of a PodError
	Node             string // of a PodError
	PreemptReason    string // of a JobRunPreempted
	Containers       []Container
	Raw              []byte // Armada's Error as it stood in the event
}

// Container is one terminated container of a failed run's pod.
type Container struct {
	Name     string
	ExitCode int32
	Reason   string
	Message  string
}

// Place is where a partition's rows stand: after this envelope and its input,
// and after what was released beyond it.
type Place struct {
	Chain     chain.End
	Decisions eventlog.Position // of the last accepted envelope
	// Events is the last message that the rows took in: Chain.InTo, or the end of
	// a release beyond it.
	Events eventlog.Position
}

// Origin is where rows with these releases begin: one of no messages from the
// beginning says up to where another ingester took in the events before that.
// eventlog.Start: there was none.
func Origin(releases []*Release) eventlog.Position {
	for _, r := range releases {
		if r.From == eventlog.Start && r.Messages == 0 {
			return r.To
		}
	}
	return eventlog.Start
}

// Beginning is the place before everything.
var Beginning = Place{Chain: chain.Beginning, Decisions: eventlog.Start, Events: eventlog.Start}

// Release is a stretch of events that the rows took in before the chain answered
// them, as Armada has them without us (PROTOCOL 13). What the chain says of them
// later is superseded. Key: Partition, From.
type Release struct {
	Partition int
	Seq       uint64            // of the last accepted envelope when it was made
	From      eventlog.Position // exclusive: where the rows stood
	To        eventlog.Position // inclusive
	Messages  uint64            // in (From, To]; 0: Armada's own ingester had taken them in (package cutover)
	When      int64             // it was made, by its writer's clock
}

// Where is where a row that stems from a record stands. Key: Partition, Seq, Record.
type Where struct {
	Partition int
	Seq       uint64            // of the envelope
	Record    uint32            // place in the envelope, from 0
	Log       eventlog.Position // of the message in our log; the record names its origin's
	Recording string            // the recording that the message was fed from, if it was
	// Superseded: the message was released before the chain spoke of it, so the
	// record is kept and changed nothing.
	Superseded bool
}

// Decision is one decision. Key also: Partition, Number.
type Decision struct {
	Where
	Acted bool // it changed the job: neither in shadow nor overtaken nor superseded
	chain.Decision
}

// NotDecided is a failed run that was left alone.
type NotDecided struct {
	Where
	chain.NotDecided
}

// Parked is a message or event that could not be used.
type Parked struct {
	Where
	chain.Parked
}

// Ready is a retry whose old run is gone.
type Ready struct {
	Where
	Acted bool // it lowered the job's RetryAfter
	chain.RetryReady
}

// Activation puts a policy generation or a version of SEMANTICS into force,
// from the message after From on.
type Activation struct {
	Partition             int
	Seq                   uint64
	Record                uint32
	From                  eventlog.Position
	chain.PolicyActivated        // zero for a version of SEMANTICS
	Semantics             uint32 // 0 for a policy generation
}
