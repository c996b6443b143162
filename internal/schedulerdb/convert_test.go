package schedulerdb_test

import (
	"bytes"
	"compress/zlib"
	"encoding/gob"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb"
)

const group = "8d1f8a1c-5a43-4a07-9b6e-0f3f1f2d3c4b"

// raw is the wire form of a part that stands in bytes.
func raw(t testing.TB, text string, m proto.Message) []byte {
	t.Helper()
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// part is the wire form of such a part, as a literal of the text format.
func part(t testing.TB, text string, m proto.Message) string {
	t.Helper()
	literal := "\""
	for _, c := range raw(t, text, m) {
		literal += fmt.Sprintf("\\x%02x", c)
	}
	return literal + "\""
}

func submit(t testing.TB, text string) *pb.Event {
	t.Helper()
	m := &pb.SubmitJob{}
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: m}}
}

// other is an event that only these tables know.
func other(t testing.TB, name, text string, m proto.Message) *pb.Event {
	t.Helper()
	return event(t, name+": "+part(t, text, m))
}

func event(t testing.TB, text string) *pb.Event {
	t.Helper()
	ev := &pb.Event{}
	if err := prototext.Unmarshal([]byte(text), ev); err != nil {
		t.Fatal(err)
	}
	return ev
}

func message(t testing.TB, events ...*pb.Event) *eventlog.Message {
	t.Helper()
	for i, ev := range events {
		if ev.Created == nil {
			ev.Created = &pb.Timestamp{Seconds: int64(100 + i)}
		}
	}
	b, err := proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "s", UserId: "u", Events: events})
	if err != nil {
		t.Fatal(err)
	}
	return &eventlog.Message{Payload: b, Publish: 7e9}
}

func at(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

// TestWhoAsked: users are trimmed, and a preemption that names nobody has its reason alone.
func TestWhoAsked(t *testing.T) {
	t.Parallel()
	for user, want := range map[string][2]string{
		" \tzoe ": {"zoe", "Preempted by zoe - drain"},
		"zoe":     {"zoe", "Preempted by zoe - drain"},
		" ":       {"", "drain"},
		"":        {"", "drain"},
	} {
		payload, err := proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "s", UserId: user, Events: []*pb.Event{
			event(t, `cancel_job {job_id: "j"}`), event(t, `cancel_job_set {}`), other(t, "reprioritise_job", `job_id: "j"`, &pb.ReprioritiseJob{}),
			event(t, `reprioritise_job_set: ""`), other(t, "job_preemption_requested", `job_id: "j" reason: "drain"`, &pb.JobPreemptionRequested{}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		effects, findings := schedulerdb.NewConverter().Convert(&eventlog.Message{Payload: payload}, nil)
		if len(effects) != 5 || findings != nil {
			t.Fatalf("%d effects, findings %v", len(effects), findings)
		}
		for _, e := range effects {
			var got string
			switch o := e.Op.(type) {
			case *schedulerdb.RequestCancel:
				got = o.User
			case *schedulerdb.RequestSetCancel:
				got = o.User
			case *schedulerdb.SetPriority:
				got = o.User
			case *schedulerdb.SetSetPriority:
				got = o.User
			case *schedulerdb.RequestPreemption:
				if got = o.User; o.Reason != want[1] {
					t.Errorf("user %q: the reason is %q, want %q", user, o.Reason, want[1])
				}
			}
			if got != want[0] {
				t.Errorf("%T of user %q: %q, want %q", e.Op, user, got, want[0])
			}
		}
	}
}

// TestConvert has the events that the recordings do not, and their corners.
func TestConvert(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		event *pb.Event
		want  []schedulerdb.Op
	}{
		{
			"reprioritise a job", other(t, "reprioritise_job", `priority: 5 job_id: "j"`, &pb.ReprioritiseJob{}),
			[]schedulerdb.Op{&schedulerdb.SetPriority{JobID: "j", Queue: "q", JobSet: "s", Priority: 5, User: "u"}},
		},
		{
			"reprioritise a set", other(t, "reprioritise_job_set", `priority: 5`, &pb.ReprioritiseJobSet{}),
			[]schedulerdb.Op{&schedulerdb.SetSetPriority{Queue: "q", JobSet: "s", Priority: 5, User: "u"}},
		},
		{
			"cancel with a reason", event(t, `cancel_job {job_id: "j" reason: "why"}`),
			[]schedulerdb.Op{&schedulerdb.RequestCancel{JobID: "j", Queue: "q", JobSet: "s", User: "u", Reason: "why"}},
		},
		{
			"cancel a set", event(t, `cancel_job_set {}`),
			[]schedulerdb.Op{&schedulerdb.RequestSetCancel{Queue: "q", JobSet: "s", Queued: true, Leased: true, User: "u", Reason: "cancelled by user"}},
		},
		{
			"cancel what is queued", event(t, `cancel_job_set {states: QUEUED}`),
			[]schedulerdb.Op{&schedulerdb.RequestSetCancel{Queue: "q", JobSet: "s", Queued: true, User: "u", Reason: "cancelled by user"}},
		},
		{
			"cancel what is pending", event(t, `cancel_job_set {states: PENDING}`),
			[]schedulerdb.Op{&schedulerdb.RequestSetCancel{Queue: "q", JobSet: "s", Leased: true, User: "u", Reason: "cancelled by user"}},
		},
		{
			"cancel what is running", event(t, `cancel_job_set {states: RUNNING}`),
			[]schedulerdb.Op{&schedulerdb.RequestSetCancel{Queue: "q", JobSet: "s", Leased: true, User: "u", Reason: "cancelled by user"}},
		},
		{
			"preempt", other(t, "job_preemption_requested", `job_id: "j" reason: "drain"`, &pb.JobPreemptionRequested{}),
			[]schedulerdb.Op{&schedulerdb.RequestPreemption{JobID: "j", Queue: "q", JobSet: "s", User: "u", Reason: "Preempted by u - drain"}},
		},
		{
			"marker", other(t, "partition_marker", `partition: 2 group_id: "`+group+`"`, &pb.PartitionMarker{}),
			[]schedulerdb.Op{&schedulerdb.InsertMarker{
				Group:     [16]byte{0x8d, 0x1f, 0x8a, 0x1c, 0x5a, 0x43, 0x4a, 0x07, 0x9b, 0x6e, 0x0f, 0x3f, 0x1f, 0x2d, 0x3c, 0x4b},
				Partition: 2, Created: at(100),
			}},
		},
		{
			"validated for no pool", other(t, "job_validated", `job_id: "j"`, &pb.JobValidated{}),
			[]schedulerdb.Op{&schedulerdb.SetValidated{JobID: "j"}},
		},
		{
			"lease without a priority", event(t, `job_run_leased {job_id: "j" run_id: "r" update_sequence_number: 3 pod_requirements_overlay: ""}`),
			[]schedulerdb.Op{
				&schedulerdb.SetQueued{JobID: "j", Version: 3},
				&schedulerdb.InsertRun{RunID: "r", JobID: "j", Queue: "q", JobSet: "s", Leased: at(100), Created: 100e9, PodRequirementsOverlay: []byte{}},
			},
		},
		{
			"requeue, with an empty scheduling_info", event(t, `job_requeued {job_id: "j" update_sequence_number: 2 scheduling_info: ""}`),
			[]schedulerdb.Op{
				&schedulerdb.SetSchedulingInfo{JobID: "j", Info: []byte{}},
				&schedulerdb.SetQueued{JobID: "j", Queued: true, Version: 2},
			},
		},
		{"errors, none of them terminal", event(t, `job_errors {job_id: "j" errors {}}`), nil},
		{"errors, one of them terminal", event(t, `job_errors {job_id: "j" errors {} errors {terminal: true}}`), []schedulerdb.Op{&schedulerdb.FailJob{JobID: "j"}}},
		{"errors of a run, none", event(t, `job_run_errors {job_id: "j" run_id: "r"}`), nil},
		{"an unknown event", event(t, ``), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			effects, findings := schedulerdb.NewConverter().Convert(message(t, tt.event), nil)
			var got []schedulerdb.Op
			for _, e := range effects {
				got = append(got, e.Op)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || findings != nil {
				t.Errorf("Convert: findings %v (-want +got):\n%s", findings, diff)
			}
		})
	}
}

func TestRunErrorTakesTheFirstTerminal(t *testing.T) {
	t.Parallel()
	errors := event(t, `job_run_errors {job_id: "j" run_id: "r" errors {} errors {terminal: true pod_lease_returned {}} errors {terminal: true}}`)
	effects, _ := schedulerdb.NewConverter().Convert(message(t, errors), nil)
	if len(effects) != 2 {
		t.Fatalf("%d effects, want a failure and an error", len(effects))
	}
	first := raw(t, `terminal: true pod_lease_returned {}`, &pb.Error{})
	if got := inflate(t, effects[1].Op.(*schedulerdb.InsertRunError).Error); !bytes.Equal(got, first) {
		t.Errorf("kept %q, want %q", got, first)
	}
	want := &schedulerdb.FailRun{RunID: "r", At: at(100), Returned: true}
	if diff := cmp.Diff(schedulerdb.Op(want), effects[0].Op); diff != "" {
		t.Errorf("failure (-want +got):\n%s", diff)
	}
}

func inflate(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const pod = `job_id: "j" main_object {pod_spec {pod_spec {}}}`

// TestFindings: one bad event takes nothing else with it, and a bad message goes
// as a whole.
func TestFindings(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 513)
	for _, tt := range []struct {
		name  string
		event *pb.Event
		kind  schedulerdb.Kind
		want  string
	}{
		{"requeue without scheduling_info", event(t, `job_requeued {job_id: "j"}`), schedulerdb.Crash, "scheduling_info"},
		{"lease without overlay", event(t, `job_run_leased {job_id: "j"}`), schedulerdb.Crash, "pod_requirements_overlay"},
		{"submit without main object", submit(t, `job_id: "j"`), schedulerdb.Crash, "main_object"},
		{"submit without pod", submit(t, `main_object {}`), schedulerdb.Skipped, "pod spec"},
		{"submit with half a pod", submit(t, `main_object {pod_spec {}}`), schedulerdb.Crash, "pod_spec"},
		{"marker with no UUID", other(t, "partition_marker", `group_id: "a"`, &pb.PartitionMarker{}), schedulerdb.Crash, `"a"`},
		{"NUL in a run id", event(t, `job_run_running {run_id: "\000"}`), schedulerdb.Blocked, "MarkRun: run_id"},
		{"invalid UTF-8", event(t, `cancel_job {reason: "\377"}`), schedulerdb.Blocked, "UTF-8"},
		{"long reason", event(t, `cancel_job {reason: "`+long+`"}`), schedulerdb.Blocked, "513"},
		{"time out of range", event(t, `created {seconds: 9300000000000} job_run_running {}`), schedulerdb.Blocked, "time"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			next := event(t, `job_succeeded {job_id: "next"}`)
			effects, findings := schedulerdb.NewConverter().Convert(message(t, tt.event, next), nil)
			if len(findings) != 1 || findings[0].Event != 0 || findings[0].Kind != tt.kind || !strings.Contains(findings[0].Reason, tt.want) {
				t.Errorf("findings %v, want one of event 0, %v, that says %q", findings, tt.kind, tt.want)
			}
			if diff := cmp.Diff([]schedulerdb.Effect{{Event: 1, Op: &schedulerdb.SucceedJob{JobID: "next"}}}, effects); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
		})
	}
	much := part(t, `limits {key: "cpu" value {text: "much"}}`, &pb.ResourceRequirements{})
	quantity := `main_object {pod_spec {pod_spec {containers: ` + part(t, `resources: `+much, &pb.Container{}) + `}}}`
	badID := message(t, event(t, `job_run_running {run_id: "?"}`))
	badID.Payload = bytes.Replace(badID.Payload, []byte("?"), []byte{0xff}, 1)
	for name, m := range map[string]*eventlog.Message{
		"garbage":         {Payload: []byte("\xff")},
		"empty":           {},
		"no queue":        {Payload: raw(t, `job_set_name: "s" events {}`, &pb.EventSequence{})},
		"no job set":      {Payload: raw(t, `queue: "q" events {}`, &pb.EventSequence{})},
		"no events":       {Payload: raw(t, `queue: "q" job_set_name: "s"`, &pb.EventSequence{})},
		"id no UTF-8":     badID,
		"marker":          message(t, event(t, `partition_marker: "\377"`), event(t, `job_succeeded {}`)),
		"annotations":     message(t, submit(t, `main_object {object_meta: "\377" pod_spec {pod_spec {}}}`)),
		"container":       message(t, submit(t, `main_object {pod_spec {pod_spec {containers: "\377"}}}`)),
		"resources":       message(t, submit(t, `main_object {pod_spec {pod_spec {init_containers {resources: "\377"}}}}`)),
		"node selector":   message(t, submit(t, `main_object {pod_spec {pod_spec {node_selector: "\377"}}}`)),
		"quantity":        message(t, submit(t, quantity), event(t, `job_succeeded {}`)),
		"scheduling info": message(t, event(t, `job_requeued {scheduling_info: "\377"}`)),
	} {
		effects, findings := schedulerdb.NewConverter().Convert(m, nil)
		if len(effects) != 0 || len(findings) != 1 || findings[0].Event != schedulerdb.WholeMessage || findings[0].Kind != schedulerdb.Unreadable {
			t.Errorf("%s: effects %v, findings %v; want one of the whole message", name, effects, findings)
		}
	}
}

// TestOrder: what Armada moves forward within a message.
func TestOrder(t *testing.T) {
	t.Parallel()
	lease := `job_run_leased {job_id: "j" run_id: "r" pod_requirements_overlay: ""}`
	for _, tt := range []struct {
		name   string
		events []*pb.Event
		want   []int // the events of the effects
	}{
		{"an end before its request", []*pb.Event{event(t, `cancel_job {job_id: "j"}`), event(t, `cancelled_job {job_id: "j"}`)}, []int{1, 0}},
		{"no end before its job", []*pb.Event{submit(t, pod), event(t, `cancelled_job {job_id: "j"}`)}, []int{0, 1}},
		{"an end before another job", []*pb.Event{submit(t, pod), event(t, `cancelled_job {job_id: "k"}`)}, []int{1, 0}},
		{"no stage before its lease", []*pb.Event{event(t, lease), event(t, `job_run_running {run_id: "r"}`)}, []int{0, 0, 1}},
		{"an end before a lease", []*pb.Event{event(t, lease), event(t, `cancelled_job {job_id: "j"}`)}, []int{1, 0, 0}},
		{"no set before its lease", []*pb.Event{event(t, lease), event(t, `cancel_job_set {}`)}, []int{0, 0, 1}},
		{"no priority past a set's", []*pb.Event{event(t, `reprioritise_job_set: ""`), other(t, "reprioritise_job", `job_id: "j"`, &pb.ReprioritiseJob{})}, []int{0, 1}},
		{"no set's past a priority", []*pb.Event{other(t, "reprioritise_job", `job_id: "j"`, &pb.ReprioritiseJob{}), event(t, `reprioritise_job_set: ""`)}, []int{0, 1}},
		{"one kind together", []*pb.Event{event(t, `job_succeeded {job_id: "a"}`), other(t, "job_validated", `job_id: "b"`, &pb.JobValidated{}), event(t, `job_succeeded {job_id: "c"}`)}, []int{1, 0, 2}},
		{"no marker forward", []*pb.Event{event(t, `job_succeeded {}`), other(t, "partition_marker", `group_id: "`+group+`"`, &pb.PartitionMarker{})}, []int{0, 1}},
	} {
		effects, findings := schedulerdb.NewConverter().Convert(message(t, tt.events...), nil)
		var got []int
		for _, e := range effects {
			got = append(got, e.Event)
		}
		if !slices.Equal(got, tt.want) || findings != nil {
			t.Errorf("%s: %v, want %v; findings %v", tt.name, got, tt.want, findings)
		}
	}
}

// TestSubmit builds what the scheduler sees from a pod.
func TestSubmit(t *testing.T) {
	t.Parallel()
	entry := func(key, value string) string { return field(1, key) + field(2, value) }
	amount := func(key, value string) string { return entry(key, field(1, value)) }
	needs := func(text string) string { return `resources: ` + part(t, text, &pb.ResourceRequirements{}) }
	container := func(text string) string { return part(t, needs(text), &pb.Container{}) }
	text := `job_id: "j" priority: 9 lifetime: 3 preemptible: true
		object_meta {annotations {key: "armadaproject.io/gangId" value: "g"} annotations {key: "other" value: "x"}
			annotations {key: "armadaproject.io/priceBand" value: "c"}}
		main_object {
			object_meta: ` + part(t, `annotations {key: "armadaproject.io/gangId" value: "over"}`, &pb.ObjectMeta{}) + `
			pod_spec {pod_spec {
				priority_class_name: "high" preemption_policy: "Never" affinity: "AFF" tolerations: "T1" tolerations: "T2"
				node_selector: ` + part(t, `key: "z" value: "1"`, &pb.Label{}) + ` node_selector: ` + part(t, `key: "a" value: "2"`, &pb.Label{}) + `
				containers: ` + container(`requests {key: "cpu" value {text: "500m"}} requests {key: "memory" value {text: "1Gi"}}`) + `
				containers: ` + container(`requests {key: "cpu" value {text: "1500m"}} limits {key: "cpu" value {text: "0"}}`) + `
				init_containers {` + needs(`requests {key: "cpu" value {text: "1"}} requests {key: "memory" value {text: "2Gi"}}`) + `}
				init_containers {restart_policy: "Always" ` + needs(`requests {key: "cpu" value {text: "1"}}`) + `}
				init_containers {` + needs(`requests {key: "gpu" value {text: "1"}} requests {key: "none" value {text: "0"}}`) + `}
			}}
		}`
	effects, findings := schedulerdb.NewConverter().Convert(message(t, submit(t, text)), nil)
	if len(effects) != 1 || findings != nil {
		t.Fatalf("effects %v, findings %v", effects, findings)
	}
	job := effects[0].Op.(*schedulerdb.InsertJob)
	if job.PriceBand != 3 || job.Priority != 9 || job.Submitted != 100e9 {
		t.Errorf("band %d, priority %d, submitted %d; want 3, 9 and 100e9", job.PriceBand, job.Priority, job.Submitted)
	}
	requirements := field(1, entry("a", "2")) + field(1, entry("z", "1")) + field(2, "AFF") + field(3, "T1") + field(3, "T2") + field(5, "Never") +
		field(6, field(1, amount("cpu", "0"))+field(2, amount("cpu", "3"))+field(2, amount("gpu", "1"))+field(2, amount("memory", "2Gi"))) +
		field(7, entry("armadaproject.io/gangId", "over")) + field(7, entry("armadaproject.io/priceBand", "c"))
	want := "\x08\x03\x18\x01" + field(5, field(1, requirements)) + field(6, "high") + field(7, "\x08\x64") + "\x40\x09"
	if diff := cmp.Diff(want, string(job.SchedulingInfo)); diff != "" {
		t.Errorf("scheduling_info (-want +got):\n%s", diff)
	}
}

// field is a field of bytes, written by hand.
func field(number byte, value string) string {
	size := string([]byte{byte(len(value))})
	if len(value) > 127 {
		size = string([]byte{byte(len(value)) | 0x80, byte(len(value) >> 7)})
	}
	return string([]byte{number<<3 | 2}) + size + value
}

// TestGroups: what Armada reads by encoding/gob.
func TestGroups(t *testing.T) {
	t.Parallel()
	many := make([]string, 300)
	for i := range many {
		many[i] = strings.Repeat("g", i)
	}
	for _, want := range [][]string{nil, {"everyone"}, {"", "ünï"}, many} {
		b, err := proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "s", Groups: want, Events: []*pb.Event{submit(t, pod)}})
		if err != nil {
			t.Fatal(err)
		}
		effects, _ := schedulerdb.NewConverter().Convert(&eventlog.Message{Payload: b}, nil)
		var got []string
		if err := gob.NewDecoder(bytes.NewReader(inflate(t, effects[0].Op.(*schedulerdb.InsertJob).Groups))).Decode(&got); err != nil {
			t.Fatalf("%d groups: %v", len(want), err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("groups %q, want %q", got, want)
		}
	}
}

// FuzzConvert: whatever comes is converted or found, never a panic, and the same
// each time.
func FuzzConvert(f *testing.F) {
	f.Add(message(f, submit(f, pod), event(f, `job_run_leased {job_id: "j" run_id: "r" pod_requirements_overlay: ""}`)).Payload)
	f.Add(message(f, event(f, `job_requeued {scheduling_info: "H\001"}`), other(f, "partition_marker", `group_id: "`+group+`"`, &pb.PartitionMarker{})).Payload)
	f.Fuzz(func(t *testing.T, payload []byte) {
		c := schedulerdb.NewConverter()
		effects, findings := c.Convert(&eventlog.Message{Payload: payload}, nil)
		for _, e := range effects {
			if err := schedulerdb.Refused(e.Op); err != nil {
				t.Errorf("an effect is refused: %v", err)
			}
		}
		again, found := c.Convert(&eventlog.Message{Payload: payload}, nil)
		if diff := cmp.Diff(effects, again); diff != "" {
			t.Errorf("another time (-first +second):\n%s", diff)
		}
		if diff := cmp.Diff(findings, found); diff != "" {
			t.Errorf("another time (-first +second):\n%s", diff)
		}
	})
}
