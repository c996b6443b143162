package model

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// timedMessage is a message of a test, at a number of seconds after base.
type timedMessage struct {
	at         float64
	queue, set string
	events     []*pb.Event
	payload    []byte // instead of the above
}

// at is a message of queue ml and set set-a.
func at(seconds float64, events ...*pb.Event) timedMessage {
	return timedMessage{at: seconds, queue: "ml", set: "set-a", events: events}
}

func from(queue, set string, m timedMessage) timedMessage {
	m.queue, m.set = queue, set
	return m
}

// play feeds messages to a model and renders its records, each with the index
// of its message.
func play(t *testing.T, p Policies, messages ...timedMessage) []string {
	t.Helper()
	m := New(p)
	var lines []string
	for i, s := range messages {
		for _, r := range m.Step(s.message(t, i)) {
			lines = append(lines, fmt.Sprintf("%d: %s", i, show(r)))
		}
	}
	return lines
}

func (s timedMessage) message(t *testing.T, i int) Message {
	t.Helper()
	payload := s.payload
	if payload == nil {
		var err error
		payload, err = proto.Marshal(&pb.EventSequence{Queue: s.queue, JobSetName: s.set, Events: s.events})
		if err != nil {
			t.Fatal(err)
		}
	}
	return Message{Ledger: 7, Entry: int64(i), Batch: -1, Publish: base + int64(s.at*1e9), Payload: payload}
}

// show renders what is not zero of a record.
func show(r Record) string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, " "+format, args...) }
	since := func(t int64) string { return time.Duration(t - base).String() }
	b.WriteString(string(r.Kind))
	if r.JobID != "" {
		add("%s/%s", r.JobID, r.RunID)
	}
	if r.Code != "" {
		add("#%d %s", r.Number, r.Code)
	}
	if r.Reason != "" {
		add("%s", r.Reason)
	}
	if r.Policy != "" || r.Rule != "" {
		add("%s:%s", r.Policy, r.Rule)
	}
	if r.Shadow {
		add("shadow")
	}
	if r.T != 0 {
		add("t=%s", since(r.T))
	}
	if r.Kind == JobRequeued {
		add("delay=%d after=%s pod=%s", r.DelayMs, since(r.RetryAfter), r.PodName)
	}
	if r.Kind == RetryReady {
		add("after=%s", since(r.RetryAfter))
	}
	if len(r.AvoidNodes) > 0 {
		add("avoid=%s", strings.Join(r.AvoidNodes, ","))
	}
	if r.LimitFrom != "" {
		add("%s=%d/%d", r.LimitFrom, r.RuleUsed, r.RuleLimit)
	}
	if r.Code != "" {
		add("job=%d/%d", r.GlobalUsed, r.GlobalLimit)
	}
	if len(r.SkippedPolicies) > 0 {
		add("skipped=%s", strings.Join(r.SkippedPolicies, ","))
	}
	if r.Event != 0 {
		add("event=%d", r.Event)
	}
	return b.String()
}

type playCase struct {
	name     string
	policies Policies
	messages []timedMessage
	want     []string
}

func playAll(t *testing.T, cases []playCase) {
	t.Helper()
	t.Parallel()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, play(t, tc.policies, tc.messages...)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// Builders of events and policies.

func submit(job string, annotations ...string) *pb.Event {
	s := &pb.SubmitJob{JobId: job, ObjectMeta: &pb.ObjectMeta{Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		s.ObjectMeta.Annotations[annotations[i]] = annotations[i+1]
	}
	return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: s}}
}

// withSpec gives a SubmitJob a termination grace and init containers.
func withSpec(ev *pb.Event, grace int64, init ...string) *pb.Event {
	spec := &pb.PodSpec{TerminationGracePeriodSeconds: grace}
	for _, name := range init {
		spec.InitContainers = append(spec.InitContainers, &pb.Container{Name: name})
	}
	ev.GetSubmitJob().MainObject = &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: spec}}
	return ev
}

func cancelJob(job string) *pb.Event {
	return &pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: job}}}
}

func cancelSet(states ...pb.JobState) *pb.Event {
	return &pb.Event{Event: &pb.Event_CancelJobSet{CancelJobSet: &pb.CancelJobSet{States: states}}}
}

func cancelledJob(job string) *pb.Event {
	return &pb.Event{Event: &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: job}}}
}

func created(ev *pb.Event, seconds float64) *pb.Event {
	ns := base + int64(seconds*1e9)
	ev.Created = &pb.Timestamp{Seconds: ns / 1e9, Nanos: int32(ns % 1e9)}
	return ev
}

func fails(job, run string, errors ...*pb.Error) *pb.Event { return runErrors(job, run, errors) }

func podError(node string, containers ...*pb.ContainerError) *pb.Error {
	return &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{NodeName: node, ContainerErrors: containers}}}
}

func podReasonError(reason pb.KubernetesReason, containers ...*pb.ContainerError) *pb.Error {
	e := podError("", containers...)
	e.GetPodError().KubernetesReason = reason
	return e
}

func exited(name string, code int32, reason, message string) *pb.ContainerError {
	return &pb.ContainerError{ObjectMeta: &pb.ObjectMeta{Name: name}, ExitCode: code, Reason: reason, Message: message}
}

func returned(attempted bool) *pb.Error {
	return &pb.Error{Terminal: true, Reason: &pb.Error_PodLeaseReturned{PodLeaseReturned: &pb.PodLeaseReturned{RunAttempted: attempted}}}
}

func leaseExpired() *pb.Error {
	return &pb.Error{Terminal: true, Reason: &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}}
}

func preemptedError() *pb.Error {
	return &pb.Error{Terminal: true, Reason: &pb.Error_JobRunPreemptedError{JobRunPreemptedError: &pb.JobRunPreemptedError{}}}
}

func maxRuns() *pb.Error {
	return &pb.Error{Terminal: true, Reason: &pb.Error_MaxRunsExceeded{MaxRunsExceeded: &pb.MaxRunsExceeded{}}}
}

func rejected() *pb.Error {
	return &pb.Error{Terminal: true, Reason: &pb.Error_JobRejected{JobRejected: &pb.JobRejected{}}}
}

func category(e *pb.Error, category, subcategory string) *pb.Error {
	e.FailureCategory, e.FailureSubcategory = category, subcategory
	return e
}

func transient(e *pb.Error) *pb.Error {
	e.Terminal = false
	return e
}

// ml is a policy set in which queue ml has all of the policies, in order.
func ml(settings Settings, policies ...Policy) Policies {
	q := Queue{Name: "ml"}
	for _, p := range policies {
		q.RetryPolicies = append(q.RetryPolicies, p.Name)
	}
	return Policies{Settings: &settings, Policies: policies, Queues: []Queue{q}}
}

// retryAll retries everything by defaultAction, after a second.
func retryAll() Policy {
	return Policy{Name: "all", DefaultAction: "Retry", Backoff: Backoff{InitialDelayMs: new(int64(1000)), Constant: true}}
}
