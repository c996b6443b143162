package simulate

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policylog"
)

// sequence is what happens to jobs of a queue at a time, as a Decoder reads it from payload. It uses its memory again and again.
type sequence struct {
	events.Sequence
	created events.Timestamp
	of      []happening // by event
	submits []events.Submit
	errors  []events.Error
	known   map[*Failure]*events.Error // of the model
}

// happening is what an event was made of.
type happening struct {
	job     *job
	failure *Failure
}

// begin begins a message about jobs of a queue at a time.
func (s *sequence) begin(queue string, at time.Time) {
	s.Sequence = events.Sequence{Queue: queue, JobSet: jobSet, Events: s.Events[:0]}
	s.created = events.Timestamp{Present: true, Seconds: at.Unix(), Nanos: int32(at.Nanosecond())}
	s.of, s.submits, s.errors = s.of[:0], s.submits[:0], s.errors[:0]
}

// add adds an event of a job, or of its last run.
func (s *sequence) add(kind events.Kind, j *job) *events.Event {
	s.Events, s.of = append(s.Events, events.Event{Kind: kind, Created: s.created, JobID: j.id}), append(s.of, happening{job: j})
	e := &s.Events[len(s.Events)-1]
	if kind.NamesRun() {
		e.RunID = j.run
	}
	return e
}

func (s *sequence) submitted(j *job) {
	var own events.Submit
	if g := j.given; g != nil {
		for name, value := range g.Annotations { //house:sorted each by itself
			own.Annotate(name, value)
		}
		own.GraceSeconds, own.InitContainers = g.GraceSeconds, g.InitContainers
	}
	if j.gang != nil {
		own.GangID, own.GangCardinality = j.gang.id, strconv.Itoa(j.kind.JobsAtOnce)
	}
	s.submits = append(s.submits, own) // if it moves, earlier ones stay where they were
	s.add(events.SubmitJob, j).Submit = &s.submits[len(s.submits)-1]
}

func (s *sequence) leased(j *job) {
	s.add(events.RunLeased, j).Node = j.node.Name
	if !j.pending {
		s.add(events.RunRunning, j)
	}
}

func (s *sequence) succeeded(j *job) {
	s.add(events.RunSucceeded, j)
	s.add(events.JobSucceeded, j)
}

func (s *sequence) cancelled(j *job) {
	s.add(events.CancelJob, j)
	s.add(events.CancelledJob, j)
}

func (s *sequence) preempted(j *job) { s.add(events.RunPreempted, j) }

// ordered adds the guard's order on a job's last run, by whose name the order goes.
func (s *sequence) ordered(j *job, action policy.OrderAction, notBefore int64) {
	s.add(events.JobOrder, j).Order = &events.Order{ID: j.run, Action: uint32(action), Author: policylog.Guard, NotBefore: notBefore}
}

// failed adds the error of a job's last run, as Armada reports it; no failure: it was preempted.
func (s *sequence) failed(j *job, f *Failure) error {
	e := s.add(events.RunErrors, j)
	s.of[len(s.of)-1].failure = f
	known := s.known[f]
	if known == nil {
		full := reported(f, j.node.Name)
		if !full.GetTerminal() {
			return nil
		}
		raw, err := proto.Marshal(full)
		if err == nil {
			known, err = events.ReadError(raw)
		}
		if err != nil {
			return err
		}
		if s.known == nil {
			s.known = map[*Failure]*events.Error{}
		}
		if f == nil || f.as == nil {
			s.known[f] = known
		}
	}
	s.errors = append(s.errors, *known)
	e.Error = &s.errors[len(s.errors)-1]
	if e.Error.Reason == events.PodError {
		e.Error.Node = j.node.Name
	}
	return nil
}

// payload is the message as it would stand in the log.
func (s *sequence) payload() ([]byte, error) {
	out := &pb.EventSequence{Queue: s.Queue, JobSetName: s.JobSet}
	for i := range s.Events {
		e := s.full(i)
		e.Created = &pb.Timestamp{Seconds: s.created.Seconds, Nanos: s.created.Nanos}
		out.Events = append(out.Events, e)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode what happens to jobs of queue %s: %w", s.Queue, err)
	}
	return b, nil
}

// full is an event, but for its time.
func (s *sequence) full(i int) *pb.Event {
	e, of := &s.Events[i], s.of[i]
	job, run := e.JobID, e.RunID
	switch e.Kind {
	case events.SubmitJob:
		return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: submission(of.job)}}
	case events.RunLeased:
		return &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run, NodeId: e.Node}}}
	case events.RunRunning:
		return &pb.Event{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: job, RunId: run}}}
	case events.RunSucceeded:
		return &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: run}}}
	case events.JobSucceeded:
		return &pb.Event{Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: job}}}
	case events.CancelJob:
		return &pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: job}}}
	case events.CancelledJob:
		return &pb.Event{Event: &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: job}}}
	case events.RunPreempted:
		return &pb.Event{Event: &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: job, PreemptedRunId: run}}}
	case events.RunErrors:
		return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{reported(of.failure, of.job.node.Name)}}}}
	case events.JobOrder:
		o := e.Order
		return &pb.Event{Event: &pb.Event_JobOrder{JobOrder: &pb.JobOrder{JobId: job, RunId: run, OrderId: o.ID, Action: o.Action, Author: o.Author, NotBefore: o.NotBefore}}}
	default:
		panic("simulate: an event that nothing adds")
	}
}

func submission(j *job) *pb.SubmitJob {
	annotations, spec := map[string]string{}, &pb.PodSpec{}
	if g := j.given; g != nil {
		maps.Copy(annotations, g.Annotations)
		spec.TerminationGracePeriodSeconds = g.GraceSeconds
		for _, name := range g.InitContainers {
			spec.InitContainers = append(spec.InitContainers, &pb.Container{Name: name})
		}
	}
	if j.gang != nil {
		annotations[events.AnnotationGangID], annotations[events.AnnotationGangCardinality] = j.gang.id, strconv.Itoa(j.kind.JobsAtOnce)
	}
	return &pb.SubmitJob{
		JobId: j.id, ObjectMeta: &pb.ObjectMeta{Annotations: annotations},
		MainObject: &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: spec}},
	}
}

// reported is the error of a run on a node; no failure: it was preempted.
func reported(f *Failure, node string) *pb.Error {
	switch {
	case f == nil:
		return &pb.Error{Terminal: true, Reason: &pb.Error_JobRunPreemptedError{JobRunPreemptedError: &pb.JobRunPreemptedError{}}}
	case f.as != nil:
		e := proto.CloneOf(f.as)
		if pod := e.GetPodError(); pod != nil {
			pod.NodeName = node
		}
		return e
	}
	of := suite.Failure{Category: f.Category, Sub: f.Subcategory, Node: node, PodMessage: f.Message}
	if condition, _ := policy.ParseCondition(f.Condition); condition != policy.UnknownCondition {
		of.Conditions = []policy.Condition{condition}
	}
	if f.ExitCode != 0 || f.Message != "" {
		of.Containers = []policy.Container{{Name: suite.MainContainer, ExitCode: f.ExitCode, Message: f.Message}}
	}
	return of.Report()
}
