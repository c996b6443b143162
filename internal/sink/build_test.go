package sink_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

const second = int64(1e9)

// words is one line of a scenario: plain words, then key=value pairs.
type words struct {
	plain []string
	pairs map[string]string
}

func parse(line string) words {
	w := words{pairs: map[string]string{}}
	for f := range strings.FieldsSeq(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			w.pairs[k] = v
		} else {
			w.plain = append(w.plain, f)
		}
	}
	return w
}

func (w words) at(i int) string {
	if i < len(w.plain) {
		return w.plain[i]
	}
	return ""
}

func (w words) has(flag string) bool {
	return slices.Contains(w.plain, flag)
}

func (w words) num(key string) int64 {
	n, err := strconv.ParseInt(w.pairs[key], 10, 64)
	if err != nil && w.pairs[key] != "" {
		panic(err)
	}
	return n
}

func (w words) list(key string) []string {
	if w.pairs[key] == "" {
		return nil
	}
	return strings.Split(w.pairs[key], ",")
}

// event builds one event from a line of a scenario:
//
//	submit JOB [priority=N] [namespace=N] [policies=A,B] [failfast=V] [gang=ID] [size=N] [group=G] [group-policy=P] [part=P] [replica=N] [index=N] [init=A,B] [grace=N]
//	reprioritised JOB priority=N · cancel JOB · cancel-set [states=QUEUED,…] · cancelled JOB · succeeded JOB
//	job-errors JOB REASON [passing] [message=M] [category=C] · requeued JOB
//	leased JOB RUN [node=N] [executor=E] [pool=P] · assigned JOB RUN · running JOB RUN [node=N]
//	run-succeeded JOB RUN · run-errors JOB RUN REASON [passing] [attempted] [message=M] [category=C] [exit=N] [node=N]
//	preempted JOB RUN [reason=R] · terminated JOB RUN · other
//	known-job as submit, known-run JOB RUN [node=N] [stage=0|1|2] and ended-run likewise: what Armada's tables have
//
// REASON is pod, returned, expired, preempted, rejected or max-runs; "-" stands for no id.
func event(line string, t int64) *pb.Event {
	w := parse(line)
	job, run := id(w.at(1)), id(w.at(2))
	ev := &pb.Event{Created: &pb.Timestamp{Seconds: t / second, Nanos: int32(t % second)}}
	switch w.at(0) {
	case "submit":
		ev.Event = &pb.Event_SubmitJob{SubmitJob: submitJob(job, w)}
	case "known-job":
		ev.Event = &pb.Event_KnownJob{KnownJob: submitJob(job, w)}
	case "reprioritised":
		ev.Event = &pb.Event_ReprioritisedJob{ReprioritisedJob: &pb.ReprioritisedJob{JobId: job, Priority: uint32(w.num("priority"))}}
	case "cancel":
		ev.Event = &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: job}}
	case "cancel-set":
		c := &pb.CancelJobSet{}
		for _, s := range w.list("states") {
			c.States = append(c.States, pb.JobState(pb.JobState_value[s]))
		}
		ev.Event = &pb.Event_CancelJobSet{CancelJobSet: c}
	case "cancelled":
		ev.Event = &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: job}}
	case "succeeded":
		ev.Event = &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: job}}
	case "job-errors":
		ev.Event = &pb.Event_JobErrors{JobErrors: &pb.JobErrors{JobId: job, Errors: []*pb.Error{runError(w, w.at(2))}}}
	case "requeued":
		ev.Event = &pb.Event_JobRequeued{JobRequeued: &pb.JobRequeued{JobId: job}}
	case "other":
	default:
		runEvent(ev, w, job, run)
	}
	return ev
}

func id(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

func runEvent(ev *pb.Event, w words, job, run string) {
	switch w.at(0) {
	case "leased":
		ev.Event = &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run, NodeId: w.pairs["node"], ExecutorId: w.pairs["executor"], Pool: w.pairs["pool"]}}
	case "assigned":
		ev.Event = &pb.Event_JobRunAssigned{JobRunAssigned: &pb.JobRunAssigned{JobId: job, RunId: run}}
	case "running":
		info := &pb.KubernetesResourceInfo{Info: &pb.KubernetesResourceInfo_PodInfo{PodInfo: &pb.PodInfo{NodeName: w.pairs["node"]}}}
		ev.Event = &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: job, RunId: run, ResourceInfos: []*pb.KubernetesResourceInfo{info}}}
	case "run-succeeded":
		ev.Event = &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: run}}
	case "run-errors":
		ev.Event = &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{{}, runError(w, w.at(3))}}}
	case "preempted":
		ev.Event = &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: job, PreemptedRunId: run, Reason: w.pairs["reason"]}}
	case "known-run":
		ev.Event = &pb.Event_KnownRun{KnownRun: &pb.KnownRun{JobId: job, RunId: run, Node: w.pairs["node"], Stage: uint32(w.num("stage"))}}
	case "ended-run":
		ev.Event = &pb.Event_EndedRun{EndedRun: &pb.KnownRun{JobId: job, RunId: run, Node: w.pairs["node"], Stage: uint32(w.num("stage"))}}
	case "terminated":
		ev.Event = &pb.Event_JobRunTerminated{JobRunTerminated: &pb.JobRunTerminated{JobId: job, RunId: run}}
	default:
		panic(fmt.Sprintf("no event is called %q", w.at(0)))
	}
}

func submitJob(job string, w words) *pb.SubmitJob {
	annotations := map[string]string{}
	for key, name := range map[string]string{"policies": "retry-policy", "failfast": "failFast", "gang": "gangId", "size": "gangCardinality"} {
		if v, ok := w.pairs[key]; ok {
			annotations["armadaproject.io/"+name] = v
		}
	}
	for _, name := range []string{"group", "group-policy", "part", "replica", "index"} {
		if v, ok := w.pairs[name]; ok {
			annotations["refloat.github.io/"+name] = v
		}
	}
	spec := &pb.PodSpec{TerminationGracePeriodSeconds: w.num("grace")}
	for _, name := range w.list("init") {
		spec.InitContainers = append(spec.InitContainers, &pb.Container{Name: name})
	}
	needs := &pb.ResourceRequirements{Requests: map[string]*pb.Quantity{}}
	for key, name := range map[string]string{"cpu": "cpu", "memory": "memory", "gpu": "nvidia.com/gpu"} {
		if q, ok := w.pairs[key]; ok {
			needs.Requests[name] = &pb.Quantity{Text: &q}
		}
	}
	if resources, err := proto.Marshal(needs); len(resources) > 0 && err == nil {
		if raw, err := proto.Marshal(&pb.Container{Resources: resources}); err == nil {
			spec.Containers = append(spec.Containers, raw)
		}
	}
	return &pb.SubmitJob{
		JobId: job, Priority: uint32(w.num("priority")),
		ObjectMeta: &pb.ObjectMeta{Namespace: w.pairs["namespace"], Annotations: annotations},
		MainObject: &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: spec}},
	}
}

func runError(w words, reason string) *pb.Error {
	e := &pb.Error{Terminal: !w.has("passing"), FailureCategory: w.pairs["category"], FailureSubcategory: w.pairs["subcategory"]}
	message := w.pairs["message"]
	switch reason {
	case "pod":
		p := &pb.PodError{Message: message, NodeName: w.pairs["node"]}
		if _, ok := w.pairs["exit"]; ok {
			p.ContainerErrors = []*pb.ContainerError{{ObjectMeta: &pb.ObjectMeta{Name: "main"}, ExitCode: int32(w.num("exit")), Reason: "Error"}}
		}
		e.Reason = &pb.Error_PodError{PodError: p}
	case "returned":
		e.Reason = &pb.Error_PodLeaseReturned{PodLeaseReturned: &pb.PodLeaseReturned{Message: message, RunAttempted: w.has("attempted")}}
	case "expired":
		e.Reason = &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}
	case "preempted":
		e.Reason = &pb.Error_JobRunPreemptedError{JobRunPreemptedError: &pb.JobRunPreemptedError{Reason: message}}
	case "rejected":
		e.Reason = &pb.Error_JobRejected{JobRejected: &pb.JobRejected{Message: message}}
	case "max-runs":
		e.Reason = &pb.Error_MaxRunsExceeded{MaxRunsExceeded: &pb.MaxRunsExceeded{Message: message}}
	default:
		panic(fmt.Sprintf("no reason is called %q", reason))
	}
	return e
}

// record builds one record from a line of a scenario, at a position and time:
//
//	> requeue JOB RUN after=SECONDS [avoid=A,B] [shadow] · > fail JOB RUN [shadow]
//	  both also with policy=P rule=R code=CODE m=GROUP/PART/REPLICA/INDEX/GENERATION [verdict=REASON,ACTION,RULE,USED,MAX] [noted] [limited]
//	> not-decided JOB RUN · > ready JOB RUN after=SECONDS · > parked
//	> bound JOB GROUP [policy=P] [parts=NAME:REPLICAS:MEMBERS:MIN,…] · > finding JOB GROUP
//	> held|released|restart|stopped JOB [RUN] m=GROUP/PART/REPLICA/INDEX/GENERATION [after=SECONDS]
//	> unit-ended m=… [succeeded] verdict=… · > group-ended GROUP STATE [reason=R] [rule=R]
func record(line string, at eventlog.Position, t int64) chain.Record {
	w := parse(strings.TrimPrefix(line, ">"))
	job, run := w.at(1), w.at(2)
	after := w.num("after") * second
	switch w.at(0) {
	case "requeue":
		return w.about(&chain.Decision{
			Requeue: true, Position: at, JobID: job, RunID: run, Time: t, Code: policy.RuleRetry, Shadow: w.has("shadow"), Policy: w.pairs["policy"], Rule: w.pairs["rule"],
			RetryAfter: after, ReadyAfter: after, AvoidNodes: w.list("avoid"),
		})
	case "fail":
		return w.about(&chain.Decision{Position: at, JobID: job, RunID: run, Time: t, Code: policy.RuleFail, Shadow: w.has("shadow"), Policy: w.pairs["policy"], Rule: w.pairs["rule"]})
	case "not-decided":
		return &chain.NotDecided{Position: at, JobID: job, RunID: run, Reason: chain.StaleRun, Time: t}
	case "ready":
		return &chain.RetryReady{Position: at, JobID: job, RunID: run, RetryAfter: after}
	case "parked":
		return &chain.Parked{Position: at, Reason: events.NoJob, Event: 1, Raw: []byte("raw")}
	}
	return groupRecord(w, at, after)
}

// about adds what a decision says of its group, whose queue is q and set is s.
func (w words) about(d *chain.Decision) *chain.Decision {
	for c := range policy.Code(64) {
		if w.pairs["code"] == c.String() {
			d.Code = c
		}
	}
	if w.pairs["m"] != "" {
		m := w.member()
		d.Queue, d.JobSet, d.Member = "q", "s", &m
	}
	if w.pairs["verdict"] != "" {
		d.Group = w.verdict()
		d.Group.Noted = w.has("noted")
	}
	if w.has("limited") {
		d.LimitFrom = policy.FromRule
	}
	return d
}

func (w words) member() (m chain.Member) {
	f := strings.Split(w.pairs["m"], "/")
	n := func(i int) uint32 { return uint32(words{pairs: map[string]string{"n": f[i]}}.num("n")) }
	g := len(f) - 4 // the name of a group may have slashes
	return chain.Member{Group: strings.Join(f[:g], "/"), Part: f[g], Replica: n(g + 1), Index: n(g + 2), Generation: n(g + 3)}
}

func (w words) verdict() *chain.GroupVerdict {
	f := w.list("verdict")
	v := &chain.GroupVerdict{Rule: f[2]}
	v.Reason, _ = policy.ParseUnitReason(f[0])
	v.Action, _ = policy.ParseGroupAction(f[1])
	_, _ = fmt.Sscan(f[3]+" "+f[4], &v.RestartsUsed, &v.MaxRestarts)
	return v
}

func groupRecord(w words, at eventlog.Position, after int64) chain.Record {
	changes := map[string]chain.Change{
		"held": chain.MemberHeld, "released": chain.MemberReleased, "restart": chain.MemberRestart, "stopped": chain.MemberStopped, "joined": chain.MemberJoined,
	}
	switch w.at(0) {
	case "bound":
		b := &chain.GroupBound{Position: at, Queue: "q", JobSet: "s", JobID: w.at(1), Group: w.at(2), Policy: w.pairs["policy"]}
		for _, part := range w.list("parts") {
			f := strings.Split(part, ":")
			p := policy.ShapePart{Name: f[0]}
			_, _ = fmt.Sscan(strings.Join(f[1:], " "), &p.Replicas, &p.Members, &p.MinMembers)
			b.Shape.Parts = append(b.Shape.Parts, p)
		}
		return b
	case "finding":
		return &chain.GroupFinding{Position: at, Queue: "q", JobSet: "s", JobID: w.at(1), Group: w.at(2), Reason: policy.NoSuchPart}
	case "held", "released", "restart", "stopped", "joined":
		return &chain.MemberChange{Change: changes[w.at(0)], Position: at, Queue: "q", JobSet: "s", JobID: w.at(1), RunID: w.at(2), Member: w.member(), RetryAfter: after}
	case "unit-ended":
		return &chain.UnitEnded{Position: at, Queue: "q", JobSet: "s", Member: w.member(), Succeeded: w.has("succeeded"), Verdict: *w.verdict()}
	case "group-ended":
		g := &chain.GroupEnded{Position: at, Queue: "q", JobSet: "s", Group: w.at(1), Rule: w.pairs["rule"]}
		for s := policy.GroupActive; s <= policy.GroupHalted; s++ {
			if s.String() == w.at(2) {
				g.State = s
			}
		}
		g.Reason, _ = policy.ParseUnitReason(w.pairs["reason"])
		return g
	}
	panic(fmt.Sprintf("no record is called %q", w.at(0)))
}

// build makes a message, and the records that answer it, from lines.
func build(queue, set string, lines []string, at eventlog.Position, t int64) (eventlog.Message, []chain.Record) {
	seq := &pb.EventSequence{Queue: queue, JobSetName: set}
	var records []chain.Record
	for _, line := range lines {
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, ">"):
			records = append(records, record(line, at, t))
		default:
			seq.Events = append(seq.Events, event(line, t))
		}
	}
	payload, err := proto.Marshal(seq)
	if err != nil {
		panic(err)
	}
	return eventlog.Message{Position: at, Publish: t, Key: set, Payload: payload}, records
}
