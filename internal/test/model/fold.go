package model

import (
	"slices"

	"github.com/refloat/refloat/events/pb"
)

// fold takes in one event (§1). It returns why the event is parked, or "".
func (m *Model) fold(seq *pb.EventSequence, ev *pb.Event, t int64) string {
	switch e := ev.Event.(type) {
	case *pb.Event_SubmitJob:
		if e.SubmitJob.JobId == "" {
			return EventWithoutJob
		}
		m.submit(seq, e.SubmitJob, t)

	// A job and its runs that Armada's tables have (ADR 11): the SubmitJob once
	// more, and runs that are older than those known.
	case *pb.Event_KnownJob:
		if e.KnownJob.JobId == "" {
			return EventWithoutJob
		}
		m.Seen["job told again"]++
		m.submit(seq, e.KnownJob, t)
	case *pb.Event_KnownRun:
		return m.republishedRun(e.KnownRun, false)
	case *pb.Event_EndedRun:
		return m.republishedRun(e.EndedRun, true)

	// "JobRequeued …, whoever sent them, change nothing."
	// READING: kinds that change nothing are passed over, whatever they name, so
	// that what is parked does not depend on how much of Armada's contract is
	// known. (Otherwise: they must name their job.)
	case *pb.Event_ReprioritisedJob, *pb.Event_JobRequeued:

	// "Asked to be cancelled: CancelJob, or CancelJobSet for its set in that
	// queue, among the jobs known at that position, narrowed by the states named".
	case *pb.Event_CancelJob:
		if e.CancelJob.JobId == "" {
			return EventWithoutJob
		}
		m.cancel(m.kept(e.CancelJob.JobId), t)
		m.Seen["cancel job"]++
	case *pb.Event_CancelJobSet:
		for _, j := range m.jobs {
			if j.known && j.queue == seq.Queue && j.set == seq.JobSetName && named(e.CancelJobSet.States, j) {
				m.touch(j)
				m.cancel(j, t)
				m.Seen["cancel job set"]++
			}
		}

	// "A job ends by JobSucceeded, by CancelledJob, by a terminal JobErrors with
	// JobRejected, and by our own JobFailed".
	case *pb.Event_CancelledJob:
		if e.CancelledJob.JobId == "" {
			return EventWithoutJob
		}
		j := m.kept(e.CancelledJob.JobId)
		m.cancel(j, t)
		m.end(j)
		m.Seen["cancelled job"]++
	case *pb.Event_JobSucceeded:
		if e.JobSucceeded.JobId == "" {
			return EventWithoutJob
		}
		j := m.kept(e.JobSucceeded.JobId)
		if j.member != nil { // semantics.md 12.3: it "names no run and is ignored for members"
			m.Seen["group: JobSucceeded of a member"]++
			return ""
		}
		j.succeeded = j.succeeded || !j.ended
		m.end(j)
	case *pb.Event_JobErrors:
		if e.JobErrors.JobId == "" {
			return EventWithoutJob
		}
		m.jobErrors(e.JobErrors, t)

	// "A run is known from the first JobRunLeased, JobRunAssigned,
	// JobRunRunning, JobRunSucceeded, JobRunErrors or JobRunPreempted that names
	// it".
	case *pb.Event_JobRunLeased:
		if reason := lacks(e.JobRunLeased.JobId, e.JobRunLeased.RunId); reason != "" {
			return reason
		}
		r := m.run(m.kept(e.JobRunLeased.JobId), e.JobRunLeased.RunId)
		if r.leasedNode == nil {
			r.leasedNode = &e.JobRunLeased.NodeId
		}
	case *pb.Event_JobRunAssigned:
		if reason := lacks(e.JobRunAssigned.JobId, e.JobRunAssigned.RunId); reason != "" {
			return reason
		}
		m.run(m.kept(e.JobRunAssigned.JobId), e.JobRunAssigned.RunId)
	case *pb.Event_JobRunRunning:
		if reason := lacks(e.JobRunRunning.JobId, e.JobRunRunning.RunId); reason != "" {
			return reason
		}
		r := m.run(m.kept(e.JobRunRunning.JobId), e.JobRunRunning.RunId)
		// "Later ends of the same run change nothing …, nor does a JobRunRunning
		// after its end."
		if node := runningNode(e.JobRunRunning); node != "" && !r.ended {
			r.runningNode = node
		}
		r.running = r.running || !r.ended && r.job.member != nil
		if r.since == nil && !r.ended && m.has(runDurations) {
			r.since = &t
		}

	// "A run ends once: at its first JobRunSucceeded (well), or its first
	// JobRunErrors holding an error with terminal: true, or JobRunPreempted (a
	// failure)."
	case *pb.Event_JobRunSucceeded:
		if reason := lacks(e.JobRunSucceeded.JobId, e.JobRunSucceeded.RunId); reason != "" {
			return reason
		}
		j := m.kept(e.JobRunSucceeded.JobId)
		r := m.run(j, e.JobRunSucceeded.RunId)
		if !r.ended {
			r.well = true
			m.memberSucceeded(r, t)
		}
		r.ended = true
		m.prove(j, e.JobRunSucceeded.RunId) // §8
	case *pb.Event_JobRunErrors:
		if reason := lacks(e.JobRunErrors.JobId, e.JobRunErrors.RunId); reason != "" {
			return reason
		}
		m.runErrors(e.JobRunErrors, t)
	case *pb.Event_JobRunPreempted:
		if reason := lacks(e.JobRunPreempted.PreemptedJobId, e.JobRunPreempted.PreemptedRunId); reason != "" {
			return reason
		}
		r := m.run(m.kept(e.JobRunPreempted.PreemptedJobId), e.JobRunPreempted.PreemptedRunId)
		switch {
		case !r.ended:
			m.fail(r, failure{t: t, preempted: true})
		case r.failure != nil && r.failure.message == m.messages && !r.failure.preempted:
			// "One exception: when JobRunPreempted and a terminal JobRunErrors
			// for the run stand in one message …, the run counts as preempted".
			r.failure.preempted = true
			m.Seen["preemption after its error in one message"]++
		}

	case *pb.Event_JobRunTerminated:
		if reason := lacks(e.JobRunTerminated.JobId, e.JobRunTerminated.RunId); reason != "" {
			return reason
		}
		// READING: it is kept for a job that is not known, but it does not make
		// its run known: it is not among the six kinds that do. (Otherwise: it
		// is passed over when the job or run is not known.)
		m.prove(m.kept(e.JobRunTerminated.JobId), e.JobRunTerminated.RunId)

	case *pb.Event_JobOrder:
		return m.takeOrder(e.JobOrder, t)

	default:
		// "Unknown kinds of event are passed over."
		m.Seen["unknown kind of event"]++
	}
	return ""
}

// republishedRun handles a republished run: see fold. A known run does not change.
func (m *Model) republishedRun(e *pb.KnownRun, ended bool) string {
	if reason := lacks(e.JobId, e.RunId); reason != "" {
		return reason
	}
	j := m.kept(e.JobId)
	if slices.ContainsFunc(j.runs, func(r *run) bool { return r.id == e.RunId }) {
		m.Seen["told of a known run"]++
		return ""
	}
	m.Seen["told of a run"]++
	r := &run{job: j, id: e.RunId, index: len(j.runs), leasedNode: &e.Node, ended: ended}
	j.runs = slices.Insert(j.runs, 0, r)
	j.verdictRun++ // a verdict concerns the same run as before, or came after this one
	return ""
}

// lacks gives the reason for which an event that must name both is parked.
func lacks(jobID, runID string) string {
	switch {
	case jobID == "":
		return EventWithoutJob
	case runID == "":
		return EventWithoutRun
	}
	return ""
}

// submit: "A job is known from its SubmitJob, in its partition, under the queue
// and set of that message". "A SubmitJob for a known job changes nothing.".
func (m *Model) submit(seq *pb.EventSequence, s *pb.SubmitJob, t int64) {
	j := m.kept(s.JobId)
	if j.known {
		m.Seen["submit of a known job"]++
		return
	}
	if len(j.runs) > 0 {
		m.Seen["submit after a run"]++
	}
	j.known = true
	j.queue, j.set = seq.Queue, seq.JobSetName
	j.annotations = s.GetObjectMeta().GetAnnotations()
	spec := s.GetMainObject().GetPodSpec().GetPodSpec()
	for _, c := range spec.GetInitContainers() {
		j.initNames = append(j.initNames, c.Name)
	}
	j.grace = spec.GetTerminationGracePeriodSeconds()
	// semantics.md 12: "a job submitted under [an earlier version] is never a member".
	if m.version >= GroupsVersion {
		m.join(j, t)
	}
}

// cancel notes a request to cancel a job, or that it was cancelled.
func (m *Model) cancel(j *job, t int64) {
	j.cancelled = true
	m.memberLost(j, t)
}

// named says whether a CancelJobSet that names these states means the job:
// "none: all; QUEUED: it has no run that has not ended; PENDING, RUNNING: it
// has one".
// READING: a job that ended is among the jobs known, so that a request to cancel
// it turns the reason of later failures from Ended to Cancelled. (Otherwise: it
// changes nothing any more.)
// READING: a state that is not one of the three means no job; so when only such
// are named, none is meant. (Otherwise: they are ignored, and then all are.)
func named(states []pb.JobState, j *job) bool {
	active := slices.ContainsFunc(j.runs, func(r *run) bool { return !r.ended })
	for _, s := range states {
		if s == pb.JobState_QUEUED && !active {
			return true
		}
		if (s == pb.JobState_PENDING || s == pb.JobState_RUNNING) && active {
			return true
		}
	}
	return len(states) == 0
}

// end ends a job, once.
// READING: "watermark when it ended" is that after the message that ended it,
// as for what is kept for an unknown job. (Otherwise: at the event.)
func (m *Model) end(j *job) {
	if !j.ended {
		j.ended, j.endedAt = true, *m.watermark
	}
}

// firstTerminal: "Several errors in one event: the first terminal one.".
func firstTerminal(errors []*pb.Error) *pb.Error {
	for _, e := range errors {
		if e.Terminal {
			return e
		}
	}
	return nil
}

// jobErrors: a terminal JobErrors with JobRejected ends the job. "Any other
// terminal JobErrors is the scheduler's own verdict on the latest run: recorded
// for comparison; it does not end the job." Non-terminal ones change nothing.
// READING: of several errors the first terminal one says which it is, as for
// runs. (Otherwise: any terminal JobRejected among them.)
// READING: the latest run is the latest at that event. (Otherwise: after the
// message.)
// READING: of several verdicts on one run the last counts for forgetting.
// (Otherwise: the first.)
// READING: a verdict on a job that is not known is kept as runs, ends and
// requests are. (Otherwise: it is not, since it is none of these.)
func (m *Model) jobErrors(e *pb.JobErrors, t int64) {
	terminal := firstTerminal(e.Errors)
	if terminal == nil {
		m.Seen["non-terminal job errors"]++
		return
	}
	j := m.kept(e.JobId)
	if terminal.GetJobRejected() != nil {
		m.Seen["job rejected"]++
		m.end(j)
		j.rejected, j.succeeded = true, false
		m.memberLost(j, t)
		return
	}
	m.Seen["verdict"]++
	// READING: "after that verdict" means after the watermark then. (Otherwise:
	// after the verdict's t.)
	j.verdict, j.verdictRun, j.verdictAt = true, len(j.runs), *m.watermark
}

// runErrors: see fold.
func (m *Model) runErrors(e *pb.JobRunErrors, t int64) {
	j := m.kept(e.JobId)
	r := m.run(j, e.RunId) // known also by an event without a terminal error
	terminal := firstTerminal(e.Errors)
	if terminal == nil {
		m.Seen["non-terminal run errors"]++
		return
	}
	switch {
	case !r.ended:
		m.fail(r, failure{t: t, err: terminal})
	case r.failure != nil && r.failure.message == m.messages:
		// "…in either order, t is that of whichever comes first, the error that
		// of the JobRunErrors". Of several JobRunErrors it is the first.
		if r.failure.err == nil {
			r.failure.err = terminal
			m.Seen["error after its preemption in one message"]++
		}
	case r.failure != nil:
		// §8: proof, "in a later message than the failure, a terminal
		// JobRunErrors with PodError or PodLeaseReturned".
		// READING: of several errors the first terminal one must be it.
		// (Otherwise: any terminal one.)
		m.Seen["re-report in a later message"]++
		if terminal.GetPodError() != nil || terminal.GetPodLeaseReturned() != nil {
			m.prove(j, r.id)
		}
	}
}

// fail ends a run as a failure.
func (m *Model) fail(r *run, f failure) {
	f.message = m.messages
	r.ended, r.failure = true, &f
	r.job.failures = append(r.job.failures, r)
	m.failed = append(m.failed, r)
}

// prove notes that the pod of a run is gone (§8), whenever that is said.
func (m *Model) prove(j *job, runID string) {
	if _, ok := j.proofs[runID]; !ok {
		j.proofs[runID] = m.events
	}
}

// runningNode is the node that a JobRunRunning names.
// READING: that of the first resource info that names one. (Otherwise: that of
// the first info, or of the last that names one.)
func runningNode(e *pb.JobRunRunning) string {
	for _, info := range e.ResourceInfos {
		if node := info.GetPodInfo().GetNodeName(); node != "" {
			return node
		}
	}
	return ""
}
