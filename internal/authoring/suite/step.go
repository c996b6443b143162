package suite

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// fill sets what the test leaves open.
func (j *Job) fill() {
	j.Queue, j.Set = cmp.Or(j.Queue, "default"), cmp.Or(j.Set, "trial")
}

func (j *Job) submit() *pb.SubmitJob {
	annotations := map[string]string{}
	if len(j.RetryPolicies) > 0 {
		annotations[events.AnnotationRetryPolicies] = j.annotation()
	}
	if j.FailFast {
		annotations[events.AnnotationFailFast] = "true"
	}
	if j.Gang > 0 {
		annotations[events.AnnotationGangID] = j.gangID()
		annotations[events.AnnotationGangCardinality] = strconv.Itoa(j.Gang)
	}
	if m := j.member; m != nil {
		annotations[events.AnnotationGroup], annotations[events.AnnotationGroupPolicy] = groupName, m.policy
		annotations[events.AnnotationPart] = m.part
		annotations[events.AnnotationReplica] = strconv.FormatUint(uint64(m.replica), 10)
		annotations[events.AnnotationIndex] = strconv.FormatUint(uint64(m.index), 10)
	}
	spec := &pb.PodSpec{TerminationGracePeriodSeconds: j.GraceSeconds}
	for _, name := range j.InitContainers {
		spec.InitContainers = append(spec.InitContainers, &pb.Container{Name: name})
	}
	return &pb.SubmitJob{
		JobId: j.ID, ObjectMeta: &pb.ObjectMeta{Annotations: annotations},
		MainObject: &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: spec}},
	}
}

func (j *Job) gangID() string { return cmp.Or(j.gang, "gang") }

func (j *Job) annotation() string { return strings.Join(j.RetryPolicies, ",") }

// row returns the job as a row of a job database.
func (j *Job) row() *jobdb.Job {
	row := &jobdb.Job{
		JobID: j.ID, Queue: j.Queue, JobSet: j.Set, Known: true,
		Submit: jobdb.Submit{RetryPolicies: j.annotation(), InitContainers: j.InitContainers, GraceSeconds: j.GraceSeconds},
	}
	if j.FailFast {
		row.Submit.FailFast = "true"
	}
	if j.Gang > 0 {
		row.Submit.GangID, row.Submit.GangCardinality = j.gangID(), strconv.Itoa(j.Gang)
	}
	return row
}

// started returns the events of a run that was leased and, if it runs at once, that.
func started(job, run, node string, runs bool) []*pb.Event {
	all := []*pb.Event{{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run, NodeId: node}}}}
	if runs {
		all = append(all, running(job, run))
	}
	return all
}

func running(job, run string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: job, RunId: run}}}
}

// runningOn reports that a run is running on a node.
func runningOn(node, job, run string) *pb.Event {
	e := running(job, run)
	e.GetJobRunRunning().ResourceInfos = []*pb.KubernetesResourceInfo{{Info: &pb.KubernetesResourceInfo_PodInfo{PodInfo: &pb.PodInfo{NodeName: node}}}}
	return e
}

// events returns the events by which a run fails, and the encoding of its error.
func (f *Failure) events(job, run string) (all []*pb.Event, raw []byte, err error) {
	reported := f.Report()
	if raw, err = proto.Marshal(reported); err != nil {
		return nil, nil, fmt.Errorf("encode the error: %w", err)
	}
	if f.has(policy.Preempted) {
		all = append(all, &pb.Event{Event: &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: job, PreemptedRunId: run}}})
	}
	return append(all, &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{reported}}}}), raw, nil
}

// failed is a run that failed.
type failed struct {
	*Failure
	run string
	raw []byte
	at  int64
}

// explained finds the record of a run among those of its message, and explains it. It adds the decision to the
// earlier ones of its job.
func (t *Trial) explained(m *member, records []chain.Record, f failed) (Outcome, error) {
	out := Outcome{Time: f.at}
	for _, r := range records {
		switch r := r.(type) {
		case *chain.NotDecided:
			out.NotDecided = r
		case *chain.Decision:
			d := *r
			d.AvoidNodes, d.Skipped = slices.Clone(d.AvoidNodes), slices.Clone(d.Skipped)
			out.Decision = &d
		}
	}
	if out.Decision == nil {
		if out.NotDecided == nil {
			return out, fmt.Errorf("run %s was used before: give each run a unique id", f.run)
		}
		return out, nil
	}
	row := &jobdb.Run{JobID: m.job.ID, RunID: f.run, Index: out.Decision.RunIndex, Node: f.Node}
	row.Flags.Preempted = f.has(policy.Preempted)
	row.Flags.Returned = f.has(policy.Unschedulable) || f.has(policy.LeaseReturned)
	row.Flags.Attempted = f.attempted()
	row.Error.Raw = f.raw
	if f.RunDuration != nil {
		row.Times.Running = f.at - f.RunDuration.Nanoseconds()
	}
	var err error
	if audit.Asked(out.Decision) {
		out.Why, err = audit.Explain(t.set.Set, audit.Case{Job: m.job.row(), Run: row, Decision: out.Decision, Earlier: m.earlier})
	}
	m.earlier = append(m.earlier, audit.Earlier{Decision: out.Decision, Run: row})
	return out, err
}

// step processes one message, in which everything happens at the same time.
func (t *Trial) step(at int64, happened ...*pb.Event) ([]chain.Record, error) {
	created := &pb.Timestamp{Seconds: at / 1e9, Nanos: int32(at % 1e9)}
	for _, e := range happened {
		e.Created = created
	}
	payload, err := proto.Marshal(&pb.EventSequence{Queue: t.queue, JobSetName: t.jobSet, Events: happened})
	if err != nil {
		return nil, fmt.Errorf("encode events: %w", err)
	}
	t.entry++
	out, err := t.p.Step(&eventlog.Message{Position: eventlog.Position{Ledger: 1, Entry: t.entry}, Publish: at, Payload: payload})
	if err != nil {
		return nil, err
	}
	for _, r := range out.Records {
		if parked, ok := r.(*chain.Parked); ok {
			return nil, fmt.Errorf("encode events: %s", parked.Reason)
		}
	}
	return out.Records, nil
}
