package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
)

// Group is a group of jobs.
type Group struct {
	Queue           string      `json:"queue"`
	JobSet          string      `json:"jobSet"`
	Group           string      `json:"group"`
	Policy          string      `json:"policy"`
	State           string      `json:"state"`
	Reason          string      `json:"reason"`
	Rule            string      `json:"rule,omitempty"`
	Generation      uint32      `json:"generation"`
	Restarts        uint32      `json:"restarts"`
	RestartsCounted uint32      `json:"restartsCounted"`
	MaxRestarts     *uint32     `json:"maxRestarts"` // null: it was bound before the rows start, and its rules were not asked since
	Partition       int         `json:"partition"`
	Newer           string      `json:"newer,omitempty"` // the newest group that follows one of this name; only of a single group
	Conditions      []Condition `json:"conditions"`      // as of a JobSet
	Parts           []Part      `json:"parts"`

	Success *audit.Success `json:"success,omitempty"`
	Story   *GroupStory    `json:"story,omitempty"` // only of a single group
}

// Part is a part of a group.
type Part struct {
	Name       string `json:"name"`
	Replicas   uint32 `json:"replicas,omitempty"` // 0: open
	Members    uint32 `json:"members,omitempty"`
	MinMembers uint32 `json:"minMembers,omitempty"`
	Units      []Unit `json:"units"`

	After        []string            `json:"after,omitempty"`
	AfterReady   []string            `json:"afterReady,omitempty"`
	Parallelism  uint32              `json:"parallelism,omitempty"`
	SuccessRules []audit.SuccessRule `json:"successRules,omitempty"`
}

// Rules says in words what else the part declares: which parts come first, and when its units succeed.
func (p *Part) Rules() (all []string) {
	if len(p.After) > 0 {
		all = append(all, "held until every unit of "+strings.Join(p.After, ", ")+" has succeeded")
	}
	if len(p.AfterReady) > 0 {
		all = append(all, "held until every unit of "+strings.Join(p.AfterReady, ", ")+" is ready")
	}
	if p.Parallelism > 0 {
		all = append(all, fmt.Sprintf("at most %s of a unit at a time", plural.Of(uint64(p.Parallelism), "member")))
	}
	if p.MinMembers < p.Members {
		all = append(all, fmt.Sprintf("a unit succeeds with %d of %s", p.MinMembers, plural.Of(uint64(p.Members), "member")))
	}
	for _, r := range p.SuccessRules {
		all = append(all, fmt.Sprintf("a unit succeeds with %d of the indexes %s", r.Count, r.Indexes))
	}
	return all
}

// SuccessRule says in words when the group succeeds; "": when all units of all parts have.
func (g *Group) SuccessRule() string {
	s := g.Success
	if s == nil {
		return ""
	}
	which := "every unit"
	if s.Operator == "Any" {
		which = "one unit"
	}
	if len(s.Parts) == 0 {
		return which + " of any part has succeeded"
	}
	return which + " of " + strings.Join(s.Parts, ", ") + " has succeeded"
}

// Unit is a replica of a part. Active members are neither held nor over; of the terminating ones, a run that was told to
// stop has not ended yet. A member that was stopped, and whose run succeeded all the same, is among the succeeded ones.
type Unit struct {
	Replica          uint32      `json:"replica"`
	State            string      `json:"state"`
	Reason           string      `json:"reason,omitempty"`
	Generation       uint32      `json:"generation"`
	Restarts         uint32      `json:"restarts"`
	RetriesUsed      uint32      `json:"retriesUsed"`
	CompletedIndexes string      `json:"completedIndexes"`
	FailedIndexes    string      `json:"failedIndexes"`
	Active           int         `json:"active"`
	Held             int         `json:"held"`
	Succeeded        int         `json:"succeeded"`
	Failed           int         `json:"failed"`
	Cancelled        int         `json:"cancelled"` // or rejected
	Stopped          int         `json:"stopped"`   // with the unit or the group, or submitted after its end
	Terminating      int         `json:"terminating"`
	Conditions       []Condition `json:"conditions"` // as of a Job

	Members []*jobdb.Job `json:"-"` // by index
}

// groupOf reads everything about a group.
func groupOf(q jobdb.Queries, g *jobdb.Group) (Group, error) {
	out := Group{
		Queue: g.Queue, JobSet: g.JobSet, Group: g.Name, Policy: g.Policy, State: g.State.String(), Reason: g.Reason.String(), Rule: g.Rule,
		Generation: g.Generation, Restarts: g.Restarts, RestartsCounted: g.Counted, Partition: g.Partition, Parts: []Part{},
	}
	if g.Binding != 0 || g.MaxRestarts > 0 {
		out.MaxRestarts = &g.MaxRestarts
	}
	for i := range g.Shape.Parts {
		p := audit.PartOf(&g.Shape, i)
		out.Parts = append(out.Parts, Part{
			Name: p.Name, Replicas: p.Replicas, Members: p.Members, MinMembers: p.MinMembers, Units: []Unit{},
			After: p.After, AfterReady: p.AfterReady, Parallelism: p.Parallelism, SuccessRules: p.SuccessRules,
		})
	}
	out.Success = audit.SuccessOf(&g.Shape)
	members := map[[2]any][]*jobdb.Job{}
	err := q.Members(g, func(j *jobdb.Job) error {
		key := [2]any{j.Member.Part, j.Member.Replica}
		members[key] = append(members[key], j)
		return nil
	})
	err = errors.Join(err, q.Units(g, func(u *jobdb.Unit) error {
		i := slices.IndexFunc(out.Parts, func(p Part) bool { return p.Name == u.Part })
		if i < 0 {
			i = len(out.Parts)
			out.Parts = append(out.Parts, Part{Name: u.Part})
		}
		out.Parts[i].Units = append(out.Parts[i].Units, unitOf(g, u, members[[2]any{u.Part, u.Replica}]))
		slices.SortFunc(out.Parts[i].Units, func(a, b Unit) int { return cmp.Compare(a.Replica, b.Replica) })
		return nil
	}))
	out.Conditions = conditionsOf(&out, g.State, g.Reason)
	return out, err
}

func unitOf(g *jobdb.Group, u *jobdb.Unit, members []*jobdb.Job) Unit {
	out := Unit{Replica: u.Replica, Reason: u.Reason.String(), Generation: u.Generation, Restarts: u.Restarts, RetriesUsed: u.Retries}
	slices.SortFunc(members, func(a, b *jobdb.Job) int { return cmp.Compare(a.Member.Index, b.Member.Index) })
	var completed, failed, counted policy.Indexes
	for _, j := range members {
		if j.Terminating() {
			out.Terminating++
		}
		if j.Member.State == jobdb.MemberSucceeded {
			counted.Add(j.Member.Index)
		}
		switch j.MemberShown() {
		case jobdb.MemberActive:
			out.Active++
		case jobdb.MemberHeld:
			out.Held++
		case jobdb.MemberSucceeded:
			out.Succeeded++
			completed.Add(j.Member.Index)
		case jobdb.MemberFailed:
			out.Failed++
			failed.Add(j.Member.Index)
		case jobdb.MemberUnitFail:
			out.Failed++
		case jobdb.MemberCancelled:
			out.Cancelled++
		case jobdb.MemberStopped:
			out.Stopped++
		case jobdb.NoMember, jobdb.MemberUnanswered:
		}
	}
	state := u.StateWith(counted, &g.Shape)
	out.State, out.CompletedIndexes, out.FailedIndexes = state.String(), completed.String(), failed.String()
	out.Conditions, out.Members = conditionsOfUnit(&out, g.Shape.Part(u.Part), state, u.Reason), members
	return out
}

// oneGroup is groupOf, with the story, the newest group that follows, and the records that the story was made from.
func oneGroup(q jobdb.Queries, row *jobdb.Group) (g Group, records []Record, err error) {
	if g, err = groupOf(q, row); err != nil {
		return g, nil, err
	}
	if records, err = groupRecords(q, row, 0); err != nil {
		return g, nil, err
	}
	if g.Story, err = storyOf(q, row, &g, records); err != nil {
		return g, nil, err
	}
	name, newest := group.Key{Queue: row.Queue, Set: row.JobSet, Name: row.Name}, uint32(0)
	from := jobdb.Page{Sort: "name", After: []any{row.Queue, row.JobSet, row.Name + group.FollowMark, int64(-1)}}
	_, err = q.GroupList(&jobdb.Criteria{Queue: row.Queue, JobSet: row.JobSet}, from, func(other *jobdb.Group) error {
		if !strings.HasPrefix(other.Name, row.Name+group.FollowMark) {
			return errPast
		}
		first, n, ok := group.Key{Queue: other.Queue, Set: other.JobSet, Name: other.Name}.Follows()
		if ok && first == name && n > newest && other.Binding >= row.Binding { // else it was before this one
			g.Newer, newest = other.Name, n
		}
		return nil
	})
	if errors.Is(err, errPast) {
		err = nil
	}
	return g, records, err
}

// errPast ends a list where what comes is of no interest.
var errPast = errors.New("past the end")

// GroupKey names a group. Queue and JobSet may be empty if no other group has the name, or if Group is the whole name:
// QUEUE/JOBSET/GROUP, as FullName gives it.
type GroupKey struct{ Queue, JobSet, Group string }

// FullName returns QUEUE/JOBSET/GROUP.
func (g *Group) FullName() string { return g.Queue + "/" + g.JobSet + "/" + g.Group }

func (k *GroupKey) find(q jobdb.Queries) (groups []*jobdb.Group, err error) {
	if groups, err = k.named(q); len(groups) > 0 || err != nil || k.Queue != "" || k.JobSet != "" {
		return groups, err
	}
	for i := range k.Group { // names of queues, sets and groups may have slashes
		for n := i + 2; n < len(k.Group) && k.Group[i] == '/'; n++ {
			if k.Group[n] != '/' {
				continue
			}
			more, err := (&GroupKey{k.Group[:i], k.Group[i+1 : n], k.Group[n+1:]}).named(q)
			if err != nil {
				return nil, err
			}
			groups = append(groups, more...)
		}
	}
	return groups, nil
}

func (k *GroupKey) named(q jobdb.Queries) (groups []*jobdb.Group, err error) {
	_, err = q.GroupList(&jobdb.Criteria{Queue: k.Queue, JobSet: k.JobSet, Group: k.Group}, jobdb.Page{}, func(g *jobdb.Group) error {
		groups = append(groups, g)
		return nil
	})
	return groups, err
}

// Row finds one group. Errors: *NotFound, *Ambiguous.
func (k *GroupKey) Row(q jobdb.Queries) (*jobdb.Group, error) {
	groups, err := k.find(q)
	if err != nil {
		return nil, err
	}
	return k.the(groups)
}

// Ambiguous reports that several groups have a name.
type Ambiguous struct {
	Name   string
	Groups []GroupKey
}

func (e *Ambiguous) Error() string {
	var names []string
	for _, g := range e.Groups[:min(len(e.Groups), 5)] {
		names = append(names, g.Queue+"/"+g.JobSet)
	}
	return fmt.Sprintf("%s are called %q: give queue and job set of one: %s", plural.Of(len(e.Groups), "group"), e.Name, strings.Join(names, ", "))
}

// The returns the group of that name. Errors: *NotFound, *Ambiguous.
func (k *GroupKey) the(groups []*jobdb.Group) (*jobdb.Group, error) {
	switch len(groups) {
	case 0:
		return nil, &NotFound{What: "group " + k.Group, Text: fmt.Sprintf("no group is called %q there", k.Group)}
	case 1:
		return groups[0], nil
	}
	e := &Ambiguous{Name: k.Group}
	for _, g := range groups {
		e.Groups = append(e.Groups, GroupKey{g.Queue, g.JobSet, g.Name})
	}
	return nil, e
}

// GroupHistory is a group and the records about it, in log order.
type GroupHistory struct {
	Group Group
	Lines []Line
}

// Line is a record as programs and people read it; one of Decision and Other is set.
type Line struct {
	Decision *audit.Decision `json:"decision,omitempty"`
	Other    *audit.Other    `json:"other,omitempty"`
	Text     string          `json:"text"` // the record in words
}

// Line returns a record as programs and people read it; false: nobody is shown it.
func (r *Record) Line() (Line, bool) {
	l := Line{Text: audit.Describe(r.Record)}
	switch shown := r.Shown().(type) {
	case audit.Decision:
		l.Decision = &shown
	case audit.Other:
		l.Other = &shown
	default:
		return l, false
	}
	return l, true
}

// Shown returns what `-o json` prints of a record: an *audit.Decision or an *audit.Other.
func (l *Line) Shown() any {
	if l.Decision != nil {
		return l.Decision
	}
	return l.Other
}

// Record is a record of a decision log that a job database keeps.
type Record struct {
	Where jobdb.Where
	chain.Record
}

// recordOf returns a decision as a record, of which only those that came too late are superseded.
func recordOf(d *jobdb.Decision) Record {
	r := Record{d.Where, &d.Decision}
	r.Where.Superseded = d.Late()
	return r
}

// Shown returns what `-o json` prints of a record: an audit.Decision or an audit.Other; nil: nothing.
func (r *Record) Shown() any {
	if d, ok := r.Record.(*chain.Decision); ok {
		shown := audit.DecisionOf(r.Where.Partition, d)
		shown.Superseded = r.Where.Superseded
		return shown
	}
	other, ok := audit.OtherOf(r.Where.Partition, r.Record)
	if !ok {
		return nil
	}
	other.Superseded = r.Where.Superseded
	return other
}

// Group finds one group. Errors: *NotFound, *Ambiguous.
func (s *Source) Group(ctx context.Context, k GroupKey) (found Group, err error) {
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		row, err := k.Row(q)
		if err != nil {
			return err
		}
		found, _, err = oneGroup(q, row)
		return err
	})
	return found, err
}

// GroupHistory tells the history of one group. Errors: *NotFound, *Ambiguous.
func (s *Source) GroupHistory(ctx context.Context, k GroupKey) (h *GroupHistory, err error) {
	h = &GroupHistory{}
	var records []Record
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		row, err := k.Row(q)
		if err != nil {
			return err
		}
		h.Group, records, err = oneGroup(q, row)
		return err
	})
	for i := range records {
		if l, ok := records[i].Line(); ok {
			h.Lines = append(h.Lines, l)
		}
	}
	return h, err
}

// groupRecords returns the records about a group, in log order: of one envelope, or 0 for all.
func groupRecords(q jobdb.Queries, g *jobdb.Group, seq uint64) (history []Record, err error) {
	filter := jobdb.RecordFilter{Partition: &g.Partition, Group: g, Seq: seq}
	err = errors.Join(
		q.GroupRecords(filter, func(r *jobdb.GroupRecord) error {
			rec, err := r.Record()
			history = append(history, Record{r.Where, rec})
			return err
		}),
		q.Decisions(filter, func(d *jobdb.Decision) error {
			history = append(history, recordOf(d))
			return nil
		}),
	)
	sortRecords(history)
	return history, err
}

// sortRecords puts records of one partition into log order.
func sortRecords(list []Record) {
	slices.SortFunc(list, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Where.Seq, b.Where.Seq), cmp.Compare(a.Where.Record, b.Where.Record))
	})
}

// AllRecords visits decisions and other records, of all jobs or of one ("": all), partition by partition in log order;
// last: only the last so many of each kind in a partition, 0 for all.
func (s *Source) AllRecords(ctx context.Context, job string, last int, visit func(*Record) error) error {
	return s.Jobs(ctx, func(q jobdb.Queries) error {
		positions, err := q.Positions()
		for _, at := range positions {
			if err != nil {
				break
			}
			var kept []Record
			kept, err = keptRecords(q, jobdb.RecordFilter{Partition: &at.Partition, JobID: job, Last: last})
			for i := range kept {
				kept[i].Where.Partition = at.Partition
				err = errors.Join(err, visit(&kept[i]))
			}
		}
		return err
	})
}

// keptRecords returns the records of one partition in log order.
func keptRecords(q jobdb.Queries, filter jobdb.RecordFilter) (kept []Record, err error) {
	add := func(where jobdb.Where, r chain.Record) error {
		kept = append(kept, Record{where, r})
		return nil
	}
	err = errors.Join(
		q.Decisions(filter, func(d *jobdb.Decision) error {
			kept = append(kept, recordOf(d))
			return nil
		}),
		q.NotDecided(filter, func(r *jobdb.NotDecided) error { return add(r.Where, &r.NotDecided) }),
		q.Ready(filter, func(r *jobdb.Ready) error { return add(r.Where, &r.RetryReady) }),
		q.Parked(jobdb.RecordFilter{Partition: filter.Partition}, func(r *jobdb.Parked) error { return add(r.Where, &r.Parked) }),
		q.GroupRecords(filter, func(r *jobdb.GroupRecord) error {
			rec, err := r.Record()
			if err != nil {
				return err
			}
			return add(r.Where, rec)
		}),
	)
	sortRecords(kept)
	return kept, err
}
