package evaluator

import (
	"fmt"
	"strings"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// Answer implements projection.Questions. An ordered retry counts against no limit. It starts when the old run's pod is
// certainly gone, and not before the end of a pause. One that is started does so then, or when it would have anyway.
func (p policies) Answer(o *projection.Order) (projection.OrderAnswer, error) {
	a, set, action := o.Answer, p.Rules.Set, policy.OrderAction(o.Action)
	if a.Refusal == policy.NotRefused {
		a.Refusal = set.RefusesOrder(o.Job.Queue, action)
	}
	if a.Refusal != policy.NotRefused || action == policy.OrderGiveUp {
		return a, nil
	}
	a.ReadyAfter = max(o.Time, set.PausedUntil(o.Job.Queue))
	if action == policy.OrderStart {
		a.ReadyAfter = max(a.ReadyAfter, o.NotBefore)
	}
	a.RetryAfter = a.ReadyAfter
	if !o.Run.Gone {
		a.RetryAfter = max(a.ReadyAfter, p.afterGrace(o.Time, policy.Grace(o.Job.GraceSeconds)))
	}
	if action == policy.OrderStart {
		a.RetryAfter, a.ReadyAfter = min(a.RetryAfter, o.Run.RetryAfter), min(a.ReadyAfter, o.Run.RetryAfter, o.Run.ReadyAfter)
		return a, nil // it avoids what it avoided
	}
	avoid := chain.Decision{Time: o.Time}
	avoidAlso(&avoid, nil, set.AvoidNodes())
	a.AvoidNodes, a.NodesLeftOut = avoid.AvoidNodes, avoid.NodesLeftOut
	return a, nil
}

// answered returns the record of an answer.
func (p *Processor) answered(o *projection.Order) *chain.OrderAnswered {
	a := &o.Answer
	r := &chain.OrderAnswered{
		Position: p.at, Queue: o.Job.Queue, JobSet: o.Job.Set, JobID: o.JobID, RunID: strings.Clone(o.RunID),
		OrderID: strings.Clone(o.ID), Action: policy.OrderAction(min(o.Action, 255)), Author: strings.Clone(o.Author), Reason: strings.Clone(o.Reason),
		Time: o.Time, Refusal: a.Refusal, Generation: p.Progress.Generation, PolicySet: p.Progress.PolicySet,
		RetryAfter: a.RetryAfter, ReadyAfter: a.ReadyAfter, AvoidNodes: a.AvoidNodes, NodesLeftOut: a.NodesLeftOut,
	}
	if !o.Job.Known {
		r.Queue, r.JobSet = strings.Clone(p.seq.Queue), strings.Clone(p.seq.JobSet)
	}
	if r.Retries() {
		r.PodName = policy.PodName(r.JobID, o.Job.Runs, true)
	}
	return r
}

func (l logged) Answer(o *projection.Order) (projection.OrderAnswer, error) {
	if r, ok := l.next().(*chain.OrderAnswered); ok && r.JobID == o.JobID && r.OrderID == o.ID && r.Position == l.p.at {
		return answerOf(r), nil
	}
	return projection.OrderAnswer{}, fmt.Errorf("%w: no answer to order %s on job %s at %v", ErrDiverged, o.ID, o.JobID, l.p.at)
}

func (s *partial) Answer(o *projection.Order) (projection.OrderAnswer, error) {
	if r := s.orders[[2]string{o.JobID, o.ID}]; r != nil && r.Position == s.p.at {
		return answerOf(r), nil
	}
	return projection.OrderAnswer{Refusal: policy.RefusedUnknown}, nil
}

func answerOf(r *chain.OrderAnswered) projection.OrderAnswer {
	return projection.OrderAnswer{
		Refusal: r.Refusal, RetryAfter: r.RetryAfter, ReadyAfter: r.ReadyAfter, AvoidNodes: r.AvoidNodes, NodesLeftOut: r.NodesLeftOut,
	}
}
