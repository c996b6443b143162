package table

import (
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// What lists select by: conditions in the order of how few rows each usually selects, with the indexes that find them.

// equal returns a condition on a text, which is any if it is empty.
func equal(orders, column, text string) []condition {
	if text == "" {
		return nil
	}
	return []condition{simple(orders, "~"+column+" = ?", text)}
}

// inQueues returns a condition on the queue; none: any.
func inQueues(orders string, queues []string) []condition {
	if len(queues) == 0 {
		return nil
	}
	if len(queues) > 1 {
		orders = ""
	}
	args := make([]any, len(queues))
	for i, q := range queues {
		args[i] = q
	}
	return []condition{simple(orders, "~queue IN (?"+strings.Repeat(", ?", len(queues)-1)+")", args...)}
}

// long does the same as equal for a column with texts of any length, of which an index has the beginning.
func long(orders, column, text string) []condition {
	if text == "" {
		return nil
	}
	c := scan("~"+column+" = ?", text)
	c.orders = orders
	begins := "substr(" + column + ", 1, 100) = "
	if stranger := func(r rune) bool { return r < ' ' || r > '~' }; len(text) < 100 && !strings.ContainsFunc(text, stranger) {
		c.lookup.where(begins+"?", text) // it is all of the text, as both databases store it
	} else {
		c.lookup.where(begins+"substr(?, 1, 100) AND "+column+" = ?", text, text)
	}
	c.lookup.where(column + " <> ''") // as the index has it
	return []condition{c}
}

// NodeOf is the node of a run, as its error says, else as its lease does.
const NodeOf = "(CASE WHEN error_node <> '' THEN error_node ELSE node END)"

// among returns a condition on numbers; none: any.
func among[V ~uint8](orders, column string, values []V) []condition {
	switch len(values) {
	case 0:
		return nil
	case 1:
		return []condition{simple(orders, "~"+column+" = ?", int64(values[0]))}
	}
	return []condition{simple("", "~"+column+" IN (?"+strings.Repeat(", ?", len(values)-1)+")", numbers(values)...)}
}

func numbers[V ~uint8](values []V) []any {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = int64(v)
	}
	return args
}

// states returns a condition on states. The index of an end finds those that are not over, and lost rows, which failed or were
// cancelled, have an index of their own.
func states[V ~uint8](of []uint8, orders string, over func(V) bool, lost ...V) []condition {
	if len(of) == 0 {
		return nil
	}
	c := scan("~state IN (?"+strings.Repeat(", ?", len(of)-1)+")", numbers(of)...)
	switch {
	case !slices.ContainsFunc(of, func(s uint8) bool { return over(V(s)) }):
		return []condition{simple("ended", "~ended = 0"), c}
	case len(of) == 1 && slices.Contains(lost, V(of[0])):
		c.lookup.where(ofFate, int64(of[0]))
		c.orders = orders
	}
	return []condition{c}
}

// ofFate finds what failed or was cancelled.
const ofFate = "fate = ? AND fate <> 0"

// within returns conditions on the time that a list can be ordered by.
func within(column string, since, until int64) (all []condition) {
	if since != 0 {
		all = append(all, simple(column, "~"+column+" >= ?", since))
		all[0].since = true
	}
	if until != 0 {
		all = append(all, simple(column, "~"+column+" < ? AND ~"+column+" <> 0", until))
		all[len(all)-1].until = true
	}
	return all
}

func endedSince(at int64) []condition {
	if at == 0 {
		return nil
	}
	all := []condition{simple("ended", "~ended >= ?", at)}
	all[0].since = true
	return all
}

// implications are ranges of orders that have all rows of what criteria select, as ingesters write them: no others are read.
var implications = []struct {
	of   string // the key of a list
	when func(*jobdb.Criteria) bool
	then condition
}{
	{jobListing.key, only(true, jobdb.JobState.Terminal), ranged("ended", ">")},
	{jobListing.key, only(true, jobdb.JobState.Terminal), ranged("retry-after", "<=")},
	{jobListing.key, only(false, jobdb.JobState.Terminal), ranged("ended", "<=")},
	{jobListing.key, func(c *jobdb.Criteria) bool { return len(failed(c))+len(decided(c)) > 0 }, ranged("runs", ">")},
	{runListing.key, func(c *jobdb.Criteria) bool { return c.Category != "" || len(decided(c)) > 0 }, ranged("ended", ">")},
	{runListing.key, only(true, func(s jobdb.RunState) bool { return s == jobdb.RunSucceeded }), ranged("ended", ">")}, // a failed one may have been republished
	{runListing.key, only(false, runOver), ranged("ended", "<=")},
}

// only returns whether criteria select by states, and all of them are over, or none.
func only[V ~uint8](want bool, over func(V) bool) func(*jobdb.Criteria) bool {
	return func(c *jobdb.Criteria) bool {
		return len(c.States) > 0 && !slices.ContainsFunc(c.States, func(s uint8) bool { return over(V(s)) != want })
	}
}

func runOver(s jobdb.RunState) bool {
	return s.Ended() || s == jobdb.RunCancelled || s == jobdb.UnknownRun
}

// ranged returns a condition that the number by which an order begins is positive, or is not.
func ranged(order, than string) condition {
	c := simple(order, "~"+strings.ReplaceAll(order, "-", "_")+" "+than+" 0")
	c.since, c.until = than == ">", than != ">"
	return c
}

// ofJob returns conditions on the id of a job.
func ofJob(order string, c *jobdb.Criteria) (all []condition) {
	if c.JobID != "" {
		one := simple("", "~job_id = ?", c.JobID)
		one.few = true
		all = append(all, one)
	}
	if c.JobPrefix != "" {
		if end := after(c.JobPrefix); end != "" {
			return append(all, simple(order, "~job_id >= ? AND ~job_id < ?", c.JobPrefix, end))
		}
		return append(all, simple(order, "~job_id >= ?", c.JobPrefix))
	}
	return all
}

// after returns the smallest text that is greater than all that begin with prefix; "":
// there is none.
func after(prefix string) string {
	for b := []byte(prefix); len(b) > 0; b = b[:len(b)-1] {
		if b[len(b)-1] < 0x7f { // a byte beyond would be no text
			b[len(b)-1]++
			return string(b)
		}
	}
	return ""
}

func concat(lists ...[]condition) (all []condition) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// failed are the conditions on a run.
func failed(c *jobdb.Criteria) []condition {
	return concat(long("leased", NodeOf, c.Node), long("leased", "error_category", c.Category))
}

// decided are the conditions on a decision.
func decided(c *jobdb.Criteria) []condition {
	return concat(equal("time", "rule", c.Rule), among("time", "code", c.Codes), equal("time", "policy", c.Policy))
}

var (
	aJob = []string{"job_id", "partition"}
	aRun = []string{"job_id", "run_id", "partition"}
)

func jobs(c *jobdb.Criteria) plan {
	var waiting []condition
	if c.Waiting {
		waiting = []condition{simple("retry-after", "~retry_after > 0")}
	}
	set, state := equal("", "job_set", c.JobSet), states(c.States, "ended", jobdb.JobState.Terminal, jobdb.JobFailed, jobdb.JobCancelled)
	lost := len(state) > 0 && slices.Contains(state[0].lookup.Where, ofFate)
	if lost && c.Queue != "" { // indexes have these of a queue, and of a job set, and waiting ones of a job set
		state[0].lookup.where("queue = ?", c.Queue)
	}
	if c.Queue != "" && c.JobSet != "" {
		if lost {
			state[0].lookup.where("job_set = ?", c.JobSet)
			set, state = concat(state, set), nil
		}
		if c.Waiting {
			waiting[0].lookup.where("job_set = ? AND queue = ?", c.JobSet, c.Queue)
			set, waiting = concat(waiting, set), nil
		}
	}
	return jobListing.planned(c, concat(
		ofJob("id", c), long("submitted", "grp", c.Group), set, waiting,
		joined("jobs", "runs", aJob, failed(c)), joined("jobs", "decisions", aJob, decided(c)),
		state, equal("submitted", "queue", c.Queue), inQueues("submitted", c.Queues), within("submitted", c.Since, c.Until), endedSince(c.EndedSince),
	))
}

func runs(c *jobdb.Criteria) plan {
	job := joined("runs", "jobs", aJob, concat(long("", "grp", c.Group), equal("", "job_set", c.JobSet), equal("", "queue", c.Queue), inQueues("", c.Queues)))
	small, large := job, []condition(nil) // groups and job sets are, queues need not be
	if c.Group == "" && c.JobSet == "" {
		small, large = nil, job
	}
	return runListing.planned(c, concat(
		ofJob("job", c), small, failed(c), joined("runs", "decisions", aRun, decided(c)),
		states(c.States, "leased", runOver, jobdb.RunFailed, jobdb.RunCancelled),
		large, within("leased", c.Since, c.Until),
	))
}

func decisions(c *jobdb.Criteria) plan {
	return decisionListing.planned(c, concat(
		ofJob("", c), joined("decisions", "jobs", aJob, long("", "grp", c.Group)), equal("time", "job_set", c.JobSet),
		joined("decisions", "runs", aRun, failed(c)), decided(c), equal("time", "queue", c.Queue), inQueues("time", c.Queues),
		within("time", c.Since, c.Until),
	))
}

func groups(c *jobdb.Criteria) plan {
	set := equal("name", "queue", c.Queue)
	switch {
	case c.Queue != "" && c.JobSet != "":
		set = []condition{simple("name", "~queue = ? AND ~job_set = ?", c.Queue, c.JobSet)}
	case c.JobSet != "":
		set = equal("", "job_set", c.JobSet)
	}
	return groupListing.planned(c, concat(
		long("", "grp", c.Group), set, long("", "rule", c.Rule), among("", "state", groupStates(c.States)), long("", "policy", c.Policy), inQueues("name", c.Queues),
	))
}

func groupStates(numbers []uint8) (all []policy.GroupState) {
	for _, n := range numbers {
		all = append(all, policy.GroupState(n))
	}
	return all
}

// JobList visits a page of jobs.
func (q Queries) JobList(c *jobdb.Criteria, p jobdb.Page, visit func(*jobdb.Job) error) (next []any, err error) {
	return page(q.Source, &Jobs, jobs(c), p, visit)
}

// RunList visits a page of runs.
func (q Queries) RunList(c *jobdb.Criteria, p jobdb.Page, visit func(*jobdb.Run) error) (next []any, err error) {
	return page(q.Source, &Runs, runs(c), p, visit)
}

// HeldRunList visits a page of runs, with what their jobs request.
func (q Queries) HeldRunList(c *jobdb.Criteria, p jobdb.Page, visit func(*jobdb.HeldRun) error) (next []any, err error) {
	return page(q.Source, &heldRuns, runs(c), p, visit)
}

// DecisionList visits a page of decisions.
func (q Queries) DecisionList(c *jobdb.Criteria, p jobdb.Page, visit func(*jobdb.Decision) error) (next []any, err error) {
	return page(q.Source, &Decisions, decisions(c), p, visit)
}

// GroupList visits a page of groups.
func (q Queries) GroupList(c *jobdb.Criteria, p jobdb.Page, visit func(*jobdb.Group) error) (next []any, err error) {
	return page(q.Source, &Groups, groups(c), p, visit)
}

const ofDecision = "x.job_id = decisions.job_id AND x.run_id = decisions.run_id AND x.partition = decisions.partition"

// keys are what decisions are counted by.
var keys = map[string]string{
	"queue": "~queue", "set": "~job_set", "policy": "~policy",
	"rule":     "CASE WHEN rule = '' THEN '' ELSE policy || '/' || rule END",
	"node":     nodeKey,
	"category": categoryKey,
}

const (
	nodeKey     = "coalesce((SELECT " + NodeOf + " FROM {runs} x WHERE " + ofDecision + "), '')"
	categoryKey = "coalesce((SELECT x.error_category FROM {runs} x WHERE " + ofDecision + "), '')"
)
