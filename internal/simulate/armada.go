package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// Causes that are not in a failure model.
const (
	Preempted = "Preempted" // by the scheduler
	Restarted = "Restarted" // with its gang; the run itself did not fail
	Stopped   = "Stopped"   // with its gang
)

// jobSet is that of all jobs.
const jobSet = "simulated"

// about begins the message about what happens now to jobs of a queue. Its events are added to s.seq, and then delivered.
func (s *sim) about(queue int) *sequence {
	s.seq.begin(s.o.Cluster.Queues[queue].Name, begin().Add(s.now))
	return &s.seq
}

// deliver has Step fold and decide the message, unless it has no events, and obeys.
func (s *sim) deliver() {
	if len(s.seq.Events) == 0 || s.err != nil {
		return
	}
	s.position++
	s.count.messages++
	s.count.events += uint64(len(s.seq.Events))
	s.message = eventlog.Message{Position: eventlog.Position{Ledger: 1, Entry: s.position}, Publish: begin().Add(s.now).UnixNano()}
	out, err := s.p.StepDecoded(&s.message, &s.seq.Sequence)
	if err == nil && s.o.Observe != nil {
		if s.message.Payload, err = s.seq.payload(); err == nil {
			s.o.Observe(&s.message, out)
		}
	}
	if err != nil {
		s.err = err
		return
	}
	for _, r := range out.Records {
		s.obey(r)
	}
	for _, j := range s.ended { // only now: a later record of the message may have restarted a member
		s.settle(j)
	}
	s.ended = s.ended[:0]
	if s.p.State.Unflushed() >= flushAt && s.err == nil {
		s.err = s.flush()
	}
}

// flushAt is the number of changed jobs after which they move to the store, since only then the state lets go of
// what it has forgotten. With so many, it has forgotten most of them, which need not be written.
const flushAt = 1 << 14

// flush moves changes into the store. It invalidates what Step has returned.
func (s *sim) flush() error {
	batch := s.store.NewBatch()
	n, err := s.p.State.Flush(batch)
	if err != nil {
		return err
	}
	if err := s.store.Commit(batch, nil); err != nil {
		return err
	}
	s.p.State.Committed(n)
	return nil
}

// obey does what a record says.
func (s *sim) obey(r chain.Record) {
	switch r := r.(type) {
	case *chain.Parked:
		s.err = fmt.Errorf("message %d was parked: %s", s.position, r.Reason)
	case *chain.Decision:
		s.decided(r)
	case *chain.NotDecided:
		if j := s.jobs[r.JobID]; j != nil && j.cause != "" {
			s.count.failed(j, verdict{code: r.Reason.String()})
			j.cause = ""
		}
	case *chain.RetryReady:
		if j := s.jobs[r.JobID]; j != nil {
			s.touch(j)
			j.retryAfter = sinceBegin(r.RetryAfter)
		}
	case *chain.OrderAnswered:
		s.answered(r)
	case *chain.GroupFinding:
		if j := s.jobs[r.JobID]; j != nil && j.group != nil { // it is decided like any job
			j.group.members = slices.DeleteFunc(j.group.members, func(m *job) bool { return m == j })
			j.group = nil
		}
	case *chain.GroupEnded:
		if g := s.groupOf(r.Queue, r.Group); g != nil {
			g.over = true
			s.ended = append(s.ended, g.members...)
		}
	case *chain.MemberChange:
		if j := s.jobs[r.JobID]; j != nil {
			s.changed(j, r)
		}
	}
}

func sinceBegin(at int64) time.Duration { return time.Duration(at - begin().UnixNano()) }

func (s *sim) decided(d *chain.Decision) {
	j := s.jobs[d.JobID]
	if j == nil {
		return
	}
	again := d.Requeue && !d.Shadow
	s.touch(j)
	s.count.failed(j, verdict{d.Policy, d.Rule, d.Code.String(), again})
	j.cause = ""
	if !again {
		j.state = lost
		s.ended = append(s.ended, j)
		return
	}
	j.state, j.retryAfter = waiting, sinceBegin(d.RetryAfter)
	j.avoided = slices.Clone(d.AvoidNodes)
	s.count.avoided(j)
	if d.Code == policy.BreakerHeld {
		s.guard.hold(j)
	}
	s.requeue(j)
}

// requeue puts a job back into its queue. (One that ran until now has not left it.)
func (s *sim) requeue(j *job) {
	if !j.listed {
		s.list(j)
	}
	j.fitsNoNode = false
	s.count.samples.waits(j)
	s.wake(max(s.now+1, j.retryAfter))
}

// changed does what its group does with a member.
func (s *sim) changed(j *job, r *chain.MemberChange) {
	s.touch(j)
	switch r.Change {
	case chain.MemberHeld:
		if j.state == waiting {
			j.state = held
		}
	case chain.MemberReleased:
		if j.state == held {
			j.state = waiting
			s.wake(s.now + 1)
		}
	case chain.MemberRestart:
		switch j.state {
		case running:
			s.stop(j, waiting)
			s.count.wasted(j, Restarted)
		case done:
			s.count.undone(j)
			j.since = s.now
		case waiting, held, undecided, lost:
		}
		j.state, j.retryAfter = waiting, sinceBegin(r.RetryAfter)
		s.requeue(j)
	case chain.MemberStopped:
		if j.state == running {
			s.stop(j, lost)
			s.count.wasted(j, Stopped)
		}
		if j.state != done {
			j.state, j.ended = lost, s.now
		}
		s.ended = append(s.ended, j)
	case chain.MemberJoined:
	}
}

// settle counts a job that is over; a member of a gang when all of them are, and one of a group when the group is, since
// they may run again until then.
func (s *sim) settle(j *job) {
	members := []*job{j}
	switch {
	case j.group != nil && !j.group.over || j.group == nil && j.gang != nil && j.gang.missing > 0:
		return
	case j.group == nil && j.gang != nil:
		members = j.gang.members
	}
	if slices.ContainsFunc(members, func(j *job) bool { return j.state != done && j.state != lost }) {
		return
	}
	for _, j := range members {
		if s.jobs[j.id] != nil {
			s.count.over(j)
			delete(s.jobs, j.id)
		}
	}
}

func (s *sim) submit(jobs []*job) {
	q := jobs[0].queue
	w := s.about(q)
	for _, j := range jobs {
		s.jobs[j.id] = j
		s.touch(j)
		s.list(j)
		s.count.submitted(j)
		if g := j.given; g != nil && g.Cancelled > 0 {
			s.add(due{at: max(g.Cancelled, s.now), what: cancels, job: j})
		}
		w.submitted(j)
	}
	s.deliver()
}

// fail ends runs of a queue's jobs; no failure: they were preempted.
func (s *sim) fail(queue int, f *Failure, jobs ...*job) {
	w := s.about(queue)
	for _, j := range jobs {
		if j.state != running {
			continue
		}
		s.stop(j, undecided)
		reported := f
		if f == nil || f.as.GetJobRunPreemptedError() != nil {
			j.cause, reported = Preempted, nil
			s.guard.ends.Forget(s.startOf(j).Run)
			w.preempted(j)
		} else {
			j.cause = f.Cause
			j.last.note(f, j)
			s.notice(j, f)
		}
		if err := w.failed(j, reported); err != nil {
			s.err = cmp.Or(s.err, fmt.Errorf("encode the error of job %s: %w", j.id, err))
		}
	}
	s.deliver()
}
