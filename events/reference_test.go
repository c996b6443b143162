package events

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// reference reads a payload with protobuf-go.
func reference(payload []byte) (*Sequence, *pb.EventSequence, error) {
	m := &pb.EventSequence{}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(payload, m); err != nil {
		return nil, nil, &Unreadable{Reason: NotProtobuf, Err: err}
	}
	s := &Sequence{Queue: m.Queue, JobSet: m.JobSetName, Events: make([]Event, len(m.Events))}
	if err := s.check(); err != nil {
		return nil, nil, err
	}
	i := 0
	eachBytes(payload, func(n protowire.Number, b []byte) {
		if n == fieldEvents {
			s.Events[i] = fromProto(m.Events[i])
			s.Events[i].Raw = b
			i++
		}
	})
	return s, m, nil
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
		s.Annotate(key, m.GetObjectMeta().GetAnnotations()[key])
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
