package web

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// groupMembers limits the members that a group's grid shows.
const groupMembers = 2000

func groupRow(g *query.Group) []cell {
	return []cell{
		linked(g.Group, link("/group", "queue", g.Queue, "set", g.JobSet, "name", g.Group)), linked(g.Queue, link("/queue", "name", g.Queue)), text(g.JobSet),
		text(g.Policy), badge(g.State, kind(g.State)), number(restarts(g)),
		{Text: g.Reason, Class: "why"},
	}
}

func restarts(g *query.Group) string {
	if g.MaxRestarts == nil {
		return fmt.Sprint(g.Restarts)
	}
	return fmt.Sprintf("%d/%d", g.RestartsCounted, *g.MaxRestarts)
}

// groupPage is a group with its members.
type groupPage struct {
	Group   query.Group
	Facts   []fact
	Parts   []partView
	More    bool // there are more members than the grid shows
	Several []choice
}

// partView is a part of a group: one row of members for each of its units.
type partView struct {
	Name  string
	Units []unitView
}

type unitView struct {
	Unit    query.Unit
	Members []memberView
}

// memberView is a member in the grid.
type memberView struct {
	Index             uint32
	State, Kind, Link string
	Job               string
}

var errEnough = errors.New("enough")

func (s *site) group(p *page) error {
	if s.Query.Jobs == nil {
		return errNoJobs
	}
	key := query.GroupKey{Queue: p.form.Get("queue"), JobSet: p.form.Get("set"), Group: p.form.Get("name")}
	if key.Group == "" {
		return &query.Invalid{Param: "name", Err: errors.New("missing: name a group")}
	}
	found, err := s.Query.Group(p.ctx, key)
	several := (*query.Ambiguous)(nil)
	if errors.As(err, &several) {
		p.to = link("/groups", "group", key.Group, "queue", key.Queue, "set", key.JobSet)
		return nil
	}
	if err != nil {
		return err
	}
	shown := groupPage{Group: found}
	members := map[string]map[uint32][]memberView{}
	seen := 0
	err = s.Query.Jobs(p.ctx, func(q jobdb.Queries) error {
		var row *jobdb.Group
		_, err := q.GroupList(&jobdb.Criteria{Queue: found.Queue, JobSet: found.JobSet, Group: found.Group}, jobdb.Page{Limit: 1}, func(g *jobdb.Group) error {
			row = g
			return nil
		})
		if err != nil || row == nil {
			return err
		}
		return q.Members(row, func(j *jobdb.Job) error {
			if seen++; seen > groupMembers {
				shown.More = true
				return errEnough
			}
			m := &j.Member
			if members[m.Part] == nil {
				members[m.Part] = map[uint32][]memberView{}
			}
			members[m.Part][m.Replica] = append(members[m.Part][m.Replica], memberView{
				Index: m.Index, State: m.State.String(), Kind: memberKind(m.State), Link: jobLink(j.Partition, j.JobID), Job: j.JobID,
			})
			return nil
		})
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	for _, part := range found.Parts {
		v := partView{Name: part.Name}
		for _, u := range part.Units {
			row := members[part.Name][u.Replica]
			slices.SortFunc(row, func(a, b memberView) int { return cmp.Compare(a.Index, b.Index) })
			v.Units = append(v.Units, unitView{u, row})
		}
		shown.Parts = append(shown.Parts, v)
	}
	shown.Facts = []fact{
		{"Queue", found.Queue, link("/queue", "name", found.Queue)},
		{"Job set", found.JobSet, link("/jobs", "queue", found.Queue, "set", found.JobSet)},
		{"Policy", found.Policy, ""},
		{"Restarts", restarts(&found), ""},
		{"Partition", fmt.Sprint(found.Partition), ""},
	}
	if found.Reason != "" {
		shown.Facts = append(shown.Facts, fact{"Reason", found.Reason, ""})
	}
	shown.Facts = append(shown.Facts, fact{"Jobs", "list them", link("/jobs", "queue", found.Queue, "set", found.JobSet, "group", found.Group)})
	return p.show("group", "Group "+clip(found.Group, 60), "/groups", shown)
}

func memberKind(s jobdb.MemberState) string {
	switch s {
	case jobdb.MemberSucceeded:
		return "good"
	case jobdb.MemberFailed, jobdb.MemberUnitFail:
		return "bad"
	case jobdb.MemberActive:
		return "busy"
	case jobdb.MemberHeld:
		return "wait"
	default:
		return "plain"
	}
}
