package model

import (
	"math/big"
	"slices"
)

// This file: which jobs are members (semantics.md 12.1), who may start (semantics.md 12.7), and the
// steps of semantics.md 12.3. Where the page is silent, GROUPS-READINGS.md says how it is
// read; R1, R2, … in comments are its entries.

const (
	annotationGroup       = "refloat.github.io/group"
	annotationGroupPolicy = "refloat.github.io/group-policy"
	annotationPart        = "refloat.github.io/part"
	annotationReplica     = "refloat.github.io/replica"
	annotationIndex       = "refloat.github.io/index"
)

// The reasons of units and groups that ended.
const (
	PodFailurePolicy         = "PodFailurePolicy"
	DeadlineExceeded         = "DeadlineExceeded"
	BackoffLimitExceeded     = "BackoffLimitExceeded"
	MaxFailedIndexesExceeded = "MaxFailedIndexesExceeded"
	FailedIndexes            = "FailedIndexes"
	MemberCancelled          = "MemberCancelled"
	ReachedMaxRestarts       = "ReachedMaxRestarts"
	Exhausted                = "Exhausted"
)

// The states of units and groups that ended.
const (
	StateSucceeded = "Succeeded"
	StateFailed    = "Failed"
	StateHalted    = "Halted"
)

// The causes for which a member is over.
const (
	succeededWell = "succeeded"
	failedForGood = "failed"
	wasCancelled  = "cancelled" // or rejected
	wasStopped    = "stopped"
)

// group is a group that is bound.
type group struct {
	queue, set, name string
	begunAs          string // the name that its first member's annotation says
	number           int    // of those begun so, from 1
	policy           string // its name; "": a gang without one
	open             bool   // its size is
	parts            []*part
	success          Success

	generation int
	restarts   int            // by rules
	counted    int            // of these, those that count
	byRule     map[string]int // restarts by a rule

	halted               bool
	haltReason, haltRule string
	ended                bool
	lastEvent            int64 // the watermark then
	touched              bool  // by the current message
	refused              bool  // something did not happen, since the queue was mute (R1)
	inspected            bool  // it was due, and had no event since (R1)
	inOrder              int   // the last message whose failures were put in the order of its rules (R40)
}

// Shape is what binding fixes of a part.
type Shape struct {
	Name        string
	Replicas    int
	Members     int // of a unit; 0: open
	MinMembers  int
	After       []string
	Parallelism int // 0: all

	AfterReady   []string
	SuccessRules []SuccessRule // with counts
}

type part struct {
	Shape
	group *group
	units []*unit
}

// unit is a replica of a part.
type unit struct {
	part    *part
	replica int
	members []*member // by index

	state      string // "": active; StateSucceeded or StateFailed
	fresh      bool   // succeeded in the current message
	touched    bool   // by the current message: an event or record of one of its members
	generation int
	restarts   int // by its restarts
	retries    int // of its members, against retryLimit
	gang       string
	gangSize   int
	changed    int64 // t of the last event by which a member was over
}

type member struct {
	job     *job
	unit    *unit
	index   int
	over    string // why, or ""
	held    bool
	pending *pending
	quiet   bool // its latest run was decided in shadow, as failed for good
}

// pending is a restart whose next run is not known yet.
type pending struct {
	run          string // the run that was told to stop; "": none was live
	retryAfter   int64
	policy, rule string
}

// lives says whether a member is not over, nor its group.
func (mem *member) lives() bool { return mem.over == "" && !mem.unit.part.group.ended }

// started: semantics.md 12.13.1, "neither held nor over".
func (mem *member) started() bool { return mem.over == "" && !mem.held }

// lost says whether a member can never start again: it is cancelled or rejected.
func (mem *member) lost() bool { return mem.job.cancelled || mem.job.rejected }

// mute: semantics.md 12.9, "Queue in Shadow, or retries not enabled: …; no other record of
// a group is written." Here: R1.
func (m *Model) mute(queue string) bool { return m.policies.shadow(queue) || !m.policies.enabled() }

func newGroup(j *job, name, policy string, shapes []Shape) *group {
	g := &group{queue: j.queue, set: j.set, name: name, policy: policy, open: shapes == nil, byRule: map[string]int{}}
	if g.open { // "there is one part main, its size is open" (R2)
		shapes = []Shape{{Name: "main", Replicas: 1}}
	}
	for _, s := range shapes {
		p := &part{Shape: s, group: g}
		for i := range s.Replicas {
			p.units = append(p.units, &unit{part: p, replica: i})
		}
		g.parts = append(g.parts, p)
	}
	return g
}

func (g *group) key() string { return g.queue + "\x00" + g.set + "\x00" + g.name }

func (g *group) part(name string) *part {
	for _, p := range g.parts {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// units are all units, by part and replica.
func (g *group) units() []*unit {
	var units []*unit
	for _, p := range g.parts {
		units = append(units, p.units...)
	}
	return units
}

// members are all members, by part, replica and index.
func (g *group) members() []*member {
	var members []*member
	for _, u := range g.units() {
		members = append(members, u.members...)
	}
	return members
}

func (u *unit) member(index int) *member {
	for _, mem := range u.members {
		if mem.index == index {
			return mem
		}
	}
	return nil
}

// count counts members.
func (u *unit) count(which func(*member) bool) int {
	n := 0
	for _, mem := range u.members {
		if which(mem) {
			n++
		}
	}
	return n
}

func (u *unit) succeeded() int {
	return u.count(func(mem *member) bool { return mem.over == succeededWell })
}

func (u *unit) failed() int {
	return u.count(func(mem *member) bool { return mem.over == failedForGood })
}

// allOver says whether all declared members have come and are over.
func (u *unit) allOver() bool {
	return u.part.Members > 0 && u.count(func(mem *member) bool { return mem.over != "" }) == u.part.Members
}

// tooManyLost: semantics.md 12.5, a unit that "can no longer reach minMembers" since members
// were cancelled or rejected: R8.
func (u *unit) tooManyLost() bool {
	return !u.couldReach(func(mem *member) bool { return mem.lost() && mem.over != succeededWell })
}

// touch notes an event of a member's group: R9.
func (m *Model) touch(j *job) {
	if j.member != nil {
		j.member.unit.part.group.lastEvent, j.member.unit.part.group.inspected = *m.watermark, false
		j.member.unit.part.group.touched, j.member.unit.touched = true, true
	}
}

// recordOf adds a record about a group.
func (m *Model) recordOf(g *group, rec Record) {
	rec.Ledger, rec.Entry, rec.Batch = m.current.Ledger, m.current.Entry, m.current.Batch
	rec.Queue, rec.JobSet, rec.Group = g.queue, g.set, g.name
	g.lastEvent, g.touched, g.inspected = *m.watermark, true, false
	m.record(rec)
}

// recordMember adds a record about a member.
func (m *Model) recordMember(kind Kind, mem *member) {
	u := mem.unit
	m.recordOf(u.part.group, Record{Kind: kind, Part: u.part.Name, Replica: u.replica, Index: mem.index, JobID: mem.job.id})
}

// latest is the id of the latest run, or "".
func (j *job) latest() string {
	if len(j.runs) == 0 {
		return ""
	}
	return j.runs[len(j.runs)-1].id
}

// stop stops a member.
func (m *Model) stop(mem *member) {
	u := mem.unit
	mem.over, mem.held, mem.pending = wasStopped, false, nil
	u.touched = true
	m.Seen["group: stopped"]++
	m.recordOf(u.part.group, Record{
		Kind: MemberStopped, Part: u.part.Name, Replica: u.replica, Index: mem.index,
		JobID: mem.job.id, RunID: mem.job.latest(),
	})
}

// stopAll stops those of the members that are not over.
func (m *Model) stopAll(members []*member) {
	for _, mem := range members {
		if mem.over == "" {
			m.stop(mem)
		}
	}
}

// memberSucceeded: semantics.md 12.3, "at the JobRunSucceeded of its latest run"; semantics.md 12.6,
// a later success of a run that was told to stop "changes nothing".
func (m *Model) memberSucceeded(r *run, t int64) {
	mem := r.job.member
	if mem == nil || mem.over != "" || r.id != r.job.latest() {
		return
	}
	if mem.pending != nil && mem.pending.run == r.id {
		m.Seen["group: success of a run told to stop"]++
		return
	}
	mem.over, mem.held, mem.pending, mem.unit.changed = succeededWell, false, nil, t
}

// memberLost: "A member that is cancelled or rejected is over".
func (m *Model) memberLost(j *job, t int64) {
	mem := j.member
	if mem == nil || !mem.lost() || mem.over != "" {
		return
	}
	m.Seen["group: member cancelled"]++
	mem.over, mem.held, mem.pending, mem.unit.changed = wasCancelled, false, nil, t
}

// mayStart: semantics.md 12.7.
func (m *Model) mayStart(mem *member) bool {
	u := mem.unit
	if len(u.part.waitsFor()) > 0 {
		return false
	}
	return u.part.Parallelism == 0 ||
		u.count(func(other *member) bool { return other != mem && other.started() }) < u.part.Parallelism
}

// markUnits: semantics.md 12.3, "mark units that have reached minMembers as succeeded".
func (m *Model) markUnits() {
	for _, g := range m.groups {
		for _, u := range g.units() {
			if u.state == "" && !g.ended && u.enough() {
				m.Seen["group: unit succeeded"]++
				if u.succeeded() < u.part.MinMembers {
					m.Seen["group: unit succeeded by a rule"]++
				}
				u.state, u.fresh = StateSucceeded, true
			}
		}
	}
}

// recheckRefused has groups of which something was refused looked at again, with the first
// message after a change of the policies (R1).
func (m *Model) recheckRefused() {
	if !m.recheck {
		return
	}
	m.recheck = false
	for _, g := range m.groups {
		if g.refused && !g.ended {
			g.touched = true
			for _, u := range g.units() {
				u.touched = true
			}
			if m.has(dueAgain) && g.inspected && !m.passed(g.lastEvent) {
				g.inspected = false
				m.Seen["group: due again"]++
			}
		}
		g.refused = false
	}
}

// endUnits: semantics.md 12.3, "then units that ended without a failed run (by successes or
// cancellations)".
func (m *Model) endUnits() {
	var touched []*unit
	for _, g := range m.groups {
		for _, u := range g.units() {
			if u.touched {
				touched = append(touched, u)
			}
			u.touched = false
		}
	}
	for _, u := range touched {
		g, fresh := u.part.group, u.fresh
		u.fresh = false
		rest := slices.ContainsFunc(u.members, func(mem *member) bool { return mem.over == "" })
		hopeless := u.state == "" && (u.tooManyLost() || u.allOver()) || u.state == StateSucceeded && rest
		recorded := len(m.records)
		switch {
		case g.ended || m.mute(g.queue):
		case u.state == StateSucceeded && fresh:
			m.unitSucceeded(u)
		case u.state == StateSucceeded: // in shadow, the rest was not stopped (R1)
			m.stopAll(u.members)
		case u.state == "" && u.tooManyLost():
			m.unitEnded(u, MemberCancelled)
		case u.state == "" && m.settings(u).OnMemberFailure == "Continue" && u.allOver() && !u.enough():
			m.unitEnded(u, FailedIndexes)
		}
		if hopeless && !g.ended && len(m.records) == recorded {
			g.refused = true
		}
	}
}

// release: semantics.md 12.7, "MemberReleased when it may, by index. After Halt or the
// group's end nothing is released.".
func (m *Model) release() {
	for _, g := range m.groups {
		if g.ended || g.halted || !g.touched && !m.due(g) {
			continue
		}
		for _, mem := range g.members() {
			switch may := mem.held && mem.unit.state == "" && m.mayStart(mem); {
			case may && m.mute(g.queue):
				g.refused = true
			case may:
				m.Seen["group: released"]++
				if len(mem.unit.part.AfterReady) > 0 {
					m.Seen["group: released after others run"]++
				}
				mem.held = false
				m.recordMember(MemberReleased, mem)
			}
		}
	}
}

// endGroups: semantics.md 12.8.
func (m *Model) endGroups() {
	for _, g := range m.groups {
		if g.ended || !g.touched && !m.due(g) {
			continue
		}
		end := func(state, reason, rule string) {
			if m.mute(g.queue) {
				g.refused = true
				return
			}
			m.endGroup(g, state, reason, rule)
		}
		over := !slices.ContainsFunc(g.members(), func(mem *member) bool { return mem.over == "" })
		running := slices.ContainsFunc(g.members(), (*member).started)
		switch {
		case g.open:
			// "A group of open size ends when all its known members are over and
			// horizon has passed"; semantics.md 12.13.11 says how.
			switch {
			case !over || !m.passed(g.lastEvent):
			case g.halted:
				end(StateHalted, g.haltReason, g.haltRule)
			case !slices.ContainsFunc(g.members(), func(mem *member) bool { return mem.over != succeededWell }):
				end(StateSucceeded, "", "")
			default:
				end(StateFailed, Exhausted, "")
			}
		case g.succeeded():
			if slices.ContainsFunc(g.units(), func(u *unit) bool { return u.state != StateSucceeded }) {
				m.Seen["group: succeeded before all of it"]++
			}
			end(StateSucceeded, "", "")
		case running:
		case g.mayCome() && !m.passed(g.lastEvent):
		case g.halted:
			end(StateHalted, g.haltReason, g.haltRule)
		default:
			end(StateFailed, Exhausted, "")
		}
	}
}

// passed says whether horizon has passed since.
func (m *Model) passed(since int64) bool {
	end := big.NewInt(m.policies.horizonMs())
	end.Mul(end, big.NewInt(1_000_000))
	end.Add(end, big.NewInt(since))
	return big.NewInt(*m.watermark).Cmp(end) > 0
}

// mayCome says whether "a declared member that could still start has not been
// submitted", when no member runs: R10.
func (g *group) mayCome() bool {
	var could func(u *unit) bool // start at all, once others did what they can
	could = func(u *unit) bool {
		if u.state != "" {
			return u.state == StateSucceeded
		}
		waiting := u.count(func(mem *member) bool { return mem.held && !g.halted })
		if len(u.members) == u.part.Members && waiting == 0 {
			return false // nothing of it is left
		}
		for _, p := range u.part.waitsFor() {
			for _, before := range p.units {
				// After Halt nothing is started that is held, so what waits for another never starts. (R11)
				if before.state != StateSucceeded && (g.halted || !could(before)) {
					return false
				}
			}
		}
		return true
	}
	for _, u := range g.units() {
		if u.state == "" && len(u.members) < u.part.Members && could(u) {
			return true
		}
	}
	return false
}

// endGroup: semantics.md 12.8 and 12.13.3, "GroupEnded stands before its MemberStopped records.".
func (m *Model) endGroup(g *group, state, reason, rule string) {
	g.ended = true
	m.Seen["group ended: "+state+" "+reason]++
	m.recordOf(g, Record{Kind: GroupEnded, State: state, Reason: reason, Rule: rule})
	m.stopAll(g.members())
}
