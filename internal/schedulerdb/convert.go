package schedulerdb

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	schedulingpb "github.com/refloat/refloat/internal/schedulerdb/pb"
)

// Effect is one operation and the event that it comes from.
type Effect struct {
	Event int // its place in the message
	Op    Op
}

// Converter turns messages into operations. It keeps buffers from one message to
// the next, so it serves one goroutine.
type Converter struct {
	pack packer
}

// NewConverter makes a Converter.
func NewConverter() *Converter { return &Converter{} }

// sequence is one message being converted.
type sequence struct {
	*Converter
	*events.Message
	groups []byte // compressed, once needed
	at     time.Time
}

// Convert returns what a message of Armada's events topic does to the tables, in the
// order in which it is to be applied. Decoded is its payload; nil: Convert decodes it.
// Whatever prevents the conversion of the message, or of one of its events, is a
// Finding: the effects then contain nothing of that message, or of that event.
func (c *Converter) Convert(m *eventlog.Message, decoded *events.Message) ([]Effect, []Finding) {
	if decoded == nil {
		var err error
		if decoded, err = events.Read(m.Payload); err != nil {
			return nil, []Finding{{Event: WholeMessage, Kind: Unreadable, Reason: err.Error()}}
		}
	}
	s := sequence{Converter: c, Message: decoded}
	var effects []Effect
	var findings []Finding
	for i := range s.Events {
		ev := s.Full(i)
		s.at = timeOf(ev, m.OriginPublish())
		ops, err := s.event(i, ev)
		if unreadable := (*unreadableError)(nil); errors.As(err, &unreadable) {
			return nil, []Finding{{Event: WholeMessage, Kind: Unreadable, Reason: fmt.Sprintf("event %d: %v", i, err)}}
		}
		for _, op := range ops {
			if err != nil {
				break
			}
			err = Refused(op)
		}
		if err != nil {
			findings = append(findings, finding(i, err))
			continue
		}
		for _, op := range ops {
			effects = append(effects, Effect{Event: i, Op: op})
		}
	}
	return order(effects), findings
}

func timeOf(ev *pb.Event, publish int64) time.Time {
	if c := ev.GetCreated(); c != nil {
		return time.Unix(c.GetSeconds(), int64(c.GetNanos())).UTC()
	}
	return time.Unix(0, publish).UTC()
}

// event converts one event. Those that Armada's ingester ignores have no operations.
func (s *sequence) event(i int, ev *pb.Event) ([]Op, error) {
	switch e := ev.Event.(type) {
	case nil:
		return s.other(ev)
	case *pb.Event_SubmitJob:
		return s.submit(e.SubmitJob, s.RawSubmit(i))
	case *pb.Event_JobRunLeased:
		return s.leased(e.JobRunLeased)
	case *pb.Event_JobRequeued:
		return requeued(e.JobRequeued)
	case *pb.Event_JobRunErrors:
		return s.runErrors(i, e.JobRunErrors)
	case *pb.Event_JobRunAssigned:
		return s.mark(e.JobRunAssigned.GetRunId(), Pending)
	case *pb.Event_JobRunRunning:
		return s.mark(e.JobRunRunning.GetRunId(), Running)
	case *pb.Event_JobRunSucceeded:
		return s.mark(e.JobRunSucceeded.GetRunId(), Succeeded)
	case *pb.Event_JobRunPreempted:
		return s.mark(e.JobRunPreempted.GetPreemptedRunId(), Preempted)
	case *pb.Event_JobSucceeded:
		return one(&SucceedJob{JobID: e.JobSucceeded.GetJobId()})
	case *pb.Event_JobErrors:
		if !slices.ContainsFunc(e.JobErrors.GetErrors(), (*pb.Error).GetTerminal) {
			return nil, nil
		}
		return one(&FailJob{JobID: e.JobErrors.GetJobId()})
	case *pb.Event_CancelledJob:
		return one(&CancelJob{JobID: e.CancelledJob.GetJobId(), At: s.at})
	}
	return s.request(ev)
}

func one(op Op) ([]Op, error) { return []Op{op}, nil }

func (s *sequence) mark(run string, stage Stage) ([]Op, error) {
	return one(&MarkRun{RunID: run, Stage: stage, At: s.at})
}

// request converts what users ask for.
func (s *sequence) request(ev *pb.Event) ([]Op, error) {
	switch e := ev.Event.(type) {
	case *pb.Event_CancelJob:
		return one(&RequestCancel{
			JobID: e.CancelJob.GetJobId(), Queue: s.Queue, JobSet: s.JobSet,
			User: s.user(), Reason: cancelReason(e.CancelJob.GetReason()),
		})
	case *pb.Event_CancelJobSet:
		states := e.CancelJobSet.GetStates()
		all := len(states) == 0
		return one(&RequestSetCancel{
			Queue: s.Queue, JobSet: s.JobSet,
			Queued: all || slices.Contains(states, pb.JobState_QUEUED),
			Leased: all || slices.Contains(states, pb.JobState_PENDING) || slices.Contains(states, pb.JobState_RUNNING),
			User:   s.user(), Reason: cancelReason(e.CancelJobSet.GetReason()),
		})
	}
	return nil, nil
}

// other converts the events that only these tables know, which the contract declares
// as bytes.
func (s *sequence) other(ev *pb.Event) ([]Op, error) {
	switch {
	case ev.ReprioritiseJob != nil:
		var m pb.ReprioritiseJob
		if err := decode("ReprioritiseJob", ev.ReprioritiseJob, &m); err != nil {
			return nil, err
		}
		return one(&SetPriority{JobID: m.GetJobId(), Queue: s.Queue, JobSet: s.JobSet, Priority: int64(m.GetPriority()), User: s.user()})
	case ev.ReprioritiseJobSet != nil:
		var m pb.ReprioritiseJobSet
		if err := decode("ReprioritiseJobSet", ev.ReprioritiseJobSet, &m); err != nil {
			return nil, err
		}
		return one(&SetSetPriority{Queue: s.Queue, JobSet: s.JobSet, Priority: int64(m.GetPriority()), User: s.user()})
	case ev.JobPreemptionRequested != nil:
		var m pb.JobPreemptionRequested
		if err := decode("JobPreemptionRequested", ev.JobPreemptionRequested, &m); err != nil {
			return nil, err
		}
		return one(&RequestPreemption{
			JobID: m.GetJobId(), Queue: s.Queue, JobSet: s.JobSet,
			User: s.user(), Reason: preemptReason(s.user(), m.GetReason()),
		})
	case ev.JobValidated != nil:
		var m pb.JobValidated
		if err := decode("JobValidated", ev.JobValidated, &m); err != nil {
			return nil, err
		}
		return one(&SetValidated{JobID: m.GetJobId(), Pools: m.GetPools()})
	case ev.PartitionMarker != nil:
		var m pb.PartitionMarker
		if err := decode("PartitionMarker", ev.PartitionMarker, &m); err != nil {
			return nil, err
		}
		return s.marker(&m)
	}
	return nil, nil
}

// decode reads a part that the contract declares as bytes.
func decode(what string, raw []byte, m proto.Message) error {
	if err := proto.Unmarshal(raw, m); err != nil {
		return &unreadableError{what, err}
	}
	return nil
}

// cancelReason is the reason as Armada writes it.
func cancelReason(reason string) string {
	if reason == "" {
		return "cancelled by user"
	}
	return reason
}

func preemptReason(user, reason string) string {
	switch {
	case user == "":
		return reason
	case reason == "":
		return "Preempted by " + user
	}
	return "Preempted by " + user + " - " + reason
}

// user is who asked, as Armada writes it; empty if nobody is named.
func (s *sequence) user() string { return strings.TrimSpace(s.UserID) }

func (s *sequence) leased(e *pb.JobRunLeased) ([]Op, error) {
	if e.GetPodRequirementsOverlay() == nil {
		return nil, crashError("JobRunLeased has no pod_requirements_overlay")
	}
	run := &InsertRun{
		RunID: e.GetRunId(), JobID: e.GetJobId(), JobSet: s.JobSet, Queue: s.Queue,
		Executor: e.GetExecutorId(), Node: e.GetNodeId(), Pool: e.GetPool(),
		Leased: s.at, Created: s.at.UnixNano(), PodRequirementsOverlay: e.GetPodRequirementsOverlay(),
	}
	if e.GetHasScheduledAtPriority() {
		run.ScheduledAtPriority = new(e.GetScheduledAtPriority())
	}
	return []Op{run, &SetQueued{JobID: e.GetJobId(), Version: e.GetUpdateSequenceNumber()}}, nil
}

func requeued(e *pb.JobRequeued) ([]Op, error) {
	raw := e.GetSchedulingInfo()
	if raw == nil {
		return nil, crashError("JobRequeued has no scheduling_info")
	}
	var info schedulingpb.JobSchedulingInfo
	if err := decode("JobRequeued.scheduling_info", raw, &info); err != nil {
		return nil, err
	}
	return []Op{
		&SetQueued{JobID: e.GetJobId(), Queued: true, Version: e.GetUpdateSequenceNumber()},
		&SetSchedulingInfo{JobID: e.GetJobId(), Info: raw, Version: int32(info.GetVersion())},
	}, nil
}

// runErrors takes the first terminal error; without one, nothing happened.
func (s *sequence) runErrors(i int, e *pb.JobRunErrors) ([]Op, error) {
	first := slices.IndexFunc(e.GetErrors(), (*pb.Error).GetTerminal)
	if first < 0 {
		return nil, nil
	}
	fail := &FailRun{RunID: e.GetRunId(), At: s.at, Attempted: true}
	if r := e.GetErrors()[first].GetPodLeaseReturned(); r != nil {
		fail.Returned, fail.Attempted = true, r.GetRunAttempted()
	}
	packed, err := s.pack.compress(s.RawError(i, first))
	if err != nil {
		return nil, err
	}
	return []Op{&InsertRunError{RunID: e.GetRunId(), JobID: e.GetJobId(), Error: packed}, fail}, nil
}

func (s *sequence) marker(e *pb.PartitionMarker) ([]Op, error) {
	m := &InsertMarker{Partition: int32(e.GetPartition()), Created: s.at}
	if !parseUUID(&m.Group, e.GetGroupId()) {
		return nil, crashError(fmt.Sprintf("PartitionMarker.group_id %q is no UUID", e.GetGroupId()))
	}
	return one(m)
}

// parseUUID takes the forms that Armada's library takes: plain, with urn:uuid:
// before it, in braces, and without hyphens.
func parseUUID(id *[16]byte, text string) bool {
	switch len(text) {
	case 45:
		if !strings.EqualFold(text[:9], "urn:uuid:") {
			return false
		}
		text = text[9:]
	case 38:
		text = text[1:37] // whatever stands for the braces
	case 32:
		n, err := hex.Decode(id[:], []byte(text))
		return err == nil && n == len(id)
	}
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return false
	}
	n, err := hex.Decode(id[:], []byte(text[:8]+text[9:13]+text[14:18]+text[19:23]+text[24:]))
	return err == nil && n == len(id)
}
