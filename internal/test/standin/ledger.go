package standin

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Record is what really happened to a job.
type Record struct {
	ID     string
	Job    Job
	State  State   // where it last stood in the scheduler's memory
	Leases []Lease // by the scheduler, in their order
	Pods   []Pod   // in their order
}

// Lease is one run as the scheduler made it.
type Lease struct {
	Job, Run, Executor, Node string
	At                       time.Time
	Version                  int32 // of the queue
}

// Pod is one pod.
type Pod struct {
	Run, Executor, Node string
	Started             time.Time
	Ended               time.Time // of its containers; zero: not yet
}

type record struct {
	Record
	asked *schedulingInfo
	pods  []*Pod
}

func (w *World) job(id string) *record {
	w.t.Helper()
	r := w.jobs[id]
	if r == nil {
		w.t.Fatalf("armadatest: job %s was not submitted here", id)
	}
	return r
}

// Job is what happened to a job until now.
func (w *World) Job(id string) Record {
	w.t.Helper()
	r := w.job(id)
	c := r.Record
	c.Leases = slices.Clone(c.Leases)
	for _, p := range r.pods {
		c.Pods = append(c.Pods, *p)
	}
	return c
}

// violate notes what must not happen.
func (w *World) violate(format string, args ...any) {
	w.violations = append(w.violations, w.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// learn takes what a cycle has done.
func (w *World) learn(c *cycle) {
	for _, l := range c.leases {
		r := w.jobs[l.Job]
		if r == nil {
			w.violate("job %s is leased, and was not submitted here", l.Job)
			continue
		}
		r.Leases = append(r.Leases, l)
		if what := r.asked.lost(c.kept[l.Job]); what != "" {
			w.violate("job %s is leased as run %s without what was submitted: %s", l.Job, l.Run, what)
		}
	}
	for id, r := range w.jobs {
		if j := w.sched.jobs.peek(id); j != nil {
			r.State = j.state()
		} else if s, ok := c.states[id]; ok {
			r.State = s
		}
	}
}

// started notes a pod, and gives it its outcome.
func (w *World) started(p *pod, executor string, now time.Time) {
	r := w.jobs[p.job]
	if r == nil {
		w.violate("run %s is of job %s, which was not submitted here", p.run, p.job)
		p.out = Succeed()
		return
	}
	for _, other := range r.pods {
		if other.Ended.IsZero() {
			w.violate("job %s runs twice at once: run %s on %s, run %s on %s", p.job, other.Run, other.Node, p.run, p.node)
		}
	}
	p.out = r.Job.Script[min(len(r.pods), len(r.Job.Script)-1)]
	p.grace = r.Job.Grace
	it := &Pod{Run: p.run, Executor: executor, Node: p.node, Started: now}
	if w.pods[p.run] != nil {
		w.violate("run %s of job %s has two pods", p.run, p.job)
	}
	r.pods = append(r.pods, it)
	w.pods[p.run] = it
}

func (w *World) ended(run string, now time.Time) {
	if p := w.pods[run]; p != nil && p.Ended.IsZero() {
		p.Ended = now
	}
}

// checkSubmitted checks what an executor gets with a run.
func (w *World) checkSubmitted(l *leaseRow) {
	plain, err := unpack(l.Submit)
	if err == nil {
		var id field
		if id, err = walk(plain, 14); err == nil && id.text() != l.Job {
			err = fmt.Errorf("it is of job %q", id.text())
		}
	}
	if err != nil {
		w.violate("job_metadata of job %s: %v", l.Job, err)
	}
}

// Violations lists what happened and must not happen: a job ran twice at once, was leased with requirements other
// than those submitted, a row stopped the scheduler, an executor could not use what it got, or a message on the
// topic would stop one of Armada's own ingesters.
func (w *World) Violations() []string {
	w.t.Helper()
	w.seen.read()
	return slices.Clone(w.violations)
}

// Lost lists jobs that no component handles: neither ended, nor in the scheduler's queue, nor run by an executor.
// It may list jobs in transit too; call it when everything has come to rest.
func (w *World) Lost() []string {
	w.t.Helper()
	terminated, err := w.db.ends(w.t.Context())
	if err != nil {
		w.t.Fatalf("armadatest: read jobs: %v", err)
	}
	var lost []string
	for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
		if why := w.lost(id, terminated); why != "" {
			lost = append(lost, "job "+id+" "+why)
		}
	}
	return lost
}

func (w *World) lost(id string, terminated map[string]bool) string {
	over, there := terminated[id]
	j := w.sched.jobs.peek(id)
	switch {
	case !there:
		return "has no row"
	case over && j != nil && !j.over():
		return "is over in the database, and " + j.state().String() + " in the scheduler"
	case over:
		return ""
	case j == nil:
		return "is not over, and the scheduler does not know it"
	case j.over():
		return "is not over in the database, and " + j.state().String() + " in the scheduler"
	case j.queued:
		return ""
	}
	r := j.latest()
	if r == nil {
		return "is leased, and has no run"
	}
	for _, x := range w.executors {
		if x.Name != r.executor {
			continue
		}
		if p := x.pods[id]; !x.known[r.id] || p != nil && p.run == r.id && p.phase != kept {
			return ""
		}
	}
	return "is leased as run " + r.id + ", and has no pod"
}

// Done says whether all jobs are over, in the scheduler and in the database.
func (w *World) Done() bool {
	w.t.Helper()
	terminated, err := w.db.ends(w.t.Context())
	if err != nil {
		w.t.Fatalf("armadatest: read jobs: %v", err)
	}
	for id := range w.jobs {
		if j := w.sched.jobs.peek(id); !terminated[id] || j != nil && !j.over() {
			return false
		}
	}
	return true
}
