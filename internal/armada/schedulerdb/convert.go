package schedulerdb

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/armada/schedulerdb/pb"
	"github.com/refloat/refloat/internal/eventlog"
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
	*pb.EventSequence
	groups []byte // compressed, once needed
	at     time.Time
}

// Convert returns what a message of Armada's events topic does to the tables.
// What is in the way of a message, or of one of its events, is a Finding: nothing
// of that message, or of that event, is in the effects. They stand in the order in
// which they are to be applied.
func (c *Converter) Convert(m *eventlog.Message) ([]Effect, []Finding) {
	s := sequence{Converter: c, EventSequence: &pb.EventSequence{}}
	if err := s.decode(m.Payload); err != nil {
		return nil, []Finding{{Event: WholeMessage, Kind: Unreadable, Reason: err.Error()}}
	}
	var effects []Effect
	var findings []Finding
	for i, ev := range s.Events {
		s.at = timeOf(ev, m.MeantPublish())
		ops, err := s.event(ev)
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

func (s *sequence) decode(payload []byte) error {
	if err := proto.Unmarshal(payload, s.EventSequence); err != nil {
		return err
	}
	switch {
	case s.JobSetName == "":
		return errors.New("the message names no job set")
	case s.Queue == "":
		return errors.New("the message names no queue")
	case len(s.Events) == 0:
		return errors.New("the message has no events")
	}
	return nil
}

func timeOf(ev *pb.Event, publish int64) time.Time {
	if c := ev.GetCreated(); c != nil {
		return time.Unix(c.GetSeconds(), int64(c.GetNanos())).UTC()
	}
	return time.Unix(0, publish).UTC()
}

// event converts one event. Those that Armada's ingester passes over have no
// operations.
func (s *sequence) event(ev *pb.Event) ([]Op, error) {
	switch e := ev.Event.(type) {
	case *pb.Event_SubmitJob:
		return s.submit(e.SubmitJob)
	case *pb.Event_JobRunLeased:
		return s.leased(e.JobRunLeased)
	case *pb.Event_JobRequeued:
		return requeued(e.JobRequeued)
	case *pb.Event_JobRunErrors:
		return s.runErrors(e.JobRunErrors)
	case *pb.Event_PartitionMarker:
		return s.marker(e.PartitionMarker)
	case *pb.Event_JobValidated:
		return one(&SetValidated{JobID: e.JobValidated.GetJobId(), Pools: e.JobValidated.GetPools()})
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
	case *pb.Event_ReprioritiseJob:
		return one(&SetPriority{
			JobID: e.ReprioritiseJob.GetJobId(), Queue: s.Queue, JobSet: s.JobSetName,
			Priority: int64(e.ReprioritiseJob.GetPriority()), User: s.user(),
		})
	case *pb.Event_ReprioritiseJobSet:
		return one(&SetSetPriority{
			Queue: s.Queue, JobSet: s.JobSetName,
			Priority: int64(e.ReprioritiseJobSet.GetPriority()), User: s.user(),
		})
	case *pb.Event_CancelJob:
		return one(&RequestCancel{
			JobID: e.CancelJob.GetJobId(), Queue: s.Queue, JobSet: s.JobSetName,
			User: s.user(), Reason: cancelReason(e.CancelJob.GetReason()),
		})
	case *pb.Event_CancelJobSet:
		states := e.CancelJobSet.GetStates()
		all := len(states) == 0
		return one(&RequestSetCancel{
			Queue: s.Queue, JobSet: s.JobSetName,
			Queued: all || slices.Contains(states, pb.JobState_QUEUED),
			Leased: all || slices.Contains(states, pb.JobState_PENDING) || slices.Contains(states, pb.JobState_RUNNING),
			User:   s.user(), Reason: cancelReason(e.CancelJobSet.GetReason()),
		})
	case *pb.Event_JobPreemptionRequested:
		return one(&RequestPreemption{
			JobID: e.JobPreemptionRequested.GetJobId(), Queue: s.Queue, JobSet: s.JobSetName,
			User: s.user(), Reason: preemptReason(s.user(), e.JobPreemptionRequested.GetReason()),
		})
	}
	return nil, nil
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
func (s *sequence) user() string { return strings.TrimSpace(s.UserId) }

func (s *sequence) leased(e *pb.JobRunLeased) ([]Op, error) {
	if e.GetPodRequirementsOverlay() == nil {
		return nil, crashError("JobRunLeased has no pod_requirements_overlay")
	}
	run := &InsertRun{
		RunID: e.GetRunId(), JobID: e.GetJobId(), JobSet: s.JobSetName, Queue: s.Queue,
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
	var info pb.JobSchedulingInfo
	if err := proto.Unmarshal(raw, &info); err != nil {
		return nil, &unreadableError{"JobRequeued.scheduling_info", err}
	}
	return []Op{
		&SetQueued{JobID: e.GetJobId(), Queued: true, Version: e.GetUpdateSequenceNumber()},
		&SetSchedulingInfo{JobID: e.GetJobId(), Info: raw, Version: int32(info.GetVersion())},
	}, nil
}

// runErrors takes the first terminal error; without one, nothing happened.
func (s *sequence) runErrors(e *pb.JobRunErrors) ([]Op, error) {
	var first []byte
	fail := &FailRun{RunID: e.GetRunId(), At: s.at, Attempted: true}
	for i, raw := range e.GetErrors() {
		var it pb.Error
		if err := proto.Unmarshal(raw, &it); err != nil {
			return nil, &unreadableError{fmt.Sprintf("JobRunErrors.errors[%d]", i), err}
		}
		if first != nil || !it.GetTerminal() {
			continue
		}
		first = raw
		if r := it.GetPodLeaseReturned(); r != nil {
			fail.Returned, fail.Attempted = true, r.GetRunAttempted()
		}
	}
	if first == nil {
		return nil, nil
	}
	packed, err := s.pack.compress(first)
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
