// Package conformance drives whole workloads through the evaluator: jobs are submitted, leased,
// fail and succeed at times that a test chooses, and the evaluator's Step decides under the newest
// version of the semantics. A Driver refuses what Armada would not do: it starts no member that is held,
// stopped or waits for its retry time.
package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/projection"
)

// Semantics is the version of the semantics that a Driver decides by.
const Semantics = evaluator.SemanticsVersion

// Job is one job as armadactl submits it.
type Job struct {
	ID             string // "": part-replica-index of its annotations, or job-N
	Annotations    map[string]string
	InitContainers []string
	GraceSeconds   int64
}

// Failure is how a run fails.
type Failure struct {
	ExitCode  int32            // of the container; 0: none is reported
	Container string           // "": main
	Message   string           // its termination message
	Condition policy.Condition // UnknownCondition: none
	Others    []Exit           // of other containers
}

// Exit is how a container ended.
type Exit struct {
	Container string
	Code      int32
}

// State is what a job does.
type State string

// The states of a job.
const (
	Queued    State = "queued" // it may start from its retry time on
	Held      State = "held"
	Running   State = "running"
	Succeeded State = "succeeded"
	Failed    State = "failed" // for good
	Stopped   State = "stopped"
)

// JobView is a job as the driver sees it.
type JobView struct {
	ID         string
	Part       string
	Replica    int
	Index      int
	State      State
	Runs       int
	RetryAfter time.Time // of a queued job; zero: at once
	Decided    []*chain.Decision
	Gang       string
}

// GroupView is a group as its records show it.
type GroupView struct {
	Name     string
	Policy   string
	State    policy.GroupState
	Reason   policy.UnitReason
	Rule     string
	Restarts int // of the whole group, a part or a unit by the group's rules
	Counted  int // of them, those that count
	Units    map[string]*UnitView
}

// UnitView is a unit that ended or ran again, named part/replica.
type UnitView struct {
	Generation int
	Restarts   int // by the part's own restarts
	Reason     policy.UnitReason
	Action     policy.GroupAction // of its last end
	Rule       string
}

// Driver is one partition of events with an evaluator.
type Driver struct {
	Queue, JobSet string
	Now           time.Time
	Messages      []eventlog.Message // those so far

	p       *evaluator.Processor
	entry   int64
	jobs    map[string]*JobView
	order   []string
	groups  map[string]*GroupView
	records []string
	last    int // records before the last message
}

// New returns a driver with these policies in force, at a fixed time.
func New(set *policyfile.Set, queue, jobSet string) (*Driver, error) {
	state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, set.Horizon().Nanoseconds())
	if err != nil {
		return nil, err
	}
	d := &Driver{
		Queue: queue, JobSet: jobSet, Now: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC),
		p: &evaluator.Processor{State: state}, jobs: map[string]*JobView{}, groups: map[string]*GroupView{},
	}
	d.p.Rules = evaluator.Rules{Generation: 1, Set: set.Set}
	d.p.Activate([]chain.Record{
		&chain.SemanticsActivated{Version: Semantics},
		evaluator.Activation(1, set.Set, Semantics),
	})
	return d, nil
}

// Advance lets time pass.
func (d *Driver) Advance(by time.Duration) { d.Now = d.Now.Add(by) }

// Submit submits jobs in one message.
func (d *Driver) Submit(jobs ...Job) error {
	var happened []*pb.Event
	for _, j := range jobs {
		number := func(key string) int { n, _ := strconv.Atoi(j.Annotations[key]); return n }
		v := &JobView{
			ID: j.ID, Part: j.Annotations[events.AnnotationPart], Replica: number(events.AnnotationReplica),
			Index: number(events.AnnotationIndex), State: Queued, Gang: j.Annotations[events.AnnotationGangID],
		}
		if v.ID == "" && v.Part != "" {
			v.ID = Name(v.Part, v.Replica, v.Index)
		} else if v.ID == "" {
			v.ID = "job-" + strconv.Itoa(len(d.jobs))
		}
		if d.jobs[v.ID] != nil {
			return fmt.Errorf("job %s is submitted twice", v.ID)
		}
		d.jobs[v.ID], d.order = v, append(d.order, v.ID)
		spec := &pb.PodSpec{TerminationGracePeriodSeconds: j.GraceSeconds}
		for _, name := range j.InitContainers {
			spec.InitContainers = append(spec.InitContainers, &pb.Container{Name: name})
		}
		happened = append(happened, &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{
			JobId: v.ID, ObjectMeta: &pb.ObjectMeta{Annotations: maps.Clone(j.Annotations)},
			MainObject: &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: spec}},
		}}})
	}
	return d.step(happened...)
}

// Name is the id that Submit gives to a member without one.
func Name(part string, replica, index int) string {
	return fmt.Sprintf("%s-%d-%d", part, replica, index)
}

// Jobs returns all jobs, in order of submission.
func (d *Driver) Jobs() []*JobView {
	var out []*JobView
	for _, id := range d.order {
		out = append(out, d.jobs[id])
	}
	return out
}

// Job returns a job, or nil.
func (d *Driver) Job(id string) *JobView { return d.jobs[id] }

// Group returns a group, or nil if no record names it.
func (d *Driver) Group(name string) *GroupView { return d.groups[name] }

// Startable returns the jobs that may start now, in order of submission.
func (d *Driver) Startable() (ids []string) {
	for _, j := range d.Jobs() {
		if d.mayStart(j) {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

func (d *Driver) mayStart(j *JobView) bool {
	return j.State == Queued && !j.RetryAfter.After(d.Now)
}

// NextStart returns the earliest time at which a queued job may start, and false if none is queued.
func (d *Driver) NextStart() (time.Time, bool) {
	var first time.Time
	found := false
	for _, j := range d.jobs {
		if j.State == Queued && (!found || j.RetryAfter.Before(first)) {
			first, found = j.RetryAfter, true
		}
	}
	return first, found
}

// Start leases jobs to a node each, and their pods run. Members of a gang start together.
func (d *Driver) Start(ids ...string) error {
	var happened []*pb.Event
	for _, id := range ids {
		j, err := d.job(id)
		if err != nil {
			return err
		}
		switch {
		case j.State != Queued:
			return fmt.Errorf("job %s may not start: it is %s", id, j.State)
		case slices.ContainsFunc(d.Jobs(), func(o *JobView) bool { return o.Gang != "" && o.Gang == j.Gang && !slices.Contains(ids, o.ID) }):
			return fmt.Errorf("job %s may not start without the rest of its gang", id)
		case !d.mayStart(j):
			return fmt.Errorf("job %s may not start before %s", id, j.RetryAfter.Format(time.DateTime))
		}
		j.Runs++
		j.State = Running
		happened = append(happened,
			&pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: id, RunId: run(j), NodeId: "node-" + id}}},
			&pb.Event{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: id, RunId: run(j)}}})
	}
	return d.step(happened...)
}

func run(j *JobView) string { return fmt.Sprintf("%s-run-%d", j.ID, j.Runs) }

func (d *Driver) job(id string) (*JobView, error) {
	if j := d.jobs[id]; j != nil {
		return j, nil
	}
	return nil, fmt.Errorf("no job %s", id)
}

// running returns jobs that must run now.
func (d *Driver) running(ids []string) ([]*JobView, error) {
	var out []*JobView
	for _, id := range ids {
		j, err := d.job(id)
		if err != nil {
			return nil, err
		}
		if j.State != Running {
			return nil, fmt.Errorf("job %s does not run: it is %s", id, j.State)
		}
		out = append(out, j)
	}
	return out, nil
}

// Succeed ends the runs of jobs with success, in one message.
func (d *Driver) Succeed(ids ...string) error {
	jobs, err := d.running(ids)
	if err != nil {
		return err
	}
	var happened []*pb.Event
	for _, j := range jobs {
		j.State = Succeeded
		happened = append(happened, &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: j.ID, RunId: run(j)}}})
	}
	return d.step(happened...)
}

// Fail ends the runs of jobs with the same failure, in one message.
func (d *Driver) Fail(f Failure, ids ...string) error {
	jobs, err := d.running(ids)
	if err != nil {
		return err
	}
	var happened []*pb.Event
	for _, j := range jobs {
		if f.Condition == policy.Preempted {
			happened = append(happened, &pb.Event{Event: &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: j.ID, PreemptedRunId: run(j)}}})
		}
		happened = append(happened, &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: j.ID, RunId: run(j), Errors: []*pb.Error{f.reported()}}}})
	}
	return d.step(happened...)
}

// FailStale reports the failure of a run that is not the job's latest any more: another is leased before.
func (d *Driver) FailStale(f Failure, id string) error {
	jobs, err := d.running([]string{id})
	if err != nil {
		return err
	}
	old := run(jobs[0])
	jobs[0].Runs++
	if err := d.step(
		&pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: id, RunId: run(jobs[0]), NodeId: "node-" + id}}},
		&pb.Event{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: id, RunId: run(jobs[0])}}},
	); err != nil {
		return err
	}
	return d.step(&pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: id, RunId: old, Errors: []*pb.Error{f.reported()}}}})
}

// reported returns the error that an executor reports.
func (f *Failure) reported() *pb.Error {
	var of suite.Failure
	if f.Condition != policy.UnknownCondition {
		of.Conditions = []policy.Condition{f.Condition}
	}
	if f.ExitCode != 0 || f.Message != "" {
		of.Containers = append(of.Containers, policy.Container{Name: cmp.Or(f.Container, suite.MainContainer), ExitCode: f.ExitCode, Message: f.Message})
	}
	for _, other := range f.Others {
		of.Containers = append(of.Containers, policy.Container{Name: other.Container, ExitCode: other.Code})
	}
	return of.Report()
}

// step decides about one message, in which everything happens now.
func (d *Driver) step(happened ...*pb.Event) error {
	if len(happened) == 0 {
		return nil
	}
	at := d.Now.UnixNano()
	for _, e := range happened {
		e.Created = &pb.Timestamp{Seconds: at / 1e9, Nanos: int32(at % 1e9)}
	}
	payload, err := proto.Marshal(&pb.EventSequence{Queue: d.Queue, JobSetName: d.JobSet, Events: happened})
	if err != nil {
		return fmt.Errorf("encode events: %w", err)
	}
	d.entry++
	m := eventlog.Message{Position: eventlog.Position{Ledger: 1, Entry: d.entry, Batch: -1}, Publish: at, Payload: payload}
	d.Messages = append(d.Messages, m)
	out, err := d.p.Step(&m)
	if err != nil {
		return err
	}
	d.last = len(d.records)
	for _, r := range out.Records {
		if err := d.see(r); err != nil {
			return err
		}
	}
	return nil
}

// Records returns the records of the last message, a line each.
func (d *Driver) Records() []string { return d.records[d.last:] }

// AllRecords returns all records, a line each.
func (d *Driver) AllRecords() []string { return d.records }

func (d *Driver) note(format string, args ...any) {
	d.records = append(d.records, fmt.Sprintf(format, args...))
}

func (d *Driver) group(name string) *GroupView {
	g := d.groups[name]
	if g == nil {
		g = &GroupView{Name: name, Units: map[string]*UnitView{}}
		d.groups[name] = g
	}
	return g
}

func (g *GroupView) unit(part string, replica uint32) *UnitView {
	key := part + "/" + strconv.Itoa(int(replica))
	u := g.Units[key]
	if u == nil {
		u = &UnitView{}
		g.Units[key] = u
	}
	return u
}

// ended notes what became of a unit that ended.
func (d *Driver) ended(m *chain.Member, v *chain.GroupVerdict) string {
	g := d.group(m.Group)
	u := g.unit(m.Part, m.Replica)
	u.Reason, u.Action, u.Rule, u.Generation = v.Reason, v.Action, v.Rule, int(m.Generation)
	switch {
	case v.Action.Restarts() && v.Rule == policy.RestartsRule:
		u.Restarts++
	case v.Action.Restarts():
		g.Restarts++
		g.Counted = int(v.RestartsUsed)
	}
	line := fmt.Sprintf("unit %s/%d: %s, %s", m.Part, m.Replica, v.Reason, v.Action)
	if v.Rule != "" {
		line += " by " + v.Rule
	}
	if v.Rule == policy.RestartsRule || !v.Action.Restarts() && !v.Refused {
		return line
	}
	return fmt.Sprintf("%s (%d of %d)", line, v.RestartsUsed, v.MaxRestarts)
}

func (d *Driver) see(r chain.Record) error {
	switch r := r.(type) {
	case *chain.Parked:
		return fmt.Errorf("the message was parked: %s", r.Reason)
	case *chain.Decision:
		own := *r
		j := d.jobs[r.JobID]
		j.Decided = append(j.Decided, &own)
		j.State = Failed
		line := fmt.Sprintf("%s: JobFailed %s", r.JobID, r.Code)
		if r.Requeue {
			j.State, j.RetryAfter = Queued, time.Unix(0, r.RetryAfter).UTC()
			line = fmt.Sprintf("%s: JobRequeued %s after %s", r.JobID, r.Code, j.RetryAfter.Sub(time.Unix(0, r.Time)))
		}
		if r.Member != nil && r.Group != nil {
			line += "; " + d.ended(r.Member, r.Group)
		}
		d.note("%s", line)
	case *chain.NotDecided:
		d.note("%s: NotDecided %s", r.JobID, r.Reason)
	case *chain.RetryReady:
		d.jobs[r.JobID].RetryAfter = time.Unix(0, r.RetryAfter).UTC()
	case *chain.GroupBound:
		d.group(r.Group).Policy = r.Policy
		d.note("group %s: bound by %s", r.Group, r.Policy)
	case *chain.GroupFinding:
		d.note("%s: GroupFinding %s", r.JobID, r.Reason)
	case *chain.MemberChange:
		d.changed(r)
	case *chain.UnitEnded:
		if r.Succeeded {
			u := d.group(r.Member.Group).unit(r.Member.Part, r.Member.Replica)
			u.Reason = policy.NoUnitReason
		}
		d.note("UnitEnded: %s", d.ended(&r.Member, &r.Verdict))
	case *chain.GroupEnded:
		g := d.group(r.Group)
		g.State, g.Reason, g.Rule = r.State, r.Reason, r.Rule
		d.note("group %s: %s", r.Group, strings.TrimSpace(strings.Join([]string{r.State.String(), r.Reason.String(), r.Rule}, " ")))
	}
	return nil
}

func (d *Driver) changed(r *chain.MemberChange) {
	j := d.jobs[r.JobID]
	switch r.Change {
	case chain.MemberHeld:
		if j.State != Stopped {
			j.State = Held
		}
	case chain.MemberReleased:
		j.State = Queued
	case chain.MemberRestart:
		j.State, j.RetryAfter = Queued, time.Unix(0, r.RetryAfter).UTC()
		d.group(r.Member.Group).unit(r.Member.Part, r.Member.Replica).Generation = int(r.Member.Generation)
		d.note("%s: %s after %s", r.JobID, r.Change, max(0, j.RetryAfter.Sub(d.Now)))
		return
	case chain.MemberStopped:
		j.State = Stopped
	case chain.MemberJoined:
	}
	d.note("%s: %s", r.JobID, r.Change)
}

// Indexes returns the indexes of a unit's members in a state, ascending.
func (d *Driver) Indexes(part string, replica int, s State) (out []int) {
	for _, j := range d.jobs {
		if j.Part == part && j.Replica == replica && j.State == s {
			out = append(out, j.Index)
		}
	}
	slices.Sort(out)
	return out
}
