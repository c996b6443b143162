package evaluator

import (
	"strings"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/projection"
)

// record makes the records of what happened because of the current message.
func (p *Processor) record() {
	p.buf = p.buf[:0] // logged compares in it
	decisions := p.made
	for _, e := range p.State.Effects() {
		if f, ok := e.(*projection.Failure); ok && f.Skip == projection.Decide {
			p.emit(decisions[0])
			decisions = decisions[1:]
			continue
		}
		p.emit(p.recordOf(e))
	}
}

// recordOf returns the record of an effect that is no decision.
func (p *Processor) recordOf(e projection.Effect) chain.Record {
	switch e := e.(type) {
	case *projection.ParkedEvent:
		return p.parked(&chain.Parked{Position: p.at, Reason: e.Reason, Event: e.Event, Raw: e.Raw})
	case *projection.Failure:
		r := &chain.NotDecided{
			Position: p.at, Queue: e.Job.Queue, JobSet: e.Job.Set, JobID: e.JobID, RunID: e.RunID,
			Reason: notDecided(e.Skip), Time: e.Time,
		}
		if !e.Job.Known {
			r.Queue, r.JobSet = strings.Clone(p.seq.Queue), strings.Clone(p.seq.JobSet)
		}
		return r
	case *projection.Binding:
		return &chain.GroupBound{
			Position: p.at, Queue: e.First.Queue, JobSet: e.First.Set, Group: e.Group, JobID: e.First.ID,
			Policy: e.Policy, Digest: e.Digest, Shape: e.Shape, MaxRestarts: e.MaxRestarts,
		}
	case *projection.Finding:
		return &chain.GroupFinding{Position: p.at, Queue: e.Job.Queue, JobSet: e.Job.Set, Group: e.Group, JobID: e.Job.ID, Reason: e.Reason}
	case *projection.MemberChange:
		return &chain.MemberChange{
			Change: changes[e.Change], Position: p.at, Queue: e.Job.Queue, JobSet: e.Job.Set, JobID: e.Job.ID, RunID: e.RunID,
			Member: *memberOf(e.Job, e.Generation), RetryAfter: e.RetryAfter,
		}
	case *projection.UnitEnd:
		v := &e.Verdict
		return &chain.UnitEnded{
			Position: p.at, Queue: e.Group.Queue, JobSet: e.Group.Set,
			Member:    chain.Member{Group: e.Group.Name, Part: e.Unit.Part.Name, Replica: e.Unit.Replica, Generation: e.Generation},
			Succeeded: e.Succeeded,
			Verdict: chain.GroupVerdict{
				Reason: v.Reason, Action: v.Action, Rule: v.Rule, RestartsUsed: v.Used, MaxRestarts: v.Max, Keep: v.Keep, Refused: v.Refused,
			},
		}
	case *projection.GroupEnd:
		return &chain.GroupEnded{Position: p.at, Queue: e.Group.Queue, JobSet: e.Group.Set, Group: e.Group.Name, State: e.State, Reason: e.Reason, Rule: e.Rule}
	case *projection.Order:
		return p.answered(e)
	case *projection.Readiness:
		return &chain.RetryReady{Position: p.at, JobID: e.JobID, RunID: e.RunID, RetryAfter: e.RetryAfter}
	}
	panic("unknown effect") // Effect lists all of them
}

var changes = [...]chain.Change{
	projection.Held: chain.MemberHeld, projection.Unheld: chain.MemberReleased,
	projection.Restarted: chain.MemberRestart, projection.Stopped: chain.MemberStopped, projection.Joined: chain.MemberJoined,
}

func memberOf(j *projection.Job, generation uint32) *chain.Member {
	m := j.Member
	return &chain.Member{Group: m.Group, Part: m.Part, Replica: m.Replica, Index: m.Index, Generation: generation}
}

// parked returns the record of something parked, in the form of the message.
func (p *Processor) parked(r *chain.Parked) *chain.Parked {
	if p.form != InFull {
		return r.Brief()
	}
	return r
}

func notDecided(s projection.Skip) chain.NotDecidedReason {
	switch s {
	case projection.StaleRun:
		return chain.StaleRun
	case projection.Cancelled:
		return chain.Cancelled
	case projection.Ended:
		return chain.Ended
	case projection.UnknownJob:
		return chain.UnknownJob
	case projection.Decide, projection.Unanswered:
	}
	return chain.UnknownNotDecided
}

func (p *Processor) emit(r chain.Record) {
	p.out.Records = append(p.out.Records, r)
	if p.RecordsOnly {
		return
	}
	start := len(p.buf)
	p.buf = chain.AppendRecord(p.buf, r) // if it moves, earlier records stay where they were
	b := p.buf[start:len(p.buf):len(p.buf)]
	p.Progress.Running = p.Progress.Running.Extend(b)
	p.out.Bytes = append(p.out.Bytes, b)
}
