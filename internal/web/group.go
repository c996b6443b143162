package web

import (
	"errors"
	"fmt"

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
	Group query.Group
	Facts []fact
	More  int // members that the grid does not show
}

func (s *Site) group(p *page) error {
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
	left := groupMembers
	for i := range found.Parts {
		for j := range found.Parts[i].Units {
			u := &found.Parts[i].Units[j]
			n := min(left, len(u.Members))
			left, shown.More = left-n, shown.More+len(u.Members)-n
			u.Members = u.Members[:n]
		}
	}
	shown.Facts = []fact{
		{"Queue", found.Queue, link("/queue", "name", found.Queue)},
		{"Job set", found.JobSet, link("/jobs", "queue", found.Queue, "set", found.JobSet)},
		{"Policy", found.Policy, ""},
		{"Restarts", restarts(&found), ""},
		{"Partition", fmt.Sprint(found.Partition), ""},
	}
	if s := found.SuccessRule(); s != "" {
		shown.Facts = append(shown.Facts, fact{"Succeeds when", s, ""})
	}
	if found.Reason != "" {
		shown.Facts = append(shown.Facts, fact{"Reason", found.Reason, ""})
	}
	if found.Newer != "" {
		shown.Facts = append(shown.Facts, fact{"Newest of this name", found.Newer, link("/group", "queue", found.Queue, "set", found.JobSet, "name", found.Newer)})
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
