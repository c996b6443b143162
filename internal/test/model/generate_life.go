package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/events/pb"
)

// life plans what is said about a job: its SubmitJob, some runs and how they
// end, with what the recordings lack: things out of order, twice, late or never.
func (g *generator) life(j *plannedJob) {
	var plan []step
	add := func(events ...*pb.Event) {
		for _, ev := range events {
			plan = append(plan, step{event: ev})
		}
	}
	glue := func(events []*pb.Event) { // all in one message
		for i, ev := range events {
			plan = append(plan, step{event: ev, glued: i > 0})
		}
	}

	if !g.odd(0.06) {
		add(g.submit(j))
	}
	if g.odd(0.06) { // nothing but the scheduler's verdict, or a rejection
		add(jobErrors(j.id, g.errors(true)))
		j.steps = append(j.steps, plan...)
		return
	}
	var late []*pb.Event // ends of runs that come after the next run
	habit := g.ending()
	if g.calm {
		habit = pick(g, []string{"pod", "pod", "attempted", "unattempted", "expired", "preempted", "other"})
	}
	for range 1 + g.IntN(8) {
		run := g.newRun(j)
		from := len(plan)
		if g.chance(0.85) {
			add(leased(j.id, run, pick(g, nodes)))
		}
		if g.chance(0.4) {
			add(assigned(j.id, run))
		}
		if g.chance(0.6) {
			add(running(j.id, run, pick(g, nodes)))
		}
		add(late...)
		late = nil

		how := habit
		if g.odd(0.5) {
			how = g.ending()
		}
		end := g.end(j.id, run, how)
		switch {
		case g.chance(0.1):
			add(terminated(j.id, run)) // before
		case g.chance(0.05):
			end = slices.Insert(end, g.IntN(len(end)+1), terminated(j.id, run))
		}
		switch {
		case g.odd(0.1):
			late = end
		case g.chance(0.7):
			glue(end)
		default:
			add(end...)
		}
		if how == "success" && g.chance(0.8) {
			break
		}
		// A run begins in a message of its own: in the one of the failure before
		// it would make that run stale.
		if from < len(plan) && g.chance(0.9) {
			plan[from].apart = true
		}
		g.after(j, run, add)
		if g.odd(0.08) {
			break
		}
	}
	add(late...)

	if g.odd(0.2) { // a request to cancel, or an end, anywhere
		at := g.IntN(len(plan) + 1)
		plan = slices.Insert(plan, at, step{event: g.stop(j.id), glued: g.chance(0.4)})
	}
	if len(plan) > 0 && g.odd(0.1) { // the SubmitJob, or another event, later than it should
		from := 0
		if g.chance(0.5) {
			from = g.IntN(len(plan))
		}
		moved := plan[from]
		plan = slices.Delete(plan, from, from+1)
		plan = slices.Insert(plan, g.IntN(len(plan)+1), moved)
	}
	for i := 1; i < len(plan); i++ {
		if g.odd(0.05) {
			plan[i-1].event, plan[i].event = plan[i].event, plan[i-1].event
		}
	}
	if len(plan) > 0 && g.o.Republished && g.odd(0.2) { // the log lost its beginning, and the job is republished
		from := g.IntN(len(plan))
		plan = slices.Insert(plan[from:], g.IntN(len(plan)-from+1), step{event: knownJob(g.submit(j))})
		for range g.IntN(3) {
			plan = slices.Insert(plan, g.IntN(len(plan)+1), step{event: g.knownRun(j.id, g.anyRun(j))})
		}
	}
	j.steps = append(j.steps, plan...)
}

// after says what may follow the end of a run.
func (g *generator) after(j *plannedJob, run string, add func(...*pb.Event)) {
	if g.odd(0.12) { // the scheduler's verdict
		add(jobErrors(j.id, g.errors(true)))
	}
	if g.chance(0.2) { // the executor reports again
		add(g.end(j.id, run, g.ending())...)
	}
	if g.chance(0.2) {
		add(terminated(j.id, run))
	}
	if g.chance(0.08) {
		add(succeeded(j.id, run))
	}
	if g.chance(0.2) { // the requeue of someone else
		add(jobErrors(j.id, g.errors(false)), requeued(j.id))
	}
	if g.chance(0.05) {
		add(running(j.id, run, pick(g, nodes)))
	}
}

func (g *generator) newRun(j *plannedJob) string {
	id := fmt.Sprintf("%s-run-%d", j.id, j.runs)
	if g.sharedRuns {
		id = fmt.Sprintf("run-%d", j.runs)
	}
	j.runs++
	return id
}

// anyRun is a run id of the job, mostly one that was given out.
func (g *generator) anyRun(j *plannedJob) string {
	n := g.IntN(j.runs + 1)
	if g.sharedRuns {
		return fmt.Sprintf("run-%d", n)
	}
	return fmt.Sprintf("%s-run-%d", j.id, n)
}

func (g *generator) ending() string {
	return pick(g, []string{"pod", "pod", "pod", "pod", "pod", "attempted", "attempted", "unattempted", "expired", "preempted", "preempted", "other", "success", "nothing"})
}

// end gives the events of an end of a run.
func (g *generator) end(job, run, how string) []*pb.Event {
	switch how {
	case "success":
		events := []*pb.Event{succeeded(job, run)}
		if g.chance(0.6) {
			events = append(events, jobSucceeded(job))
		}
		return events
	case "nothing":
		return nil
	case "preempted":
		// One message holds JobRunPreempted, JobRunErrors and JobErrors; some
		// of them may lack, or stand the other way round.
		e := g.err("preempted")
		if g.chance(0.35) {
			e = g.err(g.ending())
		}
		var events []*pb.Event
		if g.chance(0.85) {
			events = append(events, preempted(job, run))
		}
		if g.chance(0.85) {
			events = append(events, runErrors(job, run, g.beside(e)))
		}
		if g.chance(0.7) {
			events = append(events, jobErrors(job, []*pb.Error{e}))
		}
		if g.chance(0.3) {
			g.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		}
		return events
	case "expired":
		e := g.err("expired")
		events := []*pb.Event{runErrors(job, run, g.beside(e))}
		if g.chance(0.5) {
			events = append(events, jobErrors(job, []*pb.Error{e}))
		}
		return events
	}
	return []*pb.Event{runErrors(job, run, g.beside(g.err(how)))}
}

// beside puts other errors around one, and sometimes takes its terminal away.
func (g *generator) beside(e *pb.Error) []*pb.Error {
	errors := []*pb.Error{e}
	for g.chance(0.08) {
		other := g.err(g.ending())
		other.Terminal = g.chance(0.4)
		errors = slices.Insert(errors, g.IntN(len(errors)+1), other)
	}
	switch {
	case g.chance(0.02):
		e.Terminal = false
	case g.chance(0.01):
		return nil
	}
	return errors
}

// errors are those of a JobErrors.
func (g *generator) errors(terminal bool) []*pb.Error {
	e := g.err(g.ending())
	switch {
	case g.chance(0.2):
		e.Reason = &pb.Error_MaxRunsExceeded{MaxRunsExceeded: &pb.MaxRunsExceeded{Message: "too many"}}
	case g.chance(0.15):
		e.Reason = &pb.Error_JobRejected{JobRejected: &pb.JobRejected{Message: "no"}}
	}
	e.Terminal = terminal
	errors := []*pb.Error{e}
	if g.chance(0.1) {
		other := g.err("other")
		other.Terminal = terminal && g.chance(0.5)
		errors = slices.Insert(errors, g.IntN(2), other)
	}
	return errors
}

// err makes a terminal error of a kind.
func (g *generator) err(how string) *pb.Error {
	e := &pb.Error{Terminal: true}
	switch {
	case g.chance(0.06):
		e.FailureCategory, e.FailureSubcategory = "internal", "active-deadline"
	case g.chance(0.5):
		e.FailureCategory = pick(g, append([]string{"Infrastructure", "us\xfeer"}, categories...))
		if g.chance(0.5) {
			e.FailureSubcategory = pick(g, append([]string{"GPU"}, subcategories...))
		}
	}
	switch how {
	case "attempted", "unattempted":
		e.Reason = &pb.Error_PodLeaseReturned{PodLeaseReturned: &pb.PodLeaseReturned{Message: "returned", RunAttempted: how == "attempted"}}
	case "expired":
		e.Reason = &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}
	case "preempted":
		e.Reason = &pb.Error_JobRunPreemptedError{JobRunPreemptedError: &pb.JobRunPreemptedError{Reason: "for another"}}
	case "other":
		switch g.IntN(8) {
		case 0:
			e.Reason = &pb.Error_MaxRunsExceeded{MaxRunsExceeded: &pb.MaxRunsExceeded{}}
		case 1:
			e.Reason = &pb.Error_ReconciliationError{ReconciliationError: &pb.ReconciliationError{Message: "lost"}}
		case 2:
			e.Reason = &pb.Error_ContainerError{ContainerError: g.container()}
		case 3:
			e.Reason = &pb.Error_KubernetesError{KubernetesError: &pb.KubernetesError{}}
		case 4:
			e.Reason = &pb.Error_ExecutorError{ExecutorError: &pb.ExecutorError{}}
		case 5:
			e.Reason = &pb.Error_GangJobUnschedulable{GangJobUnschedulable: &pb.GangJobUnschedulable{}}
		case 6:
			e.Reason = &pb.Error_JobRejected{JobRejected: &pb.JobRejected{}} // of a run: a failure as any
		case 7: // no reason
		}
	default:
		pod := &pb.PodError{Message: "pod failed"}
		if g.chance(0.6) {
			pod.NodeName = pick(g, nodes)
		}
		if g.chance(0.45) {
			pod.KubernetesReason = pick(g, []pb.KubernetesReason{1, 2, 2, 3, 7})
		}
		if g.chance(0.75) {
			for range 1 + g.IntN(4) {
				pod.ContainerErrors = append(pod.ContainerErrors, g.container())
			}
		}
		e.Reason = &pb.Error_PodError{PodError: pod}
	}
	return e
}

func (g *generator) container() *pb.ContainerError {
	c := &pb.ContainerError{
		ExitCode: pick(g, append([]int32{0, 0, 139}, exitCodes...)),
		Message:  pick(g, []string{"", "", "ECC error", "timed out", "xecc errory", "3 bad", "\xff out", "a\nout"}),
		Reason:   pick(g, []string{"", "Error", "Error", "OOMKilled"}),
	}
	if g.chance(0.95) {
		c.ObjectMeta = &pb.ObjectMeta{Name: pick(g, append([]string{"main", "", "other"}, containerName...))}
	}
	return c
}

// submit makes the SubmitJob of a job.
func (g *generator) submit(j *plannedJob) *pb.Event {
	annotations := map[string]string{"example.org/note": "none \xff"}
	if g.chance(0.45) {
		var list strings.Builder
		for i := range 1 + g.IntN(4) {
			if i > 0 {
				list.WriteString(",")
			}
			name := pick(g, append([]string{"ghost", "gone", "", "In fra"}, append(policyNames, policyNames...)...))
			list.WriteString(pick(g, []string{"", "", " ", "  "}) + name + pick(g, []string{"", "", " "}))
		}
		annotations[annotationPolicies] = list.String()
	}
	if g.chance(0.12) {
		annotations[annotationFailFast] = pick(g, []string{"true", "true", "True", "false", " true", "1", ""})
	}
	if g.chance(0.1) {
		annotations[annotationGang] = pick(g, []string{"gang-1", "gang-1", "g", ""})
	}
	if g.chance(0.12) {
		annotations[annotationCardinality] = pick(g, []string{"2", "2", "3", "02", "1", "0", "", "x", "2 ", "+2", "-2", "2.0", "0x2", "99999999999999999999", "٣"})
	}
	spec := &pb.PodSpec{}
	if g.chance(0.7) {
		spec.TerminationGracePeriodSeconds = pick(g, []int64{1, 30, 60, 300, 301, 100_000, -5, 1 << 62})
	}
	if g.chance(0.5) {
		for _, name := range some(g, []string{"init-a", "shared", "", "init-b"}, 1+g.IntN(2)) {
			spec.InitContainers = append(spec.InitContainers, &pb.Container{Name: name})
		}
	}
	s := &pb.SubmitJob{JobId: j.id}
	if g.chance(0.95) {
		s.ObjectMeta = &pb.ObjectMeta{Namespace: "ns", Annotations: annotations}
	}
	if g.chance(0.95) {
		s.MainObject = &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: spec}}
	}
	return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: s}}
}

// stop is a request to cancel, or an end of the job.
func (g *generator) stop(job string) *pb.Event {
	switch g.IntN(5) {
	case 0:
		return &pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: job}}}
	case 1, 2:
		var states []pb.JobState
		if g.chance(0.75) {
			states = some(g, []pb.JobState{0, 1, 2, 5}, 1+g.IntN(2))
		}
		return &pb.Event{Event: &pb.Event_CancelJobSet{CancelJobSet: &pb.CancelJobSet{States: states}}}
	case 3:
		return &pb.Event{Event: &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: job}}}
	}
	return jobSucceeded(job)
}

// noise is an event about a job that no plan knows.
func (g *generator) noise(j *plannedJob) *pb.Event {
	run := g.anyRun(j)
	if g.o.Republished && g.chance(0.15) {
		if g.chance(0.5) {
			return knownJob(g.submit(j))
		}
		return g.knownRun(j.id, run)
	}
	switch g.IntN(12) {
	case 0:
		return g.stop(j.id)
	case 1, 2:
		return terminated(j.id, run)
	case 3:
		return succeeded(j.id, run)
	case 4:
		return jobErrors(j.id, g.errors(g.chance(0.5)))
	case 5:
		return requeued(j.id)
	case 6:
		return &pb.Event{Event: &pb.Event_ReprioritisedJob{ReprioritisedJob: &pb.ReprioritisedJob{JobId: j.id, Priority: 3}}}
	case 7:
		return g.submit(j)
	case 8:
		return running(j.id, run, pick(g, nodes))
	case 9:
		return leased(j.id, run, pick(g, nodes))
	case 10:
		return preempted(j.id, run)
	}
	return runErrors(j.id, run, g.beside(g.err(g.ending())))
}

func knownJob(submit *pb.Event) *pb.Event {
	return &pb.Event{Event: &pb.Event_KnownJob{KnownJob: submit.GetSubmitJob()}}
}

func (g *generator) knownRun(job, run string) *pb.Event {
	known := &pb.KnownRun{JobId: job, RunId: run, Node: pick(g, nodes)}
	if g.chance(0.5) {
		return &pb.Event{Event: &pb.Event_EndedRun{EndedRun: known}}
	}
	return &pb.Event{Event: &pb.Event_KnownRun{KnownRun: known}}
}

func leased(job, run, node string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run, NodeId: node, ExecutorId: "cluster"}}}
}

func assigned(job, run string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunAssigned{JobRunAssigned: &pb.JobRunAssigned{JobId: job, RunId: run}}}
}

func running(job, run, node string) *pb.Event {
	r := &pb.JobRunRunning{JobId: job, RunId: run}
	if node != "" {
		r.ResourceInfos = []*pb.KubernetesResourceInfo{{Info: &pb.KubernetesResourceInfo_PodInfo{PodInfo: &pb.PodInfo{NodeName: node}}}}
	}
	return &pb.Event{Event: &pb.Event_JobRunRunning{JobRunRunning: r}}
}

func succeeded(job, run string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: run}}}
}

func jobSucceeded(job string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: job}}}
}

func runErrors(job, run string, errors []*pb.Error) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: errors}}}
}

func jobErrors(job string, errors []*pb.Error) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobErrors{JobErrors: &pb.JobErrors{JobId: job, Errors: errors}}}
}

func preempted(job, run string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: job, PreemptedRunId: run}}}
}

func requeued(job string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRequeued{JobRequeued: &pb.JobRequeued{JobId: job}}}
}

func terminated(job, run string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunTerminated{JobRunTerminated: &pb.JobRunTerminated{JobId: job, RunId: run}}}
}
