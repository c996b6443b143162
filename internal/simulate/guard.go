package simulate

import (
	"slices"
	"strconv"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/protection"
)

// Protection is what the guard of a candidate did.
type Protection struct {
	Suspicions int `json:"suspicions"`
	Certain    int `json:"certain"` // of them, those that became certain
	// Healthy counts suspicions of nodes that no fault concerned then.
	Healthy  int     `json:"healthy"`
	NodeDays float64 `json:"nodeDays"` // of all nodes
	// FailuresBefore is how many runs failed on each suspect since its fault began, or since it was a suspect before.
	FailuresBefore []int `json:"failuresBefore"`
}

// guard is the guard of the deployment (protection.Window.Judge, protection.Breakers.Look), which looks at the runs every protection.Every.
type guard struct {
	window    protection.Window
	issued    []protection.Suspicion
	failed    map[string]int // runs on nodes with a fault, since the last suspicion
	scheduled bool
	count     Protection
	breakers
}

// notice tells the guard of a run; no failure: it succeeded.
func (s *sim) notice(j *job, f *Failure) {
	nodes, causes := s.o.Candidate.Set.Protection() != nil && (f == nil || f.tellsOfNode()), s.o.Candidate.Set.Breakers() != nil
	if !nodes && !causes {
		return
	}
	g, e := &s.guard, s.startOf(j)
	e.Time, e.Succeeded, e.Category, e.Pending = begin().Add(s.now).UnixNano(), f == nil, f.category(), j.pending
	if causes {
		g.ends.Add(e)
	}
	if nodes {
		g.window.Add(e)
	}
	if f == nil {
		return
	}
	if nodes && s.faulty(j.node) && !g.suspects(j.node.Name, e.Time) {
		if g.failed == nil {
			g.failed = map[string]int{}
		}
		g.failed[j.node.Name]++
	}
	s.lookLater()
}

// startOf is the run that goes on of a job.
func (s *sim) startOf(j *job) *protection.End {
	name := j.id
	if j.gang != nil {
		name = j.gang.id
	}
	return &protection.End{
		Run: j.id + "/" + strconv.Itoa(j.runs), Job: name, Queue: s.o.Cluster.Queues[j.queue].Name, Set: jobSet, Node: j.node.Name, Started: begin().Add(j.started).UnixNano(),
	}
}

// lookLater has the guard look once more.
func (s *sim) lookLater() {
	if !s.guard.scheduled {
		s.guard.scheduled = true
		s.add(due{at: s.now + protection.Every, what: guards})
	}
}

// suspects says whether a node is a suspect at a time.
func (g *guard) suspects(node string, now int64) bool {
	return slices.ContainsFunc(g.issued, func(s protection.Suspicion) bool { return s.Node == node && s.Until > now })
}

// faulty says whether a fault concerns a node now.
func (s *sim) faulty(n *placed) bool {
	for i := range s.o.Cluster.Faults {
		if f := &s.o.Cluster.Faults[i]; f.active(s.now) && f.hits(n) {
			return true
		}
	}
	return false
}

// tellsOfNode says whether a failure may be its node's.
func (f *Failure) tellsOfNode() bool {
	if f.as != nil {
		return f.as.GetJobRunPreemptedError() == nil && f.as.GetLeaseExpired() == nil && (f.as.GetPodLeaseReturned() == nil || f.as.GetPodLeaseReturned().RunAttempted)
	}
	c, _ := policy.ParseCondition(f.Condition)
	return protection.Tells(c)
}

// judge has the guard look, and do what follows.
func (s *sim) judge() {
	s.guard.scheduled = false
	now := begin().Add(s.now).UnixNano()
	suspected := s.judgeNodes(now)
	opened, starts := s.judgeCauses(now)
	if suspected || opened {
		s.override(now)
	}
	for i := range starts {
		s.startHeld(&starts[i])
	}
}

// judgeNodes says whether retries avoid other nodes from now on.
func (s *sim) judgeNodes(now int64) bool {
	g, p := &s.guard, s.o.Candidate.Set.Protection()
	if p == nil {
		return false
	}
	fresh := g.window.Judge(p, g.issued, func(string) bool { return false }, now)
	for i := range fresh {
		g.note(s, &fresh[i])
	}
	return len(fresh) > 0 && !p.Shadow
}

// override has the policies with what the guard has decided decide from now on.
func (s *sim) override(now int64) {
	g, set := &s.guard, s.o.Candidate.Set
	var overrides []policyfile.Override
	if p := set.Protection(); p != nil && !p.Shadow {
		for i := range g.issued {
			if one := &g.issued[i]; one.Until > now {
				overrides = append(overrides, policyfile.Override{Node: one.Node, AvoidedUntil: one.Until})
			}
		}
	}
	if p := set.Breakers(); p != nil && !p.Shadow {
		for i := range g.opened {
			if one := &g.opened[i]; one.Until > now {
				overrides = append(overrides, policyfile.Override{Queue: one.Queue, Category: one.Category, HeldUntil: one.Until})
			}
		}
	}
	with, err := set.WithOverrides(overrides...)
	if err != nil {
		s.err = err
		return
	}
	s.p.Rules = evaluator.Rules{Generation: s.p.Rules.Generation + 1, Set: with.Set}
	s.p.Activate([]chain.Record{evaluator.Activation(s.p.Rules.Generation, with.Set, s.p.Progress.Semantics)})
}

// note keeps and counts a suspicion.
func (g *guard) note(s *sim, fresh *protection.Suspicion) {
	if fresh.Certain {
		g.count.Certain++
	}
	for i := range g.issued {
		if was := &g.issued[i]; was.Node == fresh.Node && was.Since == fresh.Since {
			*was = *fresh // it became certain
			return
		}
	}
	g.issued = append(g.issued, *fresh)
	g.count.Suspicions++
	if !s.faulty(s.byName[fresh.Node]) {
		g.count.Healthy++
		return
	}
	g.count.FailuresBefore = append(g.count.FailuresBefore, g.failed[fresh.Node])
	g.failed[fresh.Node] = 0
}

// protection is what is said of the guard; nil: there is none.
func (s *sim) protection() *Protection {
	if s.o.Candidate.Set.Protection() == nil {
		return nil
	}
	out := s.guard.count
	out.NodeDays = s.now.Hours() / 24 * float64(len(s.nodes))
	return &out
}
