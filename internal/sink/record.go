package sink

import (
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
)

// records applies the records of the message. If it is superseded, they are only kept: in
// the chain such a requeue counts and such a JobFailed is effective, while the rows show
// what Armada did. A later RetryReady of a superseded requeue finds no decision on the
// run, and has no effect.
func (f *fold) records() {
	f.Acted = make([]bool, len(f.Records))
	for i, r := range f.Records {
		where := f.where(f.Message, i)
		switch r := r.(type) {
		case *chain.Decision:
			f.Acted[i] = !f.Superseded && f.decide(r)
			f.decideMember(r, f.Acted[i])
			row := &jobdb.Decision{Where: where, Acted: f.Acted[i], Decision: *r}
			if r.Member != nil {
				row.GroupID = groupKey{r.Queue, r.JobSet, r.Member.Group}.id()
			}
			f.fresh.Decisions = append(f.fresh.Decisions, row)
		case *chain.NotDecided:
			if !f.Superseded {
				f.leaveAlone(r)
			}
			f.fresh.NotDecided = append(f.fresh.NotDecided, &jobdb.NotDecided{Where: where, NotDecided: *r})
		case *chain.RetryReady:
			f.Acted[i] = !f.Superseded && f.ready(r)
			f.fresh.Ready = append(f.fresh.Ready, &jobdb.Ready{Where: where, Acted: f.Acted[i], RetryReady: *r})
		case *chain.Parked:
			f.fresh.Parked = append(f.fresh.Parked, &jobdb.Parked{Where: where, Parked: *r})
		default:
			if row := jobdb.NewGroupRecord(r); row != nil {
				if o, ok := r.(*chain.OrderAnswered); ok {
					f.Acted[i] = f.order(o)
				} else {
					f.Acted[i] = f.groupRecord(r)
				}
				row.Where, row.Acted = where, f.Acted[i]
				f.fresh.GroupRecords = append(f.fresh.GroupRecords, row)
			}
		}
	}
}

// decide applies a decision and reports whether it changed the job. It overrides
// Armada's verdict on the same run, but neither a final end nor a release.
func (f *fold) decide(d *chain.Decision) bool {
	j, run := f.rowsOf(d.JobID, d.RunID)
	if run != nil {
		if run.Outcome == jobdb.Released {
			return false
		}
		run.Decision, run.Shadow, run.Outcome = d.Number, d.Shadow, jobdb.Denied
		if d.Requeue {
			run.Outcome = jobdb.Requeued
		}
		f.touchRun(run)
	}
	if j == nil || d.Shadow || j.Final || j.Queueing.LatestRun != d.RunID {
		return false
	}
	f.touch(j, f.Log.Position)
	j.Queueing.Decision, j.Retry = d.Number, nil
	if d.Requeue {
		j.Retry = causeOf(run, d.Policy, d.Rule)
	}
	switch {
	case d.Requeue && j.Member.Restarting && j.State.Waiting():
		j.Queueing.RetryAfter, j.Queueing.AvoidNodes = d.RetryAfter, d.AvoidNodes
	case d.Requeue:
		j.queued(d.RetryAfter, d.AvoidNodes)
	default:
		j.end(jobdb.JobFailed, d.Time)
	}
	return true
}

func (f *fold) leaveAlone(r *chain.NotDecided) {
	if _, run := f.rowsOf(r.JobID, r.RunID); run != nil && run.Outcome != jobdb.Released {
		run.Outcome = jobdb.LeftAlone
		f.touchRun(run)
	}
}

// ready removes the grace period from a retry, if the job still waits for that run's
// requeue and the requeue was enforced.
func (f *fold) ready(r *chain.RetryReady) bool {
	j := f.find(r.JobID)
	if j == nil || !j.State.Waiting() || j.Queueing.LatestRun != r.RunID || j.Queueing.Decision == 0 {
		return false
	}
	if r.RetryAfter >= j.Queueing.RetryAfter {
		return false
	}
	f.touch(j, f.Log.Position)
	j.Queueing.RetryAfter = r.RetryAfter
	return true
}

// rowsOf returns the rows of a failed run, or nil.
func (f *fold) rowsOf(job, run string) (*jobRow, *runRow) {
	j := f.find(job)
	if j == nil {
		return nil, nil
	}
	return j, j.runs[run]
}
