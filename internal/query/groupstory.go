package query

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
)

// GroupStory tells why a group is as it is.
type GroupStory struct {
	Turns   []Turn      `json:"turns"`                  // in log order: the first one, and the newest
	LeftOut uint32      `json:"turnsLeftOut,omitempty"` // between the first and the second
	Members []MemberRow `json:"members"`                // by part, replica and index
}

// Turn is the end of a unit with its cause and with what its group did about it, or the end of the group.
type Turn struct {
	Record     Line   `json:"record"`
	Node       string `json:"node,omitempty"`  // where the run failed
	Cause      string `json:"cause,omitempty"` // why it failed, in a few words
	Generation uint32 `json:"generation"`      // of the unit, that ended
	Restarted  uint32 `json:"restarted"`       // members that started again because of it
	Stopped    uint32 `json:"stopped"`         // members that were told to stop because of it
	Lost       *Lost  `json:"lost,omitempty"`  // nil: a run failed, or none was cancelled

	where jobdb.Where
	at    eventlog.Position // of the event that it follows from
	run   *chain.Decision   // nil: no run failed
}

// Lost is the first member of a unit that was cancelled, or rejected; without such members, too few were left for the unit to succeed.
type Lost struct {
	JobID string `json:"jobId"`
	Index uint32 `json:"index"`
	State string `json:"state"`           // Cancelled, Failed if it was rejected, or one that ends with its cancellation
	Ended string `json:"ended,omitempty"` // "": not yet
	Of    int    `json:"of"`              // such members of the unit
}

// MemberRow are members that are next to each other, of which all generations went alike; or, where there are too many of
// those, some that did not.
type MemberRow struct {
	Name        string       `json:"name"`
	Members     uint32       `json:"members"`
	JobID       string       `json:"jobId,omitempty"` // of the only one
	Generations []Generation `json:"generations"`     // the newest ones of the group's units

	unit           string
	first, last    uint32
	lastUnit, keys string
}

// Generation is what became of members in a generation of their unit.
type Generation struct {
	Number uint32  `json:"number"`
	States []Tally `json:"states"` // the worst first; none: the unit has no such generation
}

// restarted is the state of a member that was neither held nor over when a generation ended, and started again in the next.
const restarted = "Restarted"

// memberStates are the states of members in a generation, the worst first.
var memberStates = []string{
	jobdb.MemberUnitFail.String(), jobdb.MemberFailed.String(), jobdb.MemberCancelled.String(), jobdb.MemberStopped.String(),
	restarted, jobdb.MemberHeld.String(), jobdb.MemberActive.String(), jobdb.MemberSucceeded.String(),
}

const (
	maxTurns       = 20 // the newest
	maxMemberRows  = 64
	maxGenerations = 8 // the newest
)

// storyOf tells the story of a group from its records.
func storyOf(q jobdb.Queries, row *jobdb.Group, g *Group, records []Record) (*GroupStory, error) {
	p := pastOf(row, g.Parts)
	for i := range records {
		p.add(&records[i])
	}
	story := &GroupStory{Turns: []Turn{}, Members: g.rows(p)}
	for i, t := range p.turns {
		if i > 0 && i < len(p.turns)-maxTurns {
			story.LeftOut++
			continue
		}
		if err := t.recall(q, row.Partition); err != nil {
			return nil, err
		}
		t.findLost(g.Parts)
		story.Turns = append(story.Turns, *t)
	}
	return story, nil
}

// recall finds out where and why the run of a turn failed.
func (t *Turn) recall(q jobdb.Queries, partition int) error {
	if t.run == nil {
		return nil
	}
	var job *jobdb.Job
	_, err := q.JobList(&jobdb.Criteria{JobID: t.run.JobID}, jobdb.Page{}, func(j *jobdb.Job) error {
		if j.Partition == partition {
			job = j
		}
		return nil
	})
	if err != nil || job == nil {
		return err
	}
	return q.Runs(partition, t.run.JobID, func(r *jobdb.Run) error {
		if r.RunID != t.run.RunID {
			return nil
		}
		x, err := audit.Recall(audit.Case{Job: job, Run: r, Decision: t.run})
		t.Node, t.Cause = cmp.Or(r.Error.Node, r.Node), audit.Cause(&x.Facts)
		if t.Cause == "unknown" && r.Error.Message != "" {
			t.Cause = fmt.Sprintf("%.200s", r.Error.Message)
		}
		return err
	})
}

// findLost finds out which member a unit has lost that ended because of that.
func (t *Turn) findLost(parts []Part) {
	o := t.Record.Other
	if o == nil || o.Reason != policy.MemberCancelled.String() {
		return
	}
	for _, p := range parts {
		for _, u := range p.Units {
			if p.Name != o.Part || o.Replica == nil || u.Replica != *o.Replica {
				continue
			}
			for _, j := range u.Members {
				if j.Member.State == jobdb.MemberCancelled && (t.Lost == nil || TimeText(j.Times.Ended) < t.Lost.Ended) {
					t.Lost = &Lost{JobID: j.JobID, Index: j.Member.Index, State: j.State.String(), Ended: TimeText(j.Times.Ended), Of: u.Cancelled}
				}
			}
		}
	}
}

// Who names the member whose run failed, or that was cancelled; "": neither.
func (t *Turn) Who() string {
	d := t.Record.Decision
	switch {
	case t.Lost != nil:
		return fmt.Sprintf("member %d of %s/%d (job %s)", t.Lost.Index, t.Record.Other.Part, *t.Record.Other.Replica, t.Lost.JobID)
	case d == nil:
		return ""
	}
	return fmt.Sprintf("member %d of %s/%d (job %s, run %d)", *d.Index, d.Part, *d.Replica, d.JobID, d.RunIndex)
}

// What says in words what happened to it, or to the unit or group.
func (t *Turn) What() string {
	d, lost := t.Record.Decision, t.Lost
	switch {
	case lost != nil:
		s := "was cancelled"
		if lost.State == jobdb.JobFailed.String() {
			s = "was rejected"
		}
		if lost.Ended != "" {
			s += " at " + lost.Ended
		}
		if lost.Of > 1 {
			s += fmt.Sprintf(", the first of %d", lost.Of)
		}
		return s
	case d == nil:
		return t.Record.Text
	}
	s := "failed at " + d.EventTime
	if t.Node != "" {
		s += " on node " + t.Node
	}
	return s + ": " + cmp.Or(t.Cause, "unknown")
}

// Why says why that followed, by the policies of the job and of its group; "": What says it.
func (t *Turn) Why() string {
	switch {
	case t.Lost != nil:
		return t.Record.Text
	case t.Record.Decision == nil:
		return ""
	}
	return t.Record.Decision.Reason
}

// Effect says in words what it did to other members; "": nothing.
func (t *Turn) Effect() string {
	var all []string
	if t.Restarted > 0 {
		all = append(all, plural.Of(uint64(t.Restarted), "member")+" started again")
	}
	if t.Stopped > 0 {
		all = append(all, plural.Of(uint64(t.Stopped), "member")+" told to stop")
	}
	return strings.Join(all, ", ")
}

// sentence says who failed, and why.
func (t *Turn) sentence() string {
	s := t.Who() + " " + t.What()
	if d := t.run; d != nil && d.Group != nil {
		s += "; " + audit.GroupSentence(d.Group, "")
	}
	return s
}

// NewestGeneration is the highest generation of the group's units: each restart of a unit, by the group or as a gang by a retry of
// a member, begins one.
func (g *Group) NewestGeneration() (newest uint32) {
	for i := range g.Parts {
		for _, u := range g.Parts[i].Units {
			newest = max(newest, u.Generation)
		}
	}
	return newest
}

// RestartsUsed says how many restarts by its group policy a group has used, of how many. Retries of gangs are none of them.
func (g *Group) RestartsUsed() string {
	switch {
	case g.MaxRestarts == nil, *g.MaxRestarts == 0: // RestartsLimit says why
		return fmt.Sprint(g.RestartsCounted)
	}
	return fmt.Sprintf("%d/%d", g.RestartsCounted, *g.MaxRestarts)
}

// RestartsLimit says where the limit of restarts comes from.
func (g *Group) RestartsLimit() string {
	switch {
	case g.MaxRestarts == nil:
		return "their limit is not known: the group is older than the rows"
	case g.Policy == "":
		return "the gang has no group policy; retries of members by their own retry policies restarted it " + plural.Of(uint64(g.NewestGeneration()), "time")
	case *g.MaxRestarts == 0:
		return "maxRestarts of group policy " + g.Policy + " is 0 or not set"
	}
	return "the limit is maxRestarts of group policy " + g.Policy
}

// Ended is the turn by which a group or a unit of it failed last; nil: none did.
func (s *GroupStory) Ended() *Turn {
	for i := range slices.Backward(s.Turns) {
		if t := &s.Turns[i]; t.Lost != nil || t.Record.Decision != nil && !t.Record.Decision.Requeues() {
			return t
		}
	}
	return nil
}

// EndReason is the reason for which a group ended, with the retry budget that refused the retry if one did; "": there is none.
func (g *Group) EndReason() string {
	if g.Story == nil || g.Story.Ended() == nil {
		return g.Reason
	}
	d := g.Story.Ended().Record.Decision
	if d == nil || d.UnitReason != g.Reason || d.Budget == nil || d.Budget.Shadow || d.Budget.Effect != policy.BudgetExhausted.String() {
		return g.Reason
	}
	return fmt.Sprintf("%s (retry budget %s refused the retry)", g.Reason, d.Budget.Name)
}

// rows returns what became of the members in each generation.
func (g *Group) rows(p *past) (rows []MemberRow) {
	newest := g.NewestGeneration()
	oldest := newest - min(newest, maxGenerations-1)
	for i := range g.Parts {
		for _, u := range g.Parts[i].Units {
			unit := fmt.Sprintf("%s/%d", g.Parts[i].Name, u.Replica)
			for _, j := range u.Members {
				r := MemberRow{Members: 1, JobID: j.JobID, unit: unit, lastUnit: unit, first: j.Member.Index, last: j.Member.Index}
				for n := oldest; n <= newest; n++ {
					in := Generation{Number: n, States: []Tally{}}
					if n <= u.Generation {
						in.States = append(in.States, Tally{stateOfMember(j, p.ended[j.JobID], n), 1})
						r.keys += in.States[0].Key
					}
					r.Generations = append(r.Generations, in)
				}
				if n := len(rows); n > 0 && rows[n-1].unit == unit && rows[n-1].last+1 == r.first && rows[n-1].keys == r.keys {
					rows[n-1].merge(&r)
				} else {
					rows = append(rows, r)
				}
			}
		}
	}
	each := (len(rows) + maxMemberRows - 1) / maxMemberRows
	var shown []MemberRow
	for i := range rows {
		if i%each == 0 {
			shown = append(shown, rows[i])
		} else {
			shown[len(shown)-1].merge(&rows[i])
		}
	}
	for i := range shown {
		shown[i].name()
	}
	return shown
}

// stateOfMember is the state of a member in a generation.
func stateOfMember(j *jobdb.Job, before []ended, generation uint32) string {
	for _, e := range before {
		if generation <= e.generation {
			return e.state
		}
	}
	return j.MemberShown().String()
}

// merge adds the members of the next row.
func (r *MemberRow) merge(next *MemberRow) {
	r.Members, r.JobID, r.last, r.lastUnit = r.Members+next.Members, "", next.last, next.lastUnit
	for i := range r.Generations {
		counts := map[string]int{}
		for _, of := range [][]Tally{r.Generations[i].States, next.Generations[i].States} {
			for _, s := range of {
				counts[s.Key] += s.Count
			}
		}
		r.Generations[i].States = r.Generations[i].States[:0:0]
		for _, state := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
			return cmp.Compare(slices.Index(memberStates, a), slices.Index(memberStates, b))
		}) {
			r.Generations[i].States = append(r.Generations[i].States, Tally{state, counts[state]})
		}
	}
}

func (r *MemberRow) name() {
	switch {
	case r.unit != r.lastUnit:
		r.Name = fmt.Sprintf("%s %d to %s %d", r.unit, r.first, r.lastUnit, r.last)
	case r.first != r.last:
		r.Name = fmt.Sprintf("%s %d–%d", r.unit, r.first, r.last)
	default:
		r.Name = fmt.Sprintf("%s %d", r.unit, r.first)
	}
}

// Text says what became of the members.
func (g *Generation) Text() string {
	var all []string
	for _, s := range g.States {
		all = append(all, fmt.Sprintf("%d %s", s.Count, s.Key))
	}
	return strings.Join(all, ", ")
}

// stopped says why a member was stopped, given the record of that; nil: it is not there any more.
func stopped(q jobdb.Queries, j *jobdb.Job, record *jobdb.GroupRecord) (why string, err error) {
	why = "it was stopped with its unit: the rest of the group goes on"
	var row *jobdb.Group
	_, err = q.GroupList(&jobdb.Criteria{Queue: j.Queue, JobSet: j.JobSet, Group: j.Member.Group}, jobdb.Page{}, func(g *jobdb.Group) error {
		if g.Partition == j.Partition && g.Binding == j.Member.Binding {
			row = g
		}
		return nil
	})
	if err != nil || row == nil {
		return why, err
	}
	if row.State != policy.GroupActive {
		why = "it was stopped because its group has ended: " + row.State.String()
		if row.Reason != policy.NoUnitReason {
			why += " (" + row.Reason.String() + ")"
		}
		why += ByRule(row.Rule)
	}
	if record == nil {
		return why, nil
	}
	records, err := groupRecords(q, row, record.Seq)
	p := pastOf(row, nil)
	stop, err2 := record.Record()
	if err := errors.Join(err, err2); err != nil {
		return why, err
	}
	for i := range records {
		if records[i].Where.Record < record.Where.Record {
			p.add(&records[i])
		}
	}
	at, _ := chain.PositionOf(stop)
	if t := p.last(at); t != nil && t.run != nil {
		err = t.recall(q, j.Partition)
		why = "it was stopped because " + t.sentence()
	}
	return why, err
}
