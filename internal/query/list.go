package query

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

// The lists. Their names are part of continuation tokens.
const (
	Jobs      = "jobs"
	Runs      = "runs"
	Decisions = "decisions"
	Groups    = "groups"
)

// List asks for one page of a list; the zero value asks for all of it.
type List struct {
	// Criteria select rows; States and Codes are added to those of them.
	jobdb.Criteria
	States []string // names, as the rows have them
	Codes  []string // names of codes of decisions
	Sort   string   // one of Sorts, with a minus before it for the opposite direction; "": the first of them
	Limit  int      // rows; 0: all
	// Continue is the token that the page before returned, under the same criteria and order; "": the first page.
	Continue string
}

// Sorts are the orders of a list.
func Sorts(list string) []string {
	switch list {
	case Jobs:
		return jobdb.JobSorts
	case Runs:
		return jobdb.RunSorts
	case Decisions:
		return jobdb.DecisionSorts
	case Groups:
		return jobdb.GroupSorts
	}
	return nil
}

// States are the names of the states of the rows of a list, by number; none: rows have no state.
func States(list string) (names []string) {
	switch list {
	case Jobs:
		names = policy.Names(jobdb.UnknownJob, jobdb.JobStopping)
	case Runs:
		names = policy.Names(jobdb.UnknownRun, jobdb.RunCancelled)
	case Groups:
		names = policy.Names(policy.GroupActive, policy.GroupHalted)
	}
	return names
}

// Codes are the names of the codes of decisions.
func Codes() []string { return policy.Names(policy.RuleRetry, policy.BreakerHeld) }

// Selection is a List that was checked.
type Selection struct {
	List     string
	Criteria jobdb.Criteria
	Page     jobdb.Page
}

func (s *Selection) token(after []any) string { return s.Page.Token(s.List, &s.Criteria, after) }

// Check returns an *Invalid if the list cannot be asked for.
func (l *List) Check(list string) error {
	_, err := l.Select(list)
	return err
}

// Select checks a list. Errors: *Invalid.
func (l *List) Select(list string) (s Selection, err error) {
	s = Selection{List: list, Criteria: l.Criteria, Page: jobdb.Page{Limit: l.Limit}}
	s.Criteria.States, s.Criteria.Codes = slices.Clone(s.Criteria.States), slices.Clone(s.Criteria.Codes)
	known := States(list)
	for _, name := range l.States {
		n := slices.Index(known, name)
		if n < 0 {
			return s, &Invalid{"state", suggest.Unknown("state", name, known...)}
		}
		s.Criteria.States = append(s.Criteria.States, uint8(n))
	}
	for _, name := range l.Codes {
		code, ok := policy.ParseCode(name)
		if !ok {
			return s, &Invalid{"code", suggest.Unknown("code", name, Codes()...)}
		}
		s.Criteria.Codes = append(s.Criteria.Codes, code)
	}
	if policy, rule, ok := strings.Cut(s.Criteria.Rule, "/"); ok && s.Criteria.Policy == "" { // as answers show it
		s.Criteria.Policy, s.Criteria.Rule = policy, rule
	}
	if s.Page.Sort, s.Page.Descending, err = jobdb.ParseSort(l.Sort, Sorts(list)); err != nil {
		return s, &Invalid{"sort", err}
	}
	if l.Limit < 0 {
		return s, invalid("limit", "%d: want 1 or more, or 0 for all", l.Limit)
	}
	if s.Page, err = s.Page.Continue(list, &s.Criteria, l.Continue); err != nil {
		return s, &Invalid{"continue", err}
	}
	return s, nil
}

// Moment reads a time, a date (in UTC), or a duration or days before now, as Unix nanoseconds; 0 for "".
func Moment(text string, now time.Time) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago).UnixNano(), nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)).UnixNano(), nil
		}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	if err != nil || at.Before(time.Unix(0, math.MinInt64)) || at.After(time.Unix(0, math.MaxInt64)) {
		return 0, fmt.Errorf("%q: want a duration such as 24h or 7d, or a time such as 2026-12-01 or 2026-12-01T06:00:00Z", text)
	}
	return at.UnixNano(), nil
}

// pastMoment is Moment, which must not lie in the future.
func pastMoment(text string, now time.Time) (int64, error) {
	at, err := Moment(text, now)
	if err == nil && at > now.UnixNano() {
		err = fmt.Errorf("%q lies in the future: want a duration such as 24h or 7d, or a time before %s", text, seconds(now.UnixNano()))
	}
	return at, err
}

// read reads one page, and returns the token of the next one; "": there is none.
func (s *Source) read(ctx context.Context, list string, l *List, read func(jobdb.Queries, *Selection) ([]any, error)) (token string, err error) {
	sel, err := l.Select(list)
	if err != nil {
		return "", err
	}
	var next []any
	if err := s.Jobs(ctx, func(q jobdb.Queries) (err error) {
		next, err = read(q, &sel)
		return err
	}); errors.Is(err, jobdb.ErrToken) {
		return "", &Invalid{"continue", jobdb.ErrToken}
	} else if err != nil {
		return "", err
	}
	return sel.token(next), nil
}

// ListJobs visits a page of jobs. It returns the token of the next page, and "" after the last one, as all lists do.
func (s *Source) ListJobs(ctx context.Context, l *List, visit func(*Job) error) (next string, err error) {
	return s.read(ctx, Jobs, l, func(q jobdb.Queries, sel *Selection) ([]any, error) {
		return q.JobList(&sel.Criteria, sel.Page, func(j *jobdb.Job) error {
			row := JobOf(j, nil)
			return visit(&row)
		})
	})
}

// ListRuns visits a page of runs.
func (s *Source) ListRuns(ctx context.Context, l *List, visit func(*Run) error) (next string, err error) {
	return s.read(ctx, Runs, l, func(q jobdb.Queries, sel *Selection) ([]any, error) {
		return q.RunList(&sel.Criteria, sel.Page, func(r *jobdb.Run) error {
			return visit(&Run{r.JobID, r.Partition, attemptOf(r)})
		})
	})
}

// ListDecisions visits a page of decisions.
func (s *Source) ListDecisions(ctx context.Context, l *List, visit func(*audit.Decision) error) (next string, err error) {
	return s.read(ctx, Decisions, l, func(q jobdb.Queries, sel *Selection) ([]any, error) {
		return q.DecisionList(&sel.Criteria, sel.Page, func(d *jobdb.Decision) error {
			row := DecisionOf(d)
			return visit(&row)
		})
	})
}

// LastDecisions visits the last decisions that the criteria select, in the order of their times.
func LastDecisions(ctx context.Context, from Answers, l *List, last int, visit func(*audit.Decision) error) error {
	var found []audit.Decision
	newest := *l
	newest.Sort, newest.Limit, newest.Continue = "-time", last, ""
	_, err := from.ListDecisions(ctx, &newest, func(d *audit.Decision) error {
		found = append(found, *d)
		return nil
	})
	for i := len(found) - 1; i >= 0 && err == nil; i-- {
		err = visit(&found[i])
	}
	return err
}

// ListGroups visits a page of groups, with all that is known of each.
func (s *Source) ListGroups(ctx context.Context, l *List, visit func(*Group) error) (next string, err error) {
	return s.read(ctx, Groups, l, func(q jobdb.Queries, sel *Selection) ([]any, error) {
		var found []*jobdb.Group
		next, err := q.GroupList(&sel.Criteria, sel.Page, func(g *jobdb.Group) error {
			found = append(found, g)
			return nil
		})
		for _, row := range found {
			if err != nil {
				break
			}
			var g Group
			if g, err = groupOf(q, row); err == nil {
				err = visit(&g)
			}
		}
		return next, err
	})
}

// DecisionOf returns a decision in a job database.
func DecisionOf(d *jobdb.Decision) audit.Decision {
	shown := audit.DecisionOf(d.Partition, &d.Decision)
	shown.Superseded = d.Late()
	return shown
}

// Top is a row of the most frequent causes of retries.
type Top struct {
	By       string `json:"by"`
	Key      string `json:"key"`
	Retries  uint64 `json:"retries"`
	Failures uint64 `json:"failures"`
	Jobs     uint64 `json:"jobs"` // 0: they were not counted
}

// TopRetries counts the effective decisions that the criteria select, by one of jobdb.Tops, those with the most retries
// first; jobs: it counts their jobs too, for which it reads all of them. Sort and Continue of the list have no effect.
func (s *Source) TopRetries(ctx context.Context, by string, jobs bool, l *List) (rows []Top, err error) {
	if !slices.Contains(jobdb.Tops, by) {
		return nil, &Invalid{"by", suggest.Unknown("key", by, jobdb.Tops...)}
	}
	counted := *l
	counted.Sort, counted.Continue = "", ""
	sel, err := counted.Select(Decisions)
	if err != nil {
		return nil, err
	}
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		top, err := q.Top(by, &sel.Criteria, sel.Page.Limit, jobs)
		for _, t := range top {
			rows = append(rows, Top{by, t.Key, t.Retries, t.Failures, t.Jobs})
		}
		return err
	})
	return rows, err
}

// NewestBefore returns when the last failure was before the times that a list selects, as decisions print it; "": there was
// none, or the list selects all times.
func NewestBefore(ctx context.Context, from Answers, l *List) (at string, err error) {
	if l.Since == 0 {
		return "", nil
	}
	before := *l
	before.Since, before.Until, before.Sort, before.Limit, before.Continue = 0, l.Since, "-time", 1, ""
	_, err = from.ListDecisions(ctx, &before, func(d *audit.Decision) error {
		at = d.EventTime
		return nil
	})
	return at, err
}

// RuleName names a rule and its policy.
func RuleName(policy, rule string) string {
	if policy == "" {
		return rule
	}
	return policy + "/" + rule
}
