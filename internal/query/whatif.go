package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// Policies are a policy set with a name.
type Policies struct {
	Name string          // "": what they are
	Set  *policyfile.Set // nil: the policies in force now, without overrides
}

// AgainstDecided and AgainstNow are what the results of a what-if call what they are compared with, if it is not policies
// in files.
const (
	AgainstDecided = "decided"
	AgainstNow     = "now"
)

// WhatIf asks how a history would have been decided by other policies.
type WhatIf struct {
	Candidates []Policies // none: the policies in force now
	// Set are fields to change in every candidate, such as policies.infra.rules[lost].retryLimit=2.
	Set     []string
	Against *Policies // what candidates are compared with; nil: what was decided
	Queue   string    // whose failed runs are counted; "": all
	// From and To limit the failed runs that are counted, in Unix nanoseconds; 0: all. The history ends at To.
	From, To    int64
	Limit, Skip int                   // which of the changed decisions are listed
	Parallel    int                   // partitions that are decided at once; 0: one
	Semantics   uint32                // version that decides where no decision log names one; 0: the newest
	Progress    func(messages uint64) // notified now and then, by several goroutines; nil: nobody is
}

// The most that a server decides at once: candidates, and fields that are set in each.
const (
	maxCandidates = 16
	maxFields     = 100
)

// Bounded returns an *Invalid if a what-if asks for more than a server decides at once.
func (w *WhatIf) Bounded() error {
	if len(w.Candidates) > maxCandidates || len(w.Set) > maxFields {
		return invalid("", "%d candidates, %d fields to set: want at most %d and %d", len(w.Candidates), len(w.Set), maxCandidates, maxFields)
	}
	return nil
}

// WhatIfResult is the result of one candidate.
type WhatIfResult struct {
	Record string `json:"record"` // WhatIf
	*whatif.Result
	// Verdict says in a sentence what the candidate does beside what it is compared with, and AgainstFirst, of a further one, beside the
	// first candidate.
	Verdict      string        `json:"verdict"`
	AgainstFirst string        `json:"againstFirst,omitempty"`
	Fields       []FieldChange `json:"fields"` // of WhatIf.Set
	Assumed      []string      `json:"assumed"`
}

// FieldChange is a field that a what-if sets in a candidate.
type FieldChange struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"` // JSON; absent: it was not set
	To    string `json:"to,omitempty"`
	// Policy and Rule name the rule that has the field; "": none has.
	Policy string `json:"policy,omitempty"`
	Rule   string `json:"rule,omitempty"`
}

// Effects say how many retries only one side grants, what took place behind them, and what became of their jobs.
func (r *WhatIfResult) Effects() []string {
	var list []string
	side := func(name string, retries, runs uint64, seconds float64, would, of string, f *whatif.Outcomes, unknown []whatif.Estimate) {
		if retries == 0 {
			return
		}
		text := fmt.Sprintf("retries %s: %d", name, retries)
		if runs > 0 {
			text += fmt.Sprintf("; %s %s, which ran for %v", plural.Of(runs, "run"), would, time.Duration(seconds*float64(time.Second)).Round(time.Second))
		}
		list = append(list, text)
		if *f == (whatif.Outcomes{}) { // retries of members whose group has another end by the other side
			return
		}
		text = fmt.Sprintf("of the jobs that %s, %d succeeded after all, %d failed, %d were cancelled, %d are not over", of, f.Succeeded, f.Failed, f.Cancelled, f.Open)
		if f.Unknown > 0 {
			text += fmt.Sprintf("; %d ended without that retry: %s", f.Unknown, strings.Join(EstimateTexts(unknown), "; "))
		}
		list = append(list, text)
	}
	side("fewer", r.RetriesFewer, r.RunsFewer, r.RunSeconds, "would not have taken place", "fail earlier", &r.Ended, r.EarlierUnknown)
	side("more", r.RetriesMore, r.RunsMore, r.RunSecondsMore, "of the history took place behind them", "run on", &r.RunOn, r.RunOnUnknown)
	if r.NotCompared > 0 {
		list = append(list, fmt.Sprintf("not compared: %s after the histories of their jobs had parted", plural.Of(r.NotCompared, "failed run")))
	}
	return list
}

// maxEstimates is the number of estimates that are told apart for people.
const maxEstimates = 5

// EstimateTexts say how many jobs may succeed by retries that did not take place, with what that is based on. Kinds of which each is
// rounded to none are one text.
func EstimateTexts(estimates []whatif.Estimate) (list []string) {
	shown := slices.SortedStableFunc(slices.Values(estimates), func(a, b whatif.Estimate) int { return cmp.Compare(b.Jobs, a.Jobs) })
	vain, expected, kinds := uint64(0), 0., len(shown)
	shown = slices.DeleteFunc(shown, func(e whatif.Estimate) bool {
		none := e.Of > 0 && e.Expected() < .05 // which is 0.0 below
		if none {
			vain, expected = vain+e.Jobs, expected+e.Expected()
		}
		return none
	})
	kinds -= len(shown)
	for _, e := range shown[:min(len(shown), maxEstimates)] {
		text := e.Basis
		if e.Of > 0 {
			text = fmt.Sprintf("about %.1f of %s would succeed: %s", e.Expected(), plural.Of(e.Jobs, "job"), e.Basis)
		}
		list = append(list, text)
	}
	if more := shown[len(list):]; len(more) > 0 {
		jobs := uint64(0)
		for _, e := range more {
			jobs += e.Jobs
		}
		list = append(list, fmt.Sprintf("%s of %s more", plural.Of(jobs, "job"), plural.Of(len(more), "kind")))
	}
	if vain > 0 {
		list = append(list, fmt.Sprintf("about %.1f of %s of %s would succeed", expected, plural.Of(vain, "job"), plural.Of(kinds, "kind")))
	}
	return list
}

// SideName is how people read the name of what a candidate is compared with.
func SideName(name string) string {
	switch name {
	case AgainstDecided:
		return "what was decided"
	case AgainstNow:
		return "the policies in force"
	}
	return name
}

// Comparison is the sides of all results in one table, with what the estimates in it are based on.
type Comparison struct {
	Heads  []string // of the sides: their names, or a letter for a long one
	Legend []string // what the letters mean
	Rows   []ComparisonRow
	Notes  []string // what the estimates are based on

	sides []whatif.Side
}

// longestHead is how long the name of a side may be in the head of a table.
const longestHead = 32

// ComparisonRow is one figure, of each side.
type ComparisonRow struct {
	Name   string
	Values []string
}

// Compare puts the sides of results side by side: the candidates, what they are compared with, and what happened.
func Compare(results []WhatIfResult) (c Comparison) {
	for i := range results {
		for j := range results[i].Sides { // the first one is the candidate
			if s := results[i].Sides[j]; j == 0 || i == len(results)-1 {
				c.sides = append(c.sides, s)
			}
		}
	}
	for i := range c.sides {
		name := SideName(c.sides[i].Name)
		if len(name) > longestHead {
			letter := string(rune('A' + i)) // of at most maxCandidates and two more
			name, c.Legend = letter, append(c.Legend, letter+": "+name)
		}
		c.Heads = append(c.Heads, name)
	}
	row := func(name string, value func(*whatif.Side) string) {
		r := ComparisonRow{Name: name}
		for i := range c.sides {
			r.Values = append(r.Values, value(&c.sides[i]))
		}
		c.Rows = append(c.Rows, r)
	}
	count := func(name string, value func(*whatif.Side) uint64) {
		row(name, func(s *whatif.Side) string { return strconv.FormatUint(value(s), 10) })
	}
	count("jobs with a failed run", func(s *whatif.Side) uint64 { return s.Jobs })
	count("retries granted", func(s *whatif.Side) uint64 { return s.Retries })
	count("runs that took place behind them", func(s *whatif.Side) uint64 { return s.Runs })
	row("their time", func(s *whatif.Side) string {
		return time.Duration(s.RunSeconds * float64(time.Second)).Round(time.Second).String()
	})
	hours := func(name string, of func(gpu, cpu, memory string) string) {
		row(name, func(s *whatif.Side) string { return of(s.Held.Hours()) })
	}
	if slices.ContainsFunc(c.sides, func(s whatif.Side) bool { return s.Held.Runs > 0 }) {
		hours("their hours of a GPU", func(gpu, _, _ string) string { return gpu })
		hours("of a core", func(_, cpu, _ string) string { return cpu })
		hours("of a GiB", func(_, _, memory string) string { return memory })
	}
	if slices.ContainsFunc(c.sides, func(s whatif.Side) bool { return s.Held.Unknown > 0 }) {
		count("runs of which these are unknown, and not in the sums", func(s *whatif.Side) uint64 { return s.Held.Unknown })
	}
	count("jobs that succeeded", func(s *whatif.Side) uint64 { return s.Succeeded })
	count("failed", func(s *whatif.Side) uint64 { return s.Failed })
	count("were cancelled", func(s *whatif.Side) uint64 { return s.Cancelled })
	count("are not over", func(s *whatif.Side) uint64 { return s.Open })
	if slices.ContainsFunc(c.sides, func(s whatif.Side) bool { return s.Estimated > 0 }) {
		count("ended without the next retry", func(s *whatif.Side) uint64 { return s.Estimated })
		row("jobs that succeed, with an estimate of those", func(s *whatif.Side) string {
			switch {
			case s.Estimated == 0:
				return strconv.FormatUint(s.Succeeded, 10)
			case slices.ContainsFunc(s.Estimates, func(e whatif.Estimate) bool { return e.Of == 0 }):
				return fmt.Sprintf("%d to %d", s.Succeeded, s.Succeeded+s.Estimated)
			}
			return fmt.Sprintf("about %.1f", s.Expected())
		})
	}
	for i := range c.sides {
		for _, text := range EstimateTexts(c.sides[i].Estimates) {
			c.Notes = append(c.Notes, c.Heads[i]+": "+text)
		}
	}
	return c
}

// ChangedRules are the rules that would decide more or fewer of the compared failed runs, or of which fields were changed.
func (r *WhatIfResult) ChangedRules() []whatif.RuleUse {
	var list []whatif.RuleUse
	for _, u := range r.Rules {
		if u.Decided != u.Candidate || u.Retried != u.WouldRetry || slices.ContainsFunc(r.Fields, func(f FieldChange) bool { return f.Policy == u.Policy && f.Rule == u.Rule }) {
			list = append(list, u)
		}
	}
	for _, f := range r.Fields {
		if f.Rule != "" && !slices.ContainsFunc(r.Rules, func(u whatif.RuleUse) bool { return f.Policy == u.Policy && f.Rule == u.Rule }) {
			list = append(list, whatif.RuleUse{Policy: f.Policy, Rule: f.Rule})
		}
	}
	return list
}

// Heads are the heads of what each side makes of a failed run: of what the candidate is compared with, and of the candidate.
func (r *WhatIfResult) Heads() (against, candidate string) {
	if r.Against == AgainstDecided {
		return "Was decided", "Would be"
	}
	return SideName(r.Against), r.Candidate
}

// RuleUseText says how many of the compared failed runs a rule decided, or would decide, on each side.
func (r *WhatIfResult) RuleUseText(u whatif.RuleUse) string {
	if r.Against == AgainstDecided {
		return fmt.Sprintf("%s: decided %s (%d retried), would decide %d (%d retried)", RuleName(u.Policy, u.Rule), plural.Of(u.Decided, "run"), u.Retried, u.Candidate, u.WouldRetry)
	}
	against, candidate := r.Heads()
	return fmt.Sprintf("%s: in %s, it decides %s (retries %d); in %s, %d (retries %d)", RuleName(u.Policy, u.Rule), against, plural.Of(u.Decided, "run"), u.Retried, candidate, u.Candidate, u.WouldRetry)
}

func (c FieldChange) String() string {
	switch c.From {
	case c.To:
		return fmt.Sprintf("%s is %s already", c.Field, c.To)
	case "":
		return fmt.Sprintf("%s: %s, not set before", c.Field, c.To)
	}
	return fmt.Sprintf("%s: %s instead of %s", c.Field, c.To, c.From)
}

// ErrBusy reports that a question that reads whole logs is being answered: one is, at a time.
var ErrBusy = errors.New("another question that reads whole logs is being answered (a what-if, a verification, or a job of the past): try again later")

// every is after how many messages of a partition whatif notifies of its progress.
const every = 1024

// Gate lets one question that reads whole logs be answered at a time. The zero value is ready to use.
type Gate struct{ taken atomic.Bool }

// whole opens the logs to be read from their beginning, unless somebody does: then it returns ErrBusy. Without a gate, it
// always opens them.
func (s *Source) whole(ctx context.Context, use func(audit.Logs) error) error {
	if g := s.Whole; g != nil {
		if !g.taken.CompareAndSwap(false, true) {
			return ErrBusy
		}
		defer g.taken.Store(false)
	}
	return s.Logs(ctx, use)
}

// WhatIf decides the history by each candidate, and compares. Errors: *Invalid, ErrNoLogs, ErrNoPolicies, ErrBusy.
func (s *Source) WhatIf(ctx context.Context, w *WhatIf) (results []WhatIfResult, err error) {
	if len(w.Candidates) == 0 && len(w.Set) == 0 {
		return nil, invalid("", "what is to be different? Give policies, or fields to set")
	}
	if w.Limit < 0 || w.Skip < 0 {
		return nil, invalid("", "limit %d, skip %d: want 0 or more", w.Limit, w.Skip)
	}
	if w.From != 0 && w.To != 0 && w.From > w.To {
		return nil, invalid("from", "%s is after the end, %s: nothing lies between", TimeText(w.From), TimeText(w.To))
	}
	if s.Logs == nil {
		return nil, ErrNoLogs
	}
	o, fields, err := w.options(ctx, s)
	if err != nil {
		return nil, err
	}
	err = s.whole(ctx, func(logs audit.Logs) error {
		found, err := whatif.Run(ctx, logs, o)
		for i, r := range found {
			results = append(results, WhatIfResult{Record: "WhatIf", Result: r, Fields: fields[i], Assumed: whatif.Assumptions()})
		}
		judge(results)
		return err
	})
	return results, err
}

// options gathers the candidates, and the fields that were set in each.
func (w *WhatIf) options(ctx context.Context, s *Source) (o whatif.Options, fields [][]FieldChange, err error) {
	o = whatif.Options{
		Queue: w.Queue, From: w.From, To: w.To, Limit: w.Limit, Skip: w.Skip, Parallel: w.Parallel, Semantics: cmp.Or(w.Semantics, evaluator.SemanticsVersion),
	}
	if w.Progress != nil {
		var messages atomic.Uint64
		o.Progress = func(int, uint64) { w.Progress(messages.Add(every)) }
	}
	if w.Against != nil {
		o.Against = &whatif.Candidate{Name: cmp.Or(w.Against.Name, AgainstNow)}
		if o.Against.Set, err = s.orInForce(ctx, w.Against.Set); err != nil {
			return o, nil, err
		}
	}
	candidates := w.Candidates
	if len(candidates) == 0 {
		candidates = []Policies{{}}
	}
	for i := range candidates {
		c := whatif.Candidate{Name: candidates[i].Name}
		switch {
		case c.Name != "":
		case candidates[i].Set == nil:
			c.Name = "the policies in force"
		default:
			c.Name = "the candidate"
		}
		c.Name = WithFields(c.Name, w.Set)
		if c.Set, err = s.orInForce(ctx, candidates[i].Set); err != nil {
			return o, nil, err
		}
		changes, before := []FieldChange{}, c.Set
		for _, field := range w.Set {
			if c.Set, err = c.Set.Assign(field); err != nil {
				return o, nil, &Invalid{"set", err}
			}
		}
		for _, field := range w.Set {
			path, value, _ := strings.Cut(field, "=")
			policy, rule := c.Set.RuleOf(path)
			to := c.Set.Field(path)
			if strings.HasSuffix(path, "[+]") {
				to = value // one more entry of a list has no path
			}
			changes = append(changes, FieldChange{path, before.Field(path), to, policy, rule})
		}
		fields, o.Candidates = append(fields, changes), append(o.Candidates, c)
	}
	return o, fields, nil
}

// WithFields names a candidate in which fields are changed.
func WithFields(name string, set []string) string {
	if len(set) == 0 {
		return name
	}
	return name + " with " + strings.Join(set, ", ")
}

// orInForce returns a set, or the policies in force.
func (s *Source) orInForce(ctx context.Context, set *policyfile.Set) (*policyfile.Set, error) {
	switch {
	case set != nil:
		return set, nil
	case s.Policies == nil:
		return nil, ErrNoPolicies
	}
	var newest policylog.Snapshot
	err := s.Policies(ctx, func(store *policylog.Store) (err error) {
		if newest, err = store.Newest(ctx); err != nil {
			return fmt.Errorf("the policies log: %w", err)
		}
		return nil
	})
	return newest.Base, err
}
