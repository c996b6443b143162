package sim

import (
	"cmp"
	"context"
	"slices"

	"github.com/refloat/refloat/internal/jobdb"
)

// Clock returns the latest end and the horizon in force.
func (t *tx) Clock(context.Context) (c jobdb.Clock, err error) {
	if t.broken {
		return c, errConnection
	}
	for _, j := range t.p.sortedJobs() {
		c.LastEnd = max(c.LastEnd, j.Times.Ended)
	}
	for _, a := range t.p.rest.Activations {
		if a.Semantics == 0 {
			c.HorizonMS = a.HorizonMS
		}
	}
	return c, nil
}

// Candidates gives exactly what is asked for.
func (t *tx) Candidates(_ context.Context, which jobdb.Candidates) (found []jobdb.Job, err error) {
	if t.broken {
		return nil, errConnection
	}
	for _, j := range t.p.sortedJobs() {
		ended := j.Times.Ended != 0 && j.Times.Ended <= which.EndedBy &&
			cmp.Or(cmp.Compare(j.Times.Ended, which.AfterEnd), cmp.Compare(j.JobID, which.AfterJob)) > 0
		if which.Unsubmitted && !j.Known && j.JobID > which.AfterJob || !which.Unsubmitted && ended && t.p.alone(j, which.EndedBy) {
			found = append(found, *j)
		}
	}
	if !which.Unsubmitted {
		slices.SortStableFunc(found, func(a, b jobdb.Job) int { return cmp.Compare(a.Times.Ended, b.Times.Ended) })
	}
	return found[:min(len(found), which.Limit)], nil
}

// Delete notes the jobs to delete.
func (t *tx) Delete(_ context.Context, jobs, groups []string) (int, error) {
	if t.broken {
		return 0, errConnection
	}
	t.deleted, t.emptied = append(t.deleted, jobs...), append(t.emptied, groups...)
	return len(jobs), nil
}

// delete removes everything about a job.
func (p *dbPart) delete(job string) {
	delete(p.jobs, job)
	for k := range p.runs {
		if k.JobID == job {
			delete(p.runs, k)
		}
	}
	p.rest.Decisions = slices.DeleteFunc(p.rest.Decisions, func(d *jobdb.Decision) bool { return d.JobID == job })
	p.rest.NotDecided = slices.DeleteFunc(p.rest.NotDecided, func(n *jobdb.NotDecided) bool { return n.JobID == job })
	p.rest.Ready = slices.DeleteFunc(p.rest.Ready, func(r *jobdb.Ready) bool { return r.JobID == job })
	p.rest.GroupRecords = slices.DeleteFunc(p.rest.GroupRecords, func(r *jobdb.GroupRecord) bool { return r.JobID == job })
}

// alone reports whether every member of the job's group ended by then.
func (p *dbPart) alone(j *jobdb.Job, by int64) bool {
	for _, o := range p.jobs {
		if j.Member.GroupID != "" && o.Member.GroupID == j.Member.GroupID && (o.Times.Ended == 0 || o.Times.Ended > by) {
			return false
		}
	}
	return true
}

// deleteGroup removes everything about a group that has lost its last member.
func (p *dbPart) deleteGroup(id string) {
	for _, j := range p.jobs {
		if j.Member.GroupID == id {
			return
		}
	}
	delete(p.groups, id)
	for k, u := range p.units {
		if u.GroupID == id {
			delete(p.units, k)
		}
	}
	p.rest.GroupRecords = slices.DeleteFunc(p.rest.GroupRecords, func(r *jobdb.GroupRecord) bool { return r.GroupID == id })
}
