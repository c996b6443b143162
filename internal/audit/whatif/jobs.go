package whatif

import (
	"strings"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/jobdb"
)

// job is what a pass keeps of a job that is not over, or of which a run has failed.
type job struct {
	requests *jobdb.Requests // nil: unknown
	at       int64           // when it was last heard of
	fates    []fate          // by side; nil: no run of it has failed
	parted   []*parted       // by candidate; nil: its histories are still one
}

// family is a group with those that it follows and that follow it: where one ends in only one of two histories, the names of later
// ones are not the same.
type family struct {
	at      int64     // when something was last decided on it
	endings []*ending // by side
	parted  []*parted // by candidate
}

// hear notes the jobs of a message's events.
func (x *pass) hear() {
	of := &x.of
	of.jobs = of.jobs[:0]
	if of.seq == nil {
		return
	}
	for i := range of.seq.Events {
		ev := &of.seq.Events[i]
		j := x.jobs[ev.JobID]
		if j == nil && ev.Kind == events.SubmitJob && (x.o.Queue == "" || of.seq.Queue == x.o.Queue) {
			j = &job{requests: x.shapes.read(ev)}
			x.jobs[strings.Clone(ev.JobID)] = j
		}
		if j != nil {
			j.at = max(j.at, of.at)
		}
		of.jobs = append(of.jobs, j)
	}
}

// place completes the entries of a message with what is kept of their jobs and groups, and the time of units, whose records have none.
func (x *pass) place(entries []entry) {
	for i := range entries {
		e := &entries[i]
		if e.group != "" {
			e.family = x.familyOf(e)
		}
		if e.isUnit() {
			e.time = x.of.at
			continue
		}
		if e.job = x.jobs[e.jobID()]; e.job == nil {
			e.job = &job{}
			x.jobs[strings.Clone(e.jobID())] = e.job
			for k := range x.of.jobs {
				if x.of.seq.Events[k].JobID == e.jobID() {
					x.of.jobs[k] = e.job
				}
			}
		}
		if e.job.at = max(e.job.at, x.of.at); e.job.fates == nil {
			e.job.fates, e.job.parted = make([]fate, len(x.fates)), make([]*parted, len(x.compared))
		}
	}
}

func (x *pass) familyOf(e *entry) *family {
	key := e.familyKey()
	f := x.families[key]
	if f == nil {
		f = &family{endings: make([]*ending, len(x.fates)), parted: make([]*parted, len(x.compared))}
		x.families[group.Key{Queue: strings.Clone(key.Queue), Set: strings.Clone(key.Set), Name: strings.Clone(key.Name)}] = f
	}
	f.at = x.of.at
	return f
}

// happened follows the events of a message.
func (x *pass) happened() {
	for i, j := range x.of.jobs {
		if j == nil {
			continue
		}
		ev := &x.of.seq.Events[i]
		for k := range j.fates {
			if t := &j.fates[k]; t.run != "" && !t.over {
				x.fates[k].happened(t, ev)
			}
		}
		for k, p := range j.parted {
			if p != nil && p.followed() {
				x.compared[k].follow(p, ev)
			}
		}
	}
}

// forget forgets the jobs that a message ends and that have not failed, and now and then what the state has forgotten, too.
func (x *pass) forget() {
	for i, j := range x.of.jobs {
		if ev := &x.of.seq.Events[i]; j != nil && j.fates == nil && (ev.Kind == events.JobSucceeded || ev.Kind == events.CancelledJob) {
			delete(x.jobs, ev.JobID)
		}
	}
	if len(x.jobs)+len(x.families) <= x.sweepAt {
		return
	}
	for id, j := range x.jobs {
		if j.at < x.now-x.o.horizon && !j.open() {
			x.told(j)
			delete(x.jobs, id)
		}
	}
	for key, f := range x.families {
		if f.at < x.now-x.o.horizon {
			delete(x.families, key)
		}
	}
	n := len(x.jobs) + len(x.families)
	x.sweepAt = max(1024, n+n/4)
}

// open reports whether the history may tell more of the job.
func (j *job) open() bool {
	for k := range j.fates {
		if t := &j.fates[k]; t.run != "" && !t.over && !t.ended {
			return true
		}
	}
	for _, p := range j.parted {
		if p != nil && p.followed() && !p.ended {
			return true
		}
	}
	return false
}

// told counts a job of which the history tells no more.
func (x *pass) told(j *job) {
	for k := range j.fates {
		if t := &j.fates[k]; t.run != "" && !t.over {
			x.fates[k].told(t, x.now)
		}
	}
	for k, p := range j.parted {
		if p != nil && p.followed() {
			x.compared[k].told(p, x.now)
		}
	}
}
