package standin

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// scheduler is Armada's scheduler. Only World has its methods called.
type scheduler struct {
	cfg    *Config
	db     *database
	out    *publisher
	random *rand.Rand

	leader               bool
	group                string // of the markers it waits for
	jobs                 memory
	jobSerial, runSerial int64
	heard                map[string]time.Time // when executors last asked for leases

	// demands are what the scripts have it do to runs. They outlive a restart.
	demands map[string]demand
}

type demand int

const (
	preempt demand = iota + 1
	expire
)

// wedge is an error that comes again with every cycle until the rows are mended.
type wedge struct{ error }

func (w *wedge) Unwrap() error { return w.error }

// restart forgets everything.
func (s *scheduler) restart() {
	s.leader, s.group = false, ""
	s.jobs = memory{base: map[string]*job{}, changed: map[string]*job{}}
	s.jobSerial, s.runSerial = 0, 0
	s.heard = map[string]time.Time{}
}

// cycle is one cycle at work.
type cycle struct {
	*scheduler
	now    time.Time
	errs   map[string]msg
	out    []sequence
	leases []Lease
	kept   map[string]*schedulingInfo // of the leased jobs
	states map[string]State           // of the jobs that are forgotten
	done   []string                   // runs whose demands are met, or cannot be
}

// cycle reads new rows, decides, places and publishes, and only then advances its cursors. It returns what it
// leased.
func (s *scheduler) cycle(ctx context.Context, now time.Time) (*cycle, error) {
	c := &cycle{scheduler: s, now: now, kept: map[string]*schedulingInfo{}, states: map[string]State{}}
	first := !s.leader
	if first {
		if ready, err := s.lead(ctx, now); err != nil || !ready {
			return c, err
		}
	}
	defer s.jobs.rollback()
	u, err := c.fetch(ctx, first)
	if err != nil {
		return nil, err
	}
	updated, err := c.reconcile(&u, first)
	if err != nil {
		return nil, &wedge{err}
	}
	if c.errs, err = s.db.errors(ctx, c.failedRuns(updated)); err != nil {
		return nil, err
	}
	for _, id := range updated {
		if err := c.update(s.jobs.edit(id)); err != nil {
			return nil, &wedge{err}
		}
	}
	c.meetDemands()
	c.expireExecutors()
	c.validate()
	c.place()
	if err := s.publish(ctx, c.out); err != nil {
		return nil, err
	}
	s.leader, s.jobSerial, s.runSerial = true, u.jobSerial, u.runSerial
	for _, r := range c.done {
		delete(s.demands, r)
	}
	s.jobs.commit()
	return c, nil
}

func (s *scheduler) publish(ctx context.Context, all []sequence) error {
	if err := s.out.publish(ctx, all); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// lead sends a marker through every partition and says whether all have come out
// of the ingester: until then the database may be behind the log.
func (s *scheduler) lead(ctx context.Context, now time.Time) (bool, error) {
	if s.group == "" {
		group := uuid(s.random)
		if err := s.out.markers(ctx, group, now); err != nil {
			return false, err
		}
		s.group = group
		return false, nil
	}
	n, err := s.db.markers(ctx, s.group)
	return n >= s.cfg.Log.Partitions(), err
}

func (c *cycle) fetch(ctx context.Context, first bool) (rows, error) {
	if first {
		return c.db.initial(ctx)
	}
	return c.db.updates(ctx, c.jobSerial, c.runSerial)
}

// reconcile takes over the rows, and returns the jobs that have changed and are
// not over.
func (c *cycle) reconcile(u *rows, first bool) ([]string, error) {
	touched := map[string]*jobRow{}
	runs := map[string][]*runRow{}
	for i := range u.runs {
		r := &u.runs[i]
		touched[r.JobID] = nil
		runs[r.JobID] = append(runs[r.JobID], r)
	}
	for i := range u.jobs {
		touched[u.jobs[i].ID] = &u.jobs[i]
	}
	updated := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(touched)) {
		if err := c.reconcileJob(id, touched[id], first); err != nil {
			return nil, fmt.Errorf("error converting scheduler info for job %s: %w", id, err)
		}
		j := c.jobs.edit(id)
		if j == nil {
			continue // its runs alone do not make a job known
		}
		asked := j.latest() != nil && j.latest().preemptRequested
		for _, r := range runs[id] {
			j.take(r)
		}
		updated[id] = true
		if r := j.latest(); r != nil && r.preemptRequested && !asked {
			c.askGang(j, updated)
		}
	}
	for id := range updated {
		if j := c.jobs.peek(id); j.over() {
			c.states[id] = j.state()
			c.jobs.forget(id)
			delete(updated, id)
		}
	}
	return slices.Sorted(maps.Keys(updated)), nil
}

func (c *cycle) reconcileJob(id string, row *jobRow, first bool) error {
	if row == nil {
		return nil
	}
	j := c.jobs.edit(id)
	if j == nil {
		info, err := parseInfo(row.SchedulingInfo)
		if err != nil {
			return err
		}
		c.jobs.add(&job{
			id: row.ID, queue: row.Queue, set: row.Set, submitted: row.Submitted,
			priority: row.Priority, wanted: row.Priority, queued: row.Queued, queuedVersion: row.QueuedVersion,
			info: info, validated: row.Validated, wantedBy: row.ReprioritiseUser,
			cancel: row.CancelRequested, cancelBySet: row.CancelBySet, cancelUser: row.CancelUser, cancelReason: row.CancelReason,
			cancelled: row.Cancelled, succeeded: row.Succeeded, failed: row.Failed,
			dormant: c.cfg.SecondRaise && !first && row.QueuedVersion > 0 && !c.jobs.others(id),
		})
		return nil
	}
	j.cancel = j.cancel || row.CancelRequested
	j.cancelBySet = j.cancelBySet || row.CancelBySet
	j.cancelUser, j.cancelReason, j.wantedBy = row.CancelUser, row.CancelReason, row.ReprioritiseUser
	j.cancelled = j.cancelled || row.Cancelled
	j.succeeded = j.succeeded || row.Succeeded
	j.failed = j.failed || row.Failed
	j.validated = j.validated || row.Validated
	j.wanted = row.Priority
	if uint32(row.SchedulingInfoVersion) > j.info.version {
		info, err := parseInfo(row.SchedulingInfo)
		if err != nil {
			return err
		}
		j.info = info
	}
	if row.QueuedVersion > j.queuedVersion {
		j.queued, j.queuedVersion, j.dormant = row.Queued, row.QueuedVersion, false
	}
	return nil
}

// askGang asks for the preemption of all of a gang.
func (c *cycle) askGang(asked *job, updated map[string]bool) {
	gang := asked.gang()
	if gang == "" {
		return
	}
	for _, id := range c.jobs.ids() {
		peer := c.jobs.peek(id)
		if id == asked.id || peer.over() || peer.gang() != gang || peer.latest() == nil {
			continue
		}
		r, of := c.jobs.edit(id).latest(), asked.latest()
		r.preemptRequested, r.preemptUser, r.preemptReason = true, of.preemptUser, of.preemptReason
		updated[id] = true
	}
}

func (c *cycle) failedRuns(ids []string) []string {
	var failed []string
	for _, id := range ids {
		if r := c.jobs.peek(id).latest(); r != nil && r.failed {
			failed = append(failed, r.id)
		}
	}
	return failed
}
