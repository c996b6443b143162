package web

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/shadow"
	"github.com/refloat/refloat/internal/audit/whatif"
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
	Queue   string
	From    string
	To      string
	Problem []string
	Result  *whatif.Result
	Fields  []query.FieldChange
	Uses    []string // of rules
	What    string
	// Changed failed runs, of those compared, and units, each as a text.
	Changed, Compared, Units string
	Lost                     string // the time of runs that would not have taken place
	Rows                     table
	Jobs                     table
	Assumed                  []string
}

// whatIf decides the history by other policies. Only one is decided at a time, and it ends when the client goes.
func (s *site) whatIf(p *page) error {
	shown := &whatIfPage{
		Rule: p.arg("rule"), Limit: p.arg("limit"), Set: p.arg("set"), YAML: p.form.Get("policies"), Queue: p.arg("queue"), From: p.arg("from"), To: p.arg("to"),
		Assumed: whatif.Assumptions(),
	}
	show := func() error { return p.show("whatif", "What if the policies were different?", "/whatif", shown) }
	snap, err := s.newestPolicies(p)
	if err != nil {
		return err
	}
	for _, o := range snap.Base.Set.Outlines() {
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
	set := shown.Set
	if shown.Rule == "" && shown.Limit != "" {
		shown.Problem = []string{"Choose the rule that has this limit."}
		return show()
	}
	if shown.Rule != "" {
		if shown.Limit == "" {
			shown.Problem = []string{"Give a limit for the rule."}
			return show()
		}
		set = strings.TrimSpace(shown.Rule + "=" + shown.Limit + "\n" + set)
	}
	if set == "" && strings.TrimSpace(shown.YAML) == "" {
		return show()
	}
	asked := &query.WhatIf{Queue: shown.Queue, Limit: whatIfJobs}
	bad := func(err error) error {
		shown.Problem = strings.Split(err.Error(), "\n")
		p.status = http.StatusUnprocessableEntity
		return show()
	}
	if strings.TrimSpace(shown.YAML) != "" {
		candidate, err := policyfile.Parse([]policyfile.File{{Name: "policies", Data: []byte(shown.YAML)}})
		if err != nil {
			return bad(err)
		}
		asked.Candidates, shown.What = []query.Policies{{Set: candidate}}, "these policies"
	}
	for field := range strings.Lines(set) {
		if field = strings.TrimSpace(field); field != "" {
			asked.Set = append(asked.Set, field)
			shown.What = strings.TrimPrefix(shown.What+" and "+field, " and ")
		}
	}
	for _, t := range []struct {
		name, text string
		to         *int64
	}{{"From", shown.From, &asked.From}, {"To", shown.To, &asked.To}} {
		if *t.to, err = query.Moment(t.text, s.Now()); err != nil {
			return bad(fmt.Errorf("%s %w", t.name, err))
		}
	}
	results, err := s.Query.WhatIf(p.ctx, asked)
	var invalid *query.Invalid
	switch {
	case errors.As(err, &invalid):
		return bad(invalid)
	case err != nil:
		return err
	}
	shown.Result, shown.Fields, shown.Assumed = results[0].Result, results[0].Fields, results[0].Assumed
	compared, changed := results[0].Runs()
	shown.Changed, shown.Compared = fmt.Sprint(changed), fmt.Sprint(compared)
	if r := results[0]; r.Units > 0 {
		shown.Units = fmt.Sprintf("%d of %d", r.UnitsChanged, r.Units)
	}
	for i, u := range results[0].ChangedRules() {
		if i == whatIfRows {
			break
		}
		shown.Uses = append(shown.Uses, query.RuleUseText(u))
	}
	s.resultTables(shown)
	return show()
}

func (s *site) resultTables(shown *whatIfPage) {
	r := shown.Result
	shown.Lost = time.Duration(r.RunSeconds * float64(time.Second)).Round(time.Second).String()
	shown.Rows = table{Caption: "What would be decided differently", Columns: columns("Count>", "Queue", "Cause", "Was decided", "Would be"), Empty: "Nothing would be decided differently."}
	for _, row := range r.Rows[:min(len(r.Rows), whatIfRows)] {
		shown.Rows.Rows = append(shown.Rows.Rows, []cell{number(row.Count), linked(row.Queue, link("/queue", "name", row.Queue)), text(row.Cause), text(row.Decided), text(row.Candidate)})
	}
	shown.Jobs = table{Caption: "Some of these jobs", Columns: columns("Job", "Queue", "Cause", "Was decided", "Would be"), Empty: "None."}
	for i := range r.Jobs {
		c := &r.Jobs[i]
		shown.Jobs.Rows = append(shown.Jobs.Rows, []cell{
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

func (s *site) shadow(p *page) error {
	if s.Query.Jobs == nil {
		return errNoJobs
	}
	since, err := query.Moment(p.arg("since"), s.Now())
	if err != nil {
		return &query.Invalid{Param: "since", Err: err}
	}
	shown := shadowPage{Filter: []filter{{"queue", "Queue", p.arg("queue"), "", nil}, {"since", "Since", p.arg("since"), "24h, or a time", nil}}}
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
	v := shadowQueue{Name: q.Name}
	j := &q.Jobs
	v.Sentences = []string{fmt.Sprintf("Armada failed %d of %d jobs; Refloat would have retried %d of those.", j.ArmadaFailed, j.All, j.WouldRetry)}
	if j.RanAgain > 0 {
		v.Sentences = append(v.Sentences, fmt.Sprintf("Refloat would have failed %d jobs that Armada ran again, and %d of these succeeded.", j.RanAgain, j.ThenSucceeded))
	}
	if j.Open > 0 {
		v.Sentences = append(v.Sentences, fmt.Sprintf("%d jobs are not over.", j.Open))
	}
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
			would, text(r.Fate.String()),
			{Text: audit.Reason(r.Decision), Class: "why"},
		})
	}
	return v
}
