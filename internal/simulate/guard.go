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

// guard is the guard of the deployment (protection.Window.Judge), which looks at the runs every guardEvery.
type guard struct {
	window    protection.Window
	issued    []protection.Suspicion
	failed    map[string]int // runs on nodes with a fault, since the last suspicion
	scheduled bool
	runs      int
	count     Protection
}

// notice tells the guard of a run, unless it says nothing about its node; no failure: it succeeded.
func (s *sim) notice(j *job, f *Failure) {
	if s.o.Candidate.Set.Protection() == nil || f != nil && !f.tellsOfNode() {
		return
	}
	g := &s.guard
	g.runs++
	name := j.id
	if j.gang != nil {
		name = j.gang.id
	}
	g.window.Add(&protection.End{
		Run: strconv.Itoa(g.runs), Job: name, Queue: s.o.Cluster.Queues[j.queue].Name, Set: jobSet, Node: j.node.Name,
		Started: begin().Add(j.started).UnixNano(), Time: begin().Add(s.now).UnixNano(), Succeeded: f == nil,
	})
	if f == nil {
		return
	}
	if s.faulty(j.node) && !g.suspects(j.node.Name, begin().Add(s.now).UnixNano()) {
		if g.failed == nil {
			g.failed = map[string]int{}
		}
		g.failed[j.node.Name]++
	}
	if !g.scheduled {
		g.scheduled = true
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

// judge has retries avoid the nodes that the guard suspects from now on.
func (s *sim) judge() {
	g, set := &s.guard, s.o.Candidate.Set
	g.scheduled = false
	p, now := set.Protection(), begin().Add(s.now).UnixNano()
	fresh := g.window.Judge(p, g.issued, func(string) bool { return false }, now)
	for i := range fresh {
		g.note(s, &fresh[i])
	}
	if len(fresh) == 0 || p.Shadow {
		return
	}
	var overrides []policyfile.Override
	for i := range g.issued {
		if one := &g.issued[i]; one.Until > now {
			overrides = append(overrides, policyfile.Override{Node: one.Node, AvoidedUntil: one.Until})
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
