// Package gangtest writes the history of a gang that fails for people to look at.
package gangtest

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

// Policies retry what was preempted, and nothing else.
const Policies = `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: infra}
spec:
  defaultAction: Fail
  rules:
  - {name: preempted, action: Retry, onConditions: [Preempted], retryLimit: 2}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: training}
spec:
  rules:
  - {name: cancelled, action: FailGroup, onReasons: [MemberCancelled]}
  parts:
  - {name: workers, members: 4}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: again}
spec:
  maxRestarts: 3
  rules:
  - {name: rest, action: RestartGroup}
  parts:
  - {name: workers, members: 2}
---
kind: RetrySettings
spec: {defaultPolicyName: infra}
`

// Member is the id of the job of a member of the gang.
func Member(i int) string { return fmt.Sprintf("01m7xn681y99tqr99gang%05d", i) }

// Write records a gang of so many members, train: member 3 is preempted, so that the gang starts again; then member 17 exits with
// 139, and a member that was stopped because of that is reported as failed. A group, pair, with the group policy training follows,
// whose member 2 exits with 139; a gang, lost, and a group, kept, with the group policy again, of each of which member 1 is cancelled.
func Write(path string, members int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := recording.NewWriter(f)
	at := int64(0)
	publish := func(evs ...*pb.Event) {
		at++
		for _, ev := range evs {
			ev.Created = &pb.Timestamp{Seconds: 1_790_000_000 + at}
		}
		raw, err2 := proto.Marshal(&pb.EventSequence{Queue: "ml", JobSetName: "run-7", Events: evs})
		err = errors.Join(err, err2, w.Write(recording.Entry{Producer: "test", Message: eventlog.Message{
			Position: eventlog.Position{Ledger: 1, Entry: at, Batch: -1}, Publish: (1_790_000_000 + at) * 1e9, Key: "run-7", Payload: raw,
		}}))
	}
	gang := map[string]string{events.AnnotationGangID: "train", events.AnnotationGangCardinality: fmt.Sprint(members)}
	each := func(event func(i int) *pb.Event) (all []*pb.Event) {
		for i := range members {
			all = append(all, event(i))
		}
		return all
	}
	publish(each(func(i int) *pb.Event { return submit(Member(i), gang) })...)
	publish(each(func(i int) *pb.Event { return lease(Member(i), 0, i) })...)
	publish(&pb.Event{Event: &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: Member(3), PreemptedRunId: run(Member(3), 0)}}})
	at += 60
	publish(each(func(i int) *pb.Event { return lease(Member(i), 1, i) })...)
	publish(exit(Member(17), 1, 17, 139))
	publish(exit(Member(18), 1, 18, 143))
	pair := map[string]string{"refloat.github.io/group": "pair", "refloat.github.io/group-policy": "training", "refloat.github.io/part": "workers"}
	for i := range 4 {
		publish(submit(fmt.Sprint("pair-", i), pair), lease(fmt.Sprint("pair-", i), 0, i))
	}
	publish(exit("pair-2", 0, 2, 139))
	for _, annotations := range []map[string]string{
		{events.AnnotationGangID: "lost", events.AnnotationGangCardinality: "2"},
		{"refloat.github.io/group": "kept", "refloat.github.io/group-policy": "again", "refloat.github.io/part": "workers"},
	} {
		name := cmp.Or(annotations[events.AnnotationGangID], annotations["refloat.github.io/group"])
		publish(submit(name+"-0", annotations), submit(name+"-1", annotations))
		publish(&pb.Event{Event: &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: name + "-1"}}})
	}
	return errors.Join(err, w.Close(), f.Close())
}

func run(job string, n int) string { return fmt.Sprintf("%s-run%d", job, n) }

func submit(job string, annotations map[string]string) *pb.Event {
	return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: job, ObjectMeta: &pb.ObjectMeta{Annotations: annotations}}}}
}

func lease(job string, n, node int) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run(job, n), NodeId: fmt.Sprint("gpu-", node)}}}
}

func exit(job string, n, node int, code int32) *pb.Event {
	failed := &pb.PodError{Message: "pod failed", NodeName: fmt.Sprint("gpu-", node), ContainerErrors: []*pb.ContainerError{{ObjectMeta: &pb.ObjectMeta{Name: "main"}, ExitCode: code, Reason: "Error"}}}
	e := &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: failed}}
	return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run(job, n), Errors: []*pb.Error{e}}}}
}
