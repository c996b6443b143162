package whatif

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Result is how a candidate differs from what it is compared with.
type Result struct {
	Candidate string `json:"candidate"`
	Against   string `json:"against"`
	Compared  uint64 `json:"compared"` // failed runs that at least one side decided
	Changed   uint64 `json:"changed"`  // of them
	// Units are the units that ended by themselves, on which their groups decide. They are in neither of the counts above.
	Units        uint64 `json:"unitsCompared"`
	UnitsChanged uint64 `json:"unitsChanged"`
	// NotCompared failed runs happened after the histories of their job or group had parted.
	NotCompared uint64 `json:"notCompared"`
	// RetriesFewer were granted and would not have been. RetriesMore would be granted on the runs that took place:
	// nobody knows how many more there would be behind a retry that did not. They are the retries of one side in Sides that are
	// none of the other's: from that of what the candidate is compared with to its own, so many are more and fewer.
	RetriesFewer uint64 `json:"retriesFewer"`
	RetriesMore  uint64 `json:"retriesMoreAtLeast"`
	// RunsFewer took place behind retries that only the other side grants, with their time as far as they have ended, and
	// what became of their jobs. RunsMore took place behind retries that only the candidate grants.
	RunsFewer      uint64   `json:"runsFewer"`
	RunSeconds     float64  `json:"runSecondsFewer"`
	Ended          Outcomes `json:"jobsThatWouldHaveFailedEarlier"`
	RunsMore       uint64   `json:"runsMore"`
	RunSecondsMore float64  `json:"runSecondsMore"`
	RunOn          Outcomes `json:"jobsThatWouldHaveRunOn"`
	// EarlierUnknown and RunOnUnknown say how those of Ended and RunOn that are unknown may have ended.
	EarlierUnknown []Estimate `json:"failedEarlierUnknown"`
	RunOnUnknown   []Estimate `json:"runOnUnknown"`
	// Sides are the candidate, what it is compared with, and what happened, if that is another one.
	Sides []Side `json:"sides"`
	// Rules are those that decided compared failed runs, on either side, up to MaxRows of them.
	Rules    []RuleUse `json:"rules"`
	Rows     []Row     `json:"rows"`
	RowsMore uint64    `json:"changedInOtherRows"` // changes beyond MaxRows
	// Jobs are the changes, in order of partition and position, from Skip on.
	Jobs []Change `json:"jobs"`
	Next int      `json:"next,omitempty"` // Options.Skip for the next page; 0: there is none

	// HistoryBegan and HistoryEnded are when the first and the last message were published that were read, in Unix nanoseconds; 0: none was.
	// The last one may be the first beyond Options.To.
	HistoryBegan, HistoryEnded int64 `json:"-"`

	rows  map[Row]uint64
	rules map[ruleName]*RuleUse
	// How many jobs of Ended and RunOn are unknown, by the retry that did not take place.
	earlier, runOn untold
}

// Differences is how many decisions differ, on failed runs and on units: so many changes are listed, page by page.
func (r *Result) Differences() uint64 { return r.Changed + r.UnitsChanged }

// RuleUse is how many of the compared failed runs a rule decided.
type RuleUse struct {
	Policy     string `json:"policy"`
	Rule       string `json:"rule"`
	Decided    uint64 `json:"decided"`    // it was the rule of the decision
	Retried    uint64 `json:"retried"`    // of these: not in shadow
	Candidate  uint64 `json:"candidate"`  // it would be the rule of the decision
	WouldRetry uint64 `json:"wouldRetry"` // of these: not in shadow
}

type ruleName struct{ policy, rule string }

// Outcomes are what became of jobs that only one side retries, in the history and for as long as that side retries them.
type Outcomes struct {
	Succeeded uint64 `json:"succeeded"`
	Failed    uint64 `json:"failed"` // by the side that retried them, at a later run
	Cancelled uint64 `json:"cancelled"`
	Open      uint64 `json:"notOver"` // the history has no end of them, or ends before that side's last retry
	Unknown   uint64 `json:"unknown"` // they ended without that side's last retry, which did not take place
}

func (f *Outcomes) add(o Outcomes) {
	f.Succeeded, f.Failed, f.Cancelled = f.Succeeded+o.Succeeded, f.Failed+o.Failed, f.Cancelled+o.Cancelled
	f.Open, f.Unknown = f.Open+o.Open, f.Unknown+o.Unknown
}

// Row counts changes of one kind.
type Row struct {
	Queue     string `json:"queue"`
	Cause     string `json:"cause"` // of the failure
	Decided   string `json:"decided"`
	Candidate string `json:"candidate"`
	Policy    string `json:"policy"` // of the candidate's verdict, or of the other one if it names none
	Rule      string `json:"rule"`
	Count     uint64 `json:"count"`
}

// Change is one failed run, or unit, on which the candidate decides differently.
type Change struct {
	Partition int     `json:"partition"`
	Position  string  `json:"position"` // of the message
	Time      string  `json:"time"`
	Queue     string  `json:"queue"`
	JobSet    string  `json:"jobSet"`
	JobID     string  `json:"jobId"` // or the unit
	RunID     string  `json:"runId,omitempty"`
	Cause     string  `json:"cause"`
	Decided   Verdict `json:"decided"`
	Candidate Verdict `json:"candidate"`
	Parts     bool    `json:"parts"` // the history of the job or group parts here
}

// MaxRows is the number of kinds of changes that are told apart.
const MaxRows = 1000

// Assumptions are what every result assumes.
func Assumptions() []string {
	return []string{
		"the candidate counts its own retries over the runs that happened; overrides (kill, pause) of operators hold as they did",
		"a job's history parts where one side retries it and the other does not: its later runs are not compared",
		"where only one side retries a job, its later runs, if there were any, are taken as they happened, for as long as that side retries it",
		"what a retry would have done that did not take place is not in the history: it counts as one more retry, and is estimated by those that took place; what follows if it fails is not",
		"a verdict in shadow counts as one that nobody acts on",
		"a retry at another time or on other nodes is taken to run as it did",
	}
}

func newResult() *Result {
	return &Result{rows: map[Row]uint64{}, rules: map[ruleName]*RuleUse{}, earlier: untold{}, runOn: untold{}, Jobs: []Change{}}
}

// merge adds the result of a later partition.
func (r *Result) merge(o *Result) {
	r.Units, r.UnitsChanged = r.Units+o.Units, r.UnitsChanged+o.UnitsChanged
	r.Compared, r.Changed, r.NotCompared = r.Compared+o.Compared, r.Changed+o.Changed, r.NotCompared+o.NotCompared
	r.RetriesFewer, r.RetriesMore = r.RetriesFewer+o.RetriesFewer, r.RetriesMore+o.RetriesMore
	r.RunsFewer, r.RunSeconds = r.RunsFewer+o.RunsFewer, r.RunSeconds+o.RunSeconds
	r.RunsMore, r.RunSecondsMore = r.RunsMore+o.RunsMore, r.RunSecondsMore+o.RunSecondsMore
	r.Ended.add(o.Ended)
	r.RunOn.add(o.RunOn)
	r.earlier.merge(o.earlier)
	r.runOn.merge(o.runOn)
	r.RowsMore += o.RowsMore
	for _, row := range slices.SortedFunc(maps.Keys(o.rows), compareRows) { // in order: beyond MaxRows, the first ones are kept
		r.count(row, o.rows[row])
	}
	for _, name := range slices.SortedFunc(maps.Keys(o.rules), compareRules) {
		if u, use := o.rules[name], r.use(name); use != nil {
			use.Decided, use.Retried = use.Decided+u.Decided, use.Retried+u.Retried
			use.Candidate, use.WouldRetry = use.Candidate+u.Candidate, use.WouldRetry+u.WouldRetry
		}
	}
	r.Jobs = append(r.Jobs, o.Jobs...)
}

// use returns the counts of a rule; nil: there is no rule, or there are too many.
func (r *Result) use(name ruleName) *RuleUse {
	u := r.rules[name]
	if u == nil && name.rule != "" && len(r.rules) < MaxRows {
		u = &RuleUse{Policy: name.policy, Rule: name.rule}
		r.rules[name] = u
	}
	return u
}

// countRules counts by which rules both sides decided a failed run.
func (r *Result) countRules(actual, candidate *Verdict) {
	if u := r.use(ruleName{actual.Policy, actual.Rule}); u != nil {
		u.Decided++
		if retried(actual) {
			u.Retried++
		}
	}
	if u := r.use(ruleName{candidate.Policy, candidate.Rule}); u != nil {
		u.Candidate++
		if retried(candidate) {
			u.WouldRetry++
		}
	}
}

func (r *Result) count(row Row, n uint64) {
	if r.rows[row] == 0 && len(r.rows) >= MaxRows {
		r.RowsMore += n
		return
	}
	r.rows[row] += n
}

// close sorts the rows, the most frequent first, and takes a page of the jobs.
func (r *Result) close(skip, limit int) {
	r.Rows = make([]Row, 0, len(r.rows))
	for row, n := range r.rows {
		row.Count = n
		r.Rows = append(r.Rows, row)
	}
	slices.SortFunc(r.Rows, compareRows)
	r.Rules = make([]RuleUse, 0, len(r.rules))
	for _, name := range slices.SortedFunc(maps.Keys(r.rules), compareRules) {
		r.Rules = append(r.Rules, *r.rules[name])
	}
	r.Jobs = r.Jobs[min(skip, len(r.Jobs)):]
	r.Jobs = slices.Clip(r.Jobs[:min(limit, len(r.Jobs))])
	if end := skip + len(r.Jobs); uint64(end) < r.Differences() && len(r.Jobs) > 0 {
		r.Next = end
	}
}

func compareRows(a, b Row) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Cause, b.Cause),
		cmp.Compare(a.Decided, b.Decided), cmp.Compare(a.Candidate, b.Candidate), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule))
}

func compareRules(a, b ruleName) int {
	return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.rule, b.rule))
}

func timeText(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
