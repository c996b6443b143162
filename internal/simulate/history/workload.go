package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/simulate"
)

// giveUp is how long after the last submission a simulation of a history ends.
const giveUp = 7 * 24 * time.Hour

// Workload returns the jobs of the history, and what is assumed about them.
func (h *History) Workload() (*simulate.Workload, []string) {
	m := h.model("")
	models := map[string]*model{}
	began := h.began()
	w := &simulate.Workload{GiveUp: giveUp, Given: []simulate.Given{}}
	for _, j := range h.order {
		if j.rejected {
			continue
		}
		if models[j.queue] == nil {
			if models[j.queue] = h.model(j.queue); models[j.queue].ended < enough {
				models[j.queue] = m
			}
		}
		w.Given = append(w.Given, h.given(j, began, models[j.queue]))
	}
	return w, h.assumed(m)
}

func (h *History) given(j *job, began int64, m *model) simulate.Given {
	g := simulate.Given{
		ID: j.id, Where: j.where, Queue: j.queue, PriorityClass: j.class, Priority: j.priority, Request: j.request.texts(),
		Submitted: time.Duration(j.submitted - began), Annotations: simulate.Annotations(j.submit, j.set),
		GraceSeconds: j.submit.GraceSeconds, InitContainers: j.submit.InitContainers, RunTime: m.runTime, Failures: m.failures,
	}
	g.Group = g.Annotations[events.AnnotationGroup]
	if j.gang.Cardinality > 1 {
		g.Gang, g.Cardinality, g.Uniformity = j.set+"/"+j.gang.ID, j.gang.Cardinality, j.gang.NodeUniformityLabel
	}
	if j.cancelled > 0 {
		g.Cancelled = max(time.Duration(j.cancelled-began), 1)
	}
	for i, r := range j.runs {
		one := simulate.GivenRun{After: h.ranFor(i, r)}
		if r.ended > 0 {
			one = simulate.GivenRun{After: r.took(), Succeeded: r.succeeded, Error: r.err, Preempted: r.byScheduler}
			if r.byScheduler {
				one.Error = nil
			} else if r.err != nil {
				one.Cause = failureOf(r.err).Cause
			} else if r.succeeded && r.took() > 0 { // what another run of it would take
				g.RunTime = simulate.RunTime{P50: r.took()}
			}
		}
		g.Runs = append(g.Runs, one)
	}
	return g
}

// ranFor is how long run i of a job is known to have run, of which the history shows no end.
func (h *History) ranFor(i int, r *run) time.Duration {
	until := h.last
	if r.job.cancelled > 0 {
		until = min(until, r.job.cancelled)
	}
	if i+1 < len(r.job.runs) {
		until = min(until, r.job.runs[i+1].leased)
	}
	return max(0, time.Duration(until-r.leased))
}

func (a amounts) texts() map[string]string {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		q := a[name]
		out[name] = q.String()
	}
	return out
}

func (h *History) assumed(m *model) []string {
	var jobs, runs, ended int
	for _, j := range h.order {
		jobs++
		runs += len(j.runs)
		for _, r := range j.runs {
			if r.ended > 0 {
				ended++
			}
		}
	}
	out := []string{
		fmt.Sprintf("the workload is that of %s: %s, %s; run n of a job ends as run n of the history (%d of them), as long after its start, on whatever node and whoever decided that it takes place; faults of the cluster do not touch it",
			h.name, plural.Of(jobs, "job"), plural.Of(runs, "run"), ended),
		"a job that is cancelled in the history is cancelled at the same time, if it is not over by then",
		"preemptions by Armada's scheduler are left to the simulated one, and a run that it spares goes on as drawn; any other preemption happens again, after the same run time",
		"a run of which the history shows no end takes as long as the history shows it, and then goes on as drawn; a run that the simulated scheduler preempts, or that loses its node, begins anew with the same end",
		"the time from a lease to the start of its pod is part of the run",
		"a run beyond those of the history takes as long as the job's run that succeeded, else a time drawn from the fitted distribution (" + m.describe() + ") of its queue, or of all queues where a queue has few runs",
	}
	for _, o := range []struct {
		n    int
		text string
	}{
		{h.faulty, "messages of the history are not event sequences, and are left out"},
		{h.strangers, "runs of the history are of jobs whose submission it does not hold, and are left out"},
		{h.rejected, "jobs were rejected by Armada, and are left out"},
		{h.reprioritised, "changes of a priority are left out: a job keeps the priority of its submission"},
		{h.backwards, "runs of the history end before they begin: they take no time"},
	} {
		if o.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", o.n, o.text))
		}
	}
	return out
}

// failureOf says what policies match in a reported error, in the terms of a workload file.
func failureOf(e *pb.Error) *simulate.Failure {
	f := &simulate.Failure{Category: e.GetFailureCategory(), Subcategory: e.GetFailureSubcategory()}
	var condition policy.Condition
	name := ""
	switch r := e.GetReason().(type) {
	case *pb.Error_JobRunPreemptedError:
		name = simulate.Preempted
	case *pb.Error_LeaseExpired:
		condition = policy.LeaseExpired
	case *pb.Error_PodLeaseReturned:
		if condition = policy.Unschedulable; r.PodLeaseReturned.GetRunAttempted() {
			condition = policy.LeaseReturned
		}
	case *pb.Error_PodError:
		f.Message = r.PodError.GetMessage()
		switch events.KubernetesReason(r.PodError.GetKubernetesReason()) {
		case events.PodEvicted:
			condition = policy.Evicted
		case events.PodDeadlineError:
			condition = policy.DeadlineExceeded
		case events.PodOOM:
			condition = policy.OOMKilled
		case events.AppError:
		}
		for _, c := range r.PodError.GetContainerErrors() {
			if c.GetExitCode() != 0 && f.ExitCode == 0 {
				f.ExitCode, f.Message = c.GetExitCode(), cmp.Or(c.GetMessage(), f.Message)
				if c.GetReason() == policy.OOMKilled.String() {
					condition = policy.OOMKilled
				}
			}
		}
	}
	if condition != policy.UnknownCondition {
		f.Condition = condition.String()
		name = f.Condition
	}
	switch {
	case name != "":
		f.Cause = name
	case f.Category != "":
		f.Cause = strings.TrimSuffix(f.Category+"/"+f.Subcategory, "/")
	case f.ExitCode != 0:
		f.Cause = fmt.Sprintf("ExitCode%d", f.ExitCode)
	default:
		f.Cause = "Unknown"
	}
	return f
}
