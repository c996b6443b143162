package sink

import (
	"cmp"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/schedulerdb"
)

// RequestsOf returns what a job's pod requests, or nil if that is nothing, unreadable or absurd.
func RequestsOf(job *pb.SubmitJob) *jobdb.Requests {
	pod := job.GetMainObject().GetPodSpec().GetPodSpec()
	cpu, memory, gpu, err := schedulerdb.Requests(pod)
	r := &jobdb.Requests{CPU: cpu, Memory: memory, GPU: gpu}
	if least, most := min(cpu, memory, gpu), max(cpu, memory, gpu); err != nil || least < 0 || most == 0 || most > jobdb.MaxRequest {
		return nil
	}
	return r
}

// causeOf is why a run failed, whose row may be nil.
func causeOf(run *runRow, policy, rule string) *jobdb.Cause {
	c := &jobdb.Cause{Policy: policy, Rule: rule}
	if run != nil {
		c.Category, c.Node = run.Error.Category, cmp.Or(run.Error.Node, run.Node)
	}
	return c
}

// runsFailed notes what the runs held that failed in this message. What decided on them, if anything did, is among its records.
func (f *fold) runsFailed() {
	for i := range f.Events.Events {
		ev := &f.Events.Events[i]
		if ev.Kind != events.RunErrors && ev.Kind != events.RunPreempted {
			continue
		}
		job, _ := named(f.Events, i)
		j, run := f.rowsOf(job, ev.RunID)
		if run == nil || run.State != jobdb.RunFailed || run.failedIn != f.applied {
			continue
		}
		run.failedIn = 0 // it is noted once, whatever else the message says of it
		cause := causeOf(run, "", "")
		if d := f.decisionOn(job, ev.RunID); d != nil {
			cause.Policy, cause.Rule = d.Policy, d.Rule
		}
		f.cost(j, run, jobdb.FailedRun, cause)
	}
}

// retryEnded notes what a run held if it was a retry that we granted. What a group's restart cuts short is only a failed run: the
// retry is the next one.
func (f *fold) retryEnded(j *jobRow, run *runRow) {
	if j.Retry == nil || j.Member.Restarting || j.Queueing.LatestRun != run.RunID {
		return
	}
	kind := jobdb.RetryLost
	if run.State == jobdb.RunSucceeded {
		kind = jobdb.RetrySucceeded
	}
	f.cost(j, run, kind, j.Retry)
	j.Retry = nil
}

func (f *fold) cost(j *jobRow, run *runRow, kind jobdb.CostKind, of *jobdb.Cause) {
	f.fresh.Costs = append(f.fresh.Costs, &jobdb.Cost{
		Partition: f.partition, Ended: run.Times.Ended, Kind: kind, Queue: j.Queue, Cause: *of, Spent: jobdb.SpentBy(j.Submit.Requests, run.Times),
	})
}

// restartedFor is the failure in this message that a member is restarted for; nil: it is none, such as an operator's order, or the
// message is superseded, whose runs are not loaded.
func (f *fold) restartedFor(m *chain.MemberChange) *jobdb.Cause {
	if f.Superseded {
		return nil
	}
	if f.restarts == nil {
		f.restarts = map[groupKey]*jobdb.Cause{}
		for _, r := range f.Records {
			if d, ok := r.(*chain.Decision); ok && d.Member != nil {
				_, run := f.rowsOf(d.JobID, d.RunID)
				f.restarts[groupKey{d.Queue, d.JobSet, d.Member.Group}] = causeOf(run, d.Policy, d.Rule)
			}
		}
	}
	return f.restarts[groupKey{m.Queue, m.JobSet, m.Member.Group}]
}
