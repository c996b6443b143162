package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

const groupPolicies = `apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: training}
spec:
  maxRestarts: 1
  parts:
  - {name: driver}
  - {name: workers, members: 4, after: [driver], parallelism: 2}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: sweep}
spec:
  parts:
  - {name: main, members: 3, minMembers: 1, onMemberFailure: Continue, maxFailedMembers: 1}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: alone}
spec:
  maxRestarts: 7
  rules:
  - {name: give-up, action: FailGroup}
  success: {operator: Any}
  parts:
  - {name: main, members: 3, successRules: [{indexes: 0-2, count: 2}]}
---
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: lost}
spec:
  defaultAction: Fail
  rules:
  - {name: preempted, action: Retry, onConditions: [Preempted], retryLimit: 2}
---
kind: RetrySettings
spec: {defaultPolicyName: lost}
`

// groupHistoryFile records a history: a gang that is preempted, a group of two parts that
// restarts once and then fails, and a group whose unit goes on when a member fails or is
// cancelled.
func groupHistoryFile(t *testing.T) string {
	var entries []recording.Entry
	publish := func(evs ...*pb.Event) {
		at := int64(len(entries) + 1)
		for _, ev := range evs {
			ev.Created = &pb.Timestamp{Seconds: 1_700_000_000 + at}
		}
		raw, err := proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "s", Events: evs})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, recording.Entry{Producer: "test", Message: eventlog.Message{
			Position: eventlog.Position{Ledger: 1, Entry: at, Batch: -1}, Publish: (1_700_000_000 + at) * 1e9, Key: "s", Payload: raw,
		}})
	}
	submit := func(job string, pairs ...string) *pb.Event {
		annotations := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			annotations[pairs[i]] = pairs[i+1]
		}
		return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: job, ObjectMeta: &pb.ObjectMeta{Annotations: annotations}}}}
	}
	lease := func(job, run string) *pb.Event {
		return &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run, NodeId: "n"}}}
	}
	success := func(job, run string) *pb.Event {
		return &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: run}}}
	}
	failure := func(job, run string) *pb.Event {
		e := &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{Message: "boom"}}}
		return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{e}}}}
	}
	gang := []string{events.AnnotationGangID, "g1", events.AnnotationGangCardinality, "3"}
	publish(submit("g0", gang...), submit("g1", gang...), submit("g2", gang...))
	publish(lease("g0", "a0"), lease("g1", "a1"), lease("g2", "a2"))
	publish(&pb.Event{Event: &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: "g1", PreemptedRunId: "a1"}}})
	in := func(group, policy, part string) []string {
		return []string{"refloat.github.io/group", group, "refloat.github.io/group-policy", policy, "refloat.github.io/part", part}
	}
	publish(submit("d", in("train", "training", "driver")...))
	for i := range 4 {
		publish(submit(fmt.Sprintf("w%d", i), in("train", "training", "workers")...))
	}
	publish(lease("d", "b0"))
	publish(success("d", "b0"))
	publish(lease("w0", "c0"), lease("w1", "c1"))
	publish(success("w0", "c0"))
	publish(failure("w1", "c1"))
	publish(lease("d", "b1"))
	publish(failure("d", "b1"))
	publish(submit("late", append(in("train", "training", "driver"), "refloat.github.io/index", "0")...)) // taken, so it begins a new group
	publish(submit("w4", in("lone", "alone", "main")...), submit("w5", in("lone", "alone", "main")...))
	publish(lease("w4", "f0"))
	publish(failure("w4", "f0"))
	publish(submit("w6", in("lone", "alone", "main")...)) // after the end of its group
	for _, job := range []string{"s0", "s1", "s2"} {
		publish(submit(job, in("sweep", "sweep", "main")...))
	}
	publish(lease("s0", "e0"), lease("s1", "e1"))
	publish(failure("s0", "e0"))
	publish(&pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: "s2"}}})
	publish(submit("odd", append(in("sweep", "sweep", "main"), "refloat.github.io/index", "1")...)) // taken
	file := filepath.Join(t.TempDir(), "groups.jsonl.gz")
	writeRecording(t, file, entries)
	return file
}

// TestGroups: groups from events to rows, and back out of every command.
func TestGroups(t *testing.T) {
	t.Parallel()
	data, dir := filepath.Join(t.TempDir(), "data"), t.TempDir()
	policies := writeFile(t, dir, "groups.yaml", groupPolicies)
	ctl(t, "up", "--data", data, "--policies", policies, "--feed", groupHistoryFile(t), "--quiet", "--exit-when-drained").exits(t, exitFine)

	one := func(name string) object {
		r := ctl(t, "get", "group", name, "--data", data, "-o", "json").exits(t, exitFine)
		return jsonLine(t, r.out)
	}
	want := func(g object, fields map[string]any) {
		t.Helper()
		for name, value := range fields {
			if got := fmt.Sprint(g[name]); got != fmt.Sprint(value) {
				t.Errorf("group %v: %s is %s, want %v", g["group"], name, got, value)
			}
		}
	}
	units := func(g object, part int) map[string]any {
		return g["parts"].([]any)[part].(map[string]any)["units"].([]any)[0].(map[string]any)
	}
	conditions := func(of object) (list []string) {
		t.Helper()
		for _, c := range of["conditions"].([]any) {
			c := object(c.(map[string]any))
			if c["status"] != "True" || c["message"] == "" {
				t.Errorf("condition %v", c)
			}
			list = append(list, fmt.Sprintf("%s %s", c["type"], c["reason"]))
		}
		return list
	}
	haveConditions := func(of object, want ...string) {
		t.Helper()
		if got := conditions(of); !slices.Equal(got, want) {
			t.Errorf("conditions %q, want %q", got, want)
		}
	}
	g := one("gang/g1")
	ctl(t, "get", "group", "g1", "--data", data).exits(t, exitFinding).prints(t, `no group is called "g1": did you mean gang/g1?`)
	haveConditions(g)
	want(g, map[string]any{"queue": "q", "jobSet": "s", "state": "Active", "generation": 0, "restarts": 0, "maxRestarts": 0})
	want(object(units(g, 0)), map[string]any{"generation": 1, "retriesUsed": 1, "active": 3, "held": 0, "terminating": 2, "completedIndexes": ""})
	g = one("train")
	want(g, map[string]any{"state": "Failed", "reason": "ReachedMaxRestarts", "generation": 1, "restarts": 1, "restartsCounted": 1, "maxRestarts": 1})
	want(object(units(g, 0)), map[string]any{"generation": 1, "state": "Failed", "failedIndexes": ""})
	haveConditions(g, "Failed ReachedMaxRestarts")
	haveConditions(object(units(g, 0)), "FailureTarget BackoffLimitExceeded", "Failed BackoffLimitExceeded")
	haveConditions(object(units(g, 1)))
	ctl(t, "get", "group", "train", "--data", data).exits(t, exitFine).prints(t, "part workers: held until every unit of driver has succeeded; at most 2 members of a unit at a time")
	g = one("sweep")
	want(g, map[string]any{"state": "Active", "maxRestarts": 0})
	want(object(units(g, 0)), map[string]any{"failedIndexes": "0", "active": 1})

	// One that was submitted after the end of its group is stopped, and says why.
	g = one("lone")
	want(g, map[string]any{"state": "Failed", "reason": "BackoffLimitExceeded", "maxRestarts": 7, "restartsCounted": 0})
	ctl(t, "get", "group", "lone", "--data", data, "-o", "yaml").exits(t, exitFine).prints(t, "success:", "operator: Any", "successRules:", "indexes: 0-2")
	ctl(t, "get", "group", "lone", "--data", data).exits(t, exitFine).prints(t, "succeeds when one unit of any part has succeeded", "part main: a unit succeeds with 2 of the indexes 0-2")
	want(object(units(g, 0)), map[string]any{"failed": 1, "stopped": 2, "held": 0, "active": 0})
	ctl(t, "explain", "w6", "--data", data).exits(t, exitFinding).prints(t, "MemberStopped", "its group has ended: Failed (BackoffLimitExceeded), by rule give-up")
	// A job that does not fit into a group that has ended begins one that follows it; into one that goes on, it is in none.
	want(one("train"), map[string]any{"newer": "train#2"})
	g = one("train#2")
	want(g, map[string]any{"state": "Active", "policy": "training"})
	want(object(units(g, 0)), map[string]any{"active": 1})
	for _, command := range []string{"get", "explain"} {
		ctl(t, command, "group", "train", "--data", data).exits(t, exitFine).prints(t, "the newest is train#2")
	}
	ctl(t, "explain", "late", "--data", data).exits(t, exitFinding).prints(t, "MemberJoined", "index 0 of driver/0 of group train#2: the group that it names has ended")
	ctl(t, "explain", "odd", "--data", data).exits(t, exitFinding).prints(t, "GroupFinding IndexTaken: job odd is not a member of group sweep: another job has this index")
	ctl(t, "get", "groups", "--data", data).exits(t, exitFine).prints(t, "train", "train#2", "sweep", "gang/g1")
	ctl(t, "get", "group", "train", "--data", data, "-o", "yaml").exits(t, exitFine).prints(t, "state: Failed", "restartsCounted: 1",
		"conditions:", "type: FailureTarget", "restarts are used up: 1 of maxRestarts 1")
	ctl(t, "get", "group", "nobody", "--data", data).exits(t, exitFinding).prints(t, "get groups")
	ctl(t, "get", "groups", "--data", data, "-o", "xml").exits(t, exitUsage)
	ctl(t, "explain", "group", "train", "--data", data).exits(t, exitFine).prints(t, "GroupBound", "MemberHeld", "MemberReleased", "MemberRestart", "restarts the whole group", "restarts are used up", "GroupEnded")
	ctl(t, "explain", "g1", "--data", data).exits(t, exitFine).prints(t, "whole gang", "Records about the job; those of its whole group: refloatctl explain group gang/g1 ", "MemberRestart")
	ctl(t, "explain", "d", "--data", data).exits(t, exitFine).prints(t, "no rule matched", "used up")
	r := ctl(t, "get", "decisions", "--data", data, "-o", "json", "--all").exits(t, exitFine)
	r.prints(t, `"groupAction":"RestartGroup"`, `"unitReason":"BackoffLimitExceeded"`, `"record":"MemberHeld"`, `"record":"GroupEnded"`)
	replayed := ctl(t, "replay", "--log", app.Dir(data).Events(), "--policies", policies, "-o", "json").exits(t, exitFine)
	if got := ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine); got.out != replayed.out {
		t.Errorf("get decisions prints\n%s\nreplay\n%s", got.out, replayed.out)
	}
	out := t.TempDir()
	for _, name := range []string{"train", "sweep"} {
		ctl(t, "test", "record", "--group", name, "--data", data, "--out", out).exits(t, exitFine).prints(t, "1 test in 1 file, 0 failed")
	}
	ctl(t, "test", out).exits(t, exitFine).prints(t, "2 tests in 2 files, 0 failed")
	recorded, err := os.ReadFile(filepath.Join(out, "train_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"group: {policy: training}", "succeed: driver", "groupAction: RestartGroup", "restarted: [driver, workers]", "groupReason: ReachedMaxRestarts"} {
		if !strings.Contains(string(recorded), want) {
			t.Errorf("the recorded test lacks %s:\n%s", want, recorded)
		}
	}
	more := writeFile(t, t.TempDir(), "more.yaml", strings.Replace(groupPolicies, "maxRestarts: 1", "maxRestarts: 2", 1))
	ctl(t, "test", "record", "--group", "train", "--data", data, "--out", t.TempDir(), "--policies", more).exits(t, exitFinding).prints(t, "want FailGroup", "got  RestartGroup")
	ctl(t, "test", "record", "--group", "nobody", "--data", data, "--out", out).exits(t, exitFinding).prints(t, "get groups")
	ctl(t, "test", "record", "--group", "train", "--job", "d", "--data", data, "--out", out).exits(t, exitUsage).prints(t, "choose one")
	ctl(t, "test", "record", "--job", "d", "--queue", "q", "--data", data, "--out", out).exits(t, exitUsage).prints(t, "need --group")
	ctl(t, "jobdb", "verify", "--data", data).exits(t, exitFine)
	ctl(t, "verify", "--data", data).exits(t, exitFine)
}
