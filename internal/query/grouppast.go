package query

import (
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// past is the state of a group as its records tell it, up to one of them.
type past struct {
	*group.Group
	turns []*Turn
	ended map[string][]ended // the generations of jobs before the last one
}

// ended is how a generation of a member ended.
type ended struct {
	generation uint32
	state      string
}

// pastOf returns a group before its first record. Its members are known already.
func pastOf(g *jobdb.Group, parts []Part) *past {
	p := &past{Group: group.New(group.Key{Queue: g.Queue, Set: g.JobSet, Name: g.Name}, g.Policy, g.Shape), ended: map[string][]ended{}}
	for i := range parts {
		for _, u := range parts[i].Units {
			for _, j := range u.Members {
				if at := p.unit(parts[i].Name, u.Replica); at.Member(j.Member.Index) == nil {
					at.GangID = j.Submit.GangID
					at.Add(group.Member{Index: j.Member.Index, Job: j.JobID})
				}
			}
		}
	}
	return p
}

func (p *past) unit(part string, replica uint32) *group.Unit {
	in := p.Part(part)
	if in == nil {
		in = &group.Part{ShapePart: policy.ShapePart{Name: part}, Index: len(p.Parts)}
		p.Parts = append(p.Parts, in)
	}
	u := in.Unit(replica)
	if u == nil {
		u = &group.Unit{Replica: replica}
		p.Put(in, u)
	}
	return u
}

// member returns a member and its unit; the member is nil if its job is not known any more.
func (p *past) member(m *chain.Member) (*group.Unit, *group.Member) {
	u := p.unit(m.Part, m.Replica)
	return u, u.Member(m.Index)
}

// reach raises a unit to a generation. Unless a gang's retry raised it, its counts start anew.
func reach(u *group.Unit, generation uint32, anew bool) {
	if generation <= u.Generation {
		return
	}
	u.Generation = generation
	u.SetState(group.Active)
	if anew {
		u.Retries = 0
	}
}

// add adds what a record says. What came too late, or stands in shadow, did nothing.
func (p *past) add(r *Record) {
	if r.Where.Superseded {
		return
	}
	at, _ := chain.PositionOf(r.Record)
	switch d := r.Record.(type) {
	case *chain.Decision:
		p.decided(d, Turn{where: r.Where, at: at, run: d}, r)
	case *chain.UnitEnded:
		u := p.unit(d.Member.Part, d.Member.Replica)
		t := Turn{where: r.Where, at: at, Generation: d.Member.Generation}
		if d.Verdict.Action.Restarts() {
			t.Generation--
		}
		p.turn(t, r)
		reach(u, d.Member.Generation, true)
		p.perform(u, &d.Verdict)
	case *chain.GroupEnded:
		p.State, p.Reason, p.Rule = d.State, d.Reason, d.Rule
		if t := p.last(at); t == nil {
			p.turn(Turn{where: r.Where, at: at, Generation: p.Generation}, r)
		}
	case *chain.MemberChange:
		p.changed(d, at)
	}
}

func (p *past) turn(t Turn, r *Record) {
	t.Record, _ = r.Line()
	p.turns = append(p.turns, &t)
}

// last returns the newest turn, if it follows from this event.
func (p *past) last(at eventlog.Position) *Turn {
	if n := len(p.turns); n > 0 && p.turns[n-1].at == at {
		return p.turns[n-1]
	}
	return nil
}

func (p *past) decided(d *chain.Decision, t Turn, r *Record) {
	switch {
	case d.Member == nil, d.Code == policy.GroupOver, d.Code == policy.GroupRestart && d.Group == nil:
		return
	case d.Shadow: // nothing follows from it
		if t.Generation = d.Member.Generation; d.Group != nil {
			p.turn(t, r)
		}
		return
	}
	u, m := p.member(d.Member)
	restarts := d.Code == policy.GangRetry || d.Group != nil && !d.Group.Noted && d.Group.Action.Restarts()
	if t.Generation = d.Member.Generation; restarts {
		t.Generation--
		p.ended[d.JobID] = append(p.ended[d.JobID], ended{t.Generation, jobdb.MemberUnitFail.String()})
	}
	if restarts || d.Group != nil || d.Code == policy.UnitLimit || d.Code == policy.GangFail {
		p.turn(t, r)
	}
	if m != nil && !d.Requeue {
		u.Set(m, m.Status&^group.Held|group.HasFailed)
	}
	reach(u, d.Member.Generation, d.Code != policy.GangRetry)
	if d.Code == policy.RuleRetry || d.Code == policy.DefaultRetry || d.Code == policy.GangRetry && d.LimitFrom != policy.FromNowhere {
		u.Retries++
	}
	if d.Group != nil && !d.Group.Noted {
		p.perform(u, d.Group)
	}
}

func (p *past) perform(u *group.Unit, v *chain.GroupVerdict) {
	switch {
	case v.Action.Restarts() && v.Rule == policy.RestartsRule:
		u.Restarts++
	case v.Action.Restarts():
		p.CountRestart(v.Rule)
		p.Counted = v.RestartsUsed
	case v.Action != policy.NoGroupAction:
		p.Halted = p.Halted || v.Action == policy.Halt
		u.SetState(group.Failed)
	}
}

func (p *past) changed(c *chain.MemberChange, at eventlog.Position) {
	u, m := p.member(&c.Member)
	t := p.last(at)
	switch c.Change {
	case chain.MemberRestart:
		if t != nil {
			t.Restarted++
		}
		before := p.ended[c.JobID]
		if was := c.Member.Generation - 1; m != nil && (len(before) == 0 || before[len(before)-1].generation < was) {
			p.ended[c.JobID] = append(before, ended{was, stateIn(m.Status)})
		}
		reach(u, c.Member.Generation, true)
		p.set(u, m, 0)
	case chain.MemberStopped:
		if t != nil {
			t.Stopped++
		}
		if m != nil && !m.Status.Over() {
			p.set(u, m, group.WasStopped)
		}
	case chain.MemberHeld:
		p.set(u, m, group.Held)
	case chain.MemberReleased:
		p.set(u, m, 0)
	case chain.MemberJoined:
	}
}

func (*past) set(u *group.Unit, m *group.Member, s group.Status) {
	if m != nil {
		u.Set(m, s)
	}
}

// stateIn is the state of a member whose generation ends by a restart.
func stateIn(s group.Status) string {
	switch {
	case s&group.HasFailed != 0:
		return jobdb.MemberFailed.String()
	case s&group.WasStopped != 0:
		return jobdb.MemberStopped.String()
	case s&group.Held != 0:
		return jobdb.MemberHeld.String()
	}
	return restarted
}

// endedBy adds the members of which no record tells that they succeeded or were cancelled, if their jobs had ended before a time.
func (p *past) endedBy(parts []Part, t int64) {
	over := map[jobdb.JobState]group.Status{jobdb.JobSucceeded: group.HasSucceeded, jobdb.JobCancelled: group.WasCancelled}
	for i := range parts {
		for _, of := range parts[i].Units {
			u := p.unit(parts[i].Name, of.Replica)
			for _, j := range of.Members {
				if m := u.Member(j.Member.Index); m != nil && over[j.State] != 0 && j.Times.Ended < t && !m.Status.Over() {
					u.Set(m, over[j.State])
				}
			}
			if u.State == group.Active && u.Enough() {
				u.SetState(group.Succeeded)
			}
		}
	}
}
