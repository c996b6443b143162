package web

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// costRows is how many of the dearest a page shows.
const costRows = 20

// costBy sums up what failed runs and retries held, by one of jobdb.CostKeys, or of one key alone; no columns: nothing is known of any.
func (s *Site) costBy(p *page, by string, key *string, since, until int64) (t table, err error) {
	rows, err := s.Query.TopCost(p.ctx, query.CostQuestion{By: by, Key: key, Since: since, Until: until, Limit: costRows})
	if err != nil || len(rows) == 0 {
		return t, err
	}
	return costTable(rows), nil
}

// costOfRules is costBy for the rules of a policy, after the policy itself.
func (s *Site) costOfRules(p *page, policy string) (t table, err error) {
	rows, err := s.Query.TopCost(p.ctx, query.CostQuestion{By: "policy", Key: &policy})
	if err != nil || len(rows) == 0 {
		return t, err
	}
	rules, err := s.Query.TopCost(p.ctx, query.CostQuestion{By: "rule"})
	rules = slices.DeleteFunc(rules, func(c query.Cost) bool { return !strings.HasPrefix(c.Key, policy+"/") })
	t = costTable(append(rows, rules...))
	t.Columns[0].Name = "Policy and rule"
	return t, err
}

func costTable(rows []query.Cost) table {
	by := rows[0].By
	t := table{Caption: "Resource-hours by " + kindNames[by], Columns: columns(title(kindNames[by]), "Failed runs", "Retries that succeeded", "Retries that did not")}
	for i := range rows {
		c := &rows[i]
		name := linked(c.Key, link("/decisions", c.By, c.Key))
		switch {
		case c.Key == "":
			name = text("none")
		case c.By == "queue":
			name.Link = link("/queue", "name", c.Key)
		}
		t.Rows = append(t.Rows, []cell{name, spentCell(&c.Failed), spentCell(&c.RetriesSucceeded), spentCell(&c.RetriesLost)})
	}
	return t
}

func spentCell(s *audit.Spent) cell {
	if s.Runs == 0 {
		return text("none")
	}
	c := cell{Text: "unknown", Note: plural.Of(int(s.Runs), "run")}
	if gpu, cpu, memory := s.Hours(); s.Known() {
		c.Text = fmt.Sprintf("GPU %s h, core %s h, GiB %s h", gpu, cpu, memory)
		if s.Unknown > 0 {
			c.Note += fmt.Sprintf(", unknown of %d", s.Unknown)
		}
	}
	return c
}

// summedBy reports whether costs are kept for what a list asks for: a key in a time, and of it no more than one.
func summedBy(by string, l *query.List) (key *string, ok bool) {
	c := l.Criteria
	c.Since, c.Until = 0, 0
	if by == "queue" && c.Queue != "" {
		key = &l.Queue
		c.Queue = ""
	}
	return key, slices.Contains(jobdb.CostKeys, by) && c.Empty() && len(l.Codes) == 0
}
