package projection

import (
	"slices"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/group"
)

// classify determines, for each failure of a folded message, how the run ended, and its
// node, which is final from here on (semantics.md 2). This happens before any failure is
// settled, because the node of a run that failed later in the same message is also one
// on which the job failed.
func (s *State) classify() {
	for i := range s.msg.failures {
		f := &s.msg.failures[i]
		r := f.Run
		r.Preempted = f.Preempted || f.Error != nil && f.Error.Reason == events.PreemptedError
		r.Returned = f.Error != nil && f.Error.Reason == events.PodLeaseReturned
		r.Attempted = !r.Returned || f.Error.RunAttempted
		f.Node = s.nodeOf(f)
		if r.Attempted {
			f.Job.avoid(f.Node)
		}
		s.touchRun(f.entry, r)
	}
}

// settle determines whether failure i of the current message is decided.
func (s *State) settle(i int) *Failure {
	f := s.Failure(i)
	if f.Skip != Decide {
		f.Run.Outcome = LeftAlone
	}
	return f
}

// Failure returns failure i of the current message, which is not decided yet, as things stand.
func (s *State) Failure(i int) *Failure {
	f := &s.msg.failures[i]
	f.Skip, f.Member = skip(f.Job, f.Run), nil
	if f.Skip == Decide && f.Job.Member != nil && s.statusOf(f.entry)&group.HasSucceeded != 0 {
		f.Skip = Ended
	}
	if f.Skip == Decide && f.Job.Member != nil {
		f.Member = s.memberFailure(f)
	}
	return f
}

// collectWaiting lists the failures of each group, and reports whether a group has several, whose order is to be asked.
func (s *State) collectWaiting() (several bool) {
	if len(s.msg.failures) < 2 || !s.msg.features.RulesFirst {
		return false
	}
	for i := range s.msg.failures {
		if ge, _, m := s.memberOf(s.msg.failures[i].entry); m != nil {
			ge.waiting = append(ge.waiting, i)
			several = several || len(ge.waiting) > 1
		}
	}
	return several
}

// order puts the failures of a group that are not decided yet into order, if failure i is the first of them.
func (s *State) order(i int) {
	ge, _, m := s.memberOf(s.msg.failures[i].entry)
	if m == nil || len(ge.waiting) < 2 {
		return
	}
	if !s.msg.q.Order(ge.waiting) {
		ge.waiting = ge.waiting[1:]
		return
	}
	if !slices.IsSorted(ge.waiting) {
		sorted := make([]Failure, len(ge.waiting))
		for k, from := range ge.waiting {
			sorted[k] = s.msg.failures[from]
		}
		slices.Sort(ge.waiting)
		for k, to := range ge.waiting {
			s.msg.failures[to] = sorted[k]
		}
	}
	ge.waiting = nil
}

func (s *State) nodeOf(f *Failure) string {
	switch {
	case f.Error != nil && f.Error.Node != "":
		return s.intern(f.Error.Node)
	case f.Run.RunningNode != "":
		return f.Run.RunningNode
	}
	return f.Run.LeasedNode
}

func skip(j *Job, r *Run) Skip {
	switch {
	case j.Latest != r:
		return StaleRun
	case j.Cancelled || j.CancelRequested:
		return Cancelled
	case j.Ended:
		return Ended
	case !j.Known:
		return UnknownJob
	}
	return Decide
}

// Decided is the part of a decision that the state needs.
type Decided struct {
	Requeue, Shadow        bool
	Policy, Rule           string // what a granted or ignored retry is counted under; empty: it is not counted
	Ignored                bool
	RetryAfter, ReadyAfter int64          // Unix nanoseconds
	Member                 *MemberDecided // nil: the job is no member, or nothing but the job is concerned
}

// decide has a settled failure decided, and applies the decision.
func (s *State) decide(f *Failure) error {
	var d Decided
	if f.Skip == Decide {
		var err error
		if d, err = s.msg.q.Decide(f); err != nil {
			return err
		}
		if f.Skip != Decide { // the log has no record of it
			f.Run.Outcome = LeftAlone
			return nil
		}
	}
	s.happened(f)
	if f.Skip == Decide {
		s.apply(f, d)
	}
	return nil
}

// apply applies the decision on a settled failure.
func (s *State) apply(f *Failure, d Decided) {
	s.applyToJob(f, &d)
	if f.Member != nil {
		s.applyToMember(f, &d)
	}
}

func (s *State) applyToJob(f *Failure, d *Decided) {
	j, r := f.Job, f.Run
	if r.Returned && r.Attempted && (d.Member == nil || !d.Member.Absorbed) {
		j.LegacyReturns++
	}
	s.touchRun(f.entry, r)
	if !d.Requeue {
		r.Outcome = Denied
		if !d.Shadow {
			s.end(j)
		}
		return
	}
	r.Outcome, r.RetryAfter, r.ReadyAfter = Requeued, d.RetryAfter, d.ReadyAfter
	if d.Rule != "" {
		j.Grant(d.Policy, d.Rule, d.Ignored)
		if !d.Ignored {
			s.spend(j.Queue, d.Shadow)
		}
	}
	if r.Gone && !s.provenInHand(f.JobID, r.ID) {
		s.msg.proven = append(s.msg.proven, runRef{job: f.JobID, run: r.ID})
	}
}

func (s *State) provenInHand(job, run string) bool {
	return slices.Contains(s.msg.proofs, runRef{job: job, run: run})
}

// markReady finds the retries whose old run is now known to be gone, in order of
// proof, and applies that (semantics.md 8).
func (s *State) markReady() {
	s.msg.ready = s.msg.ready[:0]
	for _, refs := range [][]runRef{s.msg.proven, s.msg.proofs} {
		for _, ref := range refs {
			e := s.entry(ref.job)
			r := s.run(e, ref.run)
			if j := e.job; j.Ended || j.Cancelled || j.CancelRequested || j.Latest != r || j.Member != nil && s.isOver(e) {
				continue
			}
			if r.Outcome != Requeued || r.ReadyAfter >= r.RetryAfter {
				continue
			}
			s.msg.ready = append(s.msg.ready, Readiness{JobID: e.id, RunID: r.ID, RetryAfter: r.ReadyAfter})
			s.happened(&s.msg.ready[len(s.msg.ready)-1])
			r.RetryAfter, r.ReadyAfter = r.ReadyAfter, r.RetryAfter
			s.touchRun(e, r)
		}
	}
}
