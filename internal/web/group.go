package web

import (
	"cmp"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

func groupRow(g *query.Group) []cell {
	return []cell{
		linked(g.Group, link("/group", "queue", g.Queue, "set", g.JobSet, "name", g.Group)), linked(g.Queue, link("/queue", "name", g.Queue)), text(g.JobSet),
		text(g.Policy), badge(g.State, kind(g.State)), number(g.RestartsUsed()),
		{Text: g.Reason, Class: "why"},
	}
}

// groupPage is a group with its story.
type groupPage struct {
	Group   query.Group
	Facts   []fact
	Ended   *turn // by which it failed last; nil: by none
	Turns   []turn
	Chart   chart
	Members table // as Chart
}

// turn is a turn of the story.
type turn struct {
	*query.Turn
	Job, Explain, WhyNot string // addresses; "": there is no member, or no run failed
}

func turnOf(g *query.Group, t *query.Turn) turn {
	out := turn{Turn: t}
	if d := t.Record.Decision; d != nil {
		explain := []string{"id", d.JobID, "partition", fmt.Sprint(g.Partition), "run", fmt.Sprint(d.RunIndex)}
		out.Job, out.Explain = jobLink(g.Partition, d.JobID), link("/explain", explain...)
		out.WhyNot = link("/explain", append(explain, "why-not", "Retry")...) + "#why-not"
	} else if t.Lost != nil {
		out.Job = jobLink(g.Partition, t.Lost.JobID)
	}
	return out
}

// chart is a drawing of what became of members in each generation.
type chart struct {
	Width, Height int
	Heads         []label
	Rows          []label
	Bars          []bar
	Cells         []label
}

type label struct {
	X, Y int
	Text string
}

// bar is some members of a row with one state.
type bar struct {
	X, Width    float64
	Y           int
	Class, What string
}

// The sizes of a chart, in pixels.
const (
	chartLetter, chartCell, chartRow = 6, 126, 19
	chartGap                         = 4
	longestName                      = 24  // letters
	leastBar                         = 3.0 // so that one failure among thousands is seen
)

func chartOf(group *query.Group) (c chart, members table) {
	rows := group.Story.Members
	members = table{Caption: "What became of the members in each generation", Columns: columns("Members"), Empty: "No member is known."}
	if len(rows) == 0 {
		return c, members
	}
	names, until := 0, map[uint32]string{}
	for i := range rows {
		names = max(names, 2*chartGap+chartLetter*min(longestName, utf8.RuneCountInString(rows[i].Name)))
	}
	for i := range group.Story.Turns {
		if t := &group.Story.Turns[i]; t.Record.Decision != nil {
			until[t.Generation] = ", until " + part(t.Record.Decision.EventTime, "15:04:05")
		}
	}
	for i, g := range rows[0].Generations {
		head := fmt.Sprint(g.Number, until[g.Number])
		c.Heads = append(c.Heads, label{names + i*chartCell, 13, head})
		members.Columns = append(members.Columns, column{Name: "Generation " + head})
	}
	c.Width, c.Height = names+len(c.Heads)*chartCell, (len(rows)+1)*chartRow
	for i := range rows {
		r, y := &rows[i], (i+1)*chartRow
		c.Rows = append(c.Rows, label{0, y + 13, clip(r.Name, longestName)})
		name := named(r.Name, "")
		if r.JobID != "" {
			name.Link = jobLink(group.Partition, r.JobID)
		}
		cells := []cell{name}
		for k, g := range r.Generations {
			x := names + k*chartCell
			c.bars(&g, float64(x), y)
			c.Cells = append(c.Cells, label{x + chartGap, y + 13, clip(g.Text(), 20)})
			cells = append(cells, text(g.Text()))
		}
		members.Rows = append(members.Rows, cells)
	}
	return c, members
}

// bars adds one for each state, as wide as it has members, but none too narrow to be seen.
func (c *chart) bars(g *query.Generation, x float64, y int) {
	all, wide := 0, float64(chartCell-chartGap)-leastBar*float64(len(g.States))
	for _, s := range g.States {
		all += s.Count
	}
	for _, s := range g.States {
		width := leastBar + wide*float64(s.Count)/float64(all)
		c.Bars = append(c.Bars, bar{x, width, y, kind(s.Key), fmt.Sprintf("%d %s", s.Count, s.Key)})
		x += width
	}
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
	shown.Chart, shown.Members = chartOf(&found)
	for i := range found.Story.Turns {
		shown.Turns = append(shown.Turns, turnOf(&found, &found.Story.Turns[i]))
	}
	if t := found.Story.Ended(); t != nil && found.State != policy.GroupSucceeded.String() {
		ended := turnOf(&found, t)
		shown.Ended = &ended
	}
	shown.Facts = []fact{
		{"Queue", found.Queue, link("/queue", "name", found.Queue)},
		{"Job set", found.JobSet, link("/jobs", "queue", found.Queue, "set", found.JobSet)},
		{"Policy", cmp.Or(found.Policy, "none"), ""},
		{"Restarts", found.RestartsUsed() + ": " + found.RestartsLimit(), ""},
		{"Partition", fmt.Sprint(found.Partition), ""},
	}
	if s := found.SuccessRule(); s != "" {
		shown.Facts = append(shown.Facts, fact{"Succeeds when", s, ""})
	}
	if found.Reason != "" {
		shown.Facts = append(shown.Facts, fact{"Reason", found.EndReason(), ""})
	}
	if found.Newer != "" {
		shown.Facts = append(shown.Facts, fact{"Newest of this name", found.Newer, link("/group", "queue", found.Queue, "set", found.JobSet, "name", found.Newer)})
	}
	shown.Facts = append(shown.Facts, fact{"Jobs", "list them", link("/jobs", "queue", found.Queue, "set", found.JobSet, "group", found.Group)})
	return p.show("group", "Group "+clip(found.Group, 60), "/groups", shown)
}
