package jobdbtest

import (
	"fmt"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// sparse is how many decisions Fill gives each sparse value. They are the oldest ones, so a list in descending order has
// them last.
const sparse = 20

// second is the time between two decisions of Fill.
const second = int64(1e9)

// Fill writes a history of so many decisions: jobs that succeeded at once, that were retried, and that failed for good, in
// four partitions. Each value of Values selects its share of it.
func Fill(t testing.TB, db jobdb.Store, decisions int) {
	t.Helper()
	const atOnce = 5_000
	made := [4]uint64{} // decisions, by partition
	for first := 0; first < decisions; first += atOnce {
		var changes [4]jobdb.Changes
		for i := first; i < min(decisions, first+atOnce); i += 5 {
			p := i / 5 % 4
			c := &changes[p]
			// Five decisions are three jobs; two others succeeded.
			for k, failures := range []int{3, 1, 1, 0, 0} {
				addJob(c, p, i, k, failures, &made[p])
			}
		}
		for p := range changes {
			tx, err := db.Begin(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			from := tx.Positions()
			if err := tx.Write(t.Context(), &changes[p]); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context(), from, at(1+first/atOnce)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// addJob adds job k of those around decision i, with its runs and the decisions on them.
func addJob(c *jobdb.Changes, partition, i, k, failures int, made *uint64) {
	n := i + k
	old := i < sparse // its values are sparse
	some := func(value, other string) string {
		if old {
			return "sparse"
		}
		if n%3 == 0 {
			return value
		}
		return other
	}
	id := fmt.Sprintf("01m7xn6%011d%02d", uint64(i)*7919%99_999_999_977, k)
	submitted := int64(n+1)*second + 1
	j := &jobdb.Job{
		Partition: partition, JobID: id, Queue: some("dense", fmt.Sprint("q", n%7)), JobSet: some("dense", fmt.Sprint("set", n/300)), Known: true, Final: true,
		State: jobdb.JobSucceeded, Times: jobdb.JobTimes{Submitted: submitted, Ended: submitted + 3600*second},
	}
	switch {
	case old:
		j.State = jobdb.JobCancelled
		j.Member = jobdb.Membership{Group: "sparse"}
	case failures == 1 && k == 2:
		j.State = jobdb.JobFailed
	case n%100 == 0:
		j.State, j.Final, j.Times.Ended = jobdb.JobRunning, false, 0
	case n%20 == 0:
		j.Member = jobdb.Membership{Group: some("dense", fmt.Sprint("g", n/200))}
	}
	if g := j.Member.Group; g != "" {
		j.Member.GroupID = jobdb.GroupID(j.Queue, j.JobSet, g)
		c.Groups = append(c.Groups, &jobdb.Group{
			Partition: partition, ID: jobdb.GroupID(j.Queue, j.JobSet, g), Queue: j.Queue, JobSet: j.JobSet, Name: g, Policy: some("dense", "other"), Rule: some("dense", "other"),
			State: policy.GroupSucceeded, Restarts: uint32(n % 4),
		})
		if old {
			c.Groups[len(c.Groups)-1].State = policy.GroupHalted
		}
		c.Groups = uniqueGroups(c.Groups)
	}
	if old && k == 0 {
		j.State, j.Final, j.Times.Ended, j.Queueing.RetryAfter = jobdb.JobQueued, false, 0, submitted+7200*second
	}
	for attempt := range failures + 1 {
		last := attempt == failures
		if last && j.State != jobdb.JobSucceeded && j.State != jobdb.JobRunning {
			break // it failed, was cancelled or waits
		}
		j.Queueing.Runs++
		leased := submitted + int64(attempt)*600*second
		r := &jobdb.Run{
			Partition: partition, JobID: id, RunID: fmt.Sprintf("%s-%d", id, attempt), Index: uint32(attempt), State: jobdb.RunSucceeded,
			Node: some("dense", fmt.Sprint("node", n%499)), Times: jobdb.RunTimes{Leased: leased, Ended: leased + 300*second},
		}
		c.Runs = append(c.Runs, r)
		switch {
		case last && j.State == jobdb.JobRunning:
			r.State, r.Times.Ended = jobdb.RunRunning, 0
			continue
		case last:
			continue
		case old:
			r.State = jobdb.RunCancelled
		default:
			r.State = jobdb.RunFailed
		}
		*made++
		r.Error = jobdb.RunError{Reason: "podError", Category: some("dense", fmt.Sprint("category", n%5)), Message: "the container main exited with code 137: out of memory"}
		r.Outcome, r.Decision = jobdb.Requeued, *made
		d := &jobdb.Decision{
			Where: jobdb.Where{Partition: partition, Seq: uint64(i), Record: uint32(len(c.Decisions))}, Acted: true, GroupID: j.Member.GroupID,
			Decision: chain.Decision{
				Number: *made, Requeue: true, Queue: j.Queue, JobSet: j.JobSet, JobID: id, RunID: r.RunID, RunIndex: r.Index, Time: r.Times.Ended, Code: policy.RuleIgnore,
				Policy: some("dense", fmt.Sprint("policy", n%4)), Rule: some("dense", fmt.Sprint("rule", n%17)), RetryAfter: r.Times.Ended + 60*second, DelayMS: 60_000,
			},
		}
		switch {
		case old:
			d.Code = policy.GangRetry
		case n%3 == 0:
			d.Code = policy.RuleRetry
		}
		if j.State == jobdb.JobFailed {
			d.Requeue, d.Code, d.RetryAfter, r.Outcome = false, policy.RuleLimit, 0, jobdb.Denied
		}
		j.Queueing.LatestRun, j.Queueing.Decision = r.RunID, *made
		c.Decisions = append(c.Decisions, d)
	}
	c.Jobs = append(c.Jobs, j)
}

// uniqueGroups drops the last group if one of its id is there.
func uniqueGroups(all []*jobdb.Group) []*jobdb.Group {
	last := all[len(all)-1]
	for _, g := range all[:len(all)-1] {
		if g.ID == last.ID {
			return all[:len(all)-1]
		}
	}
	return all
}
