package events

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of an event as far as folding tells them apart.
type Kind uint8

// The kinds that semantics.md 1 names. Other is every kind that changes nothing:
// Armada's remaining ones, those that nobody knows yet, and an event without any.
const (
	Other Kind = iota
	SubmitJob
	CancelJob
	CancelJobSet
	CancelledJob
	JobSucceeded
	JobErrors
	RunLeased
	RunAssigned
	RunRunning
	RunSucceeded
	RunErrors
	RunPreempted
	RunTerminated // ours: the pod of the run is gone
	KnownRun      // ours: a run that Armada's tables have
	EndedRun      // ours: a run that Armada's tables have, which has ended
	JobOrder      // ours: an operator's order on a failed run
)

// NamesRun says whether an event of the kind must name a run.
func (k Kind) NamesRun() bool { return k >= RunLeased }

// NamesJob says whether an event of the kind must name a job.
func (k Kind) NamesJob() bool { return k != Other && k != CancelJobSet }

// Sequence is one message of the events topic.
type Sequence struct {
	Queue, JobSet string
	Events        []Event
}

// Resolve sets the time of each event, given the publish time of the message.
func (s *Sequence) Resolve(publish int64) {
	for i := range s.Events {
		s.Events[i].Time = s.Events[i].Created.Time(publish)
	}
}

// Event is one event. Its strings may share memory with the payload that it
// was read from, and what it points to belongs to the decoder: both hold until
// the decoder reads the next payload.
type Event struct {
	Kind    Kind
	Created Timestamp
	Time    int64 // t of the semantics in Unix nanoseconds, from Resolve on
	JobID   string
	RunID   string
	Node    string    // RunLeased, KnownRun, EndedRun: the node; RunRunning: the first node name among its resources
	States  JobStates // CancelJobSet
	Submit  *Submit   // SubmitJob, also one that is republished
	Order   *Order    // JobOrder
	Error   *Error    // JobErrors, RunErrors: the first terminal error; nil when none is terminal
	Raw     []byte    // the event's bytes in the payload
}

// Timestamp is google.protobuf.Timestamp, unchecked.
type Timestamp struct {
	Present bool // present and zero is a time: 1970-01-01
	Seconds int64
	Nanos   int32
}

// maxSkew is how far an event's time may be from its message's publish time (semantics.md, Terms).
const maxSkew = 5 * time.Minute

// Time is t of semantics.md in Unix nanoseconds: the timestamp, or the publish
// time when it is absent, held within five minutes of the publish time.
func (t Timestamp) Time(publish int64) int64 {
	if !t.Present {
		return publish
	}
	low, high := addSaturating(publish, -int64(maxSkew)), addSaturating(publish, int64(maxSkew))
	return min(max(t.unixNano(), low), high)
}

func (t Timestamp) unixNano() int64 {
	const limit = math.MaxInt64/int64(time.Second) - 3 // room for nanos of either sign
	switch {
	case t.Seconds > limit:
		return math.MaxInt64
	case t.Seconds < -limit:
		return math.MinInt64
	}
	return t.Seconds*int64(time.Second) + int64(t.Nanos)
}

func addSaturating(a, b int64) int64 {
	switch s := a + b; {
	case b > 0 && s < a:
		return math.MaxInt64
	case b < 0 && s > a:
		return math.MinInt64
	default:
		return s
	}
}

// JobStates is a set of Armada's job states, as CancelJobSet names them. The
// empty set means all.
type JobStates uint8

// The states of Armada's JobState; a number unknown to us is Foreign.
const (
	Queued JobStates = 1 << iota
	Pending
	Running
	Foreign
)

// Submit is what folding keeps of a SubmitJob.
type Submit struct {
	RetryPolicies   string // annotation armadaproject.io/retry-policy, as it stands
	FailFast        string // annotation armadaproject.io/failFast
	GangID          string // annotation armadaproject.io/gangId
	GangCardinality string // annotation armadaproject.io/gangCardinality
	Group           string // annotation refloat.github.io/group
	GroupPolicy     string // annotation refloat.github.io/group-policy
	Part            string // annotation refloat.github.io/part
	Replica         string // annotation refloat.github.io/replica
	Index           string // annotation refloat.github.io/index
	InitContainers  []string
	GraceSeconds    int64 // terminationGracePeriodSeconds; 0 when unset
}

// Clone returns a copy that shares no memory with the payload.
func (s *Submit) Clone() *Submit {
	c := *s
	for _, text := range []*string{
		&c.RetryPolicies, &c.FailFast, &c.GangID, &c.GangCardinality, &c.Group, &c.GroupPolicy, &c.Part, &c.Replica, &c.Index,
	} {
		*text = strings.Clone(*text)
	}
	c.InitContainers = slices.Clone(s.InitContainers)
	for i, name := range c.InitContainers {
		c.InitContainers[i] = strings.Clone(name)
	}
	return &c
}

// Order is an operator's order on a failed run (semantics.md 16).
type Order struct {
	ID             string // of the order: it is the same if the order is repeated
	Action         uint32 // policy.OrderAction
	Author, Reason string
	NotBefore      int64 // of a start: Unix nanoseconds
}

// Annotations of Armada's jobs.
const (
	AnnotationRetryPolicies       = "armadaproject.io/retry-policy"
	AnnotationFailFast            = "armadaproject.io/failFast"
	AnnotationGangID              = "armadaproject.io/gangId"
	AnnotationGangCardinality     = "armadaproject.io/gangCardinality"
	AnnotationGangUniformityLabel = "armadaproject.io/gangNodeUniformityLabel"
	AnnotationPriceBand           = "armadaproject.io/priceBand"
)

// Annotations that make a job a member of a group (semantics.md 12.1).
const (
	AnnotationGroup       = "refloat.github.io/group"
	AnnotationGroupPolicy = "refloat.github.io/group-policy"
	AnnotationPart        = "refloat.github.io/part"
	AnnotationReplica     = "refloat.github.io/replica"
	AnnotationIndex       = "refloat.github.io/index"
)

// kept are the annotations that folding keeps.
var kept = [...]string{
	AnnotationRetryPolicies, AnnotationFailFast, AnnotationGangID, AnnotationGangCardinality,
	AnnotationGroup, AnnotationGroupPolicy, AnnotationPart, AnnotationReplica, AnnotationIndex,
}

// Annotate keeps an annotation of the job, if folding does.
func (s *Submit) Annotate(key, value string) {
	switch key {
	case AnnotationRetryPolicies:
		s.RetryPolicies = value
	case AnnotationFailFast:
		s.FailFast = value
	case AnnotationGangID:
		s.GangID = value
	case AnnotationGangCardinality:
		s.GangCardinality = value
	case AnnotationGroup:
		s.Group = value
	case AnnotationGroupPolicy:
		s.GroupPolicy = value
	case AnnotationPart:
		s.Part = value
	case AnnotationReplica:
		s.Replica = value
	case AnnotationIndex:
		s.Index = value
	}
}

// Reason is the member of Armada's Error.reason.
type Reason uint8

// The reasons that semantics.md 1 and 2 tell apart; the others are OtherReason.
const (
	OtherReason Reason = iota
	PodError
	PodLeaseReturned
	LeaseExpired
	PreemptedError
	JobRejected
)

// KubernetesReason is PodError.kubernetes_reason; an unknown number is as AppError.
type KubernetesReason int32

// Armada's numbers.
const (
	AppError         KubernetesReason = 0
	PodEvicted       KubernetesReason = 1
	PodOOM           KubernetesReason = 2
	PodDeadlineError KubernetesReason = 3
)

// Error is the first terminal error of a JobRunErrors or JobErrors.
type Error struct {
	Reason           Reason
	Category         string
	Subcategory      string
	RunAttempted     bool             // PodLeaseReturned
	KubernetesReason KubernetesReason // PodError
	Node             string           // PodError
	Message          string           // PodError
	Containers       []ContainerError // PodError, in report order
}

// ContainerError is one terminated container of a PodError.
type ContainerError struct {
	Name     string
	ExitCode int32
	Reason   string
	Message  string
}

// ParkReason says why a message or an event was parked.
type ParkReason uint8

// The reasons. Their numbers stand in decision logs: never change one.
const (
	UnknownParkReason ParkReason = iota
	NotProtobuf
	NoQueue
	NoJobSet
	NoEvents
	NoJob
	NoRun
	// TooLarge: its records do not fit into a message of the decision log.
	TooLarge
)

var parkReasons = [...]string{"Unknown", "NotProtobuf", "NoQueue", "NoJobSet", "NoEvents", "NoJob", "NoRun", "TooLarge"}

// String is the reason's name, a metric label.
func (r ParkReason) String() string {
	if int(r) < len(parkReasons) {
		return parkReasons[r]
	}
	return fmt.Sprintf("ParkReason(%d)", uint8(r))
}

// Unreadable is the error of a payload that is no event sequence.
type Unreadable struct {
	Reason ParkReason
	Err    error // what protobuf said, for NotProtobuf
}

// Error says what is missing.
func (e *Unreadable) Error() string {
	switch e.Reason {
	case NoQueue:
		return "event sequence without a queue"
	case NoJobSet:
		return "event sequence without a job set"
	case NoEvents:
		return "event sequence without events"
	default:
		return fmt.Sprintf("not an event sequence: %v", e.Err)
	}
}

// Unwrap gives what protobuf said.
func (e *Unreadable) Unwrap() error { return e.Err }

// Missing is the reason to park an event that names no job or no run where
// its kind must, else UnknownParkReason.
func (e *Event) Missing() ParkReason {
	switch {
	case e.Kind.NamesJob() && e.JobID == "":
		return NoJob
	case e.Kind.NamesRun() && e.RunID == "":
		return NoRun
	}
	return UnknownParkReason
}
