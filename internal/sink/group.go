package sink

import (
	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// Rows of groups follow from the records of groups (docs/reference/semantics.md, Groups), and from
// what a submission names: a member that starts at once has no record. The rules of a group
// are not repeated here.

// groupKey identifies a group.
type groupKey struct{ queue, set, name string }

func (k groupKey) id() string { return jobdb.GroupID(k.queue, k.set, k.name) }

// bound returns the record in this message that binds a group by this job, or nil; the group
// that the job joined if it is another than it names, else ""; and whether the message says that
// the job is a member of none.
func (m *Message) bound(job string) (b *chain.GroupBound, joined string, refused bool) {
	if m.bindings == nil {
		m.bindings = map[string][]chain.Record{}
		for _, r := range m.Records {
			if of := boundBy(r); of != "" {
				m.bindings[of] = append(m.bindings[of], r)
			}
		}
	}
	for _, r := range m.bindings[job] {
		switch r := r.(type) {
		case *chain.GroupBound:
			b = r
		case *chain.GroupFinding:
			refused = true
		case *chain.MemberChange:
			joined = r.Member.Group
		}
	}
	return b, joined, refused
}

// boundBy returns the job about whose group a record is; "": it is no such record.
func boundBy(r chain.Record) string {
	switch r := r.(type) {
	case *chain.GroupBound:
		return r.JobID
	case *chain.GroupFinding:
		return r.JobID
	case *chain.MemberChange:
		if r.Change == chain.MemberJoined {
			return r.JobID
		}
	}
	return ""
}

// join makes a job that was submitted a member of the group that it names, unless the
// chain says otherwise: a group is bound by its first member, a job that joined a later group of
// that name has a MemberJoined, and one that is not a member a GroupFinding.
func (f *fold) join(j *jobRow, s *events.Submit) {
	at, ok := group.MembershipOf(j.Queue, j.JobSet, s)
	if !ok || j.Member.GroupID != "" {
		return
	}
	if f.Released { // the records come later
		j.Member.State = jobdb.MemberUnanswered
		return
	}
	b, joined, refused := f.bound(j.JobID)
	if refused {
		return
	}
	key := groupKey{at.Queue, at.Set, at.Name}
	if joined != "" {
		key.name = joined
	}
	g := f.findGroup(key.id())
	if b != nil {
		g = f.bind(b, g)
	}
	if g == nil {
		return // from before version 3, or not answered yet
	}
	u := f.unit(g, at.Part, at.Replica)
	taken := policy.ParseIndexes(u.Taken)
	index := at.Index
	if at.FreeIndex {
		index = taken.NextFree()
	}
	taken.Add(index)
	u.Taken = taken.String()
	j.Member = jobdb.Membership{
		GroupID: g.ID, Binding: g.Binding, Group: g.Name, Part: at.Part, Replica: at.Replica, Index: index,
		Generation: u.Generation, State: jobdb.MemberActive,
	}
	switch {
	case j.CancelRequested || j.State == jobdb.JobCancelled || j.State == jobdb.JobFailed && j.Final:
		j.Member.State = jobdb.MemberCancelled
	case j.State == jobdb.JobSucceeded:
		j.Member.State = jobdb.MemberSucceeded
	}
}

// bind begins a group anew; old is the row of its name, or nil.
func (f *fold) bind(b *chain.GroupBound, old *groupRow) *groupRow {
	g := old
	if g == nil {
		g = &groupRow{}
		g.Group = jobdb.Group{Partition: f.partition, ID: groupKey{b.Queue, b.JobSet, b.Group}.id(), Queue: b.Queue, JobSet: b.JobSet, Name: b.Group}
		f.groups.put(g.ID, g)
	} else {
		g.Group = jobdb.Group{Partition: f.partition, ID: g.ID, Queue: g.Queue, JobSet: g.JobSet, Name: g.Name}
	}
	g.Binding = f.Seq
	g.Policy, g.Digest, g.Shape, g.MaxRestarts = b.Policy, b.Digest, b.Shape, b.MaxRestarts
	g.boundIn, g.Updated = f.applied, f.Log.Position
	f.touchGroup(g)
	return g
}

// group returns the row of a group, creating one if it was bound before the rows start.
func (f *fold) group(key groupKey) *groupRow {
	g := f.findGroup(key.id())
	if g == nil {
		g = &groupRow{}
		g.Group = jobdb.Group{Partition: f.partition, ID: key.id(), Queue: key.queue, JobSet: key.set, Name: key.name}
		f.groups.put(g.ID, g)
	}
	g.Updated = f.Log.Position
	f.touchGroup(g)
	return g
}

// unit returns the row of a unit, creating or replacing it if it has had no member.
func (f *fold) unit(g *groupRow, part string, replica uint32) *unitRow {
	id := jobdb.UnitID(g.ID, part, replica)
	u := f.units.find(id)
	if u == nil || u.Binding != g.Binding {
		if u == nil {
			u = &unitRow{}
			f.units.put(id, u)
		}
		u.Unit = jobdb.Unit{Partition: f.partition, ID: id, GroupID: g.ID, Binding: g.Binding, Part: part, Replica: replica, Generation: g.Generation}
	}
	f.touchUnit(u)
	return u
}

// placed sets what a record says about a member.
func (f *fold) placed(j *jobRow, g *groupRow, u *unitRow, m *chain.Member) {
	if j.Member.GroupID == "" {
		j.Member.State = jobdb.MemberActive
	}
	j.Member.GroupID, j.Member.Binding, j.Member.Group = g.ID, g.Binding, g.Name
	j.Member.Part, j.Member.Replica, j.Member.Index, j.Member.Generation = m.Part, m.Replica, m.Index, m.Generation
	taken := policy.ParseIndexes(u.Taken)
	taken.Add(m.Index)
	u.Taken = taken.String()
}

// reach raises a unit to a generation. Unless a gang's retry raised it, its counts start
// anew.
func (u *unitRow) reach(generation uint32, anew bool) {
	if generation <= u.Generation {
		return
	}
	u.Generation, u.State, u.Reason = generation, jobdb.UnitActive, policy.NoUnitReason
	if anew {
		u.Retries = 0
	}
}

// decideMember applies a decision to the rows of its group.
func (f *fold) decideMember(d *chain.Decision, acted bool) {
	if d.Member == nil {
		return
	}
	g := f.group(groupKey{d.Queue, d.JobSet, d.Member.Group})
	u := f.unit(g, d.Member.Part, d.Member.Replica)
	if j := f.find(d.JobID); j != nil {
		f.placed(j, g, u, d.Member)
		f.touch(j, f.Log.Position)
		if acted && !d.Requeue && !j.Member.State.Over() {
			j.Member.State = failedAs(d)
		}
	}
	if d.Group != nil {
		g.MaxRestarts = d.Group.MaxRestarts
	}
	if d.Shadow {
		return
	}
	u.reach(d.Member.Generation, d.Code != policy.GangRetry)
	switch d.Code {
	case policy.RuleRetry, policy.DefaultRetry:
		u.Retries++
	case policy.GangRetry:
		if d.LimitFrom != policy.FromNowhere {
			u.Retries++
		}
	default: // nothing is granted
	}
	if d.Group != nil && !d.Group.Noted {
		g.perform(u, d.Group)
	}
}

// failedAs returns how a member failed for good: an index that failed, or a failure that
// failed its unit.
func failedAs(d *chain.Decision) jobdb.MemberState {
	if d.Code == policy.GangFail || d.Code == policy.UnitLimit {
		return jobdb.MemberUnitFail
	}
	if v := d.Group; v != nil && v.Reason != policy.MaxFailedIndexesExceeded && v.Reason != policy.FailedIndexes {
		return jobdb.MemberUnitFail
	}
	return jobdb.MemberFailed
}

// perform applies a group's verdict on a unit to both.
func (g *groupRow) perform(u *unitRow, v *chain.GroupVerdict) {
	switch {
	case v.Action.Restarts() && v.Rule == policy.RestartsRule:
		u.Restarts++
	case v.Action.Restarts():
		g.Restarts++
		g.Counted = v.RestartsUsed
		if v.Action == policy.RestartGroup {
			g.Generation++
		}
	case v.Action == policy.FailGroup:
		u.State, u.Reason = jobdb.UnitFailed, v.Reason
	case v.Action == policy.Leave || v.Action == policy.Halt:
		u.State, u.Reason = jobdb.UnitFailed, v.Reason
		g.Reason, g.Rule = v.Reason, v.Rule
	}
}

// groupRecord applies a record of a group other than a decision, and reports whether it
// changed a job.
func (f *fold) groupRecord(r chain.Record) bool {
	switch r := r.(type) {
	case *chain.GroupBound:
		g := f.findGroup(groupKey{r.Queue, r.JobSet, r.Group}.id())
		if g == nil || g.boundIn != f.applied {
			f.bind(r, g)
		}
	case *chain.MemberChange:
		g := f.group(groupKey{r.Queue, r.JobSet, r.Member.Group})
		u := f.unit(g, r.Member.Part, r.Member.Replica)
		u.reach(r.Member.Generation, true)
		if j := f.find(r.JobID); j != nil {
			f.placed(j, g, u, &r.Member)
			f.touch(j, f.Log.Position)
			return f.change(j, r)
		}
	case *chain.UnitEnded:
		g := f.group(groupKey{r.Queue, r.JobSet, r.Member.Group})
		u := f.unit(g, r.Member.Part, r.Member.Replica)
		u.reach(r.Member.Generation, true)
		if r.Succeeded && !r.Verdict.Action.Restarts() {
			u.State = jobdb.UnitSucceeded
		}
		g.MaxRestarts = r.Verdict.MaxRestarts
		g.perform(u, &r.Verdict)
	case *chain.GroupEnded:
		g := f.group(groupKey{r.Queue, r.JobSet, r.Group})
		g.State, g.Reason, g.Rule = r.State, r.Reason, r.Rule
	}
	return false
}

// change applies a change of a member to its job, and reports whether it did.
//
// What is superseded acts only on a job that is held: Armada went its own way with the
// others. So a hold in a release is void, and none outlasts one.
func (f *fold) change(j *jobRow, r *chain.MemberChange) bool {
	m := &j.Member
	if f.Superseded && j.State != jobdb.JobHeld {
		m.State = memberAfter(m.State, r.Change)
		return false
	}
	switch r.Change {
	case chain.MemberJoined: // that is all
		return false
	case chain.MemberHeld:
		m.State = jobdb.MemberHeld
		if f.Superseded || j.State != jobdb.JobQueued {
			return false
		}
		j.State = jobdb.JobHeld
	case chain.MemberReleased:
		m.State = jobdb.MemberActive
		if j.State != jobdb.JobHeld {
			return false
		}
		j.State = jobdb.JobQueued
	case chain.MemberRestart:
		if j.lost() {
			return false
		}
		m.State, m.Restarting = jobdb.MemberActive, true
		j.Retry = f.restartedFor(r)
		j.Final = false
		if j.State == jobdb.JobQueued || j.State == jobdb.JobHeld {
			j.State, j.Queueing.RetryAfter = jobdb.JobQueued, r.RetryAfter
		} else {
			j.queued(r.RetryAfter, j.Queueing.AvoidNodes)
		}
	case chain.MemberStopped:
		m.State = memberAfter(m.State, r.Change)
		m.Restarting = false
		if j.State.Terminal() {
			return false
		}
		j.State, j.Queueing.RetryAfter = jobdb.JobStopping, 0
	}
	return true
}

// memberAfter returns the state of a member after a change that does not reach its job.
func memberAfter(s jobdb.MemberState, c chain.Change) jobdb.MemberState {
	switch c {
	case chain.MemberHeld:
		return jobdb.MemberHeld
	case chain.MemberReleased, chain.MemberRestart:
		return jobdb.MemberActive
	case chain.MemberStopped:
		if !s.Over() {
			return jobdb.MemberStopped
		}
	case chain.MemberJoined:
	}
	return s
}

// lost reports whether nothing starts the job again: it was cancelled, rejected, or Armada
// ended it in a release.
func (j *jobRow) lost() bool {
	return j.State == jobdb.JobCancelled || j.State == jobdb.JobFailed && j.Final && j.Queueing.Decision == 0
}

// memberCancelled marks a member that was cancelled or rejected.
func (j *jobRow) memberCancelled() {
	if j.Member.GroupID != "" && !j.Member.State.Over() {
		j.Member.State = jobdb.MemberCancelled
	}
}

// memberSucceeded ends the job of a member whose latest run succeeded. The run names
// itself, JobSucceeded does not: it may be about a run that was told to stop.
func (f *fold) memberSucceeded(j *jobRow, run *runRow) {
	if j.Member.GroupID == "" || j.Queueing.LatestRun != run.RunID || j.Member.Restarting {
		return
	}
	if !j.Member.State.Over() {
		j.Member.State = jobdb.MemberSucceeded
	}
	j.end(jobdb.JobSucceeded, f.t)
}

// joinLate applies the memberships of a superseded message: its events are applied, and
// only its records say who is a member. Another submission of a job changes nothing, so the
// first one alone is answered.
func (f *fold) joinLate() {
	for i := range f.eventCount() {
		ev := &f.Events.Events[i]
		if ev.Submit == nil || ev.JobID == "" {
			continue
		}
		j := f.find(ev.JobID)
		if j == nil || j.Member.State != jobdb.MemberUnanswered || !f.isOf(j.Queue, j.JobSet) {
			continue
		}
		if _, ok := group.MembershipOf(j.Queue, j.JobSet, ev.Submit); ok {
			j.Member.State = jobdb.NoMember
			f.join(j, ev.Submit)
			f.touch(j, f.Log.Position)
		}
	}
}
