package whatif_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// TestGroupsOfOneName: groups of one name in several job sets and queues are compared each by
// itself.
func TestGroupsOfOneName(t *testing.T) {
	t.Parallel()
	const policies = `{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: training}, spec: {rules: [{name: all, action: ACTION}], parts: [{name: main, members: 2}]}}`
	by := func(action string) *policyfile.Set {
		return parse(t, policyfile.File{Name: "p.yaml", Data: []byte(strings.ReplaceAll(policies, "ACTION", action))})
	}
	var events topic
	now := int64(1_800_000_000)
	publish := func(queue, set string, evs ...*pb.Event) {
		now += 60
		for _, ev := range evs {
			ev.Created = &pb.Timestamp{Seconds: now}
		}
		payload, err := proto.Marshal(&pb.EventSequence{Queue: queue, JobSetName: set, Events: evs})
		if err != nil {
			t.Fatal(err)
		}
		events.put(payload)
		events[len(events)-1].Publish = now * 1e9
	}
	groups := [][2]string{{"ml", "monday"}, {"ml", "tuesday"}, {"batch", "monday"}}
	for _, g := range groups {
		for i := range 2 {
			publish(g[0], g[1], &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{
				JobId:      fmt.Sprint(g[0], g[1], i),
				ObjectMeta: &pb.ObjectMeta{Annotations: map[string]string{"refloat.github.io/group": "g", "refloat.github.io/group-policy": "training"}},
			}}})
		}
	}
	for _, g := range groups {
		publish(g[0], g[1], &pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: fmt.Sprint(g[0], g[1], 0)}}})
	}
	results, err := whatif.Run(t.Context(), audit.Logs{Events: &events}, whatif.Options{
		Candidates: []whatif.Candidate{{Name: "leave", Set: by("Leave")}}, Against: &whatif.Candidate{Name: "fail", Set: by("FailGroup")}, Semantics: 3, Limit: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.Units != 3 || r.UnitsChanged != 3 || r.Compared+r.Changed+r.NotCompared != 0 || len(r.Jobs) != 3 || r.Differences() != 3 {
		t.Errorf("the ends of three units of groups of one name, and no failed run: %+v", r)
	}
	for i, change := range results[0].Jobs { // each with the time of its message
		if want := time.Unix(0, events[len(events)-3+i].Publish).UTC().Format(time.RFC3339Nano); change.Time != want {
			t.Errorf("unit %d ended at %s, want %s", i, change.Time, want)
		}
	}
}

// TestUnitsThatPartedBefore: ends of units are no failed runs, also after the history of their group has parted.
func TestUnitsThatPartedBefore(t *testing.T) {
	t.Parallel()
	by := func(action string) *policyfile.Set {
		return parse(t, policyfile.File{Name: "p.yaml", Data: []byte(`{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: training}, spec: {rules: [{name: all, action: ` + action + `}], parts: [{name: main, replicas: 2}]}}`)})
	}
	var events topic
	publish := func(ev *pb.Event) {
		payload, err := proto.Marshal(&pb.EventSequence{Queue: "ml", JobSetName: "set", Events: []*pb.Event{ev}})
		if err != nil {
			t.Fatal(err)
		}
		events.put(payload)
	}
	jobs := []string{"0", "1"} // each is a unit
	for _, job := range jobs {
		publish(&pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: job, ObjectMeta: &pb.ObjectMeta{Annotations: map[string]string{
			"refloat.github.io/group": "g", "refloat.github.io/group-policy": "training", "refloat.github.io/part": "main", "refloat.github.io/replica": job,
		}}}}})
	}
	for _, job := range jobs {
		publish(&pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: job}}})
	}
	for _, actions := range [][]string{{"Leave", "FailGroup"}, {"FailGroup", "Leave"}} {
		results, err := whatif.Run(t.Context(), audit.Logs{Events: &events}, whatif.Options{
			Candidates: []whatif.Candidate{{Name: "candidate", Set: by(actions[1])}}, Against: &whatif.Candidate{Name: "against", Set: by(actions[0])}, Semantics: 3,
		})
		if err != nil {
			t.Fatal(err)
		}
		if r := results[0]; r.UnitsChanged != 1 || r.NotCompared != 0 {
			t.Errorf("%v: %d units changed and %d failed runs not compared, want 1 and 0: %+v", actions, r.UnitsChanged, r.NotCompared, r)
		}
	}
}
