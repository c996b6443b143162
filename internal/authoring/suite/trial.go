package suite

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/projection"
)

// groupName is the name of the group of a test.
const groupName = "group"

// Trial is the jobs of a group to which the events of a test happen, decided by the evaluator's Step. A job in no group
// is one without a name.
type Trial struct {
	queue, jobSet string
	set           *policyfile.Set
	p             *evaluator.Processor
	entry         int64 // of the last message
	others        int   // jobs that are not of the test

	test    *Test
	group   *Group // of the test; empty: a job in no group
	key     group.Key
	roster  *roster
	shape   policy.Shape
	members map[place]*member
	last    GroupOutcome // before the current event
	halted  bool
	byUnits map[string]uint32 // restarts of units by themselves
}

// Outcome is the outcome of one failed run, or of what else happens to a group.
type Outcome struct {
	Decision   *chain.Decision   // nil: no run failed, or it was not decided
	NotDecided *chain.NotDecided // why not; nil: no run failed
	Why        evaluator.Explanation
	Time       int64         // when it happened, Unix nanoseconds
	Group      *GroupOutcome // nil: the job is in no group
}

// NewTrial submits a job in no group at a time in Unix nanoseconds.
func NewTrial(set *policyfile.Set, job Job, at int64) (*Trial, error) {
	return newTrial(set, &Test{Job: job, Start: at})
}

// newTrial submits the job of a test, or the members that are there from the start.
func newTrial(set *policyfile.Set, of *Test) (*Trial, error) {
	state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, set.Horizon().Nanoseconds())
	if err != nil {
		return nil, err
	}
	job := of.Job
	job.fill()
	t := &Trial{
		queue: job.Queue, jobSet: job.Set, p: &evaluator.Processor{State: state},
		test: of, group: cmp.Or(of.Group, &Group{}), roster: &roster{}, members: map[place]*member{}, byUnits: map[string]uint32{},
	}
	t.p.Activate([]chain.Record{&chain.SemanticsActivated{Version: evaluator.SemanticsVersion}})
	t.Use(set)
	if t.alone() {
		_, err = t.submit([]place{{}}, of.Start)
		return t, err
	}
	return t, t.begin()
}

// alone reports whether the trial is of a job in no group. Its runs were never running, unless a failure says so.
func (t *Trial) alone() bool { return t.test.Group == nil }

// begin sets what the group is, and submits its members, unless events do.
func (t *Trial) begin() error {
	t.key = group.Key{Queue: t.queue, Set: t.jobSet, Name: groupName}
	t.last.Policy = t.group.Policy
	byPolicy := t.set.GroupPolicy(t.group.Policy)
	switch {
	case t.group.Policy == "":
		t.key.Name = "gang/main-0"
	case byPolicy == nil:
		return fmt.Errorf("the policies have no GroupPolicy %s", shown(t.group.Policy))
	default:
		t.shape = byPolicy.Shape(true)
	}
	t.roster = rosterOf(&t.shape)
	t.last.roster = t.roster
	for _, gang := range t.group.Gangs {
		if !slices.ContainsFunc(t.roster.parts, func(p rosterPart) bool { return p.name == gang }) {
			return fmt.Errorf("group.gangs: the group policy has no part %s", shown(gang))
		}
	}
	for _, of := range t.group.Jobs {
		if err := t.roster.declares(of.Members); err != nil {
			return fmt.Errorf("group.jobs: %w", err)
		}
	}
	if slices.ContainsFunc(t.test.Events, func(e Event) bool { return e.Do == SubmitMembers }) {
		return nil
	}
	if t.shape.Open() {
		return fmt.Errorf("the group policy does not say how many members there are: write an event with submit, such as {submit: %s/0/0-7}", policy.MainPart)
	}
	all, err := t.roster.find(Members{{text: everyMember, part: everyMember}}, false)
	if err == nil {
		_, err = t.submit(all, t.test.Start)
	}
	if err == nil {
		t.snapshot(&t.last)
	}
	return err
}

// Use puts other policies in force.
func (t *Trial) Use(set *policyfile.Set) {
	t.set = set
	generation := t.p.Progress.Generation + 1
	t.p.Activate([]chain.Record{evaluator.Activation(generation, set.Set, evaluator.SemanticsVersion)})
	t.p.Rules = evaluator.Rules{Generation: generation, Set: set.Set}
}

// submit submits jobs in one message.
func (t *Trial) submit(all []place, at int64) ([]chain.Record, error) {
	var happened []*pb.Event
	for _, m := range all {
		if t.members[m] != nil {
			return nil, fmt.Errorf("%s was submitted before", m)
		}
		job := t.test.jobOf(m)
		job.fill()
		if slices.Contains(t.group.Gangs, m.part) {
			job.gang, job.Gang = fmt.Sprintf("%s-%d", m.part, m.replica), t.cardinality(m, all)
		}
		to := &member{place: m, policy: t.group.Policy, ready: at}
		if to.policy != "" {
			job.member = to
		}
		to.job = job
		t.members[m] = to
		happened = append(happened, &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: job.submit()}})
	}
	records, err := t.step(at, happened...)
	if t.alone() {
		return records, err
	}
	for _, r := range records {
		if found, ok := r.(*chain.GroupFinding); ok {
			return nil, fmt.Errorf("%s is not a member: %s", found.JobID, found.Reason)
		} else if bound, ok := r.(*chain.GroupBound); ok && bound.Group != t.key.Name {
			return nil, fmt.Errorf("%s begins another group, because this one has ended and has no place for it: write a test for that one", bound.JobID)
		}
	}
	return records, err
}

// cardinality is the size of a member's gang: that of its part, or of what is submitted of a unit of open size.
func (t *Trial) cardinality(m place, all []place) int {
	for _, p := range t.shape.Parts {
		if p.Name == m.part {
			return int(p.Members)
		}
	}
	n := 0
	for _, other := range all {
		if other.replica == m.replica {
			n++
		}
	}
	return n
}

// Fail starts the next run of a job in no group and fails it at a time in Unix nanoseconds, and returns the outcome.
func (t *Trial) Fail(f *Failure, at int64) (Outcome, error) {
	return t.happen(&Event{Do: FailRun, Fail: f, At: new(time.Duration(at - t.test.Start))}, &at)
}

// happen makes an event happen. at is its time where the test names none, and becomes its time.
func (t *Trial) happen(e *Event, at *int64) (Outcome, error) {
	places, all, err := t.subjects(e)
	if err != nil {
		return Outcome{}, err
	}
	if e.At == nil && !e.Late {
		for _, m := range all {
			if (e.Do == StartRuns || e.Do == FailRun || e.Do == SucceedRuns) && !m.live {
				*at = max(*at, m.ready)
			}
		}
	}
	var records []chain.Record
	var out Outcome
	switch e.Do {
	case SubmitMembers:
		records, err = t.submit(places, *at)
	case StartRuns:
		records, err = t.start(all, e.Run, "", true, *at)
	case FailRun:
		records, out, err = t.fail(all[0], e, *at)
	case SucceedRuns:
		records, err = t.succeed(all, e.Late, *at)
	case CancelMembers:
		records, err = t.cancel(all, *at)
	case PassTime:
		records, err = t.step(*at, &pb.Event{Event: &pb.Event_ReprioritisedJob{ReprioritisedJob: &pb.ReprioritisedJob{JobId: "other"}}})
	case FirstRuns:
		_, err = t.step(*at, t.otherRuns(e.Runs)...)
	case UsePolicies:
	}
	if err != nil {
		return Outcome{}, err
	}
	out.Time = *at
	if !t.alone() {
		out.Group = t.outcome(records, &out)
	}
	return out, nil
}

// otherRuns submits so many other jobs of the queue and leases a run of each.
func (t *Trial) otherRuns(n int) (all []*pb.Event) {
	for range n {
		t.others++
		id := fmt.Sprintf("other-%d", t.others)
		all = append(all, &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: id}}})
		all = append(all, started(id, id+"-run", "", false)...)
	}
	return all
}

// subjects returns to which members an event happens.
func (t *Trial) subjects(e *Event) (places []place, all []*member, err error) {
	if t.alone() {
		return nil, []*member{t.members[place{}]}, nil
	}
	if places, err = t.roster.find(e.Members, e.Do == SubmitMembers); err != nil {
		return nil, nil, err
	}
	for _, w := range e.Expect { // that they name what there is
		if _, err := t.roster.find(w.Members, false); err != nil {
			return nil, nil, fmt.Errorf("expect.%s: %w", w.Field, err)
		}
	}
	if e.Do == SubmitMembers {
		return places, nil, nil
	}
	for _, m := range places {
		if t.members[m] == nil {
			return nil, nil, fmt.Errorf("%s is not submitted", m)
		}
		all = append(all, t.members[m])
	}
	return places, all, nil
}
