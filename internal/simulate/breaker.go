package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/protection"
)

// Breakers is what the breakers of the guard did.
type Breakers struct {
	Openings int `json:"openings"` // of one category and queue each
	// False counts openings of a category of which no fault was there, within the guard's window before.
	False    int `json:"falseOpenings"`
	Held     int `json:"held"`     // retries
	Canaries int `json:"canaries"` // of them, those that started early
	Released int `json:"released"` // and those that started because their breaker closed
	// Herd is how many released retries started in five seconds (or a scheduling interval, if that is longer) at most, divided by
	// their average from the first to the last; only those that started after the last fault ended. 0: none did.
	Herd float64 `json:"herd"`
}

// breakers is the guard's part of them.
type breakers struct {
	ends     protection.Window // of all runs but those that were preempted
	memory   protection.Breakers
	opened   []protection.Opening
	held     map[string]*job
	releases []time.Duration // when released retries started
	did      Breakers
}

// category is that of a failure as reported; "" of none.
func (f *Failure) category() string {
	switch {
	case f == nil:
		return ""
	case f.as != nil:
		return f.as.FailureCategory
	}
	return f.Category
}

// noticeStart tells the guard of a run that starts.
func (s *sim) noticeStart(j *job) {
	if s.o.Candidate.Set.Breakers() != nil {
		s.guard.ends.Add(s.startOf(j))
	}
}

// hold notes that a breaker holds the retry of a job.
func (g *guard) hold(j *job) {
	if g.held == nil {
		g.held = map[string]*job{}
	}
	g.held[j.id] = j
	g.did.Held++
}

// judgeCauses says whether other breakers are open from now on, and which held retries start.
func (s *sim) judgeCauses(now int64) (changed bool, starts []protection.Start) {
	g, p := &s.guard, s.o.Candidate.Set.Breakers()
	if p == nil {
		return false, nil
	}
	var held []protection.Held
	for id, j := range g.held { //house:sorted Look does
		if j.state != waiting {
			delete(g.held, id)
			continue
		}
		held = append(held, protection.Held{Cause: protection.Cause{Category: j.last.category, Queue: s.o.Cluster.Queues[j.queue].Name}, Job: id, Runs: uint32(j.runs)})
	}
	since := func(id string) int64 {
		if j := s.jobs[id]; j != nil && j.state == running && !j.pending {
			return begin().Add(j.started).UnixNano()
		}
		return 0
	}
	open := 0
	for i := range g.opened {
		if g.opened[i].Until > now {
			open++
		}
	}
	v := g.memory.Look(&g.ends, p, g.opened, held, since, policy.MaxOpenBreakers-open, now)
	for _, o := range v.Close {
		g.opened[slices.IndexFunc(g.opened, func(was protection.Opening) bool { return was.Cause == o.Cause && was.Since == o.Since })] = o
	}
	for _, o := range v.Open {
		g.opened = append(g.opened, o)
		g.did.Openings++
		if !s.causedByFault(o.Category, p.Window) {
			g.did.False++
		}
	}
	if open+len(v.Open)+len(held) > 0 && !p.Shadow {
		s.lookLater()
	}
	return len(v.Open)+len(v.Close) > 0 && !p.Shadow, v.Start
}

// causedByFault says whether a fault with failures of a category was there within a time before now.
func (s *sim) causedByFault(category string, within time.Duration) bool {
	return slices.ContainsFunc(s.o.Cluster.Faults, func(f Fault) bool {
		return f.Category == category && f.At <= s.now && (f.For == 0 || s.now-within < f.At+f.For)
	})
}

// startHeld orders a held retry to start.
func (s *sim) startHeld(start *protection.Start) {
	j := s.jobs[start.Job]
	if start.Canary {
		s.guard.did.Canaries++
	} else {
		s.guard.did.Released++
		j.released = true
	}
	s.about(j.queue).ordered(j, policy.OrderStart, start.At)
	s.deliver()
}

// answered obeys the answer to an order of the guard.
func (s *sim) answered(r *chain.OrderAnswered) {
	if r.Refusal != policy.NotRefused {
		s.err = fmt.Errorf("the guard's order to start job %s was refused: %s", r.JobID, r.Refusal.Sentence())
		return
	}
	j := s.jobs[r.JobID]
	delete(s.guard.held, r.JobID)
	s.touch(j)
	j.retryAfter = sinceBegin(r.RetryAfter)
	s.wake(max(s.now+1, j.retryAfter))
}

// herdWindow is the least time in which Breakers.Herd looks for the most starts.
const herdWindow = 5 * time.Second

// breakers is what is said of them; nil: there are none.
func (s *sim) breakers() *Breakers {
	if s.o.Candidate.Set.Breakers() == nil {
		return nil
	}
	out, last := s.guard.did, time.Duration(0)
	for i := range s.o.Cluster.Faults {
		f := &s.o.Cluster.Faults[i]
		last = max(last, f.At+f.For)
	}
	starts := slices.DeleteFunc(s.guard.releases, func(at time.Duration) bool { return at < last })
	most, from, window := 0, 0, max(herdWindow, s.o.Cluster.SchedulingInterval)
	for i, at := range starts { // in their order
		for starts[from] <= at-window {
			from++
		}
		most = max(most, i+1-from)
	}
	if n := len(starts); n > 0 {
		ramp := starts[n-1] - starts[0] + s.o.Cluster.SchedulingInterval // what starts at once was due since the cycle before
		out.Herd = float64(most) * float64(max(ramp, window)) / float64(window) / float64(n)
	}
	return &out
}
