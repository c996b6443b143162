package suite

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// groupName is the name of the group of a test.
const groupName = "group"

// groupTrial is a group of jobs to which the events of a test happen, decided by the evaluator's Step.
type groupTrial struct {
	decider
	test    *Test
	key     group.Key
	roster  *roster
	shape   policy.Shape
	members map[place]*member
	last    GroupOutcome // before the current event
	halted  bool
	byUnits map[string]uint32 // restarts of units by themselves
}

// member is one job of the group.
type member struct {
	place
	policy   string // that its job names
	job      Job
	runs     int
	run      string   // id of its latest run that was not told to stop; "": it has none
	live     bool     // that run has not ended
	since    int64    // when that run began to run
	stopping []string // runs that were told to stop, and have not ended
	ready    int64    // when it may start
	earlier  []audit.Earlier
}

// newGroupTrial submits the members that are there from the start.
func newGroupTrial(set *policyfile.Set, t *Test) (*groupTrial, error) {
	job := t.Job
	job.fill("")
	d, err := newDecider(set, job.Queue, job.Set)
	if err != nil {
		return nil, err
	}
	g := &groupTrial{decider: d, test: t, members: map[place]*member{}, byUnits: map[string]uint32{}}
	g.key = group.Key{Queue: job.Queue, Set: job.Set, Name: groupName}
	g.last.Policy = t.Group.Policy
	byPolicy := set.GroupPolicy(t.Group.Policy)
	late := slices.ContainsFunc(t.Events, func(e Event) bool { return e.Do == SubmitMembers })
	switch {
	case t.Group.Policy == "":
		g.key.Name = "gang/main-0"
	case byPolicy == nil:
		return nil, fmt.Errorf("the policies have no GroupPolicy %s", shown(t.Group.Policy))
	default:
		g.shape = byPolicy.Shape(true)
	}
	g.roster = rosterOf(&g.shape)
	g.last.roster = g.roster
	for _, gang := range t.Group.Gangs {
		if !slices.ContainsFunc(g.roster.parts, func(p rosterPart) bool { return p.name == gang }) {
			return nil, fmt.Errorf("group.gangs: the group policy has no part %s", shown(gang))
		}
	}
	for _, of := range t.Group.Jobs {
		if err := g.roster.declares(of.Members); err != nil {
			return nil, fmt.Errorf("group.jobs: %w", err)
		}
	}
	if late {
		return g, nil
	}
	if g.shape.Open() {
		return nil, fmt.Errorf("the group policy does not say how many members there are: write an event with submit, such as {submit: %s/0/0-7}", policy.MainPart)
	}
	all, err := g.roster.find(Members{{text: everyMember, part: everyMember}}, false)
	if err == nil {
		_, err = g.submit(all, t.Start)
	}
	if err == nil {
		g.snapshot(&g.last)
	}
	return g, err
}

// submit submits jobs in one message.
func (g *groupTrial) submit(all []place, at int64) ([]chain.Record, error) {
	var happened []*pb.Event
	for _, m := range all {
		if g.members[m] != nil {
			return nil, fmt.Errorf("%s was submitted before", m)
		}
		job := g.test.jobOf(m)
		job.ID = m.String()
		job.fill(job.ID)
		if slices.Contains(g.test.Group.Gangs, m.part) {
			job.gang, job.Gang = fmt.Sprintf("%s-%d", m.part, m.replica), g.cardinality(m, all)
		}
		to := &member{place: m, policy: g.test.Group.Policy, ready: at}
		if to.policy != "" {
			job.member = to
		}
		to.job = job
		g.members[m] = to
		happened = append(happened, &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: job.submit()}})
	}
	records, err := g.step(at, happened...)
	for _, r := range records {
		if found, ok := r.(*chain.GroupFinding); ok {
			return nil, fmt.Errorf("%s is not a member: %s", found.JobID, found.Reason)
		} else if bound, ok := r.(*chain.GroupBound); ok && bound.Group != g.key.Name {
			return nil, fmt.Errorf("%s begins another group, because this one has ended and has no place for it: write a test for that one", bound.JobID)
		}
	}
	return records, err
}

// cardinality is the size of a member's gang: that of its part, or of what is submitted of a unit of open size.
func (g *groupTrial) cardinality(m place, all []place) int {
	for _, p := range g.shape.Parts {
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

// happen makes an event happen. at is its time where the test names none, and becomes its time.
func (g *groupTrial) happen(e *Event, at *int64) (Outcome, error) {
	places, err := g.roster.find(e.Members, e.Do == SubmitMembers)
	if err != nil {
		return Outcome{}, err
	}
	for _, w := range e.Expect { // that they name what there is
		if _, err := g.roster.find(w.Members, false); err != nil {
			return Outcome{}, fmt.Errorf("expect.%s: %w", w.Field, err)
		}
	}
	var all []*member
	if e.Do != SubmitMembers {
		for _, m := range places {
			if g.members[m] == nil {
				return Outcome{}, fmt.Errorf("%s is not submitted", m)
			}
			all = append(all, g.members[m])
		}
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
		records, err = g.submit(places, *at)
	case StartRuns:
		records, err = g.start(all, e.Run, "", true, *at)
	case FailRun:
		records, out, err = g.fail(all[0], e, *at)
	case SucceedRuns:
		records, err = g.succeed(all, e.Late, *at)
	case CancelMembers:
		records, err = g.cancel(all, *at)
	case PassTime:
		records, err = g.step(*at, &pb.Event{Event: &pb.Event_ReprioritisedJob{ReprioritisedJob: &pb.ReprioritisedJob{JobId: "other"}}})
	case UsePolicies:
	}
	if err != nil {
		return Outcome{}, err
	}
	out.Time = *at
	out.Group = g.outcome(records, &out)
	return out, nil
}

// start leases the next runs of members, and starts them.
func (g *groupTrial) start(all []*member, run, node string, runs bool, at int64) ([]chain.Record, error) {
	var happened []*pb.Event
	for _, m := range all {
		if err := g.mayStart(m); err != nil {
			return nil, err
		}
		m.run, m.live, m.since = run, true, at
		if run == "" {
			m.run = "run-" + strconv.Itoa(m.runs)
		}
		m.runs++
		happened = append(happened, started(m.job.ID, m.run, node, runs)...)
	}
	return g.step(at, happened...)
}

func (g *groupTrial) mayStart(m *member) error {
	status := g.status(m)
	switch {
	case m.live:
		return fmt.Errorf("%s has a run already", m)
	case status.Over():
		return fmt.Errorf("%s is over (%s): it does not run again", m, overBy(status))
	case status&group.Held != 0:
		return fmt.Errorf("%s is held: it may not start", m)
	}
	return nil
}

func (g *groupTrial) status(m *member) group.Status {
	if state := g.p.State.Group(g.key); state != nil {
		if part := state.Part(m.part); part != nil {
			if u := part.Unit(m.replica); u != nil {
				return u.Member(m.index).Status
			}
		}
	}
	return 0
}

// ensure starts the runs that are needed for an end of all: those of members without a live run, and of the rest of
// their gangs.
func (g *groupTrial) ensure(all []*member, run string, f *Failure, at int64) error {
	var next []*member
	for _, m := range all {
		if m.live {
			continue
		}
		node, runs := "", true
		if f != nil {
			node, runs = f.Node, f.attempted() && f.RunDuration == nil
		}
		if _, err := g.start([]*member{m}, run, node, runs, at); err != nil {
			return err
		}
		if f != nil && f.RunDuration != nil {
			m.since = at - f.RunDuration.Nanoseconds()
			if err := g.running(m.job.ID, m.run, f, at); err != nil {
				return err
			}
		}
		if m.job.Gang > 0 {
			next = append(next, g.peers(m)...)
		}
	}
	next = slices.DeleteFunc(next, func(m *member) bool { return m.live || g.mayStart(m) != nil })
	if len(next) == 0 {
		return nil
	}
	slices.SortFunc(next, func(a, b *member) int { return int(a.replica) - int(b.replica) })
	_, err := g.start(uniq(next), "", "", true, at)
	return err
}

func uniq(all []*member) []*member {
	var out []*member
	seen := map[*member]bool{}
	for _, m := range all {
		if !seen[m] {
			seen[m] = true
			out = append(out, m)
		}
	}
	return out
}

// peers returns the other members of a gang, in order.
func (g *groupTrial) peers(m *member) []*member {
	var all []*member
	for i := range g.roster.parts {
		for _, p := range g.roster.parts[i].known {
			if other := g.members[p]; other != nil && other != m && p.part == m.part && p.replica == m.replica {
				all = append(all, other)
			}
		}
	}
	return all
}

func (g *groupTrial) fail(m *member, e *Event, at int64) ([]chain.Record, Outcome, error) {
	run, f := "", *e.Fail
	var err error
	switch {
	case e.Late:
		run, err = m.late()
	case m.live && f.RunDuration != nil:
		err = fmt.Errorf("the run of %s was started before: omit runDuration", m)
	default:
		if err = g.ensure([]*member{m}, f.Run, &f, at); err != nil {
			break
		}
		if run = m.run; f.Run != "" && f.Run != run {
			err = fmt.Errorf("fail.run is %s, but the run of %s that is live is %s", shown(f.Run), m, shown(run))
		}
		m.live = false
		if f.attempted() {
			f.RunDuration = new(time.Duration(at - m.since))
		}
	}
	if err != nil {
		return nil, Outcome{}, err
	}
	happened, raw, err := f.events(m.job.ID, run)
	if err != nil {
		return nil, Outcome{}, err
	}
	records, err := g.step(at, happened...)
	if err != nil {
		return nil, Outcome{}, err
	}
	out, err := explained(g.set, &m.job, &m.earlier, records, failed{&f, run, raw, at})
	if d := out.Decision; d != nil && d.Requeue && !e.Late {
		m.ready = d.RetryAfter
	}
	return records, out, err
}

// succeed ends runs of members. What some of them release succeeds in a message of its own, at the same time.
func (g *groupTrial) succeed(all []*member, late bool, at int64) ([]chain.Record, error) {
	var records []chain.Record
	for len(all) > 0 {
		now, later := all, []*member(nil)
		if !late {
			now, later = nil, nil
			for _, m := range all {
				if g.status(m)&(group.Held|group.HasSucceeded) == group.Held {
					later = append(later, m)
				} else {
					now = append(now, m)
				}
			}
			if len(now) == 0 {
				return nil, g.mayStart(later[0])
			}
		}
		more, err := g.succeedTogether(now, late, at)
		if err != nil {
			return nil, err
		}
		records, all = append(records, more...), later
	}
	return records, nil
}

func (g *groupTrial) succeedTogether(all []*member, late bool, at int64) ([]chain.Record, error) {
	if !late {
		if err := g.ensure(all, "", nil, at); err != nil {
			return nil, err
		}
	}
	var happened []*pb.Event
	for _, m := range all {
		run := m.run
		if late {
			var err error
			if run, err = m.late(); err != nil {
				return nil, err
			}
		}
		m.live = m.live && late
		happened = append(happened, &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: m.job.ID, RunId: run}}})
	}
	records, err := g.step(at, happened...)
	return slices.Clone(records), err // the next message reuses them
}

func (g *groupTrial) cancel(all []*member, at int64) ([]chain.Record, error) {
	var happened []*pb.Event
	for _, m := range all {
		if g.status(m)&group.WasCancelled != 0 {
			return nil, fmt.Errorf("%s was cancelled before", m)
		}
		m.live, m.stopping = false, nil
		happened = append(happened,
			&pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: m.job.ID}}},
			&pb.Event{Event: &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: m.job.ID}}})
	}
	return g.step(at, happened...)
}

// outcome collects what the records of an event say about the group.
func (g *groupTrial) outcome(records []chain.Record, decided *Outcome) *GroupOutcome {
	out := &GroupOutcome{Policy: g.last.Policy, State: g.last.State, Reason: g.last.Reason, roster: g.roster}
	var restarted, held, unheld, stopped []place
	anew := decided.Decision == nil || decided.Decision.Code != policy.GangRetry // else a gang was restarted, and counts go on
	ended := func(m *chain.Member, v *chain.GroupVerdict, run *policy.Failure, succeeded bool) {
		u := &policy.UnitFailure{
			Policy: g.test.Group.Policy, Part: m.Part, Reason: v.Reason, Succeeded: succeeded, Run: run, Halted: g.halted,
			Barred: !g.set.Restarts(g.queue), UnitRestarts: g.byUnits[unitName(m)],
		}
		if len(out.Ended) == 0 && u.Policy != "" {
			out.Ladder = g.set.UnitLadder(u)
		}
		out.Ended = append(out.Ended, *v)
		switch {
		case v.Rule == policy.RestartsRule:
			out.reached = append(out.reached, restartsOf(m.Part))
		case v.Rule != "":
			out.reached = append(out.reached, v.Rule)
		case !u.Halted && !u.Barred:
			out.reached = append(out.reached, byDefault)
		}
		if v.Rule == policy.RestartsRule && v.Action.Restarts() && !v.Noted {
			g.byUnits[unitName(m)]++
		}
		g.halted = g.halted || v.Action == policy.Halt && !v.Noted
	}
	for _, r := range records {
		switch r := r.(type) {
		case *chain.Decision:
			if r.Group != nil {
				ended(r.Member, r.Group, &decided.Why.Facts, false)
			}
		case *chain.UnitEnded:
			ended(&r.Member, &r.Verdict, nil, r.Succeeded)
		case *chain.MemberChange:
			p := place{r.Member.Part, r.Member.Replica, r.Member.Index}
			m := g.members[p]
			switch r.Change {
			case chain.MemberJoined: // it follows from the test
			case chain.MemberHeld:
				held = append(held, p)
			case chain.MemberReleased:
				unheld, m.ready = append(unheld, p), max(m.ready, decided.Time)
			case chain.MemberRestart:
				restarted, m.ready = append(restarted, p), r.RetryAfter
				m.noteStopped()
				if n := len(m.earlier); n > 0 && anew {
					m.earlier[n-1].Anew = true
				}
			case chain.MemberStopped:
				stopped = append(stopped, p)
				m.noteStopped()
			}
		}
	}
	out.Restarted, out.Held = g.roster.names(restarted), g.roster.names(held)
	out.Unheld, out.Stopped = g.roster.names(unheld), g.roster.names(stopped)
	g.snapshot(out)
	before := g.last.Units
	for _, u := range out.Units {
		i := slices.IndexFunc(before, func(b UnitOutcome) bool { return b.Part == u.Part && b.Replica == u.Replica })
		if was := group.Active; i >= 0 && before[i].State != u.State || i < 0 && was != u.State {
			out.UnitsChanged = append(out.UnitsChanged, u)
		}
	}
	g.last = *out
	return out
}

// noteStopped notes that the member's run was told to stop.
func (m *member) noteStopped() {
	if m.live {
		m.stopping = append(m.stopping, m.run)
	}
	m.live = false
}

// snapshot sets what the group is; once it is forgotten, what it was.
func (g *groupTrial) snapshot(out *GroupOutcome) {
	out.Used, out.Max, out.Units = g.last.Used, g.last.Max, g.last.Units
	if p := g.set.GroupPolicy(g.test.Group.Policy); p != nil && p.MaxRestarts != nil {
		out.Max = *p.MaxRestarts
	}
	state := g.p.State.Group(g.key)
	if state == nil {
		return
	}
	out.State, out.Used, out.Units = state.State, state.Counted, nil
	if out.Reason = policy.NoUnitReason; state.State != policy.GroupActive {
		out.Reason = state.Reason
	}
	for _, p := range state.Parts {
		for _, u := range p.Units {
			out.Units = append(out.Units, UnitOutcome{Part: p.Name, Replica: u.Replica, State: u.State, Generation: u.Generation})
		}
	}
}
