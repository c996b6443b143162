package writer

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/schedulerdb"
)

// TestPlanOrders: what orders do to a job that is over, waits, is queued by Armada, was cancelled or is gone.
func TestPlanOrders(t *testing.T) {
	t.Parallel()
	order := func(action policy.OrderAction) ordered {
		return ordered{&chain.OrderAnswered{
			JobID: "j", RunID: "r", OrderID: "o", Action: action, Author: "eve", Reason: "the registry is back", Time: 10 * second,
			RetryAfter: 40 * second, AvoidNodes: []string{"n1", "n2"},
		}, late}
	}
	p, j := of(t, HoldBack, 11)
	j.over = true
	p.do(order(policy.OrderRetry))
	want(t, p, "EndPreemption StopRun ReviveJob info@1(1; waits; "+avoided+") queued=true@2 copy(r  requeue=true@2) due 16")
	if j.over {
		t.Error("a job that is retried by order is over")
	}
	p = p.next(40)
	p.advance(j)
	want(t, p, "info@2(2; "+avoided+") due 45")

	p, _ = of(t, HoldBack, 11)
	p.do(order(policy.OrderGiveUp))
	want(t, p, "RequestCancel copy(  requeue=false@0)")
	const why = "ordered by eve: the registry is back"
	if o := p.ops[0].(*schedulerdb.RequestCancel); o.User != "eve" || o.Reason != why {
		t.Errorf("cancelled by %s: %s", o.User, o.Reason)
	}
	var seq pb.EventSequence
	if payload, err := p.copies[0].fitting(); err != nil || proto.Unmarshal(payload, &seq) != nil {
		t.Fatal(err)
	}
	if e := seq.Events[0].GetJobErrors().GetErrors()[0]; e.GetTerminal() || e.GetPodError().GetMessage() != why {
		t.Errorf("the copy of a cancellation: %v", &seq)
	}

	// What waits is started: the end of its delay comes earlier. A job that does not wait, or waits for another run, is left.
	p, j = of(t, HoldBack, 11)
	j.retry = &pendingRetry{runID: "r", retryAfter: 90 * second, delayed: true}
	p.do(order(policy.OrderStart))
	want(t, p, "due 40")
	p = p.next(41)
	j.retry = &pendingRetry{runID: "other", retryAfter: 90 * second, delayed: true}
	p.do(order(policy.OrderStart))
	j.retry = nil
	p.do(order(policy.OrderStart))
	if len(p.ops) > 0 || len(p.unable) > 0 || j.retry != nil {
		t.Errorf("%d operations, unable: %v", len(p.ops), p.unable)
	}

	for _, c := range []struct {
		name   string
		make   func(*jobView)
		action policy.OrderAction
		unable bool
	}{
		{"queued by Armada", func(j *jobView) { j.queued = true }, policy.OrderRetry, false},
		{"cancelled", func(j *jobView) { j.cancelled, j.over = true, true }, policy.OrderRetry, true},
		{"pruned", func(j *jobView) { j.known = false }, policy.OrderRetry, true},
		{"over, to be given up", func(j *jobView) { j.over = true }, policy.OrderGiveUp, false},
	} {
		p, j := of(t, HoldBack, 11)
		c.make(j)
		p.do(order(c.action))
		if len(p.ops) > 0 || (len(p.unable) > 0) != c.unable {
			t.Errorf("%s: %d operations, unable: %v", c.name, len(p.ops), p.unable)
		}
	}
}
