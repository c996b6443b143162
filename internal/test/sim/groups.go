package sim

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/model"
)

var changeSights = map[chain.Change]Sight{
	chain.MemberHeld: SawHeld, chain.MemberReleased: SawUnheld, chain.MemberRestart: SawMemberRestart, chain.MemberStopped: SawStopped,
}

// groupScan follows the records of groups in the order of the log, and knows of the input
// only what ends a member. It shares nothing with the engine or the model.
type groupScan struct {
	w      *world
	groups map[groupKey]*seenGroup
	jobs   map[string]*seenMember
}

type groupKey struct{ queue, set, group string }

type unitKey struct {
	part    string
	replica uint32
}

// seenGroup is what the records said of a group.
type seenGroup struct {
	shape   policy.Shape
	silent  bool // something of it happened without records, its binding at least
	ended   bool
	known   bool                            // counted is
	counted uint32                          // restarts
	started map[unitKey]map[string]struct{} // jobs that certainly are started and not over
}

// seenMember is what they said of a member.
type seenMember struct {
	group       *seenGroup
	unit        unitKey
	held        bool
	generation  uint32
	stoppedRuns map[string]uint32 // runs that a restart told to stop, and its generation
	pending     bool              // it was restarted, and nothing came of it since
}

// checkGroups holds the records of groups against semantics.md 12 by a plain scan.
func (w *world) checkGroups(p int) {
	s := groupScan{w: w}
	s.forgetAll()
	input := w.events.parts[p].all
	for i := range w.chains[p].envelopes {
		e := &w.chains[p].envelopes[i]
		if _, ok := rebuilt(e.records); ok {
			if len(s.groups) > 0 {
				w.saw(SawGroupsRebuilt)
			}
			return // what such a state has forgotten cannot be told from the records
		}
		if skips(e.records) {
			input = after(input, e.env.InTo)
		}
		records := e.records
		for len(records) > 0 && !records[0].FromInput() {
			s.beforeInput(records[0])
			records = records[1:]
		}
		for range e.env.InCount {
			s.read(&input[0])
			for len(records) > 0 && positionOf(records[0]) == input[0].OriginPosition() {
				if err := s.follow(records[0]); err != nil {
					w.fail("envelope %d: %w: %+v", e.env.Seq, err, records[0])
					return
				}
				records = records[1:]
			}
			if err := s.checkParallelism(); err != nil {
				w.fail("envelope %d, after the message at %v: %w", e.env.Seq, input[0].Position, err)
				return
			}
			input = input[1:]
		}
	}
}

func positionOf(r chain.Record) eventlog.Position {
	at, _ := chain.PositionOf(r)
	return at
}

func (s *groupScan) forgetAll() {
	s.groups, s.jobs = map[groupKey]*seenGroup{}, map[string]*seenMember{}
}

// beforeInput follows a record that stands before those of messages.
func (s *groupScan) beforeInput(r chain.Record) {
	switch r := r.(type) {
	case *chain.OwnerClaim:
		for _, m := range s.jobs {
			if m.held {
				s.w.saw(SawHeldAtTakeover)
			}
			if m.pending {
				s.w.saw(SawPendingAtTakeover)
			}
		}
	case *chain.PolicyActivated:
		if mute(&s.w.cfg.Sets.naive[s.w.generations[r.Generation-1]]) {
			s.forgetAll() // from here on groups change in silence
		}
	}
}

// mute reports whether a queue may be in shadow, or retries are not enabled.
func mute(p *model.Policies) bool {
	if s := p.Settings; s != nil && (s.Mode == "Shadow" || s.Enabled != nil && !*s.Enabled) {
		return true
	}
	for _, q := range p.Queues {
		if q.Mode == "Shadow" {
			return true
		}
	}
	return false
}

// read takes the jobs that a message names from those that certainly are started, unless
// it says only that they run or failed.
func (s *groupScan) read(m *eventlog.Message) {
	seq := &pb.EventSequence{}
	if proto.Unmarshal(m.Payload, seq) != nil {
		return
	}
	for _, ev := range seq.Events {
		switch e := ev.Event.(type) {
		case *pb.Event_JobRunSucceeded:
			s.mayBeOver(e.JobRunSucceeded.GetJobId())
		case *pb.Event_CancelJob:
			s.mayBeOver(e.CancelJob.GetJobId())
		case *pb.Event_CancelledJob:
			s.mayBeOver(e.CancelledJob.GetJobId())
		case *pb.Event_JobErrors:
			s.mayBeOver(e.JobErrors.GetJobId())
		case *pb.Event_JobRunLeased:
			if m := s.jobs[e.JobRunLeased.GetJobId()]; m != nil {
				m.pending = false
			}
		case *pb.Event_CancelJobSet:
			for job := range s.jobs {
				s.mayBeOver(job)
			}
		}
	}
}

func (s *groupScan) mayBeOver(job string) {
	if m := s.jobs[job]; m != nil {
		m.pending = false
		delete(m.group.started[m.unit], job)
	}
}

func (s *groupScan) groupOf(queue, set, name string) *seenGroup {
	k := groupKey{queue, set, name}
	g := s.groups[k]
	if g == nil {
		g = &seenGroup{silent: true, started: map[unitKey]map[string]struct{}{}}
		s.groups[k] = g
	}
	return g
}

// member returns what is known of a member.
func (s *groupScan) member(g *seenGroup, job string, m *chain.Member) *seenMember {
	unit := unitKey{m.Part, m.Replica}
	seen := s.jobs[job]
	if seen == nil || seen.group != g || seen.unit != unit {
		seen = &seenMember{group: g, unit: unit, stoppedRuns: map[string]uint32{}}
		s.jobs[job] = seen
	}
	return seen
}

func (s *groupScan) follow(r chain.Record) error {
	switch r := r.(type) {
	case *chain.GroupBound:
		delete(s.groups, groupKey{r.Queue, r.JobSet, r.Group})
		g := s.groupOf(r.Queue, r.JobSet, r.Group)
		g.shape, g.silent = r.Shape, false
	case *chain.MemberChange:
		return s.change(s.groupOf(r.Queue, r.JobSet, r.Member.Group), r)
	case *chain.UnitEnded:
		g := s.groupOf(r.Queue, r.JobSet, r.Member.Group)
		if g.ended {
			return fmt.Errorf("a unit ends after its group")
		}
		return g.verdict(&r.Verdict)
	case *chain.GroupEnded:
		g := s.groupOf(r.Queue, r.JobSet, r.Group)
		if g.ended {
			return fmt.Errorf("a group ends twice")
		}
		g.ended = true
		clear(g.started)
	case *chain.Decision:
		if r.Member != nil {
			return s.decision(r)
		}
	}
	return nil
}

func (s *groupScan) change(g *seenGroup, r *chain.MemberChange) error {
	m := s.member(g, r.JobID, &r.Member)
	if g.ended && (r.Change == chain.MemberReleased || r.Change == chain.MemberRestart) {
		return fmt.Errorf("a group that has ended starts something")
	}
	switch r.Change {
	case chain.MemberHeld:
		if m.held {
			return fmt.Errorf("a member is held that is held already")
		}
		m.held = true
		delete(g.started[m.unit], r.JobID)
	case chain.MemberReleased:
		if !m.held && !g.silent {
			return fmt.Errorf("a member is released that is not held")
		}
		m.held = false
		g.start(m.unit, r.JobID)
	case chain.MemberRestart:
		if r.Member.Generation <= m.generation {
			return fmt.Errorf("a restart to generation %d, after %d", r.Member.Generation, m.generation)
		}
		m.held, m.pending, m.generation = false, true, r.Member.Generation
		if r.RunID != "" {
			m.stoppedRuns[r.RunID] = r.Member.Generation
		}
		g.start(m.unit, r.JobID)
	case chain.MemberStopped:
		m.held, m.pending = false, false
		delete(g.started[m.unit], r.JobID)
	case chain.MemberJoined:
	}
	return nil
}

func (g *seenGroup) start(u unitKey, job string) {
	if g.started[u] == nil {
		g.started[u] = map[string]struct{}{}
	}
	g.started[u][job] = struct{}{}
}

func (s *groupScan) decision(d *chain.Decision) error {
	g := s.groupOf(d.Queue, d.JobSet, d.Member.Group)
	m := s.member(g, d.JobID, d.Member)
	generation, wasStopped := m.stoppedRuns[d.RunID]
	switch {
	case wasStopped && d.Code != policy.GroupRestart && d.Code != policy.GroupOver:
		return fmt.Errorf("a run is decided by itself that the restart to generation %d told to stop", generation)
	case g.ended && d.Code != policy.GroupOver:
		return fmt.Errorf("a run of a group that has ended is decided by itself")
	}
	if !d.Requeue {
		m.pending = false
		delete(g.started[m.unit], d.JobID)
	}
	if d.Group != nil && !d.Group.Noted {
		return g.verdict(d.Group)
	}
	return nil
}

// verdict checks that restarts are counted one by one and keep to maxRestarts.
func (g *seenGroup) verdict(v *chain.GroupVerdict) error {
	used := v.RestartsUsed
	switch {
	case g.silent && !g.known:
		g.known = true
	case used == g.counted:
	case used != g.counted+1 || !v.Action.Restarts():
		return fmt.Errorf("%d restarts are used after %d", used, g.counted)
	case used > v.MaxRestarts:
		return fmt.Errorf("restart %d of at most %d", used, v.MaxRestarts)
	}
	g.counted = used
	return nil
}

// checkParallelism checks that no unit has more members started than it may have.
func (s *groupScan) checkParallelism() error {
	for _, g := range s.groups {
		if g.ended {
			continue
		}
		for _, p := range g.shape.Parts {
			if p.Parallelism == 0 {
				continue
			}
			for u, jobs := range g.started {
				switch {
				case u.part != p.Name || len(jobs) < int(p.Parallelism):
				case len(jobs) == int(p.Parallelism):
					s.w.saw(SawParallel)
				default:
					return fmt.Errorf("%d members of unit %s/%d are started, its parallelism is %d", len(jobs), u.part, u.replica, p.Parallelism)
				}
			}
		}
	}
	return nil
}
