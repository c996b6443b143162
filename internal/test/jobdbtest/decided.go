package jobdbtest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// AddDecided adds a failed run: of ten queues, three rules and 997 nodes, one in three failed for good. A half of the queues have one job
// set, the others sets of twenty jobs; one in a hundred is in a queue in shadow.
func AddDecided(c *jobdb.Changes, seq uint64, i int) {
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Second).UnixNano()
	job, queue := fmt.Sprintf("job%08d", i), fmt.Sprint("queue", i%10)
	set := "set"
	if i%10 >= 5 {
		set += strconv.Itoa(i / 200)
	}
	j := &jobdb.Job{JobID: job, Queue: queue, JobSet: set, Known: true, State: jobdb.JobFailed, Final: true, Times: jobdb.JobTimes{Submitted: at, Ended: at}}
	d := &jobdb.Decision{
		Where: jobdb.Where{Seq: seq, Record: uint32(i % 10_000)}, Acted: true,
		Decision: chain.Decision{Number: uint64(i + 1), Queue: queue, JobSet: set, JobID: job, RunID: "run" + job, Time: at, Code: policy.RuleFail, Policy: "p", Rule: fmt.Sprint("rule", i%3)},
	}
	r := &jobdb.Run{JobID: job, RunID: d.RunID, State: jobdb.RunFailed, Node: fmt.Sprint("node", i%997), Times: jobdb.RunTimes{Leased: at, Ended: at}, Outcome: jobdb.Denied, Decision: d.Number}
	if i%100 == 99 {
		j.Queue, d.Queue, d.Shadow, d.Acted = "shadow", "shadow", true, false
	}
	if i%3 > 0 {
		j.State, j.Final, j.Times.Ended = jobdb.JobQueued, false, 0
		d.Requeue, d.RetryAfter, d.Code, r.Outcome = true, at, policy.RuleRetry, jobdb.Requeued
	}
	c.Costs = append(c.Costs, &jobdb.Cost{
		Ended: at, Kind: jobdb.FailedRun, Queue: d.Queue, Cause: jobdb.Cause{Policy: d.Policy, Rule: d.Rule, Node: r.Node}, Spent: jobdb.Spent{Runs: 1, CPU: 1000, Memory: 1024},
	})
	c.Jobs, c.Runs, c.Decisions = append(c.Jobs, j), append(c.Runs, r), append(c.Decisions, d)
}
