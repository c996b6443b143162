package standin

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// emit adds events of a job to what the cycle will publish.
func (c *cycle) emit(j *job, events ...event) { c.emitFor("", j, events...) }

// emitFor names the user who asked for it.
func (c *cycle) emitFor(user string, j *job, events ...event) {
	for i := range events {
		events[i].created = c.now
	}
	c.out = append(c.out, sequence{queue: j.queue, set: j.set, user: user, events: events})
}

func ev(kind protowire.Number, body msg) event { return event{kind: kind, body: body} }

// update says what follows for a job that has changed.
func (c *cycle) update(j *job) error {
	r := j.latest()
	switch {
	case j.cancel || j.cancelBySet:
		c.cancel(j)
	case r == nil:
	case r.succeeded:
		j.succeeded, j.queued = true, false
		c.emit(j, ev(evJobSucceeded, msg(nil).str(3, j.id)))
	case r.failed && !j.queued:
		if err := c.fail(j); err != nil {
			return err
		}
	case r.preemptRequested && j.info.class == preemptibleClass:
		c.preempt(j, r.preemptUser, r.preemptReason)
	}
	if !j.over() && j.wanted != j.priority {
		j.priority = j.wanted
		c.emitFor(j.wantedBy, j, ev(evReprioritisedJob, msg(nil).num(2, uint64(j.priority)).str(3, j.id).str(4, j.wantedBy)))
	}
	return nil
}

func (c *cycle) cancel(j *job) {
	var events []event
	if j.cancelBySet {
		events = append(events, ev(evCancelJob, msg(nil).str(3, j.id)))
	}
	for i := range j.runs {
		r := &j.runs[i]
		if !r.over() {
			events = append(events, ev(evJobRunCancelled, msg(nil).str(3, j.id).str(4, r.id).str(5, j.cancelReason).str(6, j.cancelUser)))
		}
		r.cancelled = true
	}
	j.cancelled, j.queued = true, false
	c.emitFor(j.cancelUser, j, append(events, ev(evCancelledJob, msg(nil).str(3, j.id).str(4, j.cancelUser)))...)
}

// fail ends a job whose last run failed, unless Armada's own rule for returned
// leases puts it back into the queue.
func (c *cycle) fail(j *job) error {
	r := j.latest()
	if r.returned && j.info.annotations[failFastKey] != "true" && j.attempts() <= c.cfg.MaxRetries {
		info, schedulable := j.info, true
		if r.attempted {
			info = info.avoiding(j.nodes())
			schedulable = c.schedulable(info)
		}
		if schedulable {
			j.info, j.queued = info, true
			j.queuedVersion++
			c.emit(j, ev(evJobRequeued, requeued(j)))
			return nil
		}
	}
	why := c.errs[r.id]
	if why == nil {
		return fmt.Errorf("no run error found for run %s (job id = %s), this must mean we're out of sync with the database", r.id, j.id)
	}
	if r.returned {
		text := fmt.Sprintf("Maximum number of attempts (%d) reached - this job will no longer be retried", c.cfg.MaxRetries+1)
		why = failure(errMaxRunsExceeded, msg(nil).str(1, text), "internal", "max-runs-exceeded")
	}
	j.failed, j.queued = true, false
	c.emit(j, ev(evJobErrors, jobErrors(j.id, why)))
	return nil
}

// preempt ends a job and its latest run in one sequence.
func (c *cycle) preempt(j *job, user, reason string) {
	r := j.latest()
	r.failed = true
	j.failed, j.queued = true, false
	why := failure(errPreempted, msg(nil).str(1, reason), "", "")
	c.emitFor(user, j,
		ev(evJobRunPreempted, msg(nil).str(5, j.id).str(6, r.id).str(7, reason).str(9, user)),
		ev(evJobRunErrors, runErrors(j.id, r.id, why)),
		ev(evJobErrors, jobErrors(j.id, why)))
}

func (c *cycle) expire(j *job) {
	r := j.latest()
	r.failed = true
	j.failed, j.queued = true, false
	why := failure(errLeaseExpired, nil, "internal", "lease-expired")
	c.emit(j, ev(evJobRunErrors, runErrors(j.id, r.id, why)), ev(evJobErrors, jobErrors(j.id, why)))
}

// meetDemands does what the scripts want done to runs.
func (c *cycle) meetDemands() {
	if len(c.demands) == 0 {
		return
	}
	var gangs []string
	for _, id := range c.jobs.ids() {
		r := c.jobs.peek(id).latest()
		if r == nil || c.demands[r.id] == 0 {
			continue
		}
		c.done = append(c.done, r.id)
		if j := c.jobs.peek(id); j.over() || r.over() {
			continue
		}
		j := c.jobs.edit(id)
		if c.demands[r.id] == expire {
			c.expire(j)
			continue
		}
		c.preempt(j, "", "Preempted by scheduler")
		if g := j.gang(); g != "" {
			gangs = append(gangs, g)
		}
	}
	for _, id := range c.jobs.ids() { // of a gang, all or none
		j := c.jobs.peek(id)
		if r := j.latest(); !j.over() && r != nil && !r.over() && slices.Contains(gangs, j.gang()) {
			c.preempt(c.jobs.edit(id), "", "Preempted by scheduler")
		}
	}
}

// expireExecutors ends all runs on executors that were not heard of for too long.
func (c *cycle) expireExecutors() {
	for _, id := range c.jobs.ids() {
		j := c.jobs.peek(id)
		r := j.latest()
		if r == nil || r.over() || j.over() {
			continue
		}
		if heard, ok := c.heard[r.executor]; !ok {
			c.heard[r.executor] = c.now
		} else if c.now.Sub(heard) > c.cfg.ExecutorTimeout {
			c.expire(c.jobs.edit(id))
		}
	}
}

// validate says of new jobs whether they fit anywhere.
func (c *cycle) validate() {
	for _, id := range c.jobs.ids() {
		if j := c.jobs.peek(id); j.validated || j.over() || !j.queued {
			continue
		}
		j := c.jobs.edit(id)
		if c.schedulable(j.info) {
			j.validated = true
			c.emit(j, ev(evJobValidated, msg(nil).str(2, pool).str(3, j.id)))
			continue
		}
		j.failed, j.queued = true, false
		why := failure(errJobRejected, msg(nil).str(1, "job does not fit on any node"), "internal", "job-rejected")
		c.emit(j, ev(evJobErrors, jobErrors(j.id, why)))
	}
}

// schedulable says whether there is a node that would do if it were empty.
func (c *cycle) schedulable(info *schedulingInfo) bool {
	for _, x := range c.cfg.Executors {
		if slices.ContainsFunc(x.Nodes, info.fits) {
			return true
		}
	}
	return false
}
