package chain_test

import (
	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
)

// recordOf is a record as protobuf-go read it, field by field.
func recordOf(m *pb.Record) chain.Record {
	switch r := m.Record.(type) {
	case *pb.Record_JobRequeued:
		return decisionOf(r.JobRequeued, true)
	case *pb.Record_JobFailed:
		return decisionOf(r.JobFailed, false)
	case *pb.Record_NotDecided:
		n := r.NotDecided
		return &chain.NotDecided{
			Position: positionOf(n.Position), Queue: n.Queue, JobSet: n.JobSet, JobID: n.JobId, RunID: n.RunId,
			Reason: chain.NotDecidedReason(n.Reason), Time: n.Time,
		}
	case *pb.Record_Parked:
		p := r.Parked
		parked := &chain.Parked{Position: positionOf(p.Position), Reason: events.ParkReason(p.Reason), Event: p.Event, Raw: p.Raw, Length: p.Length}
		copy(parked.Digest[:], p.Digest)
		return parked
	case *pb.Record_RetryReady:
		y := r.RetryReady
		return &chain.RetryReady{Position: positionOf(y.Position), JobID: y.JobId, RunID: y.RunId, RetryAfter: y.RetryAfter}
	case *pb.Record_PolicyActivated:
		a := r.PolicyActivated
		return &chain.PolicyActivated{Generation: a.Generation, Digest: [32]byte(a.Digest), HorizonMS: a.HorizonMs}
	case *pb.Record_SemanticsActivated:
		return &chain.SemanticsActivated{Version: r.SemanticsActivated.Version}
	case *pb.Record_OwnerClaim:
		c := r.OwnerClaim
		return &chain.OwnerClaim{Epoch: c.Epoch, Owner: chain.OwnerID(c.Owner), LastSeq: c.LastSeq, LastLink: chain.Hash(c.LastLink), Partitions: c.Partitions}
	case *pb.Record_StateRebuilt:
		return &chain.StateRebuilt{By: r.StateRebuilt.By, From: positionOf(r.StateRebuilt.From)}
	case *pb.Record_GroupBound:
		b := r.GroupBound
		bound := &chain.GroupBound{Position: positionOf(b.Position), Queue: b.Queue, JobSet: b.JobSet, Group: b.Group, JobID: b.JobId, Policy: b.Policy, Digest: [32]byte(b.Digest), MaxRestarts: b.MaxRestarts}
		bound.Shape.Success = policy.Success{Any: b.SuccessAny, Parts: b.SuccessParts}
		for _, p := range b.Parts {
			part := policy.ShapePart{
				Name: p.Name, Replicas: p.Replicas, Members: p.Members, MinMembers: p.MinMembers, After: p.After, Parallelism: p.Parallelism,
				AfterReady: p.AfterReady,
			}
			for _, r := range p.SuccessRules {
				part.SuccessRules = append(part.SuccessRules, policy.SuccessRule{Indexes: policy.ParseIndexes(r.Indexes), Count: r.Count})
			}
			bound.Shape.Parts = append(bound.Shape.Parts, part)
		}
		return bound
	case *pb.Record_GroupFinding:
		f := r.GroupFinding
		return &chain.GroupFinding{Position: positionOf(f.Position), Queue: f.Queue, JobSet: f.JobSet, Group: f.Group, JobID: f.JobId, Reason: policy.FindingReason(f.Reason)}
	case *pb.Record_MemberHeld:
		return changeOf(r.MemberHeld, chain.MemberHeld)
	case *pb.Record_MemberReleased:
		return changeOf(r.MemberReleased, chain.MemberReleased)
	case *pb.Record_MemberRestart:
		return changeOf(r.MemberRestart, chain.MemberRestart)
	case *pb.Record_MemberStopped:
		return changeOf(r.MemberStopped, chain.MemberStopped)
	case *pb.Record_MemberJoined:
		return changeOf(r.MemberJoined, chain.MemberJoined)
	case *pb.Record_UnitEnded:
		u := r.UnitEnded
		return &chain.UnitEnded{Position: positionOf(u.Position), Queue: u.Queue, JobSet: u.JobSet, Member: *memberOf(u.Member), Succeeded: u.Succeeded, Verdict: *verdictOf(u.Verdict)}
	case *pb.Record_GroupEnded:
		e := r.GroupEnded
		return &chain.GroupEnded{
			Position: positionOf(e.Position), Queue: e.Queue, JobSet: e.JobSet, Group: e.Group,
			State: policy.GroupState(e.State), Reason: policy.UnitReason(e.Reason), Rule: e.Rule,
		}
	case *pb.Record_OrderAnswered:
		o := r.OrderAnswered
		return &chain.OrderAnswered{
			Position: positionOf(o.Position), Queue: o.Queue, JobSet: o.JobSet, JobID: o.JobId, RunID: o.RunId, OrderID: o.OrderId,
			Action: policy.OrderAction(o.Action), Author: o.Author, Reason: o.Reason, Time: o.Time, Refusal: policy.Refusal(o.Refusal),
			Generation: o.Generation, PolicySet: [32]byte(o.PolicySet),
			RetryAfter: o.RetryAfter, ReadyAfter: o.RetryAfter - o.ReadyEarly, PodName: o.PodName, AvoidNodes: o.AvoidNodes, NodesLeftOut: o.NodesLeftOut,
		}
	case *pb.Record_HistoryAccepted:
		return &chain.HistoryAccepted{By: r.HistoryAccepted.By}
	}
	return nil
}

func decisionOf(d *pb.Decision, requeue bool) *chain.Decision {
	return &chain.Decision{
		Requeue: requeue, Number: d.Number, Position: positionOf(d.Position),
		Queue: d.Queue, JobSet: d.JobSet, JobID: d.JobId, RunID: d.RunId, RunIndex: d.RunIndex, Time: d.Time,
		Code: policy.Code(d.Code), Policy: d.Policy, Rule: d.Rule, RuleID: d.RuleId,
		LimitFrom: policy.LimitFrom(d.LimitFrom), RuleUsed: d.RuleUsed, RuleLimit: d.RuleLimit,
		GlobalUsed: d.GlobalUsed, GlobalLimit: d.GlobalLimit,
		Container: d.Container, Matcher: policy.Matcher(d.Matcher), Skipped: d.SkippedPolicies, Shadow: d.Shadow,
		Generation: d.Generation, PolicySet: [32]byte(d.PolicySet),
		DelayMS: d.DelayMs, RetryAfter: d.RetryAfter, ReadyAfter: d.RetryAfter - d.ReadyEarly,
		PodName: d.PodName, AvoidNodes: d.AvoidNodes, NodesLeftOut: d.NodesLeftOut,
		Member: memberOf(d.Member), Group: verdictOf(d.GroupVerdict),
	}
}

func changeOf(m *pb.MemberChange, c chain.Change) *chain.MemberChange {
	return &chain.MemberChange{
		Change: c, Position: positionOf(m.Position), Queue: m.Queue, JobSet: m.JobSet, JobID: m.JobId, RunID: m.RunId,
		Member: *memberOf(m.Member), RetryAfter: m.RetryAfter,
	}
}

func memberOf(m *pb.Member) *chain.Member {
	if m == nil {
		return nil
	}
	return &chain.Member{Group: m.Group, Part: m.Part, Replica: m.Replica, Index: m.Index, Generation: m.Generation}
}

func verdictOf(v *pb.GroupVerdict) *chain.GroupVerdict {
	if v == nil {
		return nil
	}
	return &chain.GroupVerdict{
		Reason: policy.UnitReason(v.UnitReason), Action: policy.GroupAction(v.Action), Rule: v.Rule,
		RestartsUsed: v.RestartsUsed, MaxRestarts: v.MaxRestarts, Keep: v.Keep, Refused: v.Refused, Noted: v.Noted,
	}
}
