package sink

import (
	"slices"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// Want derives from the logs what a database that was read should hold: the fold up to
// its position, with its releases, without the jobs that it may have pruned.
//
// A database does not record which jobs it pruned, only how many and up to where. So a
// job may be missing if it was over then, and if not more are missing than were pruned. A
// late event about a pruned job creates a row that knows nothing of the job's past; the
// row's Since says where it begins. Known limitation: of a job that was pruned, came back so, and was pruned again, the
// row may be called missing.
func Want(events, decisions eventlog.Topic, got *jobdb.Contents) (*jobdb.Contents, error) {
	rows := NewRows(got.Partition)
	rows.past = &past{pruned: got.Positions.Pruned, since: map[string]eventlog.Position{}, gone: map[string]eventlog.Position{}}
	stored := map[string]*jobdb.Job{}
	for _, j := range got.Jobs {
		rows.past.since[j.JobID] = j.Since
		stored[j.JobID] = j
	}
	want, err := foldRows(rows, events, decisions, got.Positions.Chain.Seq, got.Releases)
	if err != nil {
		return nil, err
	}
	rows.past.leaveOut(want, got)
	for _, j := range want.Jobs {
		if row := stored[j.JobID]; row != nil {
			keepUnknown(j, row)
		}
	}
	return want, nil
}

// keepUnknown leaves out what the row of a job does not have if it is older than the columns of costs: what it requests, and, until
// it ends, that its latest run is a retry.
func keepUnknown(want, row *jobdb.Job) {
	if row.Submit.Requests == nil {
		want.Submit.Requests = nil
	}
	if row.Retry == nil {
		want.Retry = nil
	}
}

// past is what a database says of the jobs that it pruned.
type past struct {
	pruned jobdb.Pruned
	since  map[string]eventlog.Position // where each of its jobs begins
	gone   map[string]eventlog.Position // jobs that it pruned, and the last message before that
}

// may reports whether a database with this history may have pruned the job.
func (h *past) may(j *jobdb.Job) bool {
	if h.pruned.Jobs == 0 || j.Updated.Compare(h.pruned.Through) > 0 {
		return false
	}
	return stray(j) || weightOf(j) != notOver && j.Times.Ended <= h.pruned.Ended
}

// startAnew drops a job whose row, in the database, begins with this message, if the
// earlier row may have been pruned.
func (r *Rows) startAnew(job string, at eventlog.Position) {
	h := r.past
	if h == nil || h.since[job] != at {
		return
	}
	if j := r.find(job); j != nil && j.Since != at && h.may(&j.Job) {
		h.gone[job] = j.Updated
		r.drop([]string{job})
	}
}

// wasGone reports whether a job is to be treated as pruned before this message: the
// database may have pruned it, and has no row of it that begins earlier. For an event
// that creates no row it does not matter when exactly that was.
func (r *Rows) wasGone(job string, at eventlog.Position) bool {
	h := r.past
	if h == nil {
		return false
	}
	since, there := h.since[job]
	return (!there || since.Compare(at) > 0) && h.may(&r.find(job).Job)
}

// leaveOut removes from a fold what the database has pruned.
func (h *past) leaveOut(want, got *jobdb.Contents) {
	missing := uint64(0)
	for _, j := range want.Jobs {
		since, there := h.since[j.JobID]
		switch {
		case there && since == eventlog.Start:
			j.Since = since // the row is older than the column
		case !there && h.may(j):
			h.gone[j.JobID] = j.Updated
			missing++
		}
	}
	want.Positions.Pruned = got.Positions.Pruned
	want.Positions.Pruned.Jobs = max(want.Positions.Pruned.Jobs, missing)
	if len(h.gone) == 0 {
		return
	}
	absent := func(job string) bool {
		_, gone := h.gone[job]
		_, there := h.since[job]
		return gone && !there
	}
	want.Jobs = slices.DeleteFunc(want.Jobs, func(j *jobdb.Job) bool { return absent(j.JobID) })
	want.Runs = slices.DeleteFunc(want.Runs, func(r *jobdb.Run) bool { return absent(r.JobID) })
	want.Decisions = recordsLeft(h, want.Decisions, func(d *jobdb.Decision) (string, *jobdb.Where) { return d.JobID, &d.Where })
	want.NotDecided = recordsLeft(h, want.NotDecided, func(n *jobdb.NotDecided) (string, *jobdb.Where) { return n.JobID, &n.Where })
	want.Ready = recordsLeft(h, want.Ready, func(r *jobdb.Ready) (string, *jobdb.Where) { return r.JobID, &r.Where })
	want.GroupRecords = recordsLeft(h, want.GroupRecords, func(r *jobdb.GroupRecord) (string, *jobdb.Where) { return r.JobID, &r.Where })
	leaveOutGroups(want, got)
}

// leaveOutGroups leaves out the groups that were pruned with their last member, and what
// was pruned of one whose name was used again.
func leaveOutGroups(want, got *jobdb.Contents) {
	there, members, binding := map[string]bool{}, map[string]bool{}, map[string]uint64{}
	for _, g := range got.Groups {
		there[g.ID] = true
	}
	for _, u := range got.Units {
		there[u.ID] = true
	}
	for _, j := range want.Jobs {
		members[j.Member.GroupID] = true
	}
	records := map[rowKey]bool{}
	for _, r := range got.GroupRecords {
		records[rowKey{seq: r.Seq, record: r.Where.Record}] = true
	}
	want.Groups = slices.DeleteFunc(want.Groups, func(g *jobdb.Group) bool { return !there[g.ID] && !members[g.ID] })
	for _, g := range want.Groups {
		binding[g.ID] = g.Binding
	}
	old := func(group string, bound uint64) bool {
		now, kept := binding[group]
		return !kept || bound < now
	}
	want.Units = slices.DeleteFunc(want.Units, func(u *jobdb.Unit) bool { return !there[u.ID] && old(u.GroupID, u.Binding) })
	want.GroupRecords = slices.DeleteFunc(want.GroupRecords, func(r *jobdb.GroupRecord) bool {
		return r.JobID == "" && !records[rowKey{seq: r.Seq, record: r.Where.Record}] && old(r.GroupID, r.Seq)
	})
}

// recordsLeft leaves out the records that were pruned with their jobs.
func recordsLeft[T any](h *past, records []*T, of func(*T) (job string, where *jobdb.Where)) []*T {
	return slices.DeleteFunc(records, func(r *T) bool {
		job, where := of(r)
		last, gone := h.gone[job]
		return gone && where.Log.Compare(last) <= 0
	})
}

// keepOnly forgets everything that is not about the job in r.only.
func (r *Rows) keepOnly(c *jobdb.Changes) {
	j := r.find(r.only)
	r.recent, r.older, r.sets = map[string]*jobRow{}, nil, map[jobdb.SetKey][]*jobRow{}
	if j != nil {
		j.indexed = false
		r.keep(j)
		r.index(j)
	}
	c.Decisions = slices.DeleteFunc(c.Decisions, func(d *jobdb.Decision) bool { return d.JobID != r.only })
	c.NotDecided = slices.DeleteFunc(c.NotDecided, func(n *jobdb.NotDecided) bool { return n.JobID != r.only })
	c.Ready = slices.DeleteFunc(c.Ready, func(d *jobdb.Ready) bool { return d.JobID != r.only })
	c.GroupRecords = nil
}
