package model

import (
	"math/big"
	"slices"

	"github.com/refloat/refloat/events/pb"
)

// order is an operator's order in the current message (semantics.md 16).
type order struct {
	*pb.JobOrder
	job *job
	t   int64
}

// The actions of orders.
const (
	orderRetry  = 1
	orderGiveUp = 2
	orderStart  = 3
)

// takeOrder: §16, "It names a job and a run, or is parked". Before version 5 nobody knows it.
func (m *Model) takeOrder(o *pb.JobOrder, t int64) string {
	if m.version < OrdersVersion {
		m.Seen["order: passed over"]++
		return ""
	}
	if reason := lacks(o.JobId, o.RunId); reason != "" {
		return reason
	}
	m.orders = append(m.orders, order{o, m.kept(o.JobId), t})
	return ""
}

// answerOrders: §16, "Orders are answered once the failures of their message are decided, and what follows for
// groups, in their order".
func (m *Model) answerOrders(seq *pb.EventSequence, msg Message) {
	for _, o := range m.orders {
		j := o.job
		if slices.Contains(j.answered, o.OrderId) {
			m.Seen["order: repeated"]++
			continue
		}
		// "Of each job, the last 16 ids are kept."
		j.answered = append(j.answered, o.OrderId)
		if len(j.answered) > 16 {
			j.answered = j.answered[1:]
		}
		rec := Record{
			Kind: OrderAnswered, Ledger: msg.Ledger, Entry: msg.Entry, Batch: msg.Batch,
			Queue: j.queue, JobSet: j.set, JobID: j.id, RunID: o.RunId, OrderID: o.OrderId, T: o.t,
			OrderAction: int(min(o.Action, 255)), Author: o.Author, Text: o.Reason, Reason: m.refuse(seq, o),
		}
		if !j.known {
			rec.Queue, rec.JobSet = seq.Queue, seq.JobSetName
		}
		m.Seen["order: "+[]string{"unknown", "retry", "give up", "start"}[min(o.Action, 4)%4]+" "+rec.Reason]++
		switch {
		case rec.Reason != "None":
		case o.Action == orderGiveUp:
			j.cancelled = true
		case o.Action == orderStart:
			m.startByOrder(o, &rec)
		default:
			m.retryByOrder(o, &rec)
		}
		m.record(rec)
	}
}

// retryByOrder says: the job has not ended, and its run was granted a retry.
func (m *Model) retryByOrder(o order, rec *Record) {
	j := o.job
	r := j.runs[len(j.runs)-1]
	j.ended, j.endedAt = false, 0
	// "readyAfter is t, or the end of a pause"; "retryAfter is later by the grace …, unless the pod is known to be gone".
	r.readyAfter = m.paused(j.queue, o.t, o.t)
	r.retryAfter = r.readyAfter
	if _, gone := j.proofs[r.id]; !gone {
		r.retryAfter = m.paused(j.queue, o.t, after(o.t, big.NewInt(m.graceMs(j))))
	}
	r.requeued, r.denied, r.readySent = true, false, false
	rec.RetryAfter, rec.PodName = r.retryAfter, podName(j.id, len(j.runs), true)
	m.avoidAlso(rec, nil, o.t)
}

// startByOrder says: "what was granted starts then, unless it would have started earlier anyway".
func (m *Model) startByOrder(o order, rec *Record) {
	j := o.job
	r := j.runs[len(j.runs)-1]
	ready := max(m.paused(j.queue, o.t, o.t), o.NotBefore)
	retry := ready
	if _, gone := j.proofs[r.id]; !gone {
		retry = max(ready, after(o.t, big.NewInt(m.graceMs(j))))
	}
	if r.readySent { // proof has brought it forward
		r.retryAfter = r.readyAfter
	}
	if r.retryAfter <= retry {
		m.Seen["order: started too late"]++
	}
	r.retryAfter, r.readyAfter = min(retry, r.retryAfter), min(ready, r.readyAfter)
	r.readySent = false
	rec.RetryAfter = r.retryAfter
}

// refuse gives the first reason of §16 for which an order is refused, or None.
func (m *Model) refuse(seq *pb.EventSequence, o order) string {
	j := o.job
	switch {
	case o.Action < orderRetry || o.Action > orderStart:
		return "UnknownAction"
	case !j.known || j.queue != seq.Queue || j.set != seq.JobSetName:
		return "UnknownJob"
	case j.member != nil || isGang(j.annotations):
		return "InGroup"
	case j.cancelled:
		return "Cancelled"
	case len(j.runs) == 0 || j.runs[len(j.runs)-1].id != o.RunId:
		return "StaleRun"
	}
	r := j.runs[len(j.runs)-1]
	switch {
	case !r.ended:
		return "Running"
	case r.well || j.succeeded:
		return "Succeeded"
	case !r.requeued && !r.denied:
		return "NotDecided"
	case r.requeued && j.ended:
		return "Ended"
	case r.requeued && o.Action == orderRetry:
		return "Retrying"
	case r.denied && o.Action != orderRetry:
		return "Failed"
	case m.policies.shadow(j.queue):
		return "Shadow"
	case o.Action != orderGiveUp && (!m.policies.enabled() || m.killed(j.queue)):
		return "KillSwitch"
	}
	return "None"
}
