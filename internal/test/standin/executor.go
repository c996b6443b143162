package standin

import (
	"context"
	"maps"
	"slices"
	"time"
)

// executor is one of Armada's executors and its Kubernetes cluster.
type executor struct {
	Executor
	w      *World
	silent bool
	next   time.Time       // when it asks for leases
	pods   map[string]*pod // by job: the name of a pod is the same for all its runs
	known  map[string]bool // runs it was given
	outbox []sequence      // not yet published
}

// pod is a pod, or what is left of one.
type pod struct {
	job, run, node string
	queue, set     string
	phase          phase
	until          time.Time // when it continues; zero: when it is told to
	out            Outcome
	replay         bool
	grace          time.Duration
}

type phase int

const (
	pending phase = iota + 1
	running
	stopping // deleted, and in its grace period
	kept     // failed, and not yet deleted
)

func (p *pod) name() string { return "armada-" + p.job + "-0" }

// startsAfter is how long a pod is pending.
const startsAfter = time.Second

// step lets the pods go on, and asks for leases when it is time to.
func (x *executor) step(ctx context.Context, now time.Time) error {
	if x.silent {
		return nil
	}
	if !now.Before(x.next) {
		if err := x.poll(ctx, now); err != nil {
			return err
		}
		x.next = now.Add(x.w.cfg.LeasePeriod)
		x.w.sched.heard[x.Name] = now
	}
	for _, job := range slices.Sorted(maps.Keys(x.pods)) {
		p := x.pods[job]
		if events := x.advance(p, now); len(events) > 0 {
			x.outbox = append(x.outbox, p.report(now, events...))
		}
	}
	if err := x.w.out.publish(ctx, x.outbox); err != nil {
		return err
	}
	x.outbox = nil
	return nil
}

// cut ends all that runs, as a power cut does. The executor says nothing of it
// before it is back.
func (x *executor) cut(now time.Time) {
	x.silent = true
	for _, p := range x.pods {
		if p.phase == pending || p.phase == running {
			x.w.ended(p.run, now)
			p.phase, p.until, p.out = running, now, Fail(137).WithMessage("the node was down")
		}
	}
}

// back continues: first it reports, then it requests.
func (x *executor) back(now time.Time) {
	x.silent, x.next = false, now.Add(x.w.cfg.LeasePeriod)
}

func (p *pod) report(now time.Time, events ...event) sequence {
	for i := range events {
		events[i].created = now
	}
	return sequence{queue: p.queue, set: p.set, events: events}
}

// advance moves a pod on, and returns what is to be said of it.
func (x *executor) advance(p *pod, now time.Time) []event {
	if p.replay {
		p.replay = false
		return []event{
			ev(evJobRunAssigned, podMoved(p, x.Name, "")), ev(evJobRunRunning, podMoved(p, x.Name, p.node)),
			ev(evJobRunErrors, runErrors(p.job, p.run, podError(p, x.Name))),
		}
	}
	if p.until.IsZero() || now.Before(p.until) {
		return nil
	}
	switch p.phase {
	case pending:
		p.until = now.Add(p.out.after)
		if p.out.kind == neverStarts {
			x.remove(p, now)
			return []event{ev(evJobRunErrors, runErrors(p.job, p.run, leaseReturned(p, x.Name, "pod is unschedulable", false)))}
		}
		if p.out.kind == runsForEver {
			p.until = time.Time{}
		}
		p.phase = running
		return []event{ev(evJobRunRunning, podMoved(p, x.Name, p.node))}
	case running:
		return x.finish(p, now)
	case stopping, kept:
		x.remove(p, now)
	}
	return nil
}

// finish is the end of a pod that runs, as its script has it.
func (x *executor) finish(p *pod, now time.Time) []event {
	p.until = time.Time{}
	switch p.out.kind {
	case succeeds:
		x.remove(p, now)
		return []event{ev(evJobRunSucceeded, podSucceeded(p, x.Name))}
	case fails:
		x.w.ended(p.run, now)
		p.phase, p.until, p.replay = kept, now.Add(x.FailedPodExpiry), p.out.replay
		if x.DeleteFailed {
			delete(x.pods, p.job)
		}
		return []event{ev(evJobRunErrors, runErrors(p.job, p.run, podError(p, x.Name)))}
	case isReturned:
		x.remove(p, now)
		return []event{ev(evJobRunErrors, runErrors(p.job, p.run, leaseReturned(p, x.Name, "pod failed to start", true)))}
	case isPreempted:
		x.w.sched.demands[p.run] = preempt
	case expires:
		x.remove(p, now)
		x.w.sched.demands[p.run] = expire
	case neverStarts, runsForEver:
	}
	return nil
}

// remove takes a pod away. That its containers have ended may be known before.
func (x *executor) remove(p *pod, now time.Time) {
	if x.pods[p.job] == p {
		delete(x.pods, p.job)
	}
	x.w.ended(p.run, now)
}

// poll deletes the pods of runs that are over in the database, and starts those
// of new ones.
func (x *executor) poll(ctx context.Context, now time.Time) error {
	var live []string
	for _, job := range slices.Sorted(maps.Keys(x.pods)) {
		if p := x.pods[job]; p.phase == pending || p.phase == running {
			live = append(live, p.run)
		}
	}
	going, err := x.w.db.live(ctx, live)
	if err != nil {
		return err
	}
	for _, p := range x.pods {
		if (p.phase == pending || p.phase == running) && !going[p.run] {
			p.phase, p.until = stopping, now.Add(p.grace)
		}
	}
	leases, err := x.w.db.leases(ctx, x.Name)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if !x.known[l.Run] {
			x.known[l.Run] = true
			x.outbox = append(x.outbox, x.start(&l, now))
		}
	}
	return nil
}

// start makes a pod. When there is one of this name already, it deletes that one,
// and returns the lease.
func (x *executor) start(l *leaseRow, now time.Time) sequence {
	p := &pod{job: l.Job, run: l.Run, node: l.Node, queue: l.Queue, set: l.Set, phase: pending, until: now.Add(startsAfter)}
	if !slices.ContainsFunc(x.Nodes, func(n Node) bool { return n.Name == l.Node }) {
		x.w.violate("run %s of job %s is leased to node %q, which executor %s does not have", l.Run, l.Job, l.Node, x.Name)
	}
	x.w.checkSubmitted(l)
	if old := x.pods[l.Job]; old != nil {
		x.remove(old, now)
		text := "pods \"" + p.name() + "\" already exists"
		return p.report(now, ev(evJobRunErrors, runErrors(p.job, p.run, leaseReturned(p, x.Name, text, true))))
	}
	x.pods[l.Job] = p
	x.w.started(p, x.Name, now)
	return p.report(now, ev(evJobRunAssigned, podMoved(p, x.Name, "")))
}
