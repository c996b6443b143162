package suite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/policy/policyfile"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// Trial is one job whose runs fail as specified, decided by the evaluator's Step.
type Trial struct {
	job     Job
	set     *policyfile.Set
	p       *evaluator.Processor
	entry   int64 // of the last message
	runs    int
	earlier []audit.Earlier
}

// Outcome is the outcome of one failed run.
type Outcome struct {
	Decision   *chain.Decision   // nil: it was not decided
	NotDecided *chain.NotDecided // why not
	Why        evaluator.Explanation
	Time       int64 // when it failed, Unix nanoseconds
}

// NewTrial submits the job at a time in Unix nanoseconds.
func NewTrial(set *policyfile.Set, job Job, at int64) (*Trial, error) {
	fill := func(s *string, unset string) {
		if *s == "" {
			*s = unset
		}
	}
	fill(&job.ID, "job")
	fill(&job.Queue, "default")
	fill(&job.Set, "trial")
	state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, set.Horizon().Nanoseconds())
	if err != nil {
		return nil, err
	}
	t := &Trial{job: job, p: &evaluator.Processor{State: state}}
	t.p.Activate([]chain.Record{&chain.SemanticsActivated{Version: evaluator.DefaultSemantics}})
	t.Use(set)
	_, err = t.step(at, &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: job.submit()}})
	return t, err
}

// Use puts other policies in force.
func (t *Trial) Use(set *policyfile.Set) {
	t.set = set
	generation := t.p.Progress.Generation + 1
	t.p.Activate([]chain.Record{&chain.PolicyActivated{Generation: generation, Digest: set.Digest(), HorizonMS: set.Horizon().Milliseconds()}})
	t.p.Rules = evaluator.Rules{Generation: generation, Set: set.Set}
}

func (j *Job) submit() *pb.SubmitJob {
	annotations := map[string]string{}
	if len(j.RetryPolicies) > 0 {
		annotations["armadaproject.io/retry-policy"] = j.annotation()
	}
	if j.FailFast {
		annotations["armadaproject.io/failFast"] = "true"
	}
	if j.Gang > 0 {
		annotations["armadaproject.io/gangId"] = "gang"
		annotations["armadaproject.io/gangCardinality"] = strconv.Itoa(j.Gang)
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
		row.Submit.GangID, row.Submit.GangCardinality = "gang", strconv.Itoa(j.Gang)
	}
	return row
}

// Fail starts the next run of the job and fails it at a time in Unix nanoseconds, and returns the outcome.
func (t *Trial) Fail(f *Failure, at int64) (Outcome, error) {
	run := f.Run
	if run == "" {
		run = "run-" + strconv.Itoa(t.runs)
	}
	reported := f.error()
	raw, err := proto.Marshal(reported)
	if err != nil {
		return Outcome{}, fmt.Errorf("encode the error: %w", err)
	}
	begun := []*pb.Event{{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: t.job.ID, RunId: run, NodeId: f.Node}}}}
	if f.attempted() {
		begun = append(begun, &pb.Event{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: t.job.ID, RunId: run}}})
	}
	if _, err := t.step(at, begun...); err != nil {
		return Outcome{}, err
	}
	var ended []*pb.Event
	if f.has(policy.Preempted) {
		ended = append(ended, &pb.Event{Event: &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: t.job.ID, PreemptedRunId: run}}})
	}
	ended = append(ended, &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: t.job.ID, RunId: run, Errors: []*pb.Error{reported}}}})
	records, err := t.step(at, ended...)
	if err != nil {
		return Outcome{}, err
	}
	t.runs++
	return t.outcome(records, f, run, raw, at)
}

// outcome finds the record of the run, and explains it.
func (t *Trial) outcome(records []chain.Record, f *Failure, run string, raw []byte, at int64) (Outcome, error) {
	out := Outcome{Time: at}
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
			return out, fmt.Errorf("run %s was used before: give each run a unique id", run)
		}
		return out, nil
	}
	row := &jobdb.Run{JobID: t.job.ID, RunID: run, Index: out.Decision.RunIndex, Node: f.Node}
	row.Flags.Preempted = f.has(policy.Preempted)
	row.Flags.Returned = f.has(policy.Unschedulable) || f.has(policy.LeaseReturned)
	row.Flags.Attempted = f.attempted()
	row.Error.Raw = raw
	var err error
	out.Why, err = audit.Explain(t.set.Set, audit.Case{Job: t.job.row(), Run: row, Decision: out.Decision, Earlier: t.earlier})
	t.earlier = append(t.earlier, audit.Earlier{Decision: out.Decision, Run: row})
	return out, err
}

// step processes one message, in which everything happens at the same time.
func (t *Trial) step(at int64, happened ...*pb.Event) ([]chain.Record, error) {
	created := &pb.Timestamp{Seconds: at / 1e9, Nanos: int32(at % 1e9)}
	for _, e := range happened {
		e.Created = created
	}
	payload, err := proto.Marshal(&pb.EventSequence{Queue: t.job.Queue, JobSetName: t.job.Set, Events: happened})
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
