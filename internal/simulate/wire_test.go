package simulate

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy"
)

// TestWire: the messages are those that protobuf-go writes, up to the order of fields and of annotations.
func TestWire(t *testing.T) {
	t.Parallel()
	var w wire
	rapid.Check(t, func(t *rapid.T) {
		at := begin().Add(time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "at")))
		if rapid.Bool().Draw(t, "whole second") {
			at = at.Truncate(time.Second)
		}
		w.begin("q", at)
		want := &pb.EventSequence{Queue: "q", JobSetName: jobSet}
		add := func(e *pb.Event) {
			e.Created = &pb.Timestamp{Seconds: at.Unix(), Nanos: int32(at.Nanosecond())}
			want.Events = append(want.Events, e)
		}
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			j := drawJob(t)
			id, run := j.id, fmt.Sprintf("%s-%d", j.id, j.runs)
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0:
				w.submitted(j)
				add(submitted(j))
			case 1:
				w.leased(j)
				add(&pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: id, RunId: run, NodeId: j.node.Name}}})
				if !j.pending {
					add(&pb.Event{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: id, RunId: run}}})
				}
			case 2:
				w.succeeded(j)
				add(&pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: id, RunId: run}}})
				add(&pb.Event{Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: id}}})
			case 3:
				w.cancelled(j)
				add(&pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: id}}})
				add(&pb.Event{Event: &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: id}}})
			case 4:
				w.preempted(j)
				add(&pb.Event{Event: &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: id, PreemptedRunId: run}}})
			case 6:
				notBefore := rapid.Int64Range(0, 1<<62).Draw(t, "not before")
				w.ordered(j, policy.OrderStart, notBefore)
				add(&pb.Event{Event: &pb.Event_JobOrder{JobOrder: &pb.JobOrder{JobId: id, RunId: run, OrderId: run, Action: 3, Author: "guard", NotBefore: notBefore}}})
			case 5:
				f := drawFailure(t)
				if err := w.failed(j, f); err != nil {
					t.Fatal(err)
				}
				add(&pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: id, RunId: run, Errors: []*pb.Error{reported(f, j.node.Name)}}}})
			}
		}
		got := &pb.EventSequence{}
		if err := proto.Unmarshal(w.b, got); err != nil {
			t.Fatalf("%v: %x", err, w.b)
		}
		again := func(m proto.Message) []byte { // with unknown fields
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		if !bytes.Equal(again(got), again(want)) || len(w.b) != len(again(want)) || w.events != len(want.Events) {
			t.Fatalf("%d events\n got %v\nwant %v", w.events, got, want)
		}
	})
}

func drawJob(t *rapid.T) *job {
	name := rapid.StringMatching(`[a-z]{1,9}|[a-z]{120,140}`)
	j := &job{id: name.Draw(t, "id"), runs: rapid.IntRange(1, 300).Draw(t, "runs"), kind: &kind{Kind: &Kind{JobsAtOnce: 7}}, node: &placed{}}
	j.node.Name, j.pending = name.Draw(t, "node"), rapid.Bool().Draw(t, "pending")
	if rapid.Bool().Draw(t, "gang") {
		j.gang = &gang{id: name.Draw(t, "gang id")}
	}
	if rapid.Bool().Draw(t, "given") {
		j.given = &Given{
			Annotations:    rapid.MapOf(rapid.SampledFrom([]string{events.AnnotationGangID, "b", strings.Repeat("c", 20_000)}), name).Draw(t, "annotations"),
			GraceSeconds:   rapid.Int64Range(-1, 300).Draw(t, "grace"),
			InitContainers: rapid.SliceOfN(name, 0, 3).Draw(t, "containers"),
		}
	}
	return j
}

func drawFailure(t *rapid.T) *Failure {
	text := rapid.StringMatching(`|[a-z]{1,9}|[a-z]{200}`)
	f := &Failure{
		Condition: rapid.SampledFrom([]string{"", "OOMKilled", "Evicted", "DeadlineExceeded", "Unschedulable", "LeaseReturned", "LeaseExpired"}).Draw(t, "condition"),
		ExitCode:  rapid.Int32Range(-1, 255).Draw(t, "code"), Message: text.Draw(t, "message"), Category: text.Draw(t, "category"), Subcategory: text.Draw(t, "subcategory"),
	}
	switch rapid.IntRange(0, 3).Draw(t, "error") {
	case 0:
		return nil
	case 1:
		f.as = &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{NodeName: "elsewhere", Message: f.Message}}}
	case 2:
		f.as = &pb.Error{Reason: &pb.Error_MaxRunsExceeded{MaxRunsExceeded: &pb.MaxRunsExceeded{Message: f.Message}}}
	}
	return f
}

func submitted(j *job) *pb.Event {
	annotations, spec := map[string]string{}, &pb.PodSpec{}
	if g := j.given; g != nil {
		maps.Copy(annotations, g.Annotations)
		spec.TerminationGracePeriodSeconds = g.GraceSeconds
		for _, name := range g.InitContainers {
			spec.InitContainers = append(spec.InitContainers, &pb.Container{Name: name})
		}
	}
	if j.gang != nil {
		annotations[events.AnnotationGangID], annotations[events.AnnotationGangCardinality] = j.gang.id, fmt.Sprint(j.kind.JobsAtOnce)
	}
	return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{
		JobId: j.id, ObjectMeta: &pb.ObjectMeta{Annotations: annotations},
		MainObject: &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: spec}},
	}}}
}

func reported(f *Failure, node string) *pb.Error {
	if f == nil {
		return &pb.Error{Terminal: true, Reason: &pb.Error_JobRunPreemptedError{JobRunPreemptedError: &pb.JobRunPreemptedError{}}}
	}
	if f.as != nil {
		e := proto.CloneOf(f.as)
		if pod := e.GetPodError(); pod != nil {
			pod.NodeName = node
		}
		return e
	}
	e := &pb.Error{Terminal: true, FailureCategory: f.Category, FailureSubcategory: f.Subcategory}
	pod := &pb.PodError{NodeName: node, Message: f.Message}
	c := &pb.ContainerError{ObjectMeta: &pb.ObjectMeta{Name: "main"}, ExitCode: f.ExitCode, Message: f.Message}
	condition, _ := policy.ParseCondition(f.Condition)
	switch condition {
	case policy.LeaseExpired:
		e.Reason = &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}
		return e
	case policy.Unschedulable, policy.LeaseReturned:
		e.Reason = &pb.Error_PodLeaseReturned{PodLeaseReturned: &pb.PodLeaseReturned{Message: f.Message, RunAttempted: condition == policy.LeaseReturned}}
		return e
	case policy.Evicted:
		pod.KubernetesReason = pb.KubernetesReason_EVICTED
	case policy.DeadlineExceeded:
		pod.KubernetesReason = pb.KubernetesReason_DEADLINE_EXCEEDED
	case policy.OOMKilled:
		c.Reason = condition.String()
	case policy.Preempted, policy.UnknownCondition:
	}
	if f.ExitCode != 0 || f.Message != "" || condition == policy.OOMKilled {
		pod.ContainerErrors = append(pod.ContainerErrors, c)
	}
	e.Reason = &pb.Error_PodError{PodError: pod}
	return e
}

// TestJobID: names have eight digits, or more.
func TestJobID(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 7, 12_345_678, 99_999_999, 100_000_000, 123_456_789} {
		if got, want := jobID(n), fmt.Sprintf("job-%08d", n); got != want {
			t.Errorf("jobID(%d) = %s, want %s", n, got, want)
		}
	}
}
