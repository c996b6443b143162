package web

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/shadow"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

// ruleChoice is a rule whose limit the form can change: the field, as whatif reads it, and what people read.
type ruleChoice struct{ Field, Text string }

const (
	whatIfJobs = 20
	whatIfRows = 30
)

// whatIfPage is the form of a what-if, and its result.
type whatIfPage struct {
	Rules   []ruleChoice
	Rule    string
	Limit   string
	Set     string // one assignment a line
	YAML    string
	Against string // "": what was decided; query.AgainstNow, or policies
	Queue   string
	From    string
	To      string
	Filled  bool   // by the address, which has no answer
	Link    string // the address that fills it
	Problem []string
	Result  *whatif.Result
	Verdict string
	Fields  []query.FieldChange
	Uses    []string // of rules
	What    string
	Units   string // that ended by themselves
	Effects []string
	Sides   table
	Basis   []string // of the estimates in Sides
	Rows    table
	Jobs    table
	Assumed []string
}

// whatIfForm shows the form, filled with what the address says.
func (s *Site) whatIfForm(p *page) error {
	shown, err := s.asksWhatIf(p)
	if err != nil {
		return err
	}
	shown.Filled = p.r.URL.RawQuery != ""
	return p.show("whatif", whatIfTitle, "/whatif", shown)
}

const whatIfTitle = "What if the policies were different?"

// asksWhatIf reads the form.
func (s *Site) asksWhatIf(p *page) (*whatIfPage, error) {
	shown := &whatIfPage{
		Rule: p.arg("rule"), Limit: p.arg("limit"), Set: p.arg("set"), YAML: p.form.Get("policies"), Against: p.form.Get("against"), Queue: p.arg("queue"), From: p.arg("from"), To: p.arg("to"),
		Assumed: whatif.Assumptions(),
	}
	snap, err := s.newestPolicies(p)
	if err != nil {
		return nil, err
	}
	for _, o := range snap.Base.Outlines() {
		for i := range o.Rules {
			if r := &o.Rules[i]; r.Action == policy.Retry.String() {
				limit := "no limit of its own"
				if own := limitOf(r); own != "" {
					limit = fmt.Sprintf("limit %s now", own)
				}
				shown.Rules = append(shown.Rules, ruleChoice{limitField(o.Name, r.Shown), fmt.Sprintf("%s, %s", query.RuleName(o.Name, r.Shown), limit)})
			}
		}
	}
	return shown, nil
}

// whatIf decides the history by other policies. Only one is decided at a time, and it ends when the client goes. It is
// posted: the page of another site can make a browser follow an address.
func (s *Site) whatIf(p *page) error {
	shown, err := s.asksWhatIf(p)
	if err != nil {
		return err
	}
	asked, err := s.question(p, shown)
	var results []query.WhatIfResult
	if err == nil {
		results, err = s.Query.WhatIf(p.ctx, asked)
	}
	if err == nil && results[0].Compared+results[0].Units == 0 {
		if bad := query.Missing(p.ctx, &s.Query, &jobdb.Criteria{Queue: asked.Queue}); bad != nil {
			err = bad
		}
	}
	if invalid := (*query.Invalid)(nil); errors.As(err, &invalid) {
		shown.Problem = strings.Split(invalid.Error(), "\n")
		p.status = http.StatusUnprocessableEntity
		return p.show("whatif", whatIfTitle, "/whatif", shown)
	}
	if err != nil {
		return err
	}
	shown.Result, shown.Fields, shown.Assumed = results[0].Result, results[0].Fields, results[0].Assumed
	shown.Effects, shown.Verdict = results[0].Effects(), results[0].Verdict
	if r := results[0]; r.Units > 0 {
		shown.Units = fmt.Sprintf("%d of %d", r.UnitsChanged, r.Units)
	}
	for i, u := range results[0].ChangedRules() {
		if i == whatIfRows {
			break
		}
		shown.Uses = append(shown.Uses, results[0].RuleUseText(u))
	}
	shown.Link = link("/whatif", "rule", shown.Rule, "limit", shown.Limit, "set", shown.Set, "against", shown.Against, "queue", shown.Queue, "from", shown.From, "to", shown.To)
	shown.resultTables(&results[0])
	shown.compare(results)
	if against := results[0].Against; against != query.AgainstDecided {
		shown.What += ", against " + query.SideName(against)
	}
	return p.show("whatif", whatIfTitle, "/whatif", shown)
}

// formPolicies reads policies of the form: as in a policy file of that name, or a generation. Errors: *query.Invalid, and those of the API.
func (s *Site) formPolicies(p *page, name, text string) (given query.Policies, err error) {
	if text = strings.TrimSpace(text); !strings.HasPrefix(text, query.GenerationPrefix) {
		if given.Set, err = policyfile.Parse([]policyfile.File{{Name: name, Data: []byte(text)}}); err != nil {
			err = &query.Invalid{Err: err}
		}
		return given, err
	}
	h, err := s.API.History(p.r.Context(), &pb.HistoryRequest{Limit: math.MaxInt32})
	if err != nil {
		return given, err
	}
	number, err := query.GenerationAt(text, h.Generations, s.Now())
	if err != nil {
		return given, err
	}
	given.Name = fmt.Sprintf("generation %d", number)
	given.Set, err = query.SetAt(p.r.Context(), s.API, number)
	return given, err
}

// question is what the form asks. Errors: *query.Invalid, and those of the API.
func (s *Site) question(p *page, w *whatIfPage) (*query.WhatIf, error) {
	now := s.Now()
	asked := &query.WhatIf{Queue: w.Queue, Limit: whatIfJobs}
	bad := func(format string, args ...any) (*query.WhatIf, error) {
		return nil, &query.Invalid{Err: fmt.Errorf(format, args...)}
	}
	set := w.Set
	switch {
	case w.Rule == "" && w.Limit != "":
		return bad("Choose the rule that has this limit.")
	case w.Rule != "" && w.Limit == "":
		return bad("Give a limit for the rule.")
	case w.Rule != "":
		set = w.Rule + "=" + w.Limit + "\n" + set
	}
	if strings.TrimSpace(w.YAML) != "" {
		candidate, err := s.formPolicies(p, "policies", w.YAML)
		if err != nil {
			return nil, err
		}
		asked.Candidates, w.What = []query.Policies{candidate}, cmp.Or(candidate.Name, "these policies")
	}
	for field := range strings.Lines(set) {
		if field = strings.TrimSpace(field); field != "" {
			asked.Set = append(asked.Set, field)
			w.What = strings.TrimPrefix(w.What+" and "+field, " and ")
		}
	}
	var err error
	switch {
	case strings.TrimSpace(w.Against) == "":
	case w.Against == query.AgainstNow:
		asked.Against = &query.Policies{}
	default:
		second, err := s.formPolicies(p, "second", w.Against)
		if invalid := (*query.Invalid)(nil); errors.As(err, &invalid) {
			return bad("The policies to compare with: %w", invalid.Err)
		}
		if err != nil {
			return nil, err
		}
		asked.Against = &query.Policies{Name: cmp.Or(second.Name, "the second candidate"), Set: second.Set}
	}
	if asked.From, err = query.Moment(w.From, now); err != nil {
		return bad("From %w", err)
	}
	if asked.To, err = query.Moment(w.To, now); err != nil {
		return bad("To %w", err)
	}
	return asked, asked.Bounded()
}

// compare shows the candidates, what they are compared with, and what happened, in one table.
func (w *whatIfPage) compare(results []query.WhatIfResult) {
	c := query.Compare(results)
	w.Sides, w.Basis = table{Caption: "Side by side", Columns: columns("Figure")}, append(c.Legend, c.Notes...)
	for _, head := range c.Heads {
		w.Sides.Columns = append(w.Sides.Columns, column{Name: head, Class: "num"})
	}
	for _, r := range c.Rows {
		row := []cell{text(r.Name)}
		for _, v := range r.Values {
			row = append(row, number(v))
		}
		w.Sides.Rows = append(w.Sides.Rows, row)
	}
}

func (w *whatIfPage) resultTables(r *query.WhatIfResult) {
	against, candidate := r.Heads()
	w.Rows = table{Caption: "What would be decided differently", Columns: columns("Count>", "Queue", "Cause", against, candidate), Empty: "Nothing would be decided differently."}
	for _, row := range r.Rows[:min(len(r.Rows), whatIfRows)] {
		w.Rows.Rows = append(w.Rows.Rows, []cell{number(row.Count), linked(row.Queue, link("/queue", "name", row.Queue)), text(row.Cause), text(row.Decided), text(row.Candidate)})
	}
	w.Jobs = table{Caption: "Some of these jobs", Columns: columns("Job", "Queue", "Cause", against, candidate), Empty: "None."}
	for i := range r.Jobs {
		c := &r.Jobs[i]
		w.Jobs.Rows = append(w.Jobs.Rows, []cell{
			{Text: c.JobID, Link: jobLink(c.Partition, c.JobID), Class: "mono id"}, text(c.Queue), text(c.Cause), {Text: c.Decided.String(), Class: "why"}, {Text: c.Candidate.String(), Class: "why"},
		})
	}
}

// shadowPage is what queues in shadow would have done.
type shadowPage struct {
	Queues []shadowQueue
	Filter []filter
}

type shadowQueue struct {
	Name      string
	Sentences []string
	Rules     table
	Runs      table
}

const shadowRuns = 20

func (s *Site) shadow(p *page) error {
	if s.Query.Jobs == nil {
		return errNoJobs
	}
	since, err := query.Moment(p.arg("since"), s.Now())
	if err != nil {
		return &query.Invalid{Param: "since", Err: err}
	}
	filters, err := p.filled([]filter{{Name: "queue", Label: "Queue", Complete: true}, {Name: "since", Label: "Since", Hint: "24h, or a time"}})
	if err != nil {
		return err
	}
	shown := shadowPage{Filter: filters}
	queues, err := s.Query.ShadowReport(p.ctx, p.arg("queue"), since)
	if err != nil {
		return err
	}
	for _, q := range queues {
		shown.Queues = append(shown.Queues, shadowOf(q))
	}
	return p.show("shadow", "Shadow report", "/shadow", shown)
}

func shadowOf(q *shadow.Queue) shadowQueue {
	fails := slices.ContainsFunc(q.Rules, func(r shadow.Rule) bool { return r.Fail.Runs > 0 })
	v := shadowQueue{Name: q.Name, Sentences: q.Jobs.Sentences(fails)}
	v.Rules = table{Caption: "Failed runs by rule", Columns: columns("Rule", "Would retry>", "of these, Armada failed>", "Median wait>", "Would fail>", "of these, ran again>", "then succeeded>")}
	for _, r := range q.Rules {
		wait := ""
		if r.Retry.Runs > 0 {
			wait = r.Waits.Median.String()
		}
		v.Rules.Rows = append(v.Rules.Rows, []cell{ruleCell(r.Policy, r.Rule), number(r.Retry.Runs), number(r.Retry.ArmadaFailed), number(wait), number(r.Fail.Runs), number(r.Fail.RanAgain), number(r.Fail.ThenSucceeded)})
	}
	v.Runs = table{Caption: "Where Armada acted differently", Columns: columns("Job", "Run>", "Refloat", "Armada", "Why"), Empty: "Nowhere."}
	for _, r := range q.Runs {
		if !r.Differs() || len(v.Runs.Rows) == shadowRuns {
			continue
		}
		would := badge("would fail it", "bad")
		if r.Decision.Requeue {
			would = badge("would retry", "good")
		}
		v.Runs.Rows = append(v.Runs.Rows, []cell{
			{Text: r.Decision.JobID, Link: jobLink(r.Partition, r.Decision.JobID), Class: "mono id"},
			{Text: strconv.FormatUint(uint64(r.Decision.RunIndex), 10), Class: "num", Link: link("/explain", "id", r.Decision.JobID, "partition", fmt.Sprint(r.Partition), "run", fmt.Sprint(r.Decision.RunIndex))},
			would, text(r.Outcome.String()),
			{Text: audit.Reason(r.Decision), Class: "why"},
		})
	}
	return v
}
