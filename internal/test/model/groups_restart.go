package model

import (
	"math/big"
	"slices"
)

// restart is the arguments of a restart of some units.
type restart struct {
	at           int64
	pause        int64 // nobody starts before its end; 0: none
	policy, rule string
	anew         bool // counts start anew
	whole        bool // of the group
	rerun        bool // completed does not apply
	failing      *run // or nil
	failingAt    int64

	// cause says the record that causes it: with the failing member's time, without the pause.
	cause func(own int64, generation int)
}

// restart: semantics.md 12.6.
func (m *Model) restart(g *group, scope []*unit, how restart) {
	keep := m.inForce(g).Completed == "Keep" && !how.rerun
	if how.whole {
		g.generation++
	}
	var members []*member // by part, replica, index
	for _, u := range g.units() {
		// semantics.md 12.13.4: "after a group restart every unit has a new one". (R18)
		if how.whole || slices.Contains(scope, u) {
			u.generation++
		}
		if !slices.Contains(scope, u) {
			continue
		}
		u.state, u.fresh, u.touched = "", false, true
		if how.anew {
			u.retries = 0
		}
		for _, mem := range u.members {
			// "all its members … but those cancelled or rejected, and with Keep
			// those that succeeded", but "A gang always reruns".
			kept := keep && u.gang == "" && mem.over == succeededWell
			if mem.lost() && mem.over == succeededWell && !kept { // (R26)
				m.Seen["group: success of a cancelled member is void"]++
				mem.over = wasCancelled
			}
			if mem.lost() || kept {
				continue
			}
			members = append(members, mem)
		}
	}

	// When each may start again: "a MemberRestart of a live run adds the member's
	// grace to its own retryAfter (in a gang, the latest)".
	times := map[*member]int64{}
	live := map[*member]bool{}
	latest := map[*unit]int64{}
	for _, mem := range members {
		j := mem.job
		times[mem] = how.at
		if n := len(j.runs); n > 0 {
			last := j.runs[n-1]
			switch {
			case last == how.failing:
				times[mem] = how.failingAt
			// semantics.md 12.3: "A run that failed and is not yet decided counts as live."
			case !last.ended || last.failure != nil && last.failure.message == m.messages && !last.decided:
				live[mem] = true
				times[mem] = plus(how.at, m.graceMs(j))
			}
		}
		latest[mem.unit] = max(latest[mem.unit], times[mem])
	}
	for _, mem := range members {
		switch {
		case m.blocks(g):
			// "BlockingRecreate: all members of one restart … have the latest retryAfter
			// that any of them would have, the failing run's own record included".
			for _, u := range scope {
				if latest[u] > times[mem] {
					times[mem] = latest[u]
					m.Seen["group: blocked by another member"]++
				}
			}
		case mem.unit.gang != "":
			times[mem] = latest[mem.unit]
		}
	}

	// The record that causes it has the counts before they start anew. (R20)
	if how.failing != nil {
		mem := how.failing.job.member
		how.cause(times[mem], mem.unit.generation)
	} else {
		how.cause(0, 0)
	}
	// All of them are reset before anyone starts.
	for _, mem := range members {
		j := mem.job
		times[mem] = max(times[mem], how.pause)
		mem.over, mem.held, mem.quiet = "", true, false
		mem.pending = &pending{retryAfter: times[mem], policy: how.policy, rule: how.rule}
		if live[mem] {
			mem.pending.run = j.latest()
		}
		j.ended, j.endedAt = false, 0
		if how.anew {
			j.anew = len(j.decisions)
		}
		for _, r := range j.runs { // no RetryReady for what was requeued before (R24)
			if r != how.failing {
				r.readySent = true
			}
		}
	}
	for _, mem := range members {
		u := mem.unit
		m.Seen["group: restarted"]++
		if live[mem] {
			m.Seen["group: live run told to stop"]++
		}
		m.recordOf(g, Record{
			Kind: MemberRestart, Part: u.part.Name, Replica: u.replica, Index: mem.index, JobID: mem.job.id, RunID: mem.job.latest(),
			Generation: u.generation, RetryAfter: times[mem],
		})
		mem.held = !m.mayStart(mem)
		if mem.held {
			m.Seen["group: held at a restart"]++
			m.recordMember(MemberHeld, mem)
		}
	}
}

// blocks says whether restarts of a group are blocking, by the generation in force.
func (m *Model) blocks(g *group) bool {
	return m.has(blocking) && m.inForce(g).RestartStrategy == "BlockingRecreate"
}

// plus is a time plus milliseconds.
func plus(t, ms int64) int64 { return after(t, big.NewInt(ms)) }
