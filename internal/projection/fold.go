package projection

import (
	"strings"

	"github.com/refloat/refloat/events"
)

// message is what the folding of one message leaves to settle.
type message struct {
	parked   []ParkedEvent
	failures []Failure
	proofs   []runRef // runs whose pod is gone according to this message
	proven   []runRef // decided in this message, but known to be gone before

	features Features
	q        Questions
	effects  []Effect
	ready    []Readiness // of effects

	groups []*groupEntry // touched
	due    []*groupEntry // whose horizon has passed

	orders []Order

	visited int // members of groups that it looks at without an event of theirs
}

type runRef struct{ job, run string }

// ParkedEvent is an event without the job or run id that it needs.
type ParkedEvent struct {
	Reason events.ParkReason
	Event  uint32 // index in the message, from 1
	Raw    []byte
}

// Failure is a run that failed in the current message.
type Failure struct {
	JobID, RunID string
	Time         int64         // t, Unix nanoseconds
	Error        *events.Error // nil: preempted, without further information
	Preempted    bool          // by a JobRunPreempted

	Ran          bool  // it is known
	RunningSince int64 // when it began to run

	Job  *Job
	Run  *Run
	Node string // where it ran
	Skip Skip   // why it is not decided, if it is not

	Member *MemberFailure // nil: the job is in no group

	entry *entry
}

// Skip is the reason why a failed run is not decided (semantics.md 1).
type Skip uint8

// The reasons, by precedence.
const (
	Decide Skip = iota
	StaleRun
	Cancelled
	Ended
	UnknownJob
	Unanswered // the log has no record of it, because the state is rebuilt from a part of the log
)

// Process processes one message, whose times are resolved. What happens stands in Effects: first the events that cannot be
// processed; while the others are folded, the jobs that become members of groups; then each failed
// run in order of failure, or as Order says of those of a group (decided and applied before the next
// one is settled), what follows in groups, the answers to orders, and the retries that became ready. After an error the state
// must be discarded.
func (s *State) Process(seq *events.Sequence, f Features, q Questions) error {
	clear(s.msg.effects)
	s.msg.features, s.msg.q, s.msg.effects = f, q, s.msg.effects[:0]
	s.park(seq)
	for i := range s.msg.parked {
		s.happened(&s.msg.parked[i])
	}
	s.fold(seq)
	ordered := s.collectWaiting()
	for i := range s.msg.failures {
		if ordered {
			s.order(i)
		}
		if err := s.decide(s.settle(i)); err != nil {
			return err
		}
	}
	if len(s.msg.groups) > 0 || len(s.msg.due) > 0 || s.recheck.going {
		s.settleGroups()
	}
	if err := s.answer(seq.Queue, seq.JobSet); err != nil {
		return err
	}
	s.markReady()
	s.reindex()
	return s.err
}

// park collects the events of a message that cannot be processed.
func (s *State) park(seq *events.Sequence) {
	s.msg.parked = s.msg.parked[:0]
	for i := range seq.Events {
		if why := seq.Events[i].Missing(); why != events.UnknownParkReason && !s.passesOver(&seq.Events[i]) {
			s.msg.parked = append(s.msg.parked, ParkedEvent{Reason: why, Event: uint32(i + 1), Raw: seq.Events[i].Raw})
		}
	}
}

// fold folds the events of a message, and leaves its failures to be settled.
func (s *State) fold(seq *events.Sequence) {
	clear(s.msg.failures)
	s.msg.failures = s.msg.failures[:0]
	s.msg.proofs, s.msg.proven = s.msg.proofs[:0], s.msg.proven[:0]
	clear(s.msg.orders)
	s.msg.orders = s.msg.orders[:0]
	for i := range seq.Events {
		s.Watermark = max(s.Watermark, seq.Events[i].Time)
	}
	s.forget()
	for i := range seq.Events {
		ev := &seq.Events[i]
		if ev.Missing() == events.UnknownParkReason && !s.passesOver(ev) {
			s.foldEvent(seq, ev)
		}
	}
	s.classify()
	s.markSucceeded()
}

// passesOver reports whether the version in force does not know an event's kind.
func (s *State) passesOver(ev *events.Event) bool {
	return ev.Kind == events.JobOrder && !s.msg.features.Orders
}

func (s *State) foldEvent(seq *events.Sequence, ev *events.Event) {
	switch ev.Kind {
	case events.Other:
	case events.SubmitJob:
		s.submit(seq, ev)
	case events.CancelJob:
		e := s.keep(ev.JobID)
		e.job.CancelRequested = true
		s.cancelled(e, ev.Time)
	case events.CancelJobSet:
		s.cancelSet(seq, ev)
	case events.CancelledJob:
		e := s.keep(ev.JobID)
		e.job.Cancelled = true
		s.end(e.job)
		s.cancelled(e, ev.Time)
	case events.JobSucceeded:
		if j := s.keep(ev.JobID).job; j.Member == nil { // it names no run
			j.Succeeded = j.Succeeded || !j.Ended
			s.end(j)
		}
	case events.JobErrors:
		s.jobErrors(ev)
	case events.RunTerminated:
		e := s.keep(ev.JobID)
		s.gone(e, s.runOrNote(e, ev.RunID))
	case events.KnownRun, events.EndedRun:
		s.republished(ev)
	case events.JobOrder:
		e := s.keep(ev.JobID)
		s.msg.orders = append(s.msg.orders, Order{Order: ev.Order, JobID: e.id, RunID: ev.RunID, Time: ev.Time, Job: e.job, entry: e})
	default:
		s.foldRun(ev)
	}
}

// keep returns the entry of a job, creating it if necessary, and marks it as changed.
func (s *State) keep(job string) *entry {
	e := s.entry(job)
	if e.job == nil {
		e.job, e.whole = &Job{ID: e.id, FirstSeen: s.Watermark}, true
	}
	s.touch(e)
	if e.job.Member != nil {
		s.touchMember(e)
	}
	return e
}

func (s *State) submit(seq *events.Sequence, ev *events.Event) {
	e := s.keep(ev.JobID)
	j := e.job
	if j.Known {
		return
	}
	sub := ev.Submit
	j.Known = true
	j.Queue, j.Set = s.intern(seq.Queue), s.intern(seq.JobSet)
	j.RetryPolicies = s.intern(sub.RetryPolicies)
	j.FailFast = sub.FailFast == "true"
	j.GangID, j.GangSize = strings.Clone(sub.GangID), strings.Clone(sub.GangCardinality)
	for _, name := range sub.InitContainers {
		j.InitContainers = append(j.InitContainers, s.intern(name))
	}
	j.GraceSeconds = sub.GraceSeconds
	s.newInSet = append(s.newInSet, setMember{queue: j.Queue, set: j.Set, job: j.ID, flush: s.flushes + 1})
	if (sub.Group != "" || j.GangID != "") && s.msg.features.Groups {
		s.join(e, sub, ev.Time)
	}
}

// cancelSet records a cancellation of the known jobs of a set, restricted to states.
func (s *State) cancelSet(seq *events.Sequence, ev *events.Event) {
	queue, set, states := seq.Queue, seq.JobSet, ev.States
	var jobs []string
	prefix := appendSetPrefix(nil, queue, set)
	err := s.kv.Scan(prefix, after(prefix), func(key, _ []byte) bool {
		jobs = append(jobs, string(key[len(prefix):]))
		return true
	})
	if err != nil {
		s.fail(err)
	}
	for _, m := range s.newInSet {
		if m.queue == queue && m.set == set {
			jobs = append(jobs, m.job)
		}
	}
	for _, id := range jobs {
		e := s.entry(id)
		j := e.job
		if j == nil || !j.Known || j.Queue != queue || j.Set != set || !j.in(states) {
			continue
		}
		if j.Member != nil {
			s.touchMember(e)
		}
		if j.CancelRequested {
			continue
		}
		j.CancelRequested = true
		s.touch(e)
		s.cancelled(e, ev.Time)
	}
}

// in reports whether the job is in one of the states that a CancelJobSet names.
func (j *Job) in(states events.JobStates) bool {
	if states == 0 {
		return true
	}
	if j.Open > 0 {
		return states&(events.Pending|events.Running) != 0
	}
	return states&events.Queued != 0
}

// end makes the job a tombstone; later ends have no effect.
func (s *State) end(j *Job) {
	if !j.Ended {
		j.Ended, j.EndedAt = true, s.Watermark
	}
}

// jobErrors folds JobErrors: a rejection ends the job, any other terminal error is the
// scheduler's own verdict, and a non-terminal one has no effect.
func (s *State) jobErrors(ev *events.Event) {
	if ev.Error == nil {
		return
	}
	e := s.keep(ev.JobID)
	j := e.job
	if ev.Error.Reason == events.JobRejected {
		j.Succeeded = false
		s.end(j)
		s.cancelled(e, ev.Time)
		return
	}
	j.Verdict, j.VerdictAt = true, s.Watermark
}

// foldRun folds the events that make a run known.
func (s *State) foldRun(ev *events.Event) {
	e := s.keep(ev.JobID)
	if e.job.Runs == 0 && e.job.Known {
		s.firstRun(e.job.Queue)
	}
	r := s.see(e, ev.RunID)
	switch ev.Kind {
	case events.RunLeased:
		if !r.Leased {
			r.Leased, r.LeasedNode = true, s.intern(ev.Node)
		}
	case events.RunRunning:
		if r.End != NotEnded {
			break
		}
		if ev.Node != "" {
			r.RunningNode = s.intern(ev.Node)
		}
		if !r.Running && s.msg.features.Durations {
			r.Running, r.RunningSince = true, ev.Time
		}
		if e.job.Member != nil {
			s.running(e, r, true)
		}
	case events.RunSucceeded:
		switch r.End {
		case NotEnded:
			r.end(Succeeded)
			e.job.Open--
			if e.job.Member != nil {
				s.succeeded(e, r, ev.Time)
			}
		case Failed:
			s.gone(e, r)
		case Succeeded:
		}
	case events.RunErrors:
		if ev.Error != nil {
			s.failed(e, r, ev)
		}
	case events.RunPreempted:
		s.failed(e, r, ev)
	default: // RunAssigned only makes the run known
	}
	s.touchRun(e, r)
}

// see returns a run, making it known as the job's latest if necessary.
func (s *State) see(e *entry, id string) *Run {
	j := e.job
	r := s.run(e, id)
	if r != nil && r.Seen {
		return r
	}
	if r == nil {
		r = &Run{ID: strings.Clone(id)}
	} else {
		delete(e.runs, id)
		e.obsolete = append(e.obsolete, r.ID)
	}
	if old := j.Latest; old != nil {
		j.Latest = nil
		e.keepRun(old)
		s.touchRun(e, old)
	}
	r.Seen, r.Index = true, j.Runs
	j.Latest = r
	j.Runs++
	j.Open++
	j.Verdict = false
	if j.Member != nil {
		s.started(e)
	}
	return r
}

// republished folds a run that a cut-over republished from Armada's tables. It does not change
// what the log says about the run. If the run is new, it is older than every run that the
// log made known, because logs lose only their beginnings; and because the newest run is
// republished first, it is older than those republished before. How the run ended does not
// concern us.
func (s *State) republished(ev *events.Event) {
	e := s.keep(ev.JobID)
	j := e.job
	r := s.run(e, ev.RunID)
	if r != nil && r.Seen {
		return
	}
	if j.Latest == nil {
		verdict := j.Verdict
		r = s.see(e, ev.RunID)
		j.Verdict = verdict // it came after the run
	} else {
		r = s.runOrNote(e, ev.RunID)
		r.Seen, r.Index = true, j.Runs
		j.Runs++
		j.Open++
	}
	r.Leased, r.LeasedNode = true, s.intern(ev.Node)
	if ev.Kind == events.EndedRun {
		r.End, r.Outcome = Failed, LeftAlone
		j.Open--
	}
	s.touchRun(e, r)
}

// runOrNote returns a run, or records one that no event has made known yet.
func (s *State) runOrNote(e *entry, id string) *Run {
	if r := s.run(e, id); r != nil {
		return r
	}
	r := &Run{ID: strings.Clone(id)}
	e.keepRun(r)
	return r
}

// failed folds a JobRunErrors with a terminal error, or a JobRunPreempted.
func (s *State) failed(e *entry, r *Run, ev *events.Event) {
	switch r.End {
	case Succeeded:
	case NotEnded:
		s.msg.failures = append(s.msg.failures, Failure{
			JobID: e.id, RunID: r.ID, Time: ev.Time,
			Error: ev.Error, Preempted: ev.Kind == events.RunPreempted,
			Ran: r.Running, RunningSince: r.RunningSince,
			Job: e.job, Run: r, entry: e,
		})
		r.end(Failed)
		e.job.Open--
		if e.job.Member != nil {
			s.running(e, r, false)
		}
	case Failed:
		if f := s.failureInHand(e.id, r.ID); f != nil {
			f.merge(ev)
			return
		}
		if ev.Kind == events.RunErrors && (ev.Error.Reason == events.PodError || ev.Error.Reason == events.PodLeaseReturned) {
			s.gone(e, r)
		}
	}
}

func (s *State) failureInHand(job, run string) *Failure {
	for i := range s.msg.failures {
		if f := &s.msg.failures[i]; f.JobID == job && f.RunID == run {
			return f
		}
	}
	return nil
}

// merge folds a second end of a run in the same message: a preemption and an error
// belong together, in either order; t is that of the first.
func (f *Failure) merge(ev *events.Event) {
	if ev.Kind == events.RunPreempted {
		f.Preempted = true
	} else if f.Error == nil {
		f.Error = ev.Error
	}
}

// gone records the first proof that a run's pod is gone.
func (s *State) gone(e *entry, r *Run) {
	if r.Gone {
		return
	}
	r.Gone = true
	s.touchRun(e, r)
	s.msg.proofs = append(s.msg.proofs, runRef{job: e.id, run: r.ID})
}
