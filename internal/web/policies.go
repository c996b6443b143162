package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/query"
)

func (s *Site) status(p *page) (*pb.StatusResponse, error) {
	return s.API.Status(p.r.Context(), &pb.StatusRequest{})
}

// newestPolicies returns the policies in force.
func (s *Site) newestPolicies(p *page) (policylog.Snapshot, error) {
	ctx, cancel := context.WithTimeout(p.r.Context(), pageTimeout/2)
	defer cancel()
	return s.API.Store.Newest(ctx)
}

// policiesPage lists resources and generations.
type policiesPage struct {
	Generation  uint64
	ReadOnly    string
	Resources   table
	Budgets     table
	Generations table
	Compare     []filter
}

const shownGenerations = 50

func (s *Site) policies(p *page) error {
	list, err := s.API.List(p.r.Context(), &pb.ListRequest{})
	if err != nil {
		return err
	}
	status, err := s.status(p)
	if err != nil {
		return err
	}
	history, err := s.API.History(p.r.Context(), &pb.HistoryRequest{Limit: shownGenerations})
	if err != nil {
		return err
	}
	shown := policiesPage{Generation: list.Generation, ReadOnly: sentence(status.ReadOnly)}
	shown.Resources = table{Caption: "What is in force", Columns: columns("Kind", "Name", "Used by", "Last changed in"), Empty: "There are no policies: failed runs are decided as Armada does."}
	for _, r := range list.Resources {
		name := cmp.Or(r.Name, "settings")
		shown.Resources.Rows = append(shown.Resources.Rows, []cell{
			text(r.Kind), linked(name, link("/policy", "kind", r.Kind, "name", r.Name)), text(strings.Join(r.UsedBy, ", ")), generationCell(r.Generation),
		})
	}
	snap, err := s.newestPolicies(p)
	if err != nil {
		return err
	}
	shown.Budgets = budgetsOf(&snap)
	shown.Generations = generationTable("Generations, newest first", history.Generations)
	shown.Compare = compared("", "")
	if len(history.Generations) > 1 {
		shown.Compare = compared(fmt.Sprint(history.Generations[0].Generation), fmt.Sprint(history.Generations[1].Generation))
	}
	return p.show("policies", "Policies", "/policies", shown)
}

// compared are the fields of the form that compares two generations.
func compared(number, against string) []filter {
	return []filter{{Name: "number", Label: "Generation", Value: number}, {Name: "against", Label: "Against", Value: against, Hint: "a number, 24h, or a time"}}
}

func generationTable(caption string, list []*pb.Generation) table {
	t := table{Caption: caption, Columns: columns("Generation>", "When", "Who", "Why", "Change"), Empty: "Nothing was ever published."}
	for _, g := range list {
		row := []cell{generationCell(g.Generation), at(query.TimeText(g.Time.AsTime().UnixNano())), text(g.Author), {Text: g.Reason, Class: "why"}, {Text: changeText(g), Class: "why"}}
		row[0].Class = "num"
		if g.Unusable != "" {
			row[4].Note = "unusable: " + g.Unusable
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// budgetsOf lists retry budgets, and what each permits.
func budgetsOf(snap *policylog.Snapshot) table {
	t := table{Caption: "Retry budgets", Columns: columns("Name", "Queue", "Ratio>", "Floor>", "Window>", "What is beyond it")}
	for _, b := range snap.Base.Budgets() {
		terms := query.TermsOf(&b)
		queue := text(terms.Queue)
		if b.Queue != "" {
			queue = linked(b.Queue, link("/queue", "name", b.Queue))
		}
		t.Rows = append(t.Rows, []cell{
			linked(b.Name, link("/policy", "kind", policyfile.KindBudget, "name", b.Name)), queue,
			number(terms.Ratio), number(terms.Floor), number(terms.Window), text(terms.Beyond),
		})
	}
	return t
}

func generationCell(n uint64) cell {
	if n == 0 {
		return cell{}
	}
	return linked(fmt.Sprint(n), link("/generation", "number", fmt.Sprint(n)))
}

// changeText says what a generation changed, in a line.
func changeText(g *pb.Generation) string {
	var parts []string
	for _, c := range g.Changes {
		parts = append(parts, strings.TrimSpace(c.Kind+" "+c.Name)+" "+c.Op)
	}
	if len(parts) > 6 {
		parts = append(parts[:6], fmt.Sprintf("and %d more", len(parts)-6))
	}
	return strings.Join(append(parts, g.BrakeChanges...), ", ")
}

// policyPage is one resource.
type policyPage struct {
	Kind, Name string
	YAML       string
	Facts      []fact
	Rules      table
	Trend      *trend
	Cost       table
	History    table
}

func (s *Site) policy(p *page) error {
	id := policyfile.ID{Kind: cmp.Or(p.arg("kind"), policyfile.KindPolicy), Name: p.form.Get("name")}
	resource, err := s.API.Get(p.r.Context(), &pb.GetRequest{Kind: id.Kind, Name: id.Name})
	if err != nil {
		return err
	}
	snap, err := s.newestPolicies(p)
	if err != nil {
		return err
	}
	yaml, err := snap.Base.YAML(id)
	if err != nil {
		return err
	}
	shown := policyPage{Kind: id.Kind, Name: id.Name, YAML: string(yaml)}
	shown.Facts = []fact{{"Last changed in", fmt.Sprintf("generation %d", resource.Generation), link("/generation", "number", fmt.Sprint(resource.Generation))}}
	if len(resource.UsedBy) > 0 {
		shown.Facts = append(shown.Facts, fact{"Used by", strings.Join(resource.UsedBy, ", "), ""})
	}
	for _, b := range snap.Base.Budgets() {
		if id.Kind != policyfile.KindBudget || b.Name != id.Name || s.Query.Jobs == nil {
			continue
		}
		uses, err := query.UsesOfBudget(p.ctx, &s.Query, &b, resource.Generation)
		if err != nil {
			return err
		}
		for _, words := range uses.Words() {
			shown.Facts = append(shown.Facts, fact{"Use", words, ""})
		}
	}
	if id.Kind == policyfile.KindPolicy {
		if shown.Rules, err = s.rulesOf(p, &snap, id.Name); err != nil {
			return err
		}
		if s.Query.Jobs != nil {
			if shown.Trend, err = s.trendOf(p, "", id.Name, 0, 0); err != nil {
				return err
			}
			if shown.Cost, err = s.costOfRules(p, id.Name); err != nil {
				return err
			}
		}
	}
	history, err := s.API.History(p.r.Context(), &pb.HistoryRequest{Kind: id.Kind, Name: id.Name, Limit: 20})
	if err != nil {
		return err
	}
	shown.History = table{Caption: "Changes", Columns: columns("Generation>", "When", "Who", "Why"), Empty: "It was never changed."}
	for _, g := range history.Generations {
		c := generationCell(g.Generation)
		c.Class = "num"
		shown.History.Rows = append(shown.History.Rows, []cell{c, at(query.TimeText(g.Time.AsTime().UnixNano())), text(g.Author), {Text: g.Reason, Class: "why"}})
	}
	return p.show("policy", strings.TrimSpace(id.Kind+" "+clip(id.Name, 60)), "/policies", shown)
}

// rulesOf lists the rules of a policy with how often each decided, and with what effect.
func (s *Site) rulesOf(p *page, snap *policylog.Snapshot, name string) (t table, err error) {
	t = table{
		Caption: "Rules, in order, with how often each decided",
		Columns: columns("Rule", "Action", "Limit>", "Retried>", "Failed for good>", "In shadow>", "Superseded>", "What if"),
	}
	counts := map[string][]jobdb.DecisionCount{}
	if s.Query.Jobs != nil {
		if err = s.Query.Jobs(p.ctx, func(q jobdb.Queries) error {
			all, err := q.CountDecisions(&jobdb.Criteria{Policy: name})
			for _, d := range all {
				counts[d.Rule] = append(counts[d.Rule], d)
			}
			return err
		}); err != nil {
			return t, err
		}
	}
	o := snap.Base.Outline(name)
	for _, r := range append(o.Rules, o.Default) {
		try := cell{}
		if r.Action == policy.Retry.String() {
			other := "2"
			if limitOf(&r) == other {
				other = "1"
			}
			try = linked("limit "+other, link("/whatif", "set", limitField(name, r.Shown)+"="+other))
		}
		row := []cell{linked(r.Shown, link("/decisions", "policy", name, "rule", r.Shown)), badge(r.Action, kind(r.Action)), number(limitOf(&r))}
		n := query.CountEffects(counts[r.Shown])
		for _, count := range []uint64{n.Retried, n.FailedForGood, n.InShadow, n.Superseded} {
			shown := ""
			if s.Query.Jobs != nil {
				shown = size(count)
			}
			row = append(row, number(shown))
		}
		t.Rows = append(t.Rows, append(row, try))
	}
	return t, nil
}

// limitOf returns a rule's own limit; "": it has none.
func limitOf(r *policy.Rule) string {
	if r.LimitFrom != policy.FromRule {
		return ""
	}
	return fmt.Sprint(r.Limit)
}

// limitField is the limit of a rule, as whatif names the field.
func limitField(policy, rule string) string {
	return fmt.Sprintf("policies.%s.rules[%s].retryLimit", policy, rule)
}

// generationPage is what changed from one generation to another, by default from the one before it.
type generationPage struct {
	Compare   []filter
	Facts     []fact
	Fields    []string // that changed
	Changes   []changed
	Overrides []string // that began or ended
	Made      table    // the generations between, if there are several
	Before    string
	After     string
	Try       string // a what-if of it
	Numbers   table  // of decisions before and after
	Counted   string // what they are
	Trend     *trend // around them
	Unused    string
}

// changed is a resource before and after.
type changed struct {
	Name, Op string
	Lines    []diffLine
}

func (s *Site) generation(p *page) error {
	number, err := strconv.ParseUint(p.arg("number"), 10, 64)
	if err != nil || number == 0 {
		return &query.Invalid{Param: "number", Err: fmt.Errorf("%q: want the number of a generation, from 1", clip(p.arg("number"), 40))}
	}
	h, err := s.API.History(p.r.Context(), &pb.HistoryRequest{Limit: math.MaxInt32})
	if err != nil {
		return err
	}
	before := uint64(0)
	if p.arg("against") != "" {
		if before, err = query.GenerationAt(p.arg("against"), h.Generations, s.Now()); err != nil {
			return &query.Invalid{Param: "against", Err: err}
		}
		number, before = max(number, before), min(number, before)
	}
	i := slices.IndexFunc(h.Generations, func(g *pb.Generation) bool { return g.Generation == number })
	if i < 0 {
		newest := uint64(0)
		if len(h.Generations) > 0 {
			newest = h.Generations[0].Generation
		}
		return problem{http.StatusNotFound, "There is no such generation", fmt.Sprintf("Generation %d does not exist; the newest is %d.", number, newest), nil}
	}
	g := h.Generations[i]
	shown := generationPage{Facts: []fact{{"When", part(query.TimeText(g.Time.AsTime().UnixNano()), "2006-01-02 15:04:05 UTC"), ""}, {"Who", g.Author, ""}, {"Why", g.Reason, ""}}}
	if i > 0 {
		shown.After = generationCell(h.Generations[i-1].Generation).Link
	}
	title := fmt.Sprintf("Policies, generation %d", number)
	if shown.Unused = g.Unusable; shown.Unused != "" {
		return p.show("generation", title, "/policies", shown)
	}
	shown.Try = link("/whatif", "policies", query.GenerationPrefix+fmt.Sprint(number))
	usable := slices.IndexFunc(h.Generations[i+1:], func(g *pb.Generation) bool { return g.Unusable == "" })
	if usable >= 0 {
		shown.Before = generationCell(h.Generations[i+1+usable].Generation).Link
	}
	switch {
	case p.arg("against") != "":
		title += fmt.Sprintf(" against %d", before)
	case usable >= 0:
		before = h.Generations[i+1+usable].Generation
	}
	shown.Compare = compared(fmt.Sprint(number), fmt.Sprint(before))
	c, err := query.ChangesBetween(p.r.Context(), s.API, h.Generations, before, number)
	if err != nil {
		return err
	}
	for _, o := range g.Brakes {
		shown.Facts = append(shown.Facts, fact{"In force", query.OverrideText(api.OverrideOf(o)), "/overrides"})
	}
	if err := shown.tell(c); err != nil || len(c.Made) == 0 {
		return errors.Join(err, p.show("generation", title, "/policies", shown))
	}
	if s.Query.Jobs != nil {
		decisions, err := c.Count(p.ctx, s.Query.BeforeAfter)
		if err != nil {
			return err
		}
		if len(decisions) > 0 {
			shown.count(c, decisions, s.Now())
		}
		const day = int64(24 * time.Hour)
		if shown.Trend, err = s.trendOf(p, "", "", c.Made[len(c.Made)-1].Time.AsTime().UnixNano()-day, c.Made[0].Time.AsTime().UnixNano()+day); err != nil {
			return err
		}
	}
	return p.show("generation", title, "/policies", shown)
}

// tell shows what changed.
func (g *generationPage) tell(c *query.PolicyChanges) error {
	if len(c.Made) > 1 {
		g.Made = generationTable("Generations between them", c.Made)
	}
	for _, f := range c.Fields {
		g.Fields = append(g.Fields, f.String())
	}
	seen := map[policyfile.ID]bool{}
	for _, made := range slices.Backward(c.Made) {
		for _, line := range made.BrakeChanges {
			g.Overrides = append(g.Overrides, upper(line))
		}
		for _, r := range made.Changes {
			id := policyfile.ID{Kind: r.Kind, Name: r.Name}
			old, err := textOf(c.Before, id)
			fresh, err2 := textOf(c.After, id)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			one := changed{Name: id.String(), Op: string(policylog.Updated), Lines: diff(old, fresh)}
			switch {
			case seen[id] || old == fresh:
				continue
			case old == "":
				one.Op = string(policylog.Created)
			case fresh == "":
				one.Op = string(policylog.Deleted)
			}
			seen[id] = true
			g.Changes = append(g.Changes, one)
		}
	}
	return nil
}

// count shows what became of decisions.
func (g *generationPage) count(c *query.PolicyChanges, decisions []query.DecisionsOf, now time.Time) {
	g.Counted = c.Counted(decisions, now)
	g.Numbers.Caption = "Decisions before and after"
	for i, head := range query.DecisionHeads() {
		if i > 0 {
			head += ">"
		}
		g.Numbers.Columns = append(g.Numbers.Columns, columns(head)...)
	}
	for _, d := range query.Seen(decisions) {
		var row []cell
		for n, text := range d.Cells() {
			c := number(text)
			if n == 0 {
				c.Class = ""
			}
			row = append(row, c)
		}
		g.Numbers.Rows = append(g.Numbers.Rows, row)
	}
}

// textOf returns the YAML of a resource; "": the set does not have it.
func textOf(set *policyfile.Set, id policyfile.ID) (string, error) {
	if _, ok := set.Body(id); !ok {
		return "", nil
	}
	b, err := set.YAML(id)
	return string(b), err
}

// diffLine is a line of a difference: Sign is "+", "-" or a space.
type diffLine struct{ Sign, Text string }

// maxDiff limits the lines of texts that are compared line by line: it takes time by their product.
const maxDiff = 2000

// diff compares two texts by their longest common subsequence of lines, and leaves out what is far from a change.
func diff(before, after string) (lines []diffLine) {
	a, b := splitLines(before), splitLines(after)
	if len(a) > maxDiff || len(b) > maxDiff {
		return []diffLine{{" ", fmt.Sprintf("%d lines before, %d after: too long to compare here", len(a), len(b))}}
	}
	common := make([][]int16, len(a)+1) // of the rest from (i, j) on
	for i := range common {
		common[i] = make([]int16, len(b)+1)
	}
	for i := range slices.Backward(a) {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			lines = append(lines, diffLine{" ", a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			lines = append(lines, diffLine{"-", a[i]})
			i++
		default:
			lines = append(lines, diffLine{"+", b[j]})
			j++
		}
	}
	return near(lines)
}

// near keeps the lines within three of a change.
func near(lines []diffLine) (kept []diffLine) {
	const around = 3
	last := -1
	for i := range lines {
		changed := false
		for j := max(0, i-around); j <= min(len(lines)-1, i+around) && !changed; j++ {
			changed = lines[j].Sign != " "
		}
		if !changed {
			continue
		}
		if last >= 0 && i > last+1 {
			kept = append(kept, diffLine{"…", ""})
		}
		kept, last = append(kept, lines[i]), i
	}
	return kept
}

func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}
