package schedulerdb_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pb"
)

func controlMessage(t testing.TB, text string) *eventlog.Message {
	t.Helper()
	return &eventlog.Message{Payload: raw(t, text, &pb.ControlEvent{}), Publish: 7e9}
}

// TestControl has each message of the control-plane topic, and its corners.
func TestControl(t *testing.T) {
	t.Parallel()
	active := []schedulerdb.JobState{schedulerdb.JobLeased, schedulerdb.JobPending, schedulerdb.JobRunning}
	for _, tt := range []struct {
		name, message string
		want          schedulerdb.ControlOp
		named         string
	}{
		{
			"cordon", `created {seconds: 5 nanos: 6} executor_settings_upsert {name: "e" cordoned: true cordon_reason: "r" set_by_user: "u"}`,
			&schedulerdb.SetExecutor{Executor: "e", Cordoned: true, Reason: "r", User: "u", At: at(5).Add(6)}, "",
		},
		{"at no time", `executor_settings_upsert {name: "e"}`, &schedulerdb.SetExecutor{Executor: "e", At: at(7)}, ""},
		{"forget settings", `executor_settings_delete {name: "e"}`, &schedulerdb.ForgetSettings{Executor: "e"}, ""},
		{"delete an executor", `executor_delete {executor_id: "e"}`, &schedulerdb.DeleteExecutor{Executor: "e"}, ""},
		{
			"preempt on an executor", `preempt_on_executor {name: "e" queues: ["a", "b"] priority_classes: ["p"] pools: ["x"]}`,
			&schedulerdb.Sweep{Executor: "e", Queues: []string{"a", "b"}, Classes: []string{"p"}, Pools: []string{"x"}, States: active}, "preempt on executor",
		},
		{
			"cancel on an executor, any class", `cancel_on_executor {name: "e" queues: ["a"] requestor: "ann"}`,
			&schedulerdb.Sweep{Cancel: true, Executor: "e", Queues: []string{"a"}, States: active, User: "ann"}, "cancel on executor",
		},
		{
			"preempt on a node", `preempt_on_node {name: "n" executor: "e" queues: ["a"] priority_classes: ["p"]}`,
			&schedulerdb.Sweep{Executor: "e", Node: "n", Queues: []string{"a"}, Classes: []string{"p"}, States: active}, "preempt on node",
		},
		{
			"cancel on a node, any class", `cancel_on_node {name: "n" executor: "e" queues: ["a"] requestor: "ann"}`,
			&schedulerdb.Sweep{Cancel: true, Executor: "e", Node: "n", Queues: []string{"a"}, States: active, User: "ann"}, "cancel on node",
		},
		{
			"preempt on a queue", `preempt_on_queue {name: "a" priority_classes: ["p"] pools: ["x"] requestor: "ann"}`,
			&schedulerdb.Sweep{Queues: []string{"a"}, Classes: []string{"p"}, Pools: []string{"x"}, States: active, User: "ann"}, "preempt on queue",
		},
		{
			"cancel on a queue", `cancel_on_queue {name: "a" priority_classes: ["p"] job_states: [ACTIVE_QUEUED, ACTIVE_RUNNING, ACTIVE_QUEUED] requestor: "ann"}`,
			&schedulerdb.Sweep{Cancel: true, Queues: []string{"a"}, Classes: []string{"p"}, States: []schedulerdb.JobState{schedulerdb.JobQueued, schedulerdb.JobRunning}, User: "ann"}, "cancel on queue",
		},
		{"cancel in no state", `cancel_on_queue {name: "a"}`, &schedulerdb.Sweep{Cancel: true, Queues: []string{"a"}}, "cancel on queue"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			op, finding := schedulerdb.Control(controlMessage(t, tt.message))
			if finding != nil {
				t.Fatalf("finding %+v", finding)
			}
			if d := cmp.Diff(tt.want, op); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			if s, ok := op.(*schedulerdb.Sweep); ok && s.String() != tt.named {
				t.Errorf("named %q, want %q", s, tt.named)
			}
		})
	}
}

// TestControlParked: what cannot be used is a finding, by what Armada's ingester does.
func TestControlParked(t *testing.T) {
	t.Parallel()
	long := make([]byte, 3000)
	for i := range long {
		long[i] = byte('a' + i%23)
	}
	text := func(m *pb.ControlEvent) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	upsert := func(m *pb.ExecutorSettingsUpsert) []byte {
		return text(&pb.ControlEvent{Event: &pb.ControlEvent_ExecutorSettingsUpsert{ExecutorSettingsUpsert: m}})
	}
	for _, tt := range []struct {
		name    string
		payload []byte
		kind    schedulerdb.Kind
	}{
		{"garbage", []byte("garbage"), schedulerdb.Unreadable},
		{"nothing", nil, schedulerdb.Skipped},
		{"a newer kind", protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("x")), schedulerdb.Skipped},
		{"no executor", raw(t, `cancel_on_executor {queues: "a"}`, &pb.ControlEvent{}), schedulerdb.Skipped},
		{"no node", raw(t, `cancel_on_node {executor: "e"}`, &pb.ControlEvent{}), schedulerdb.Skipped},
		{"a node of no executor", raw(t, `cancel_on_node {name: "n"}`, &pb.ControlEvent{}), schedulerdb.Skipped},
		{"an unknown state", raw(t, `cancel_on_queue {name: "a" job_states: 5}`, &pb.ControlEvent{}), schedulerdb.Blocked},
		{"the state unknown", raw(t, `cancel_on_queue {name: "a" job_states: ACTIVE_UNKNOWN}`, &pb.ControlEvent{}), schedulerdb.Blocked},
		{"a NUL byte", upsert(&pb.ExecutorSettingsUpsert{Name: "e", CordonReason: "a\x00b"}), schedulerdb.Blocked},
		{"no UTF-8", upsert(&pb.ExecutorSettingsUpsert{Name: "\xff"}), schedulerdb.Blocked},
		{"a long name", upsert(&pb.ExecutorSettingsUpsert{Name: string(long)}), schedulerdb.Blocked},
		{"no UTF-8 in a queue", text(&pb.ControlEvent{Event: &pb.ControlEvent_CancelOnExecutor{CancelOnExecutor: &pb.OnExecutor{Name: "e", Queues: []string{"\xff"}}}}), schedulerdb.Blocked},
		{"a long requestor", text(&pb.ControlEvent{Event: &pb.ControlEvent_CancelOnQueue{CancelOnQueue: &pb.CancelOnQueue{Name: "a", Requestor: string(long)}}}), schedulerdb.Blocked},
		{"a time that is none", raw(t, `created {seconds: 9223372036854775807} executor_settings_upsert {name: "e"}`, &pb.ControlEvent{}), schedulerdb.Blocked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			op, finding := schedulerdb.Control(&eventlog.Message{Payload: tt.payload})
			if finding == nil || finding.Kind != tt.kind || finding.Reason == "" || op != nil {
				t.Errorf("%+v and %+v, want kind %v", op, finding, tt.kind)
			}
		})
	}
}

func TestInClass(t *testing.T) {
	t.Parallel()
	info := func(class string) []byte {
		b, err := proto.Marshal(&pb.JobSchedulingInfo{PriorityClassName: class})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	s := schedulerdb.Sweep{Classes: []string{"a", "b"}}
	if !s.InClass(info("b")) || s.InClass(info("c")) || s.InClass(info("")) || s.InClass([]byte("garbage")) {
		t.Error("the class of a job is not found")
	}
	if every := (schedulerdb.Sweep{}); !every.InClass(info("a")) || !every.InClass([]byte("garbage")) {
		t.Error("an empty list of classes does not stand for all")
	}
}

// FuzzControl: whatever stands in a message, there is an operation or a finding.
func FuzzControl(f *testing.F) {
	for _, seed := range []string{
		`executor_settings_upsert {name: "e" cordoned: true}`, `preempt_on_executor {name: "e" queues: "q" priority_classes: "p" pools: "x"}`,
		`cancel_on_node {name: "n" executor: "e" queues: "q"}`, `cancel_on_queue {name: "q" job_states: [ACTIVE_QUEUED, ACTIVE_RUNNING]}`,
	} {
		m := &pb.ControlEvent{}
		if err := prototext.Unmarshal([]byte(seed), m); err != nil {
			f.Fatal(err)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		op, finding := schedulerdb.Control(&eventlog.Message{Payload: payload})
		if (op == nil) == (finding == nil) {
			t.Errorf("%+v and %+v", op, finding)
		}
	})
}
