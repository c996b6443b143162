package jobdbtest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// Filter selects rows of a list, by one field of jobdb.Criteria.
type Filter struct {
	Field string
	Value string // sparse, dense or another word: how many rows have it
	Set   func(list string, c *jobdb.Criteria)
}

// MostPass reports whether no index finds the rows, since most of them are selected: jobs that succeeded, or several states.
func (f *Filter) MostPass() bool {
	return f.Field == "States" && (f.Value == "dense" || f.Value == "several")
}

// The lists.
const (
	jobsList, runsList, decisionsList, groupsList = "jobs", "runs", "decisions", "groups"
)

// Lists are the lists with their orders.
var Lists = map[string][]string{jobsList: jobdb.JobSorts, runsList: jobdb.RunSorts, decisionsList: jobdb.DecisionSorts, groupsList: jobdb.GroupSorts}

// Filters are all by which lists can be filtered, over as many decisions as Fill wrote. A field of jobdb.Criteria without one
// fails the test.
func Filters(t testing.TB, decisions int) (all []Filter) {
	t.Helper()
	text := func(field string, of func(*jobdb.Criteria) *string) {
		for _, value := range []string{"sparse", "dense"} {
			all = append(all, Filter{field, value, func(_ string, c *jobdb.Criteria) { *of(c) = value }})
		}
	}
	text("Queue", func(c *jobdb.Criteria) *string { return &c.Queue })
	for value, queues := range map[string][]string{"sparse": {"sparse"}, "dense": {"dense"}, "few": {"sparse", "none"}} {
		all = append(all, Filter{"Queues", value, func(_ string, c *jobdb.Criteria) { c.Queues = queues }})
	}
	text("JobSet", func(c *jobdb.Criteria) *string { return &c.JobSet })
	text("Group", func(c *jobdb.Criteria) *string { return &c.Group })
	text("Policy", func(c *jobdb.Criteria) *string { return &c.Policy })
	text("Rule", func(c *jobdb.Criteria) *string { return &c.Rule })
	text("Node", func(c *jobdb.Criteria) *string { return &c.Node })
	text("Category", func(c *jobdb.Criteria) *string { return &c.Category })
	add := func(field, value string, set func(list string, c *jobdb.Criteria)) {
		all = append(all, Filter{field, value, set})
	}
	add("JobID", "one", func(_ string, c *jobdb.Criteria) { c.JobID = "01m7xn60000000000000" })
	add("JobPrefix", "sparse", func(_ string, c *jobdb.Criteria) { c.JobPrefix = "01m7xn600000000" })
	add("JobPrefix", "dense", func(_ string, c *jobdb.Criteria) { c.JobPrefix = "01" })
	states := func(value string, jobs jobdb.JobState, runs jobdb.RunState, groups policy.GroupState) {
		add("States", value, func(list string, c *jobdb.Criteria) {
			c.States = []uint8{map[string]uint8{jobsList: uint8(jobs), runsList: uint8(runs), groupsList: uint8(groups)}[list]}
		})
	}
	states("sparse", jobdb.JobCancelled, jobdb.RunCancelled, policy.GroupHalted)
	states("failed", jobdb.JobFailed, jobdb.RunFailed, policy.GroupFailed)
	states("live", jobdb.JobRunning, jobdb.RunRunning, policy.GroupActive)
	states("dense", jobdb.JobSucceeded, jobdb.RunSucceeded, policy.GroupSucceeded)
	add("States", "several", func(_ string, c *jobdb.Criteria) { c.States = []uint8{1, 4} })
	add("Waiting", "sparse", func(_ string, c *jobdb.Criteria) { c.Waiting = true })
	add("Codes", "sparse", func(_ string, c *jobdb.Criteria) { c.Codes = []policy.Code{policy.GangRetry} })
	add("Codes", "dense", func(_ string, c *jobdb.Criteria) { c.Codes = []policy.Code{policy.RuleIgnore} })
	add("Codes", "several", func(_ string, c *jobdb.Criteria) { c.Codes = []policy.Code{policy.GangRetry, policy.KillSwitch} })
	add("Since", "sparse", func(_ string, c *jobdb.Criteria) { c.Since = int64(decisions) * second })
	add("Since", "dense", func(_ string, c *jobdb.Criteria) { c.Since = int64(decisions) / 2 * second })
	add("Until", "sparse", func(_ string, c *jobdb.Criteria) { c.Until = 10 * second })
	add("Until", "dense", func(_ string, c *jobdb.Criteria) { c.Until = int64(decisions) / 2 * second })
	add("EndedSince", "sparse", func(_ string, c *jobdb.Criteria) { c.EndedSince = int64(decisions+3600) * second })
	add("EndedSince", "dense", func(_ string, c *jobdb.Criteria) { c.EndedSince = int64(decisions) / 2 * second })
	for _, f := range reflect.VisibleFields(reflect.TypeFor[jobdb.Criteria]()) {
		if !slices.ContainsFunc(all, func(have Filter) bool { return have.Field == f.Name }) {
			t.Errorf("no filter selects by %s: add one, and an index that finds its rows (table/select.go)", f.Name)
		}
	}
	for _, f := range all {
		var c jobdb.Criteria
		if f.Set(jobsList, &c); reflect.ValueOf(c).FieldByName(f.Field).IsZero() {
			t.Errorf("the filter by %s (%s) selects by something else", f.Field, f.Value)
		}
	}
	return all
}

// List reads a page of a list, and returns how many rows it has.
func List(q jobdb.Queries, list string, c *jobdb.Criteria, p jobdb.Page) (rows int, next []any, err error) {
	ids, next, err := idsOf(q, list, c, p, -1)
	return len(ids), next, err
}

var errEnough = errors.New("enough rows")

// idsOf lists rows by their keys, at most so many.
func idsOf(q jobdb.Queries, list string, c *jobdb.Criteria, p jobdb.Page, most int) (ids []string, next []any, err error) {
	add := func(partition int, key string) error {
		if len(ids) == most {
			return errEnough
		}
		ids = append(ids, fmt.Sprintf("%d/%s", partition, key))
		return nil
	}
	switch list {
	case jobsList:
		next, err = q.JobList(c, p, func(j *jobdb.Job) error { return add(j.Partition, j.JobID) })
	case runsList:
		next, err = q.RunList(c, p, func(r *jobdb.Run) error { return add(r.Partition, r.RunID) })
	case decisionsList:
		next, err = q.DecisionList(c, p, func(d *jobdb.Decision) error { return add(d.Partition, fmt.Sprint(d.Number)) })
	case groupsList:
		next, err = q.GroupList(c, p, func(g *jobdb.Group) error { return add(g.Partition, g.ID) })
	}
	return ids, next, err
}
