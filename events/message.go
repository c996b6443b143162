package events

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// Message is a payload decoded whole, for consumers that need more of it than folding:
// the job database's rows and Armada's own tables. Its Sequence is the same as the one
// that a Decoder reads, and is valid for as long as the payload is not written to.
type Message struct {
	Sequence
	Full *pb.EventSequence // Full.Events[i] is all of Events[i] that the contract declares
}

// Read decodes a payload with protobuf-go. It returns an *Unreadable for what is no
// event sequence.
func Read(payload []byte) (*Message, error) {
	m := &Message{Full: &pb.EventSequence{}}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(payload, m.Full); err != nil {
		return nil, &Unreadable{Reason: NotProtobuf, Err: err}
	}
	m.Sequence = Sequence{Queue: m.Full.Queue, JobSet: m.Full.JobSetName, Events: make([]Event, len(m.Full.Events))}
	if err := m.check(); err != nil {
		return nil, err
	}
	i := 0
	eachBytes(payload, func(n protowire.Number, b []byte) {
		if n == fieldEvents {
			m.Events[i] = fromProto(m.Full.Events[i])
			m.Events[i].Raw = b
			i++
		}
	})
	return m, nil
}

func (s *Sequence) check() error {
	switch {
	case s.Queue == "":
		return &Unreadable{Reason: NoQueue}
	case s.JobSet == "":
		return &Unreadable{Reason: NoJobSet}
	case len(s.Events) == 0:
		return &Unreadable{Reason: NoEvents}
	}
	return nil
}

// Field numbers in events/pb/armada.proto.
const (
	fieldEvents       = 5  // EventSequence.events
	fieldSubmitJob    = 1  // Event.submit_job
	fieldJobRunErrors = 14 // Event.job_run_errors
	fieldRunErrors    = 3  // JobRunErrors.errors
)

// RawSubmit returns the SubmitJob of event i, verbatim from the payload.
func (m *Message) RawSubmit(i int) []byte {
	var raw []byte
	eachBytes(m.Events[i].Raw, func(n protowire.Number, b []byte) {
		if n == fieldSubmitJob {
			raw = b
		}
	})
	return raw
}

// RawError returns the error at index e of the JobRunErrors in event i, verbatim from
// the payload: protobuf-go would reorder it and drop unknown fields.
func (m *Message) RawError(i, e int) []byte {
	var found [][]byte
	eachBytes(m.Events[i].Raw, func(n protowire.Number, b []byte) {
		switch {
		case n == fieldJobRunErrors: // repeated members of a oneof are merged
			eachBytes(b, func(n protowire.Number, b []byte) {
				if n == fieldRunErrors {
					found = append(found, b)
				}
			})
		case isMember(n):
			found = nil // another member replaces it in the oneof
		}
	})
	if e >= len(found) {
		return nil
	}
	return found[e]
}

// isMember reports whether a field is a member of the oneof in our contract's Event.
func isMember(n protowire.Number) bool {
	field := (*pb.Event)(nil).ProtoReflect().Descriptor().Fields().ByNumber(n)
	return field != nil && field.ContainingOneof() != nil
}

// eachBytes visits the length-delimited fields of a message that was decoded before.
func eachBytes(b []byte, visit func(protowire.Number, []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(num, typ, b[n:])
		if size < 0 {
			return
		}
		if typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b[n:])
			visit(num, v)
		}
		b = b[n+size:]
	}
}

func fromProto(m *pb.Event) Event {
	ev := Event{}
	if m.Created != nil {
		ev.Created = Timestamp{Present: true, Seconds: m.Created.Seconds, Nanos: m.Created.Nanos}
	}
	switch e := m.Event.(type) {
	case *pb.Event_SubmitJob:
		ev.Kind, ev.JobID, ev.Submit = SubmitJob, e.SubmitJob.JobId, submitFromProto(e.SubmitJob)
	case *pb.Event_KnownJob:
		ev.Kind, ev.JobID, ev.Submit = SubmitJob, e.KnownJob.JobId, submitFromProto(e.KnownJob)
	case *pb.Event_CancelJob:
		ev.Kind, ev.JobID = CancelJob, e.CancelJob.JobId
	case *pb.Event_CancelJobSet:
		ev.Kind, ev.States = CancelJobSet, statesFromProto(e.CancelJobSet.States)
	case *pb.Event_CancelledJob:
		ev.Kind, ev.JobID = CancelledJob, e.CancelledJob.JobId
	case *pb.Event_JobSucceeded:
		ev.Kind, ev.JobID = JobSucceeded, e.JobSucceeded.JobId
	case *pb.Event_JobErrors:
		ev.Kind, ev.JobID, ev.Error = JobErrors, e.JobErrors.JobId, firstTerminal(e.JobErrors.Errors)
	default:
		runFromProto(m, &ev)
	}
	return ev
}

func runFromProto(m *pb.Event, ev *Event) {
	switch e := m.Event.(type) {
	case *pb.Event_JobRunLeased:
		ev.Kind, ev.JobID, ev.RunID, ev.Node = RunLeased, e.JobRunLeased.JobId, e.JobRunLeased.RunId, e.JobRunLeased.NodeId
	case *pb.Event_JobRunAssigned:
		ev.Kind, ev.JobID, ev.RunID = RunAssigned, e.JobRunAssigned.JobId, e.JobRunAssigned.RunId
	case *pb.Event_JobRunRunning:
		ev.Kind, ev.JobID, ev.RunID = RunRunning, e.JobRunRunning.JobId, e.JobRunRunning.RunId
		for _, info := range e.JobRunRunning.ResourceInfos {
			if node := info.GetPodInfo().GetNodeName(); node != "" {
				ev.Node = node
				break
			}
		}
	case *pb.Event_JobRunSucceeded:
		ev.Kind, ev.JobID, ev.RunID = RunSucceeded, e.JobRunSucceeded.JobId, e.JobRunSucceeded.RunId
	case *pb.Event_JobRunErrors:
		ev.Kind, ev.JobID, ev.RunID = RunErrors, e.JobRunErrors.JobId, e.JobRunErrors.RunId
		ev.Error = firstTerminal(e.JobRunErrors.Errors)
	case *pb.Event_JobRunPreempted:
		ev.Kind, ev.JobID, ev.RunID = RunPreempted, e.JobRunPreempted.PreemptedJobId, e.JobRunPreempted.PreemptedRunId
	case *pb.Event_JobRunTerminated:
		ev.Kind, ev.JobID, ev.RunID = RunTerminated, e.JobRunTerminated.JobId, e.JobRunTerminated.RunId
	case *pb.Event_KnownRun:
		ev.Kind, ev.JobID, ev.RunID, ev.Node = KnownRun, e.KnownRun.JobId, e.KnownRun.RunId, e.KnownRun.Node
	case *pb.Event_EndedRun:
		ev.Kind, ev.JobID, ev.RunID, ev.Node = EndedRun, e.EndedRun.JobId, e.EndedRun.RunId, e.EndedRun.Node
	case *pb.Event_JobOrder:
		o := e.JobOrder
		ev.Kind, ev.JobID, ev.RunID = JobOrder, o.JobId, o.RunId
		ev.Order = &Order{ID: o.OrderId, Action: o.Action, Author: o.Author, Reason: o.Reason, NotBefore: o.NotBefore}
	}
}

func submitFromProto(m *pb.SubmitJob) *Submit {
	s := &Submit{}
	for _, key := range kept {
		s.annotate(key, m.GetObjectMeta().GetAnnotations()[key])
	}
	spec := m.GetMainObject().GetPodSpec().GetPodSpec()
	s.GraceSeconds = spec.GetTerminationGracePeriodSeconds()
	for _, c := range spec.GetInitContainers() {
		s.InitContainers = append(s.InitContainers, c.Name)
	}
	return s
}

func statesFromProto(states []pb.JobState) JobStates {
	var set JobStates
	for _, s := range states {
		set |= stateOf(int32(s))
	}
	return set
}

func stateOf(n int32) JobStates {
	switch n {
	case int32(pb.JobState_QUEUED):
		return Queued
	case int32(pb.JobState_PENDING):
		return Pending
	case int32(pb.JobState_RUNNING):
		return Running
	}
	return Foreign
}

func firstTerminal(errors []*pb.Error) *Error {
	for _, e := range errors {
		if e.Terminal {
			return errorFromProto(e)
		}
	}
	return nil
}

func errorFromProto(m *pb.Error) *Error {
	e := &Error{Category: m.FailureCategory, Subcategory: m.FailureSubcategory}
	switch r := m.Reason.(type) {
	case *pb.Error_PodError:
		e.Reason = PodError
		e.Node, e.Message = r.PodError.NodeName, r.PodError.Message
		e.KubernetesReason = KubernetesReason(r.PodError.KubernetesReason)
		for _, c := range r.PodError.ContainerErrors {
			e.Containers = append(e.Containers, ContainerError{
				Name: c.GetObjectMeta().GetName(), ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message,
			})
		}
	case *pb.Error_PodLeaseReturned:
		e.Reason, e.RunAttempted = PodLeaseReturned, r.PodLeaseReturned.RunAttempted
	case *pb.Error_LeaseExpired:
		e.Reason = LeaseExpired
	case *pb.Error_JobRunPreemptedError:
		e.Reason = PreemptedError
	case *pb.Error_JobRejected:
		e.Reason = JobRejected
	}
	return e
}

// ReadError reads the bytes of one Armada Error, as a run's error is kept.
func ReadError(raw []byte) (*Error, error) {
	var m pb.Error
	if err := proto.Unmarshal(raw, &m); err != nil {
		return nil, &Unreadable{Reason: NotProtobuf, Err: err}
	}
	return errorFromProto(&m), nil
}
