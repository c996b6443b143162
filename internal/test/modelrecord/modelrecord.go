// Package modelrecord writes the records of the chain in the words of the reference model, so
// that tests can compare the two.
package modelrecord

import (
	"slices"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/model"
)

// Normalize makes the model's records of one message comparable with those of Of: empty lists are
// nil, a RetryReady names its job alone, the name of a group that is none is cut, and what cannot
// be read comes first.
func Normalize(records []model.Record) {
	for i := range records {
		normalize(&records[i])
	}
	slices.SortStableFunc(records, func(a, b model.Record) int { return parkedFirst(a) - parkedFirst(b) })
}

func normalize(r *model.Record) {
	if len(r.AvoidNodes) == 0 {
		r.AvoidNodes = nil
	}
	if len(r.SkippedPolicies) == 0 {
		r.SkippedPolicies = nil
	}
	if len(r.Raw) == 0 {
		r.Raw = nil
	}
	switch {
	case r.Kind == model.RetryReady:
		r.Queue, r.JobSet = "", ""
	case r.Kind == model.GroupFinding && len(r.Group) > policy.MaxGroupName:
		r.Group = r.Group[:policy.MaxGroupName] // the model's are ASCII
	}
}

func parkedFirst(r model.Record) int {
	if r.Kind == model.Parked {
		return 0
	}
	return 1
}

// Has reports whether the model has such a record. It has no MemberJoined, which tells readers
// without a state of groups what follows from names.
func Has(r chain.Record) bool {
	change, ok := r.(*chain.MemberChange)
	return !ok || change.Change != chain.MemberJoined
}

// Of returns a record that follows from its input in the model's words.
func Of(r chain.Record) model.Record {
	at, _ := chain.PositionOf(r)
	out := model.Record{Ledger: at.Ledger, Entry: at.Entry, Batch: at.Batch}
	switch r := r.(type) {
	case *chain.NotDecided:
		out.Kind, out.Reason = model.NotDecided, r.Reason.String()
		out.Queue, out.JobSet, out.JobID, out.RunID, out.T = r.Queue, r.JobSet, r.JobID, r.RunID, r.Time
	case *chain.Parked:
		out.Kind, out.Reason, out.Event, out.Raw = model.Parked, parkReasons[r.Reason], int(r.Event), r.Raw
	case *chain.RetryReady:
		out.Kind, out.JobID, out.RunID, out.RetryAfter = model.RetryReady, r.JobID, r.RunID, r.RetryAfter
	case *chain.Decision:
		decision(&out, r)
	case *chain.OrderAnswered:
		out.Kind, out.Queue, out.JobSet, out.JobID, out.RunID, out.T = model.OrderAnswered, r.Queue, r.JobSet, r.JobID, r.RunID, r.Time
		out.OrderID, out.OrderAction, out.Author, out.Text, out.Reason = r.OrderID, int(r.Action), r.Author, r.Reason, r.Refusal.String()
		out.RetryAfter, out.PodName, out.AvoidNodes, out.NodesLeftOut = r.RetryAfter, r.PodName, r.AvoidNodes, int(r.NodesLeftOut)
	default:
		groupRecord(&out, r)
	}
	normalize(&out)
	return out
}

var parkReasons = map[events.ParkReason]string{
	events.NotProtobuf: model.Unreadable, events.NoQueue: model.NoQueue, events.NoJobSet: model.NoJobSet,
	events.NoEvents: model.NoEvents, events.NoJob: model.EventWithoutJob, events.NoRun: model.EventWithoutRun,
}

func decision(out *model.Record, d *chain.Decision) {
	out.Kind = model.JobFailed
	out.Number, out.Queue, out.JobSet, out.JobID, out.RunID = int64(d.Number), d.Queue, d.JobSet, d.JobID, d.RunID
	out.RunIndex, out.Code, out.Policy, out.Rule, out.T = int(d.RunIndex), d.Code.String(), d.Policy, d.Rule, d.Time
	out.GlobalUsed, out.GlobalLimit = int(d.GlobalUsed), int(d.GlobalLimit)
	out.SkippedPolicies, out.Shadow = d.Skipped, d.Shadow
	if d.LimitFrom != policy.FromNowhere {
		out.RuleUsed, out.RuleLimit, out.LimitFrom = int(d.RuleUsed), int(d.RuleLimit), d.LimitFrom.String()
	}
	if d.Requeue {
		out.Kind = model.JobRequeued
		out.DelayMs, out.RetryAfter, out.PodName, out.AvoidNodes = d.DelayMS, d.RetryAfter, d.PodName, d.AvoidNodes
		out.NodesLeftOut = int(d.NodesLeftOut)
	}
	if d.Member != nil {
		member(out, d.Member)
	}
	if u := d.Budget; u != nil {
		out.Budget, out.BudgetEffect, out.BudgetNoted = u.Budget, u.Effect.String(), u.Noted
		out.BudgetFirsts, out.BudgetLeft, out.BudgetAt = int(u.Firsts), int(u.Left), u.At
	}
	if v := d.Group; v != nil {
		out.UnitReason, out.GroupAction, out.GroupRule = v.Reason.String(), v.Action.String(), v.Rule
		out.RestartsUsed, out.MaxRestarts = int(v.RestartsUsed), int(v.MaxRestarts)
	}
}

var findings = map[policy.FindingReason]string{
	policy.InvalidName: model.BadGroupName, policy.NoPolicyNamed: model.NoGroupPolicy, policy.NoSuchPolicy: model.UnknownPolicy,
	policy.OtherPolicy: model.AnotherPolicy, policy.NoSuchPart: model.UnknownPart, policy.NoSuchReplica: model.UnknownReplica,
	policy.NoSuchIndex: model.UnknownIndex, policy.IndexTaken: model.IndexTaken, policy.NotOneUnit: model.GangNotOneUnit,
	policy.OverParallelism: model.GangParallelism,
}

func partNames(s *policy.Shape, parts []uint32) (names []string) {
	for _, i := range parts {
		names = append(names, s.Parts[i].Name)
	}
	return names
}

func indexes(set policy.Indexes) (list []int) {
	for i := range policy.MaxGroupMembers {
		if set.Has(uint32(i)) {
			list = append(list, i)
		}
	}
	return list
}

func groupRecord(out *model.Record, r chain.Record) {
	switch r := r.(type) {
	case *chain.GroupBound:
		out.Kind, out.Queue, out.JobSet, out.Group, out.Policy = model.GroupBound, r.Queue, r.JobSet, r.Group, r.Policy
		out.MaxRestarts = int(r.MaxRestarts)
		for _, p := range r.Shape.Parts {
			s := model.Shape{Name: p.Name, Replicas: int(p.Replicas), Members: int(p.Members), MinMembers: int(p.MinMembers), Parallelism: int(p.Parallelism)}
			s.After, s.AfterReady = partNames(&r.Shape, p.After), partNames(&r.Shape, p.AfterReady)
			for _, rule := range p.SuccessRules {
				s.SuccessRules = append(s.SuccessRules, model.SuccessRule{Indexes: indexes(rule.Indexes), Count: new(int(rule.Count))})
			}
			out.Shape = append(out.Shape, s)
		}
		out.Success = model.Success{Any: r.Shape.Success.Any, Parts: partNames(&r.Shape, r.Shape.Success.Parts)}
	case *chain.GroupFinding:
		out.Kind, out.Queue, out.JobSet, out.Group, out.JobID = model.GroupFinding, r.Queue, r.JobSet, r.Group, r.JobID
		out.Reason = findings[r.Reason]
	case *chain.MemberChange:
		out.Kind, out.Queue, out.JobSet, out.JobID = model.Kind(r.Change.String()), r.Queue, r.JobSet, r.JobID
		member(out, &r.Member)
		switch r.Change {
		case chain.MemberRestart:
			out.RunID, out.RetryAfter = r.RunID, r.RetryAfter
		case chain.MemberStopped:
			out.RunID, out.Generation = r.RunID, 0
		default:
			out.Generation = 0
		}
	case *chain.UnitEnded:
		out.Kind, out.Queue, out.JobSet, out.State = model.UnitEnded, r.Queue, r.JobSet, model.StateFailed
		if r.Succeeded {
			out.State = model.StateSucceeded
		}
		member(out, &r.Member)
		v := &r.Verdict
		out.Reason, out.GroupAction, out.Rule = v.Reason.String(), v.Action.String(), v.Rule
		out.RestartsUsed, out.MaxRestarts = int(v.RestartsUsed), int(v.MaxRestarts)
	case *chain.GroupEnded:
		out.Kind, out.Queue, out.JobSet, out.Group = model.GroupEnded, r.Queue, r.JobSet, r.Group
		out.State, out.Reason, out.Rule = r.State.String(), r.Reason.String(), r.Rule
	}
}

func member(out *model.Record, m *chain.Member) {
	out.Group, out.Part, out.Replica, out.Index, out.Generation = m.Group, m.Part, int(m.Replica), int(m.Index), int(m.Generation)
}
