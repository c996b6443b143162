package standin

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of the events in Armada's Event.
const (
	evSubmitJob              = 1
	evReprioritiseJob        = 2
	evReprioritisedJob       = 4
	evCancelJob              = 5
	evCancelJobSet           = 6
	evCancelledJob           = 7
	evJobSucceeded           = 8
	evJobErrors              = 9
	evJobRunLeased           = 10
	evJobRunAssigned         = 11
	evJobRunRunning          = 12
	evJobRunSucceeded        = 13
	evJobRunErrors           = 14
	evCreated                = 18
	evJobRunPreempted        = 19
	evPartitionMarker        = 20
	evJobRequeued            = 22
	evJobPreemptionRequested = 23
	evJobRunCancelled        = 24
	evJobValidated           = 25
)

// The numbers of the reasons in Armada's Error.
const (
	errMaxRunsExceeded  = 7
	errLeaseExpired     = 6
	errPodError         = 8
	errPodLeaseReturned = 9
	errPreempted        = 11
	errJobRejected      = 13
)

// event is one event that is to be published.
type event struct {
	kind    protowire.Number
	created time.Time
	body    msg
}

// sequence is one EventSequence that is to be published.
type sequence struct {
	queue, set, user string
	groups           []string
	events           []event
}

func (s *sequence) encode() msg {
	m := msg(nil).str(1, s.queue).str(2, s.set).str(3, s.user)
	for _, g := range s.groups {
		m = m.sub(4, msg(g))
	}
	for _, e := range s.events {
		m = m.sub(5, msg(nil).sub(e.kind, e.body).sub(evCreated, timestamp(e.created)))
	}
	return m
}

// failure is an Error with its reason.
func failure(reason protowire.Number, body msg, category, subcategory string) msg {
	return msg(nil).flag(1, true).sub(reason, body).str(16, category).str(17, subcategory)
}

func jobErrors(job string, failure msg) msg { return msg(nil).sub(2, failure).str(3, job) }

func runErrors(job, run string, failure msg) msg {
	return msg(nil).sub(3, failure).str(4, job).str(5, run)
}

func leased(j *job, r *run) msg {
	return msg(nil).
		str(3, r.executor).str(4, r.node).num(5, uint64(j.queuedVersion)).
		flag(6, true).num(7, priorityOf(j.info.class)).
		sub(9, nil).str(10, j.id).str(11, r.id).str(12, pool)
}

func requeued(j *job) msg {
	return msg(nil).sub(2, j.info.encode()).num(3, uint64(j.queuedVersion)).str(4, j.id)
}

// podSucceeded is JobRunSucceeded.
func podSucceeded(p *pod, executor string) msg {
	return msg(nil).sub(3, podInfo(p, executor, p.node)).str(4, p.job).str(5, p.run)
}

// podMoved is JobRunAssigned, where the node is not said, or JobRunRunning.
func podMoved(p *pod, executor, node string) msg {
	return msg(nil).sub(3, podInfo(p, executor, node)).str(4, p.job).str(5, p.run).str(6, pool)
}

func podInfo(p *pod, executor, node string) msg {
	meta := msg(nil).str(1, executor).str(2, namespace).str(3, p.name()).str(4, "uid-"+p.run)
	return msg(nil).sub(1, meta).sub(2, msg(nil).str(1, node))
}

// podError is what an executor reports of a pod that failed.
func podError(p *pod, executor string) msg {
	meta := msg(nil).str(1, executor).str(2, namespace).str(3, p.name()).str(4, "uid-"+p.run)
	reason, word := uint64(0), "Error"
	if p.out.oom {
		reason, word = 2, "OOMKilled"
	}
	container := msg(nil).
		sub(1, msg(nil).str(1, executor).str(2, namespace).str(3, "main")).
		num(2, uint64(p.out.exit)).str(3, p.out.message).str(4, word).num(9, reason)
	body := msg(nil).sub(1, meta).str(2, p.out.message).str(3, p.node).sub(5, container).num(6, reason)
	return failure(errPodError, body, p.out.category, p.out.subcategory)
}

func leaseReturned(p *pod, executor, message string, attempted bool) msg {
	meta := msg(nil).str(1, executor).str(2, namespace).str(3, p.name())
	return failure(errPodLeaseReturned, msg(nil).sub(1, meta).str(2, message).flag(4, attempted), "", "")
}
