package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// Causes that are not in a failure model.
const (
	Preempted = "Preempted" // by the scheduler
	Restarted = "Restarted" // with its gang; the run itself did not fail
	Stopped   = "Stopped"   // with its gang
)

// jobSet is that of all jobs.
const jobSet = "simulated"

// tell has Step fold and decide what happens now to jobs of a queue, and obeys.
func (s *sim) tell(queue int, happened ...*pb.Event) {
	if len(happened) == 0 || s.err != nil {
		return
	}
	at := begin().Add(s.now).UnixNano()
	for _, e := range happened {
		e.Created = &pb.Timestamp{Seconds: at / 1e9, Nanos: int32(at % 1e9)}
	}
	payload, err := proto.Marshal(&pb.EventSequence{Queue: s.o.Cluster.Queues[queue].Name, JobSetName: jobSet, Events: happened})
	if err != nil {
		s.err = fmt.Errorf("encode events: %w", err)
		return
	}
	s.position++
	s.count.messages++
	s.count.events += uint64(len(happened))
	m := &eventlog.Message{Position: eventlog.Position{Ledger: 1, Entry: s.position}, Publish: at, Payload: payload}
	out, err := s.p.Step(m)
	if err != nil {
		s.err = err
		return
	}
	if s.o.Observe != nil {
		s.o.Observe(m, out)
	}
	for _, r := range out.Records {
		s.obey(r)
	}
	for _, j := range s.ended { // only now: a later record of the message may have restarted a member
		s.settle(j)
	}
	s.ended = s.ended[:0]
	if s.p.State.Unflushed() >= flushAt && s.err == nil {
		s.err = s.flush()
	}
}

// flushAt is the number of changed jobs after which they move to the store, since only then the state lets go of what it has forgotten.
const flushAt = 1 << 12

// flush moves changes into the store. It invalidates what Step has returned.
func (s *sim) flush() error {
	batch := s.store.NewBatch()
	n, err := s.p.State.Flush(batch)
	if err != nil {
		return err
	}
	if err := s.store.Commit(batch, nil); err != nil {
		return err
	}
	s.p.State.Committed(n)
	return nil
}

// obey does what a record says.
func (s *sim) obey(r chain.Record) {
	switch r := r.(type) {
	case *chain.Parked:
		s.err = fmt.Errorf("message %d was parked: %s", s.position, r.Reason)
	case *chain.Decision:
		s.decided(r)
	case *chain.NotDecided:
		if j := s.jobs[r.JobID]; j != nil && j.cause != "" {
			s.count.failed(j, verdict{code: r.Reason.String()})
			j.cause = ""
		}
	case *chain.RetryReady:
		if j := s.jobs[r.JobID]; j != nil {
			s.touch(j)
			j.retryAfter = sinceBegin(r.RetryAfter)
		}
	case *chain.GroupFinding:
		if j := s.jobs[r.JobID]; j != nil && j.group != nil { // it is decided like any job
			j.group.members = slices.DeleteFunc(j.group.members, func(m *job) bool { return m == j })
			j.group = nil
		}
	case *chain.GroupEnded:
		if g := s.groupOf(r.Queue, r.Group); g != nil {
			g.over = true
			s.ended = append(s.ended, g.members...)
		}
	case *chain.MemberChange:
		if j := s.jobs[r.JobID]; j != nil {
			s.changed(j, r)
		}
	}
}

func sinceBegin(at int64) time.Duration { return time.Duration(at - begin().UnixNano()) }

func (s *sim) decided(d *chain.Decision) {
	j := s.jobs[d.JobID]
	if j == nil {
		return
	}
	again := d.Requeue && !d.Shadow
	s.touch(j)
	s.count.failed(j, verdict{d.Policy, d.Rule, d.Code.String(), again})
	j.cause = ""
	if !again {
		j.state = lost
		s.ended = append(s.ended, j)
		return
	}
	j.state, j.retryAfter = waiting, sinceBegin(d.RetryAfter)
	j.avoided = slices.Clone(d.AvoidNodes)
	s.count.avoided(j)
	s.requeue(j)
}

// requeue puts a job back into its queue. (One that ran until now has not left it.)
func (s *sim) requeue(j *job) {
	if !j.listed {
		s.alive[j.queue], j.listed = append(s.alive[j.queue], j), true
	}
	j.fitsNoNode = false
	s.count.samples.waits(j)
	s.wake(max(s.now+1, j.retryAfter))
}

// changed does what its group does with a member.
func (s *sim) changed(j *job, r *chain.MemberChange) {
	s.touch(j)
	switch r.Change {
	case chain.MemberHeld:
		if j.state == waiting {
			j.state = held
		}
	case chain.MemberReleased:
		if j.state == held {
			j.state = waiting
			s.wake(s.now + 1)
		}
	case chain.MemberRestart:
		switch j.state {
		case running:
			s.stop(j, waiting)
			s.count.wasted(j, Restarted)
		case done:
			s.count.undone(j)
			j.since = s.now
		case waiting, held, undecided, lost:
		}
		j.state, j.retryAfter = waiting, sinceBegin(r.RetryAfter)
		s.requeue(j)
	case chain.MemberStopped:
		if j.state == running {
			s.stop(j, lost)
			s.count.wasted(j, Stopped)
		}
		if j.state != done {
			j.state, j.ended = lost, s.now
		}
		s.ended = append(s.ended, j)
	}
}

// settle counts a job that is over; a member of a gang when all of them are, and one of a group when the group is, since
// they may run again until then.
func (s *sim) settle(j *job) {
	members := []*job{j}
	switch {
	case j.group != nil && !j.group.over || j.group == nil && j.gang != nil && j.gang.missing > 0:
		return
	case j.group == nil && j.gang != nil:
		members = j.gang.members
	}
	if slices.ContainsFunc(members, func(j *job) bool { return j.state != done && j.state != lost }) {
		return
	}
	for _, j := range members {
		if s.jobs[j.id] != nil {
			s.count.over(j)
			delete(s.jobs, j.id)
		}
	}
}

func (s *sim) submit(jobs []*job) {
	var happened []*pb.Event
	q := jobs[0].queue
	for _, j := range jobs {
		s.jobs[j.id], j.listed = j, true
		s.touch(j)
		s.alive[q] = append(s.alive[q], j)
		s.count.submitted(j)
		annotations, spec := map[string]string{}, &pb.PodSpec{}
		if g := j.given; g != nil {
			maps.Copy(annotations, g.Annotations)
			spec = g.podSpec()
			if g.Cancelled > 0 {
				s.add(due{at: max(g.Cancelled, s.now), what: cancels, job: j})
			}
		}
		if j.gang != nil {
			annotations[events.AnnotationGangID], annotations[events.AnnotationGangCardinality] = j.gang.id, strconv.Itoa(j.kind.JobsAtOnce)
		}
		happened = append(happened, &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{
			JobId: j.id, ObjectMeta: &pb.ObjectMeta{Annotations: annotations},
			MainObject: &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: spec}},
		}}})
	}
	s.tell(q, happened...)
}

func (g *Given) podSpec() *pb.PodSpec {
	spec := &pb.PodSpec{TerminationGracePeriodSeconds: g.GraceSeconds}
	for _, name := range g.InitContainers {
		spec.InitContainers = append(spec.InitContainers, &pb.Container{Name: name})
	}
	return spec
}

// runID names the last run of a job.
func (j *job) runID() string { return j.id + "-" + strconv.Itoa(j.runs) }

func leased(jobs []*job) (happened []*pb.Event) {
	for _, j := range jobs {
		happened = append(happened,
			&pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: j.id, RunId: j.runID(), NodeId: j.node.Name}}},
			&pb.Event{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: j.id, RunId: j.runID()}}})
	}
	return happened
}

func succeeded(j *job) []*pb.Event {
	return []*pb.Event{
		{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: j.id, RunId: j.runID()}}},
		{Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: j.id}}},
	}
}

// fail ends runs of a queue's jobs; no failure: they were preempted.
func (s *sim) fail(queue int, f *Failure, jobs ...*job) {
	var happened []*pb.Event
	for _, j := range jobs {
		if j.state != running {
			continue
		}
		s.stop(j, undecided)
		reported := &pb.Error{Terminal: true, Reason: &pb.Error_JobRunPreemptedError{JobRunPreemptedError: &pb.JobRunPreemptedError{}}}
		if j.cause = Preempted; f == nil || f.as.GetJobRunPreemptedError() != nil {
			happened = append(happened, &pb.Event{Event: &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: j.id, PreemptedRunId: j.runID()}}})
		} else {
			j.cause, reported = f.Cause, f.reported(j.node.Name)
		}
		happened = append(happened, &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: j.id, RunId: j.runID(), Errors: []*pb.Error{reported}}}})
	}
	s.tell(queue, happened...)
}

// reported is the error that Armada reports for a failure.
func (f *Failure) reported(node string) *pb.Error {
	if f.as != nil {
		e := proto.CloneOf(f.as)
		if pod := e.GetPodError(); pod != nil {
			pod.NodeName = node
		}
		return e
	}
	e := &pb.Error{Terminal: true, FailureCategory: f.Category, FailureSubcategory: f.Subcategory}
	pod := &pb.PodError{NodeName: node, Message: f.Message}
	c := &pb.ContainerError{ObjectMeta: &pb.ObjectMeta{Name: "main"}, ExitCode: f.ExitCode, Message: f.Message}
	condition, _ := policy.ParseCondition(f.Condition)
	switch condition {
	case policy.LeaseExpired:
		e.Reason = &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}
		return e
	case policy.Unschedulable, policy.LeaseReturned:
		e.Reason = &pb.Error_PodLeaseReturned{PodLeaseReturned: &pb.PodLeaseReturned{Message: f.Message, RunAttempted: condition == policy.LeaseReturned}}
		return e
	case policy.Evicted:
		pod.KubernetesReason = pb.KubernetesReason_EVICTED
	case policy.DeadlineExceeded:
		pod.KubernetesReason = pb.KubernetesReason_DEADLINE_EXCEEDED
	case policy.OOMKilled:
		c.Reason = condition.String()
	case policy.Preempted, policy.UnknownCondition:
	}
	if f.ExitCode != 0 || f.Message != "" || condition == policy.OOMKilled {
		pod.ContainerErrors = append(pod.ContainerErrors, c)
	}
	e.Reason = &pb.Error_PodError{PodError: pod}
	return e
}
