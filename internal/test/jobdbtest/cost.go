package jobdbtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
)

// testCosts checks the kept sums against the costs that were written, in several transactions, partitions and days.
func testCosts(t *testing.T, db Database) {
	const day = 24 * 3600e9
	long := strings.Repeat("node", 1000)
	var all []*jobdb.Cost
	for step := range 3 {
		for partition := range 2 {
			c := &jobdb.Changes{}
			for i := range 24 {
				all = append(all, &jobdb.Cost{
					Partition: partition, Ended: int64(20_000+i/8)*day + int64(step), Kind: jobdb.CostKind(i % 3), Queue: []string{"q", "r"}[i%2],
					Cause: jobdb.Cause{Policy: []string{"", "p"}[i%2], Rule: []string{"", "again", "", "never"}[i%4], Node: []string{"", "n", long}[i%3], Category: fmt.Sprint(i % 5)},
					Spent: jobdb.Spent{Runs: 1, Unknown: uint64(i % 2), CPU: int64(i), Memory: int64(1000 + i), GPU: int64(i) << 40},
				})
				c.Costs = append(c.Costs, all[len(all)-1])
			}
			commit(t, db.Writer, partition, at(step), at(step+1), c)
		}
	}
	none, q, again := "", "q", "p/again"
	for _, by := range jobdb.CostKeys {
		for _, f := range []jobdb.CostFilter{{By: by}, {By: by, Key: &none}, {By: by, Key: &q}, {By: by, Key: &again}, {By: by, Key: &long}, {By: by, From: 20_001}, {By: by, From: 20_001, To: 20_002}} {
			want := map[string]jobdb.Spent{}
			for _, c := range all {
				key := map[string]string{"queue": c.Queue, "policy": c.Policy, "node": c.Node, "category": c.Category}[by]
				if by == "rule" && c.Rule != "" {
					key = c.Policy + "/" + c.Rule
				}
				if on := jobdb.DayOf(c.Ended); (f.Key == nil || *f.Key == key) && (f.From == 0 || on >= f.From) && (f.To == 0 || on < f.To) {
					sum := want[fmt.Sprint(key, c.Kind)]
					sum.Add(c.Spent)
					want[fmt.Sprint(key, c.Kind)] = sum
				}
			}
			view(t, db.Reader, func(q jobdb.Queries) error {
				sums, err := q.Costs(f)
				got := map[string]jobdb.Spent{}
				for _, s := range sums {
					if strings.HasPrefix(s.Key, long[:100]) { // a database may abbreviate it
						s.Key = long
					}
					got[fmt.Sprint(s.Key, s.Kind)] = s.Spent
				}
				equal(t, fmt.Sprintf("costs %+v", f), want, got)
				withinCosts(t, q, f, sums)
				return err
			})
		}
	}
}

// withinCosts: those who see queue q have its costs, of all that all see, and those by nothing else.
func withinCosts(t *testing.T, q jobdb.Queries, f jobdb.CostFilter, all []jobdb.CostSum) {
	t.Helper()
	want := map[jobdb.CostSum]bool{}
	for _, s := range all {
		if f.By == "queue" && s.Key == "q" {
			want[s] = true
		}
	}
	sums, err := jobdb.Within(q, []string{"q", "none"}).Costs(f)
	got := map[jobdb.CostSum]bool{}
	for _, s := range sums {
		got[s] = true
	}
	if equal(t, fmt.Sprintf("costs of one queue, %+v", f), want, got); err != nil {
		t.Error(err)
	}
}

// testHeldRuns checks that runs are listed with what their jobs request, in every order and however they are found.
func testHeldRuns(t *testing.T, db Database) {
	requests := map[string]*jobdb.Requests{"a": {CPU: 500, Memory: 1024, GPU: 2000}, "b": nil, "c": {CPU: 1}}
	for partition := range 2 {
		c := &jobdb.Changes{}
		for _, id := range []string{"a", "b", "c"} {
			j := &jobdb.Job{Partition: partition, JobID: id, Queue: "q", Submit: jobdb.Submit{Requests: requests[id]}}
			if partition == 1 {
				j.Submit.Requests = nil // another job's
			}
			c.Jobs = append(c.Jobs, j)
			for i := range 2 {
				c.Runs = append(c.Runs, &jobdb.Run{Partition: partition, JobID: id, RunID: fmt.Sprint(i), State: jobdb.RunFailed, Node: "n", Times: jobdb.RunTimes{Leased: int64(100 + i), Ended: 200}})
			}
		}
		c.Runs = append(c.Runs, &jobdb.Run{Partition: partition, JobID: "alone", RunID: "0", State: jobdb.RunFailed, Node: "n"})
		commit(t, db.Writer, partition, at(0), at(1), c)
	}
	for _, criteria := range []jobdb.Criteria{{}, {Queue: "q"}, {Node: "n"}, {JobID: "a"}} {
		for _, p := range []jobdb.Page{{}, {Sort: "leased", Descending: true}, {Sort: "ended", Limit: 100}} {
			view(t, db.Reader, func(q jobdb.Queries) error {
				var want, got []string
				if _, err := q.RunList(&criteria, p, func(r *jobdb.Run) error {
					held := requests[r.JobID]
					if r.Partition == 1 {
						held = nil
					}
					want = append(want, fmt.Sprintf("%+v %s", *r, jobdb.EncodeRequests(held)))
					return nil
				}); err != nil {
					return err
				}
				_, err := q.HeldRunList(&criteria, p, func(r *jobdb.HeldRun) error {
					got = append(got, fmt.Sprintf("%+v %s", r.Run, jobdb.EncodeRequests(r.Requests)))
					return nil
				})
				equal(t, fmt.Sprintf("runs %+v %+v", criteria, p), want, got)
				if len(want) == 0 {
					t.Errorf("no runs %+v", criteria)
				}
				return err
			})
		}
	}
}
